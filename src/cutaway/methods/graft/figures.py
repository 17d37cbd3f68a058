"""The figures of `graft`: scores by mask size, where the weights are, and what skills share.

A figure takes the rows and their run; it raises Missing, naming the command that measures them,
when the rows have nothing to draw.
"""

from collections.abc import Callable, Sequence
from typing import Any

import plotly.graph_objects as go
import polars as pl

from cutaway.core.errors import Missing
from cutaway.methods.graft.figures_atlas import head_heatmap, module_heatmap
from cutaway.methods.graft.figures_continual import forgetting_figure
from cutaway.methods.graft.table import KIND_LABELS, kind_rank, need_single_base, seed_means
from cutaway.report import formats, panels, theme
from cutaway.report.records import RunOrRuns, single_runs

LEARN_COMMAND = "cutaway graft learn --base --tuned --task"
COLOURED = ("learned", "movement", "grad_movement", "fisher", "uniform", "dare", "biases", "ties")
COLOURS = dict(zip(COLOURED, theme.PALETTE, strict=False)) | {
    "random": theme.NEUTRAL, "base": theme.NEUTRAL, "tuned": theme.PALETTE[2],
    "removed": theme.PALETTE[4],
}  # fmt: skip
REFERENCE_DASHES = {"base": "dot", "tuned": "dash"}
DASHES = ("solid", "dash", "dot", "dashdot")


def headline_metric(rows: pl.DataFrame, record: RunOrRuns) -> str:
    """The task's metric: the one that the run names, else accuracy."""
    named = None if record is None else (single_runs(record)[0].summary or {}).get("metric")
    return str(named or "accuracy")


