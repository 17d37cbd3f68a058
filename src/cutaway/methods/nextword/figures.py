"""The figures of `nextword`, by name.

A figure takes the rows and their run; it raises Missing, with a command that measures what it
needs, when the run has nothing to draw.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import polars as pl

from cutaway.core.errors import Missing
from cutaway.measure.metrics import UNIT, metric_facts
from cutaway.methods.nextword.details import read_details
from cutaway.methods.nextword.rows import CELL_COLUMNS
from cutaway.methods.nextword.table import FEATURE_LABELS, PROMPT_FREE, cell_means, shown_metric
from cutaway.report import formats, panels, theme
from cutaway.report.records import RunOrRuns

MAX_TOKENS_SHOWN = 8
# Tokens below this share of the largest effect would be bars without visible length.
MIN_EFFECT_SHARE = 0.01
NOT_MEASURED = "This run has no {}: cutaway nextword --task sst2 measures it."
PROMPT_COLOURS = (theme.PALETTE[5], theme.PALETTE[0], *theme.PALETTE[1:5])
LOSS_LABELS = {
    "loss": "training loss",
    "held_quad": "Quad loss, held out",
    "held_ce": "cross-entropy, held out",
}


def _feature_scores(rows: pl.DataFrame, metric: str, what: str) -> pl.DataFrame:
    table = cell_means(rows, metric).filter(pl.col("features").is_in(list(FEATURE_LABELS)))
    if table.filter(~pl.col("features").is_in(PROMPT_FREE)).is_empty():
        raise Missing(NOT_MEASURED.format(what))
    return table


def features(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Score of each feature kind: a bar with its interval per prompt, baselines as lines."""
    metric = shown_metric(rows, record)
    facts = metric_facts(metric)
    name = facts.title
    table = _feature_scores(rows, metric, f"{name} by feature kind")
    pairs = table.select("model", "task").unique(maintain_order=True).rows()
    stack = panels.stack_panels([f"{model} on {task}" for model, task in pairs], each=250)
    for row, (model, task) in enumerate(pairs[: len(stack.titles)], start=1):
        cells = table.filter((pl.col("model") == model) & (pl.col("task") == task))
        _bars(stack.figure, cells, row)
    stack.figure.update_layout(barmode="group")
    stack.figure.update_yaxes(title=name, range=[0, 1] if facts.bounds == UNIT else None)
    return theme.finish_figure(
        stack.figure,
        title=f"{name[:1].upper()}{name[1:]} of next-word features",
        caption=f"Test {name} of a linear classifier on each kind of feature. f is the hidden "
        "state; the other features are functions of the next-word distribution alone; zero-shot "
        "needs no training. Whiskers: 95 % intervals. Lines: baselines on the words of the texts."
        + panels.omitted_note(0, stack.hidden),
        height=stack.height,
    )


def _bars(figure: go.Figure, cells: pl.DataFrame, row: int) -> None:
    by_prompt = cells.filter(~pl.col("features").is_in(PROMPT_FREE))
    kinds = [k for k in FEATURE_LABELS if k in set(by_prompt["features"])]
    # No prompt first.
    prompts = sorted(by_prompt["prompt"].unique(maintain_order=True).to_list(), key=bool)
    for colour, prompt in zip(PROMPT_COLOURS, prompts, strict=False):
        chosen = by_prompt.filter(pl.col("prompt") == prompt).iter_rows(named=True)
        by_kind = {cell["features"]: cell for cell in chosen}
        shown = [by_kind[k] for k in kinds if k in by_kind]
        name = _prompt_label(prompt)
        figure.add_trace(
            go.Bar(
                x=[FEATURE_LABELS[c["features"]] for c in shown], y=[c["mean"] for c in shown],
                name=name, legendgroup=name, showlegend=row == 1, marker={"color": colour},
                error_y=_whiskers(shown), customdata=[[c["low"], c["high"]] for c in shown],
                meta={"columns": ["low", "high"]}, hovertemplate="%{x}: %{hovertext}",
                hovertext=[formats.interval(c["mean"], c["low"], c["high"]) for c in shown],
            ),
            row=row, col=1,
        )  # fmt: skip
    labels = [FEATURE_LABELS[k] for k in kinds]
    for cell in cells.filter(pl.col("features").is_in(PROMPT_FREE)).iter_rows(named=True):
        level = [cell["mean"]] * len(labels)
        panels.draw_baseline(figure, cell["features"], labels, level, row)


def _prompt_label(prompt: str) -> str:
    return formats.figure_label(f"prompt “{prompt.strip()}”" if prompt else "no prompt")


