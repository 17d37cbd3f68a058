"""Figures of the chosen probe: confusion matrix, ROC curves, scores, projection, losses."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import plotly.graph_objects as go
import polars as pl

from cutaway.core.errors import Missing
from cutaway.core.names import short_name
from cutaway.methods.probe import details
from cutaway.methods.probe.aggregate import (
    aggregate_cells,
    largest_training_size,
    main_metric,
    rank_cells,
)
from cutaway.report import formats, theme
from cutaway.report.records import RunOrRuns, model_suffix, single_runs

MAX_POINTS = 2000
MAX_LINES = 6
SHARE_COLORAXIS = {
    "colorscale": theme.SEQUENTIAL,
    "cmin": 0,
    "cmax": 1,
    "colorbar": {"title": {"text": "share of the true class"}, "tickformat": ".0%"},
}
DetailT = TypeVar("DetailT", bound=details.AnyDetail)


def _sum_counts(found: Sequence[details.ConfusionMatrix]) -> list[list[int]]:
    """The counts of all repeats with the same classes, added up."""
    counts = [[0] * len(found[0].classes) for _ in found[0].classes]
    for entry in found:
        if entry.classes == found[0].classes:
            counts = [
                [a + b for a, b in zip(mine, more, strict=True)]
                for mine, more in zip(counts, entry.counts, strict=True)
            ]
    return counts


def confusion_matrix(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Which classes the chosen probe takes for which, as shares of each true class."""
    found = _chosen_details(details.ConfusionMatrix, rows, record)
    classes = found[0].classes
    counts = _sum_counts(found)
    shares = [[c / max(sum(row), 1) for c in row] for row in counts]
    names = [formats.figure_label(c, 24) for c in classes]
    roomy = len(classes) <= 8
    figure = go.Figure(
        go.Heatmap(
            x=names,
            y=names,
            z=shares,
            zmin=0,
            zmax=1,
            text=counts,
            customdata=[[[c] for c in row] for row in counts],
            meta={"cell": "count"},
            texttemplate="%{z:.0%}<br>%{text:,}" if roomy else "",
            hovertemplate="true %{y}, predicted %{x}<br>%{z:.1%} (%{text:,})<extra></extra>",
            coloraxis="coloraxis",
            xgap=2,
            ygap=2,
        )
    )
    figure.update_layout(coloraxis=SHARE_COLORAXIS)
    figure.update_xaxes(title="predicted class", side="bottom", type="category", showgrid=False)
    figure.update_yaxes(title="true class", autorange="reversed", type="category", showgrid=False)
    return theme.finish_figure(
        figure,
        title="Confusion matrix of the chosen probe",
        caption="Each row is a true class, each column a predicted class; a perfect probe "
        f"fills the diagonal. Test rows of all repeats together. {_cell_caption(found[0])}",
        height=200 + min(56, 560 // len(classes)) * len(classes),
    )


def roc_curves(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """ROC curves: of the chosen probes for two classes, of each class for several."""
    ranked = _ranked_details(details.RocCurve, rows, record)
    top = ranked[0]
    several = len({entry.label for entry in top}) > 1
    if several:
        chosen = [(entry.label, entry) for entry in top if entry.repeat == top[0].repeat]
    else:
        chosen = [(_short_name(group[0], ranked), group[0]) for group in ranked]
    figure = go.Figure()
    figure.add_trace(_chance_line())
    for (name, entry), hue in zip(chosen[:MAX_LINES], theme.PALETTE, strict=False):
        x, y = _subsample(entry.false_positive, 300), _subsample(entry.true_positive, 300)
        area = f", area {formats.number(entry.auc)}" if entry.auc is not None else ""
        figure.add_trace(
            go.Scatter(
                x=x,
                y=y,
                mode="lines",
                name=formats.figure_label(name, 40) + area,
                line={"color": hue, "width": 2},
                hovertemplate="false positive rate %{x:.2f}, true positive rate %{y:.2f}",
            )
        )
    figure.update_xaxes(title="false positive rate", range=[-0.01, 1.01], showgrid=True)
    figure.update_yaxes(title="true positive rate", range=[-0.01, 1.02])
    more = len(chosen) - MAX_LINES
    return theme.finish_figure(
        figure,
        title="ROC curve" + ("s by class" if several else ""),
        caption="True positive rate against false positive rate for every threshold; the "
        "further a curve is above the diagonal, the better. "
        + f"First repeat, test rows. {_cell_caption(top[0])}"
        + (f" {more} more not shown." if more > 0 else ""),
        height=460,
    )


def score_histogram(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """The chosen probe's scores by true class, with the threshold that decides."""
    entry = _chosen_details(details.ScoreHistogram, rows, record)[0]
    centres = [(a + b) / 2 for a, b in zip(entry.edges, entry.edges[1:], strict=False)]
    widths = [b - a for a, b in zip(entry.edges, entry.edges[1:], strict=False)]
    figure = go.Figure()
    for (label, counts), hue in zip(entry.counts.items(), theme.PALETTE * 4, strict=False):
        figure.add_trace(
            go.Bar(
                x=centres,
                y=list(counts),
                width=widths,
                name=formats.figure_label(label, 32),
                marker={"color": hue, "opacity": 0.62, "line": {"width": 0}},
                hovertemplate="score %{x:.3g}: %{y} rows",
            )
        )
    if entry.threshold is not None:
        figure.add_vline(
            x=entry.threshold,
            line={"color": theme.NEUTRAL, "width": 2, "dash": "dash"},
            annotation={
                "text": f"threshold {formats.number(entry.threshold)}",
                "showarrow": False,
                "yshift": 12,
                "yref": "paper",
                "y": 1,
            },
        )
    figure.update_layout(barmode="overlay", bargap=0)
    figure.update_xaxes(title="score of the probe")
    figure.update_yaxes(title="test rows")
    return theme.finish_figure(
        figure,
        title="Scores by true class",
        caption="How the probe scores the test rows of each class; scores right of the dashed "
        "line are predicted positive. The less the colours overlap, the better. "
        f"{_cell_caption(entry)}",
        height=420,
    )


def projection(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """The hidden states of the chosen cell in two dimensions, coloured by label."""
    found = _chosen_details(details.Projection, rows, record)
    entry = found[0]
    figure = go.Figure()
    keep = _subsample(range(len(entry.x)), MAX_POINTS)
    if all(isinstance(label, float) for label in entry.labels):
        figure.add_trace(_points(entry, keep, "states", {"coloraxis": "coloraxis"}))
        figure.data[0].marker.color = [entry.labels[i] for i in keep]
        figure.update_layout(
            coloraxis={"colorscale": theme.SEQUENTIAL, "colorbar": {"title": {"text": "target"}}}
        )
    else:
        labels = list(dict.fromkeys(entry.labels))
        for n, label in enumerate(labels):
            mine = [i for i in keep if entry.labels[i] == label]
            marker = {
                "color": theme.PALETTE[n % len(theme.PALETTE)],
                "symbol": theme.SYMBOLS[n // len(theme.PALETTE) % len(theme.SYMBOLS)],
            }
            figure.add_trace(_points(entry, mine, formats.figure_label(label, 32), marker))
    way = {"pca": "principal component", "lda": "discriminant"}[entry.way]
    figure.update_xaxes(title=f"first {way}", zeroline=False)
    figure.update_yaxes(title=f"second {way}", zeroline=False)
    return theme.finish_figure(
        figure,
        title=f"States in two dimensions ({entry.way.upper()})",
        pointer="Hover over a dot to read its text.",
        caption="Each dot is the state of one text. Classes that are separate "
        f"here are easy to predict; classes that overlap may be separable in more dimensions. "
        f"{_cell_caption(entry)}"
        + (f" {len(keep)} of {len(entry.x)} dots." if len(keep) < len(entry.x) else ""),
        height=480,
    )


def loss_curves(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Training and validation loss of gradient probes, epoch by epoch."""
    ranked = _ranked_details(details.LossCurves, rows, record)
    figure = go.Figure()
    for group, hue in zip(ranked[:MAX_LINES], theme.PALETTE, strict=False):
        entry, name = group[0], formats.figure_label(_short_name(group[0], ranked), 36)
        both = (("train", entry.train, "solid"), ("validation", entry.validation, "dash"))
        for part, values, dash in both:
            if values:
                figure.add_trace(
                    go.Scatter(
                        x=list(range(1, len(values) + 1)),
                        y=list(values),
                        name=f"{name}, {part}",
                        legendgroup=name,
                        mode="lines",
                        line={"color": hue, "dash": dash, "width": 2},
                        hovertemplate="epoch %{x}: %{y:.4g}",
                    )
                )
        if entry.kept and entry.validation and entry.kept <= len(entry.validation):
            figure.add_trace(_best_epoch_marker(entry, hue, name))
    figure.update_xaxes(title="epoch", rangemode="tozero")
    figure.update_yaxes(title="loss")
    return theme.finish_figure(
        figure,
        title="Training loss of gradient probes",
        caption="Solid lines are the loss on training rows, dashed lines on validation rows, first "
        "repeat; the ring marks the epoch whose weights were kept. Overfitting: the dashed line "
        "rises while the solid line falls.",
        height=440,
    )


def _best_epoch_marker(entry: details.LossCurves, hue: str, name: str) -> go.Scatter:
    assert entry.kept is not None
    return go.Scatter(
        x=[entry.kept],
        y=[entry.validation[entry.kept - 1]],
        mode="markers",
        legendgroup=name,
        showlegend=False,
        marker={"size": 11, "color": hue, "symbol": "circle-open", "line": {"width": 2}},
        hovertemplate="best epoch: %{x}<extra></extra>",
    )


def _points(
    entry: details.Projection, keep: Sequence[int], name: str, marker: dict[str, str]
) -> go.Scatter:
    texts = entry.texts or [str(label) for label in entry.labels]
    return go.Scatter(
        x=[entry.x[i] for i in keep],
        y=[entry.y[i] for i in keep],
        text=[formats.figure_label(texts[i], 90) for i in keep],
        name=name,
        mode="markers",
        marker={"size": 6, "opacity": 0.72, **marker},
        hovertemplate="%{text}",
    )


def _chance_line() -> go.Scatter:
    return go.Scatter(
        x=[0, 1],
        y=[0, 1],
        mode="lines",
        name="chance",
        line={"color": theme.NEUTRAL, "dash": "dot", "width": 1.5},
        hoverinfo="skip",
    )


def _ranked_details(
    kind: type[DetailT], rows: pl.DataFrame, record: RunOrRuns
) -> list[list[DetailT]]:
    """The entries of one kind by cell, chosen cell first, each cell's repeats in order."""
    by_cell: dict[details.DetailKey, list[DetailT]] = {}
    for entry in _entries(record):
        if isinstance(entry, kind):
            by_cell.setdefault(entry.key, []).append(entry)
    metric = main_metric(rows, record)
    table = largest_training_size(aggregate_cells(rows, metric))
    columns = ("model", "data", "layers", "pool", "classifier")
    ranked = rank_cells(table, metric).select(columns).rows()
    # Rows may be filtered (the app's cross-filters): only cells still in them are shown.
    keys = [key for key in ranked if key in by_cell]
    if not keys:
        raise Missing(
            f"No {kind.model_fields['figure'].default} data for these cells in the run's "
            "details.json."
        )
    return [sorted(by_cell[key], key=lambda entry: entry.repeat) for key in keys]


def _entries(record: RunOrRuns) -> Iterator[details.AnyDetail]:
    """The entries of every run in a record, models named as in its rows."""
    for part in single_runs(record):
        more = model_suffix(record, part)
        for entry in details.read_details(Path(part.path)) if part.path else ():
            yield entry.model_copy(update={"model": entry.model + more}) if more else entry


def _chosen_details(kind: type[DetailT], rows: pl.DataFrame, record: RunOrRuns) -> list[DetailT]:
    return _ranked_details(kind, rows, record)[0]


def _cell_caption(entry: details.AnyDetail) -> str:
    """A sentence naming the cell; plain text, not escaped."""
    return (
        f"Shown: {entry.classifier} on layer {entry.layers}, pooler {entry.pool}, "
        f"{short_name(entry.model)} on {short_name(entry.data)}."
    )


def _short_name(entry: details.AnyDetail, ranked: Sequence[Sequence[details.AnyDetail]]) -> str:
    """A cell's name by the coordinates in which the shown cells differ."""
    keys = [group[0].key for group in ranked]
    words = [
        f"layer {part}" if place == 2 else part
        for place, part in enumerate(entry.key)
        if len({key[place] for key in keys}) > 1
    ]
    return " · ".join(words) or entry.classifier


def _subsample(values: Sequence[float] | range, most: int) -> list[Any]:
    """Evenly spaced values, ends kept, at most `most` of them."""
    if len(values) <= most:
        return list(values)
    step = (len(values) - 1) / (most - 1)
    return [values[round(i * step)] for i in range(most)]