def sparsity_figure(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """The metric by the share of weights that are kept, a line per kind of mask."""
    metric = headline_metric(rows, record)
    table = seed_means(rows).filter((pl.col("metric") == metric) & (pl.col("kind") != "removed"))
    masks = table.filter(~pl.col("kind").is_in(list(REFERENCE_DASHES)))
    if masks.is_empty() or masks["sparsity"].drop_nulls().is_empty() or _n_task_sets(masks) > 1:
        raise Missing(f"This run has no masks by size: {LEARN_COMMAND} measures them.")
    need_single_base(masks)
    figure = go.Figure()
    for kind in sorted(masks["kind"].unique(), key=kind_rank):
        _add_mask_line(figure, masks.filter(pl.col("kind") == kind).sort("sparsity"), kind)
    span = [masks["sparsity"].min(), masks["sparsity"].max()]
    for kind, dash in REFERENCE_DASHES.items():
        _add_reference_line(figure, table.filter(pl.col("kind") == kind), kind, dash, span)
    figure.update_xaxes(
        title="share of the changed weights that is kept", type="log", exponentformat="power"
    )
    figure.update_yaxes(title=metric)
    return theme.finish_figure(
        figure,
        title="Score by number of weights kept",
        caption=f"Test {metric} of the base with only the chosen weights tuned, by kind of mask. "
        "Whiskers: 95 % intervals, over seeds if there are several, else over test rows. "
        "Horizontal lines: the base and the fully tuned model.",
    )


def _n_task_sets(table: pl.DataFrame) -> int:
    return int(table.select(pl.struct("task", "data")).n_unique())


def _add_mask_line(figure: go.Figure, cells: pl.DataFrame, kind: str) -> None:
    shown = list(cells.iter_rows(named=True))
    figure.add_trace(
        go.Scatter(
            x=[c["sparsity"] for c in shown],
            y=[c["mean"] for c in shown],
            name=KIND_LABELS.get(kind, kind),
            mode="lines+markers",
            line={"color": COLOURS.get(kind), "width": 3 if kind == "learned" else 1.6},
            marker={"size": 9 if kind == "learned" else 6},
            error_y=panels.error_bars(shown),
            hovertext=[formats.interval(c["mean"], c["low"], c["high"]) for c in shown],
            hovertemplate="%{x:.1e}: %{hovertext}",
        )
    )


def _add_reference_line(
    figure: go.Figure, cells: pl.DataFrame, kind: str, dash: str, span: Sequence[Any]
) -> None:
    if cells.is_empty():
        return
    figure.add_trace(
        go.Scatter(
            x=list(span), y=[cells["mean"][0]] * 2, name=KIND_LABELS[kind], mode="lines",
            line={"color": theme.NEUTRAL, "dash": dash, "width": 1.6}, legendrank=2000,
            hovertemplate="%{y:.3f}",
        )
    )  # fmt: skip


def bar_figure(
    metric: str, title: str, caption: str
) -> Callable[[pl.DataFrame, RunOrRuns], go.Figure]:
    """A figure function: one metric by kind of mask, a group per size."""

    def draw(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
        table = seed_means(rows).filter((pl.col("metric") == metric) & pl.col("mean").is_not_null())
        if table.is_empty() or _n_task_sets(table) > 1:
            raise Missing(f"This run has no {metric} by kind of mask: {LEARN_COMMAND} measures it.")
        need_single_base(table)
        figure = go.Figure()
        sizes = sorted(set(table["sparsity"].drop_nulls()) - {0.0, 1.0}) or [None]
        for number, size in enumerate(sizes):
            mine = table.filter(
                (pl.col("sparsity") == size) | pl.col("kind").is_in(list(REFERENCE_DASHES))
            )
            shown = sorted(mine.iter_rows(named=True), key=lambda c: kind_rank(c["kind"]))
            figure.add_trace(
                go.Bar(
                    x=[KIND_LABELS.get(c["kind"], c["kind"]) for c in shown],
                    y=[c["mean"] for c in shown],
                    name="all" if size is None else f"{size:.1e} of the weights",
                    marker={"color": theme.PALETTE[number % len(theme.PALETTE)]},
                    error_y=panels.error_bars(shown),
                    hovertext=[formats.interval(c["mean"], c["low"], c["high"]) for c in shown],
                    hovertemplate="%{x}: %{hovertext}",
                )
            )
        figure.update_layout(barmode="group")
        figure.update_yaxes(title=metric.replace("_", " "))
        return theme.finish_figure(figure, title=title, caption=caption)

    return draw


def reliability_figure(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Accuracy by confidence: base, tuned model, learned masks."""
    table = rows.filter(pl.col("bin").is_not_null())
    if table.is_empty():
        raise Missing(f"This run has no reliability bins: {LEARN_COMMAND} measures them.")
    need_single_base(table)
    figure = go.Figure(
        go.Scatter(
            x=[0, 1], y=[0, 1], mode="lines", name="calibrated",
            line={"color": theme.NEUTRAL, "dash": "dot"}, hoverinfo="skip",
        )
    )  # fmt: skip
    shown = table.filter(pl.col("kind").is_in(["base", "tuned", "learned"]))
    for (kind, size), cells in shown.group_by(["kind", "sparsity"], maintain_order=True):
        _add_reliability_line(
            figure, _pooled_bins(cells), str(kind), size if kind == "learned" else None
        )
    figure.update_xaxes(title="confidence", range=[-0.02, 1.02])
    figure.update_yaxes(title="accuracy", range=[-0.04, 1.04])
    return theme.finish_figure(
        figure,
        title="Reliability diagram",
        caption="Accuracy of test predictions in bins of confidence; on the dotted line a model is "
        "calibrated, below it overconfident. Larger points have more predictions in their bin.",
    )


def _pooled_bins(cells: pl.DataFrame) -> pl.DataFrame:
    """The bins of one mask, pooled over seeds."""
    laid = cells.pivot(on="metric", index=["seed", "bin"], values="value")
    count = pl.col("bin_count")
    share = [(pl.col(n) * count).sum() / count.sum() for n in ("bin_confidence", "bin_accuracy")]
    return laid.filter(count > 0).group_by("bin").agg(*share, count.sum()).sort("bin")


def _add_reliability_line(
    figure: go.Figure, laid: pl.DataFrame, kind: str, size: float | None
) -> None:
    most = laid["bin_count"].max()
    learned = sum(str(trace.name).startswith(KIND_LABELS["learned"]) for trace in figure.data)
    figure.add_trace(
        go.Scatter(
            x=laid["bin_confidence"], y=laid["bin_accuracy"],
            name=KIND_LABELS[kind] if size is None else f"{KIND_LABELS[kind]}, {size:.1e}",
            mode="lines+markers",
            line={
                "color": COLOURS[kind] if kind != "base" else theme.PALETTE[1],
                "dash": DASHES[learned % len(DASHES)],
            },
            marker={"size": [5 + 12 * c / most for c in laid["bin_count"]]},
            customdata=laid["bin_count"].to_list(),
            hovertemplate="confidence %{x:.2f}: accuracy %{y:.2f}, %{customdata:.0f} predictions",
        )
    )  # fmt: skip


def mask_learning_curve(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """The score of the rounded mask on train and dev rows by step, a line per seed."""
    table = rows.filter(pl.col("metric") == "mask_score")
    if table.is_empty():
        raise Missing(f"This run has no learning curve: {LEARN_COMMAND} measures one.")
    need_single_base(table)
    figure = go.Figure()
    groups = table.group_by(["sparsity", "seed"], maintain_order=True)
    for number, ((size, seed), cells) in enumerate(groups):
        laid = cells.sort("step")
        figure.add_trace(
            go.Scatter(
                x=laid["step"], y=laid["value"], mode="lines+markers",
                name=f"{size:.1e}, seed {seed}",
                line={"color": theme.PALETTE[number % len(theme.PALETTE)]},
            )
        )  # fmt: skip
    figure.update_xaxes(title="step of mask learning (0 = the starting mask)")
    figure.update_yaxes(title="score on train and dev rows")
    return theme.finish_figure(
        figure,
        title="Learning curve of the mask",
        caption="The soft mask, rounded to its exact size, is evaluated while it is learned: the "
        "task's metric, with the loss as tie-break. The best of these masks is kept.",
    )


def matrix_figure(
    metric: str | None, title: str, caption: str, axes: tuple[str, str], hint: str
) -> Callable[[pl.DataFrame, RunOrRuns], go.Figure]:
    """A figure function: a heat map of the skills by `task` and `data`."""

    def draw(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
        chosen = metric or headline_metric(rows, record)
        own = (pl.col("metric") == chosen) & (pl.col("kind") == "learned")
        table = seed_means(rows).filter(own & pl.col("data").is_not_null())
        if _n_task_sets(table) < 2:
            raise Missing(f"This run has no such matrix: {hint}")
        lines = table["task"].unique(maintain_order=True).to_list()
        columns = table["data"].unique(maintain_order=True).to_list()
        found = {(c["task"], c["data"]): c["mean"] for c in table.iter_rows(named=True)}
        z = [[found.get((i, j)) for j in columns] for i in lines]
        figure = go.Figure(
            go.Heatmap(
                x=[formats.figure_label(c) for c in columns],
                y=[formats.figure_label(line) for line in lines],
                z=z,
                text=[[formats.number(v) for v in line] for line in z],
                texttemplate="%{text}",
                coloraxis="coloraxis",
                hovertemplate="%{y} / %{x}: %{text}<extra></extra>",
            )
        )
        figure.update_layout(coloraxis=theme.unit_coloraxis(chosen))
        figure.update_xaxes(title=axes[1])
        figure.update_yaxes(title=axes[0], autorange="reversed")
        return theme.finish_figure(
            figure, title=title, caption=caption, height=max(320, 90 * len(lines) + 170)
        )

    return draw


FIGURES: dict[str, Callable[[pl.DataFrame, RunOrRuns], go.Figure]] = {
    "sparsity": sparsity_figure,
    "forgetting": forgetting_figure,
    "gain": bar_figure(
        "relative_gain",
        "Share of the fine-tuning gain that is kept",
        "0 is the base, 1 the fully tuned model, on the same test rows. Whiskers: 95 % intervals "
        "over seeds if there are several.",
    ),
    "agreement": bar_figure(
        "agreement",
        "Agreement with the tuned model",
        "Share of test rows with the same prediction as the tuned model, right or wrong. "
        "Whiskers: 95 % intervals.",
    ),
    "language": bar_figure(
        "lm_loss",
        "Language-model loss with and without the skill",
        "Mean loss on held-out text: of the next token for causal models, of masked tokens for "
        "masked models. Values above the base mean worse language modelling.",
    ),
    "calibration": bar_figure(
        "ece",
        "Expected calibration error",
        "Mean gap between confidence and accuracy over 15 bins of test predictions; 0 is "
        "calibrated.",
    ),
    "reliability": reliability_figure,
    "atlas": module_heatmap,
    "heads": head_heatmap,
    "learning": mask_learning_curve,
    "ood": matrix_figure(
        None,
        "Skills on other data with the same labels",
        "Rows: skills. Columns: data, evaluated with the skill's own prompts.",
        ("skill", "data"),
        "cutaway graft eval with several --data makes one.",
    ),
    "overlap": matrix_figure(
        "overlap",
        "Overlap of skills",
        "Row i, column j: the share of skill j's weights that skill i has too, |i and j| / |j|. "
        "Random masks would share about the sparsity.",
        ("skill i", "skill j"),
        "cutaway graft overlap with several skills makes one.",
    ),
}