def _whiskers(shown: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    known = [c["low"] is not None and c["high"] is not None for c in shown]
    return {
        "type": "data",
        "symmetric": False,
        "array": [c["high"] - c["mean"] if k else 0 for c, k in zip(shown, known, strict=True)],
        "arrayminus": [c["mean"] - c["low"] if k else 0 for c, k in zip(shown, known, strict=True)],
        "thickness": 1.2,
    }


def prompts(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Score without and with the prompt, one line per feature kind."""
    metric = shown_metric(rows, record)
    name = metric_facts(metric).title
    table = _feature_scores(rows, metric, "prompts").filter(~pl.col("features").is_in(PROMPT_FREE))
    pairs = _prompt_pairs(table)
    if not pairs:
        raise Missing(
            "This figure needs scores with and without a prompt: cutaway nextword --task sst2, "
            "without --prompt and --no-prompt, measures both."
        )
    figure = go.Figure()
    colours = theme.assign_colours(list(dict.fromkeys(kind for kind, *_ in pairs)))
    for kind, suffix, without, with_prompt in pairs:
        figure.add_trace(
            go.Scatter(
                x=["without prompt", "with prompt"], y=[without, with_prompt],
                mode="lines+markers", name=formats.figure_label(f"{FEATURE_LABELS[kind]}{suffix}"),
                line={"color": colours[kind]}, hovertemplate="%{y:.3f}",
            )
        )  # fmt: skip
    figure.update_yaxes(title=name)
    return theme.finish_figure(
        figure,
        title="Effect of the prompt",
        caption=f"Test {name} without and with the prompt appended to each text. The paper "
        "predicts a larger gain for next-word features than for f, because the prompt turns the "
        "task into sentence completion.",
    )


def _prompt_pairs(table: pl.DataFrame) -> list[tuple[str, str, float, float]]:
    """(feature kind, suffix of its name, score without prompt, score with prompt)."""
    several = table.select("model", "task").unique().height > 1
    pairs = []
    for (model, task, kind), cells in table.group_by(
        ["model", "task", "features"], maintain_order=True
    ):
        means = dict(cells.select("prompt", "mean").rows())
        prompted = [p for p in means if p and "{text}" not in p]
        if "" in means and prompted:
            suffix = f" · {model} on {task}" if several else ""
            pairs.append((str(kind), suffix, means[""], means[prompted[-1]]))
    return pairs


def tokens(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """The tokens with the largest effect on the score of each class."""
    details = read_details(record, "tokens")
    measured = {d["features"] for d in details}
    kinds = [k for k in ("p", "subset", "classwords", "posneg") if k in measured]
    if not kinds:
        raise Missing(NOT_MEASURED.format("token weights (features p, subset or classwords)"))
    last = [d for d in details if d["features"] == kinds[0]][-1]
    cell = {name: last[name] for name in CELL_COLUMNS}
    own = [d for d in details if all(d[k] == v for k, v in cell.items())]
    labels = list(dict.fromkeys(d["label"] for d in own))
    least = MIN_EFFECT_SHARE * max(d["effect"] for d in own)
    stack = panels.stack_panels([f"class: {label}" for label in labels], each=190)
    for row, label in enumerate(labels[: len(stack.titles)], start=1):
        of_label = [d for d in own if d["label"] == label]
        shown = [d for d in of_label if d["effect"] > least][:MAX_TOKENS_SHOWN] or of_label[:1]
        bars = _token_bars(shown[::-1], theme.PALETTE[(row - 1) % 8])
        stack.figure.add_trace(bars, row=row, col=1)
    stack.figure.update_xaxes(title="effect on the class's score", row=len(stack.titles), col=1)
    return theme.finish_figure(
        stack.figure,
        title=f"Top tokens of each class ({FEATURE_LABELS[kinds[0]]}, "
        f"{_prompt_label(cell['prompt'])})",
        caption=f"{formats.shorten(cell['model'])} on {formats.shorten(cell['task'])}. Effect: "
        "the classifier's weight times the standard deviation of the feature."
        + panels.omitted_note(0, stack.hidden),
        pointer="Hover for a text of the class in which the token is most likely.",
        height=stack.height,
    )


def _token_bars(shown: list[dict[str, Any]], colour: str) -> go.Bar:
    names = [formats.figure_label(d["token"].replace(" ", "␣"), 24) for d in shown]
    return go.Bar(
        x=[d["effect"] for d in shown],
        y=[f"{name} #{d['id']}" for name, d in zip(names, shown, strict=True)],
        orientation="h", marker={"color": colour}, showlegend=False, name="effect",
        customdata=[[d["weight"]] for d in shown], meta={"columns": ["weight"]},
        hovertext=[formats.figure_label(" / ".join(d["examples"][:1]), 120) for d in shown],
        hovertemplate="%{y}<br>%{hovertext}<extra></extra>",
    )  # fmt: skip


def calibration(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Reliability diagram of zero-shot probabilities, without and with calibration."""
    details = read_details(record, "calibration")
    if not details:
        raise Missing(NOT_MEASURED.format("zero-shot answers (features zeroshot)"))
    figure = go.Figure()
    line = {"color": theme.NEUTRAL, "dash": "dot", "width": 1}
    figure.add_trace(
        go.Scatter(x=[0, 1], y=[0, 1], mode="lines", name="perfect calibration", line=line)
    )
    several = len({(d["model"], d["task"]) for d in details}) > 1
    for i, one in enumerate(details[: panels.MAX_SERIES]):
        suffix = f" · {one['model']} on {one['task']}" if several else ""
        figure.add_trace(
            go.Scatter(
                x=one["confidence"], y=one["accuracy"], mode="lines+markers",
                name=f"{FEATURE_LABELS[one['features']]}, {_prompt_label(one['prompt'])}"
                f"{formats.figure_label(suffix)} (ECE {formats.number(one['ece'])})",
                line={"color": theme.PALETTE[i % 8]},
                customdata=[[n] for n in one["count"]], meta={"columns": ["count"]},
                hovertemplate="confidence %{x:.2f}, accuracy %{y:.2f} (%{customdata[0]} texts)",
            )
        )  # fmt: skip
    figure.update_xaxes(title="confidence")
    figure.update_yaxes(title="accuracy")
    return theme.finish_figure(
        figure,
        title="Calibration of zero-shot probabilities",
        caption="Test texts binned by the probability of the predicted class (confidence), and the "
        "accuracy in each bin. ECE, the expected calibration error, is the mean distance from the "
        "dotted line." + panels.omitted_note(max(0, len(details) - panels.MAX_SERIES), 0),
    )


def confusion(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Confusion matrix of the feature kind with the most correct predictions."""
    details = read_details(record, "confusion")
    if not details:
        raise Missing(NOT_MEASURED.format("confusions"))
    best = max(details, key=lambda d: sum(d["counts"][i][i] for i in range(len(d["classes"]))))
    names = [formats.figure_label(c, 24) for c in best["classes"]]
    share = [[n / max(sum(line), 1) for n in line] for line in best["counts"]]
    figure = go.Figure(
        go.Heatmap(
            x=names, y=names, z=share, customdata=[[[n] for n in line] for line in best["counts"]],
            meta={"cell": "texts"}, coloraxis="coloraxis",
            # Text in a cell can't use customdata, only the hover text can.
            text=best["counts"], texttemplate="%{text:,}",
            hovertemplate="true %{y}, predicted %{x}: %{customdata[0]}<extra></extra>",
        )
    )  # fmt: skip
    figure.update_layout(coloraxis=theme.unit_coloraxis("share of the true class"))
    figure.update_xaxes(title="predicted")
    figure.update_yaxes(title="true", autorange="reversed")
    return theme.finish_figure(
        figure,
        title=f"Confusion matrix ({FEATURE_LABELS[best['features']]}, "
        f"{_prompt_label(best['prompt'])})",
        caption=f"Test texts of {formats.shorten(best['task'])}, {formats.shorten(best['model'])}:"
        " true class by row, predicted class by column. Numbers are texts, colour is the share of "
        "the row.",
    )


def losses(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """The loss curves of `cutaway quad`."""
    table = rows.filter(pl.col("step").is_not_null()) if "step" in rows.columns else rows.clear()
    if table.is_empty():
        raise Missing("This run has no training: cutaway quad --model smollm2-135m trains a model.")
    figure = go.Figure()
    several = table["model"].n_unique() > 1
    for i, ((model, metric), curve) in enumerate(
        table.group_by(["model", "metric"], maintain_order=True)
    ):
        suffix = f" · {model}" if several else ""
        figure.add_trace(
            go.Scatter(
                x=curve["step"].to_list(), y=curve["value"].to_list(), mode="lines+markers",
                name=formats.figure_label(f"{LOSS_LABELS.get(str(metric), metric)}{suffix}"),
                line={"color": theme.PALETTE[i % 8]}, hovertemplate="step %{x}: %{y:.4g}",
            )
        )  # fmt: skip
    figure.update_xaxes(title="step")
    figure.update_yaxes(title="loss per token")
    return theme.finish_figure(
        figure,
        title="Loss curves",
        caption="Mean loss per token: of the training batches since the previous evaluation, and "
        "of held-out texts with both objectives. The Quad objective doesn't train f for a softmax, "
        "so its cross-entropy is for comparison only.",
    )


FIGURES: dict[str, Callable[[pl.DataFrame, RunOrRuns], go.Figure]] = {
    "features": features,
    "prompts": prompts,
    "tokens": tokens,
    "calibration": calibration,
    "confusion": confusion,
    "losses": losses,
}
