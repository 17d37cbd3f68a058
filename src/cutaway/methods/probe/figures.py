"""The figures of `probe`, by name.

A figure takes the rows (all, or those left by a filter) and the run they come from; it raises
Missing, with the way to fix it, when the run has nothing to draw.
"""

from collections.abc import Callable

import plotly.graph_objects as go
import polars as pl

from cutaway.methods.probe import figures_best_cell as probe_details
from cutaway.methods.probe import figures_comparison as probe_compare
from cutaway.methods.probe import figures_layers as probe_layers
from cutaway.report.records import RunOrRuns

FIGURES: dict[str, Callable[[pl.DataFrame, RunOrRuns], go.Figure]] = {
    "layers": probe_layers.layer_scores,
    "heatmap": probe_layers.layer_pooler_heatmap,
    "classifiers": probe_compare.classifiers,
    "curve": probe_compare.learning_curve,
    "sizes": probe_compare.model_sizes,
    "confusion": probe_details.confusion_matrix,
    "roc": probe_details.roc_curves,
    "scores": probe_details.score_histogram,
    "projection": probe_details.projection,
    "losses": probe_details.loss_curves,
}
