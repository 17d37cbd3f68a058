"""The figures of `graft`, by name: what few weights keep, where they are, what they share.

A figure takes the rows and the run they come from; it raises Missing, with the way to mend it,
when the run holds nothing to draw.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import polars as pl

from cutaway.core.errors import Missing
from cutaway.report import formats, theme
from cutaway.report.graft_atlas import atlas, heads
from cutaway.report.graft_continual import forgetting
from cutaway.report.graft_table import WORDS, means, need_one_base, rank
from cutaway.report.records import Drawable, parts

LEARN = "cutaway graft learn --base --tuned --task"
COLOURS = {
    "learned": theme.PALETTE[0],
    "movement": theme.PALETTE[1],
    "grad_movement": theme.PALETTE[2],
    "fisher": theme.PALETTE[3],
    "uniform": theme.PALETTE[4],
    "biases": theme.PALETTE[6],
    "ties": theme.PALETTE[7],
    "dare": theme.PALETTE[5],
    "random": theme.NEUTRAL,
    "base": theme.NEUTRAL,
    "tuned": theme.PALETTE[2],
    "removed": theme.PALETTE[4],
}
ENDS = {"base": "dot", "tuned": "dash"}
DASHES = ("solid", "dash", "dot", "dashdot")
MASKS_FIRST = ("learned", "removed")


def metric_of(rows: pl.DataFrame, record: Drawable) -> str:
    """The task's metric: the one its run names, else accuracy."""
    named = None if record is None else (parts(record)[0].summary or {}).get("metric")
    return str(named or "accuracy")


def sparsity(rows: pl.DataFrame, record: Drawable) -> go.Figure:
    """The metric against the share of weights that are kept, a line per kind of mask."""
    metric = metric_of(rows, record)
    table = means(rows).filter((pl.col("metric") == metric) & (pl.col("kind") != "removed"))
    masks = table.filter(~pl.col("kind").is_in(list(ENDS)))
    if masks.is_empty() or masks["sparsity"].drop_nulls().is_empty() or _sets(masks) > 1:
        raise Missing(f"This run has no masks of a size to draw: {LEARN} measures them.")
    need_one_base(masks)
    figure = go.Figure()
    for kind in sorted(masks["kind"].unique(), key=rank):
        _line(figure, masks.filter(pl.col("kind") == kind).sort("sparsity"), kind)
    span = [masks["sparsity"].min(), masks["sparsity"].max()]
    for kind, dash in ENDS.items():
        _level(figure, table.filter(pl.col("kind") == kind), kind, dash, span)
    figure.update_xaxes(
        title="share of the trained weights that is kept", type="log", exponentformat="power"
    )
    figure.update_yaxes(title=metric)
    return theme.finish(
        figure,
        title="What a few weights keep of the skill",
        caption=f"Test {metric} of the base with only the chosen weights tuned, all masks of one "
        "size side by side. Whiskers give the 95 % interval: over seeds where there are several, "
        "over test rows otherwise. The lines across are the base and the fully tuned model.",
    )


def _sets(table: pl.DataFrame) -> int:
    return int(table.select(pl.struct("task", "data")).n_unique())


def _line(figure: go.Figure, cells: pl.DataFrame, kind: str) -> None:
    shown = list(cells.iter_rows(named=True))
    figure.add_trace(
        go.Scatter(
            x=[c["sparsity"] for c in shown],
            y=[c["mean"] for c in shown],
            name=WORDS.get(kind, kind),
            mode="lines+markers",
            line={"color": COLOURS.get(kind), "width": 3 if kind == "learned" else 1.6},
            marker={"size": 9 if kind == "learned" else 6},
            error_y=whiskers(shown),
            hovertext=[formats.interval(c["mean"], c["low"], c["high"]) for c in shown],
            hovertemplate="%{x:.1e}: %{hovertext}",
        )
    )


def _level(
    figure: go.Figure, cells: pl.DataFrame, kind: str, dash: str, span: Sequence[Any]
) -> None:
    if cells.is_empty():
        return
    figure.add_trace(
        go.Scatter(
            x=list(span), y=[cells["mean"][0]] * 2, name=WORDS[kind], mode="lines",
            line={"color": theme.NEUTRAL, "dash": dash, "width": 1.6}, legendrank=2000,
            hovertemplate="%{y:.3f}",
        )
    )  # fmt: skip


