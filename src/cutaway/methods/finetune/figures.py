"""The figures of `finetune`: the training curve, and test scores before and after."""

from collections.abc import Callable

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from cutaway.core.errors import Missing
from cutaway.core.names import short_name
from cutaway.methods.finetune.table import RUN_COLUMNS
from cutaway.report import formats, panels, theme
from cutaway.report.metric_labels import metric_label
from cutaway.report.records import RunOrRuns

# Label and colour of each kind of model.
KIND_STYLES = {
    "tuned": ("after fine-tuning", theme.PALETTE[0]),
    "base": ("before", theme.PALETTE[1]),
    "majority": ("majority baseline", theme.NEUTRAL),
}
BAR_METRICS = ("accuracy", "f1", "f1_macro", "mcc", "pearson", "spearman", "auc", "ece")


def training_curve(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Training loss and dev score over the steps."""
    steps = rows.filter(pl.col("part").is_in(["train", "dev"]))
    if steps.is_empty():
        raise Missing("These rows have no training curve: cutaway finetune measures one.")
    runs = _rows_by_run(steps)
    titles = ["loss", "score on dev"]
    figure = make_subplots(rows=1, cols=2, subplot_titles=titles, horizontal_spacing=0.12)
    for number, (name, table) in enumerate(runs.items()):
        colour = theme.PALETTE[number % len(theme.PALETTE)]
        for part, dash in (("train", "solid"), ("dev", "dash")):
            cells = table.filter((pl.col("part") == part) & (pl.col("metric") == "loss"))
            _add_curve(figure, cells, f"{name}: {part}", colour, dash, column=1)
        scored = table.filter((pl.col("part") == "dev") & (pl.col("metric") != "loss"))
        for metric in scored["metric"].unique(maintain_order=True):
            cells = scored.filter(pl.col("metric") == metric)
            _add_curve(figure, cells, f"{name}: {metric_label(metric)}", colour, "solid", column=2)
    figure.update_xaxes(title="steps")
    figure.update_yaxes(title="nats", col=1)
    return theme.finish_figure(
        figure,
        title="Training curve",
        caption="Left: loss on training batches (solid, mean since the previous point) and on dev "
        "rows (dashed). Right: score on dev rows, which selects the checkpoint. Step 0 is the "
        "base model. A dev loss that rises while the training loss falls means overfitting.",
    )


def score_bars(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Test scores before and after fine-tuning, and of the majority baseline."""
    test = rows.filter((pl.col("part") == "test") & pl.col("metric").is_in(BAR_METRICS))
    test = test.filter(pl.col("value").is_not_null())
    if test.is_empty():
        raise Missing("These rows have no test scores: cutaway finetune measures them.")
    runs = _rows_by_run(test)
    figure = go.Figure()
    for kind, (words, colour) in KIND_STYLES.items():
        cells = pl.concat(
            [
                table.filter(pl.col("kind") == kind).with_columns(
                    pl.lit(name if len(runs) > 1 else "").alias("run")
                )
                for name, table in runs.items()
            ]
        )
        if not cells.is_empty():
            figure.add_trace(_bar_trace(cells, words, colour, several=len(runs) > 1))
    figure.update_yaxes(title="test score")
    figure.update_layout(barmode="group")
    return theme.finish_figure(
        figure,
        title="Scores before and after fine-tuning",
        caption="Scores on test rows with 95 % intervals. Higher is better, except for the "
        "calibration error (ECE). The grey bar always predicts the most frequent class.",
    )


def _bar_trace(cells: pl.DataFrame, label: str, colour: str, *, several: bool) -> go.Bar:
    metrics = [metric_label(metric) for metric in cells["metric"]]
    return go.Bar(
        x=[cells["run"].to_list(), metrics] if several else metrics, y=cells["value"], name=label,
        marker={"color": colour}, error_y=panels.error_bars(cells.rows(named=True), "value"),
        hovertemplate="%{x}<br>%{y:.3f}<extra>" + label + "</extra>",
    )  # fmt: skip


def _add_curve(
    figure: go.Figure, cells: pl.DataFrame, name: str, colour: str, dash: str, *, column: int
) -> None:
    if cells.is_empty():
        return
    ordered = cells.sort("step")
    trace = go.Scatter(
        x=ordered["step"],
        y=ordered["value"],
        name=formats.figure_label(name),
        mode="lines+markers",
        line={"color": colour, "dash": dash},
    )
    figure.add_trace(trace, row=1, col=column)


def _rows_by_run(rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """The rows of each run, named by the coordinates in which the runs differ."""
    columns = [name for name in RUN_COLUMNS if name in rows.columns]
    groups = rows.partition_by(columns, maintain_order=True, as_dict=True)
    varying = [i for i, _ in enumerate(columns) if len({key[i] for key in groups}) > 1]
    shown = varying or [columns.index("task")]
    return {
        ", ".join(_coordinate_label(columns[i], key[i]) for i in shown): table
        for key, table in groups.items()
    }


def _coordinate_label(column: str, value: object) -> str:
    if column in ("base", "task"):
        return short_name(str(value))
    return str(value) if column == "mode" else f"{column} {value}"


FIGURES: dict[str, Callable[[pl.DataFrame, RunOrRuns], go.Figure]] = {
    "scores": score_bars,
    "curve": training_curve,
}
