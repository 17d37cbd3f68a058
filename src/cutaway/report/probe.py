"""The figures of `probe`, by name.

A figure takes the rows (all, or those left by a filter) and the run they come from; it raises
Missing, with the way to mend it, when the run holds nothing to draw.
"""

from collections.abc import Callable

import plotly.graph_objects as go
import polars as pl

from cutaway.report import probe_compare, probe_details, probe_layers
from cutaway.report.records import Drawable

FIGURES: dict[str, Callable[[pl.DataFrame, Drawable], go.Figure]] = {
    "layers": probe_layers.layers,
    "heatmap": probe_layers.heatmap,
    "classifiers": probe_compare.classifiers,
    "curve": probe_compare.curve,
    "sizes": probe_compare.sizes,
    "confusion": probe_details.confusion,
    "roc": probe_details.roc,
    "scores": probe_details.scores,
    "projection": probe_details.projection,
    "losses": probe_details.losses,
}