def whiskers(shown: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Error bars where an interval is known."""
    known = [None not in (c["low"], c["high"], c["mean"]) for c in shown]
    return {
        "type": "data",
        "symmetric": False,
        "array": [c["high"] - c["mean"] if k else 0 for c, k in zip(shown, known, strict=True)],
        "arrayminus": [c["mean"] - c["low"] if k else 0 for c, k in zip(shown, known, strict=True)],
        "thickness": 1.2,
    }


def bars(metric: str, title: str, caption: str) -> Callable[[pl.DataFrame, Drawable], go.Figure]:
    """A figure function: one metric by kind of mask, a group per size."""

    def draw(rows: pl.DataFrame, record: Drawable) -> go.Figure:
        table = means(rows).filter((pl.col("metric") == metric) & pl.col("mean").is_not_null())
        if table.is_empty() or _sets(table) > 1:
            raise Missing(f"This run has no {metric} by kind of mask: {LEARN} measures it.")
        need_one_base(table)
        figure = go.Figure()
        sizes = sorted(set(table["sparsity"].drop_nulls()) - {0.0, 1.0}) or [None]
        for number, size in enumerate(sizes):
            mine = table.filter((pl.col("sparsity") == size) | pl.col("kind").is_in(list(ENDS)))
            shown = sorted(mine.iter_rows(named=True), key=lambda c: rank(c["kind"]))
            figure.add_trace(
                go.Bar(
                    x=[WORDS.get(c["kind"], c["kind"]) for c in shown],
                    y=[c["mean"] for c in shown],
                    name="all" if size is None else f"{size:.1e} of the weights",
                    marker={"color": theme.PALETTE[number % len(theme.PALETTE)]},
                    error_y=whiskers(shown),
                    hovertext=[formats.interval(c["mean"], c["low"], c["high"]) for c in shown],
                    hovertemplate="%{x}: %{hovertext}",
                )
            )
        figure.update_layout(barmode="group")
        figure.update_yaxes(title=metric.replace("_", " "))
        return theme.finish(figure, title=title, caption=caption)

    return draw


def reliability(rows: pl.DataFrame, record: Drawable) -> go.Figure:
    """How often answers of a certain confidence are right: base, tuned, learned mask."""
    table = rows.filter(pl.col("bin").is_not_null())
    if table.is_empty():
        raise Missing(f"This run has no reliability bins: {LEARN} measures them.")
    need_one_base(table)
    figure = go.Figure(
        go.Scatter(
            x=[0, 1], y=[0, 1], mode="lines", name="calibrated",
            line={"color": theme.NEUTRAL, "dash": "dot"}, hoverinfo="skip",
        )
    )  # fmt: skip
    shown = table.filter(pl.col("kind").is_in(["base", "tuned", "learned"]))
    for (kind, size), cells in shown.group_by(["kind", "sparsity"], maintain_order=True):
        _reliability_line(figure, _bins(cells), str(kind), size if kind == "learned" else None)
    figure.update_xaxes(title="confidence of the answer", range=[-0.02, 1.02])
    figure.update_yaxes(title="share of such answers that are right", range=[-0.04, 1.04])
    return theme.finish(
        figure,
        title="Does the model know when it is right",
        caption="Test answers in bins of confidence; on the dotted line a confidence of 0.8 means "
        "80 % right. Below it the model is too sure of itself. The size of a point grows with the "
        "number of answers in its bin.",
    )


def _bins(cells: pl.DataFrame) -> pl.DataFrame:
    """The bins of one mask; over several seeds each answer counts alike."""
    laid = cells.pivot(on="metric", index=["seed", "bin"], values="value")
    count = pl.col("bin_count")
    share = [(pl.col(n) * count).sum() / count.sum() for n in ("bin_confidence", "bin_accuracy")]
    return laid.filter(count > 0).group_by("bin").agg(*share, count.sum()).sort("bin")


def _reliability_line(figure: go.Figure, laid: pl.DataFrame, kind: str, size: float | None) -> None:
    most = laid["bin_count"].max()
    learned = sum(str(trace.name).startswith(WORDS["learned"]) for trace in figure.data)
    figure.add_trace(
        go.Scatter(
            x=laid["bin_confidence"], y=laid["bin_accuracy"],
            name=WORDS[kind] if size is None else f"{WORDS[kind]}, {size:.1e}",
            mode="lines+markers",
            line={
                "color": COLOURS[kind] if kind != "base" else theme.PALETTE[1],
                "dash": DASHES[learned % len(DASHES)],
            },
            marker={"size": [5 + 12 * c / most for c in laid["bin_count"]]},
            customdata=laid["bin_count"].to_list(),
            hovertemplate="confidence %{x:.2f}: %{y:.2f} right, %{customdata:.0f} answers",
        )
    )  # fmt: skip


def learning(rows: pl.DataFrame, record: Drawable) -> go.Figure:
    """The score of the rounded mask on train and dev rows, step by step, a line per seed."""
    table = rows.filter(pl.col("metric") == "mask_score")
    if table.is_empty():
        raise Missing(f"This run has no learning curve: {LEARN} draws one.")
    need_one_base(table)
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
    return theme.finish(
        figure,
        title="How the mask was learned",
        caption="After so many gradient steps the soft mask is rounded to its exact size and "
        "judged: the task's metric, ties broken by the loss. The best mask of the way is kept.",
    )


def matrix(
    metric: str | None, title: str, caption: str, axes: tuple[str, str], hint: str
) -> Callable[[pl.DataFrame, Drawable], go.Figure]:
    """A figure function: a heat map of the learned kind over `task` and `data`."""

    def draw(rows: pl.DataFrame, record: Drawable) -> go.Figure:
        chosen = metric or metric_of(rows, record)
        own = (pl.col("metric") == chosen) & (pl.col("kind") == "learned")
        table = means(rows).filter(own & pl.col("data").is_not_null())
        if _sets(table) < 2:
            raise Missing(f"This run has no such matrix: {hint}")
        lines = table["task"].unique(maintain_order=True).to_list()
        columns = table["data"].unique(maintain_order=True).to_list()
        found = {(c["task"], c["data"]): c["mean"] for c in table.iter_rows(named=True)}
        z = [[found.get((i, j)) for j in columns] for i in lines]
        figure = go.Figure(
            go.Heatmap(
                x=[formats.plain(c) for c in columns],
                y=[formats.plain(line) for line in lines],
                z=z,
                text=[[formats.number(v) for v in line] for line in z],
                texttemplate="%{text}",
                coloraxis="coloraxis",
                hovertemplate="%{y} / %{x}: %{text}<extra></extra>",
            )
        )
        figure.update_layout(coloraxis=theme.shares(chosen))
        figure.update_xaxes(title=axes[1])
        figure.update_yaxes(title=axes[0], autorange="reversed")
        return theme.finish(
            figure, title=title, caption=caption, height=max(320, 90 * len(lines) + 170)
        )

    return draw


FIGURES: dict[str, Callable[[pl.DataFrame, Drawable], go.Figure]] = {
    "sparsity": sparsity,
    "forgetting": forgetting,
    "gain": bars(
        "relative_gain",
        "Which share of the gain is kept",
        "0 is the base, 1 the fully tuned model, on the same test rows; whiskers give the 95 % "
        "interval over seeds where there are several.",
    ),
    "agreement": bars(
        "agreement",
        "How often a graft answers as the tuned model does",
        "Share of test rows with the tuned model's answer, right or wrong; whiskers give the "
        "95 % interval.",
    ),
    "language": bars(
        "lm_loss",
        "What the skill costs the model's own language",
        "Mean loss on held-out text: of the next token for causal models, of masked tokens for "
        "masked ones. Higher than the base means that language was lost.",
    ),
    "calibration": bars(
        "ece",
        "Expected calibration error",
        "Mean gap between confidence and accuracy over 15 bins of the test answers; 0 is "
        "calibrated.",
    ),
    "reliability": reliability,
    "atlas": atlas,
    "heads": heads,
    "learning": learning,
    "ood": matrix(
        None,
        "Skills on other data with the same labels",
        "Line: the skill; column: the data it is tried on, answered in the skill's own words.",
        ("skill", "data"),
        "cutaway graft eval with several --data makes one.",
    ),
    "overlap": matrix(
        "overlap",
        "Which share of a skill's weights another skill has too",
        "Line i, column j: |i and j| / |j|. A skill has all its own weights; skills of masks drawn "
        "at random would share about the sparsity itself.",
        ("skill i", "skill j"),
        "cutaway graft overlap with several skills makes one.",
    ),
}
