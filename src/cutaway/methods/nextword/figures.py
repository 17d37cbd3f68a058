"""The figures of `nextword`, by name.

A figure takes the rows and the run they come from; it raises Missing, with the way to mend it,
when the run holds nothing to draw.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import polars as pl

from cutaway.core.errors import Missing
from cutaway.methods.nextword import details as nextword_details
from cutaway.methods.nextword.table import FEATURE_LABELS, PROMPT_FREE, cell_means
from cutaway.report import formats, panels, theme
from cutaway.report.records import RunOrRuns

MAX_TOKENS_SHOWN = 8
# Tokens with less than this share of the loudest one's effect would be bars of no length.
MIN_EFFECT_SHARE = 0.01
NOT_MEASURED = "This run has no {}: cutaway nextword --task sst2 measures it."
PROMPT_COLOURS = (theme.PALETTE[5], theme.PALETTE[0], *theme.PALETTE[1:5])
LOSS_LABELS = {
    "loss": "training loss",
    "held_quad": "Quad loss, held out",
    "held_ce": "cross-entropy, held out",
}


def _feature_scores(rows: pl.DataFrame, what: str) -> pl.DataFrame:
    table = cell_means(rows).filter(pl.col("features").is_in(list(FEATURE_LABELS)))
    if table.filter(~pl.col("features").is_in(PROMPT_FREE)).is_empty():
        raise Missing(NOT_MEASURED.format(what))
    return table


def features(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """Accuracy by feature kind, a bar with its interval for each prompt, baselines across."""
    table = _feature_scores(rows, "accuracy by feature kind")
    pairs = table.select("model", "task").unique(maintain_order=True).rows()
    drawn = panels.stack_panels([f"{model} on {task}" for model, task in pairs], each=250)
    for place, (model, task) in enumerate(pairs[: len(drawn.titles)], start=1):
        mine = table.filter((pl.col("model") == model) & (pl.col("task") == task))
        _bars(drawn.figure, mine, place)
    drawn.figure.update_layout(barmode="group")
    drawn.figure.update_yaxes(title="accuracy", range=[0, 1])
    return theme.finish_figure(
        drawn.figure,
        title="What next-word features know of the task",
        caption="Test accuracy of a linear classifier on each kind of feature; f is the hidden "
        "state, the others are made of the next-word distribution alone, zero-shot needs no "
        "training. Whiskers give the 95 % interval, lines the baselines that see only the words."
        + panels.omitted_note(0, drawn.hidden),
        height=drawn.height,
    )


def _bars(figure: go.Figure, mine: pl.DataFrame, row: int) -> None:
    own = mine.filter(~pl.col("features").is_in(PROMPT_FREE))
    kinds = [k for k in FEATURE_LABELS if k in set(own["features"])]
    for colour, prompt in zip(PROMPT_COLOURS, _prompts(own), strict=False):
        found = {
            c["features"]: c for c in own.filter(pl.col("prompt") == prompt).iter_rows(named=True)
        }
        shown = [found[k] for k in kinds if k in found]
        name = _prompt_label(prompt)
        figure.add_trace(
            go.Bar(
                x=[FEATURE_LABELS[c["features"]] for c in shown],
                y=[c["mean"] for c in shown],
                name=name, legendgroup=name, showlegend=row == 1,
                marker={"color": colour},
                error_y=_whiskers(shown),
                customdata=[[c["low"], c["high"]] for c in shown],
                meta={"columns": ["low", "high"]},
                hovertext=[formats.interval(c["mean"], c["low"], c["high"]) for c in shown],
                hovertemplate="%{x}: %{hovertext}",
            ),
            row=row, col=1,
        )  # fmt: skip
    flat = mine.filter(pl.col("features").is_in(PROMPT_FREE))
    for c in flat.iter_rows(named=True):
        names = [FEATURE_LABELS[k] for k in kinds]
        panels.draw_baseline(figure, c["features"], names, [c["mean"]] * len(names), row)


def _prompts(table: pl.DataFrame) -> list[str]:
    """No prompt first."""
    return sorted(table["prompt"].unique(maintain_order=True).to_list(), key=lambda p: p != "")


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
    """For each kind, accuracy without the prompt and with it, joined by a line."""
    table = _feature_scores(rows, "prompts").filter(~pl.col("features").is_in(PROMPT_FREE))
    pairs = _prompt_pairs(table)
    if not pairs:
        raise Missing(
            "This figure compares both: cutaway nextword --task sst2 without --prompt and "
            "--no-prompt measures with and without."
        )
    figure = go.Figure()
    colours = theme.assign_colours(list(dict.fromkeys(kind for kind, *_ in pairs)))
    for kind, where, before, after in pairs:
        figure.add_trace(
            go.Scatter(
                x=["without prompt", "with prompt"], y=[before, after],
                mode="lines+markers", name=formats.figure_label(f"{FEATURE_LABELS[kind]}{where}"),
                line={"color": colours[kind]}, hovertemplate="%{y:.3f}",
            )
        )  # fmt: skip
    figure.update_yaxes(title="accuracy")
    return theme.finish_figure(
        figure,
        title="What the prompt adds",
        caption="Test accuracy without and with the prompt behind each text. The paper expects "
        "the lines of next-word features to rise more steeply than that of f: the prompt turns "
        "the task into a sentence to be completed.",
    )


def _prompt_pairs(table: pl.DataFrame) -> list[tuple[str, str, float, float]]:
    several = table.select("model", "task").unique().height > 1
    found = []
    for (model, task, kind), mine in table.group_by(
        ["model", "task", "features"], maintain_order=True
    ):
        means = dict(mine.select("prompt", "mean").rows())
        asked = [p for p in means if p and "{text}" not in p]
        if "" in means and asked:
            where = f" · {model} on {task}" if several else ""
            found.append((str(kind), where, means[""], means[asked[-1]]))
    return found


def tokens(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """The tokens that speak for each class, as bars of their effect."""
    told = nextword_details.read_details(record, "tokens")
    kinds = [
        k for k in ("p", "subset", "classwords", "posneg") if any(d["features"] == k for d in told)
    ]
    if not kinds:
        raise Missing(NOT_MEASURED.format("token weights (features p, subset or classwords)"))
    last = [d for d in told if d["features"] == kinds[0]][-1]
    cell = {name: last[name] for name in nextword_details.CELL_COLUMNS}
    mine = [d for d in told if all(d[k] == v for k, v in cell.items())]
    labels = list(dict.fromkeys(d["label"] for d in mine))
    loudest = max(d["effect"] for d in mine)
    drawn = panels.stack_panels([f"speaks for: {label}" for label in labels], each=190)
    for place, label in enumerate(labels[: len(drawn.titles)], start=1):
        own = [d for d in mine if d["label"] == label and d["effect"] > MIN_EFFECT_SHARE * loudest]
        own = own[:MAX_TOKENS_SHOWN] or [d for d in mine if d["label"] == label][:1]
        drawn.figure.add_trace(_token_bars(own, theme.PALETTE[(place - 1) % 8]), row=place, col=1)
    drawn.figure.update_xaxes(title="effect on the class's score", row=len(drawn.titles), col=1)
    return theme.finish_figure(
        drawn.figure,
        title=f"The words that carry it ({FEATURE_LABELS[kinds[0]]}, {_prompt_label(cell['prompt'])})",
        caption=f"{formats.shorten(cell['model'])} on {formats.shorten(cell['task'])}. Weight of the "
        "token in the classifier times the deviation of its feature: how far it moves the score "
        "of an ordinary text. Hover for a sentence of the class in which it is likeliest."
        + panels.omitted_note(0, drawn.hidden),
        height=drawn.height,
    )


def _token_bars(own: list[dict[str, Any]], colour: str) -> go.Bar:
    own = own[::-1]
    shown = [formats.figure_label(d["token"].replace(" ", "␣"), 24) for d in own]
    return go.Bar(
        x=[d["effect"] for d in own],
        y=[f"{s} #{d['id']}" for s, d in zip(shown, own, strict=True)],
        orientation="h", marker={"color": colour}, showlegend=False, name="effect",
        customdata=[[d["weight"]] for d in own], meta={"columns": ["weight"]},
        hovertext=[formats.figure_label(" / ".join(d["examples"][:1]), 120) for d in own],
        hovertemplate="%{y}<br>%{hovertext}<extra></extra>",
    )  # fmt: skip


def calibration(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """How often zero-shot answers of a confidence are right, plain and calibrated."""
    told = nextword_details.read_details(record, "calibration")
    if not told:
        raise Missing(NOT_MEASURED.format("zero-shot answers (features zeroshot)"))
    figure = go.Figure()
    line = {"color": theme.NEUTRAL, "dash": "dot", "width": 1}
    figure.add_trace(
        go.Scatter(x=[0, 1], y=[0, 1], mode="lines", name="as sure as right", line=line)
    )
    several = len({(d["model"], d["task"]) for d in told}) > 1
    for i, one in enumerate(told[: panels.MAX_SERIES]):
        where = f" · {one['model']} on {one['task']}" if several else ""
        figure.add_trace(
            go.Scatter(
                x=one["confidence"], y=one["accuracy"], mode="lines+markers",
                name=f"{FEATURE_LABELS[one['features']]}, {_prompt_label(one['prompt'])}"
                f"{formats.figure_label(where)} (ECE {formats.number(one['ece'])})",
                line={"color": theme.PALETTE[i % 8]},
                customdata=[[n] for n in one["count"]], meta={"columns": ["count"]},
                hovertemplate="sure %{x:.2f}, right %{y:.2f} (%{customdata[0]} texts)",
            )
        )  # fmt: skip
    figure.update_xaxes(title="how sure the answers were")
    figure.update_yaxes(title="how many were right")
    return theme.finish_figure(
        figure,
        title="Do zero-shot probabilities mean what they say",
        caption="Test texts by the probability of their likeliest class word, against the share "
        "of right answers. On the dotted line a 0.8 is right 80 % of the time; ECE is the mean "
        "distance from it." + panels.omitted_note(max(0, len(told) - panels.MAX_SERIES), 0),
    )


def confusion(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """True against called class, for the best kind of feature."""
    told = nextword_details.read_details(record, "confusion")
    if not told:
        raise Missing(NOT_MEASURED.format("confusions"))
    best = max(told, key=lambda d: sum(d["counts"][i][i] for i in range(len(d["classes"]))))
    names = [formats.figure_label(c, 24) for c in best["classes"]]
    share = [[n / max(sum(line), 1) for n in line] for line in best["counts"]]
    figure = go.Figure(
        go.Heatmap(
            x=names, y=names, z=share, customdata=[[[n] for n in line] for line in best["counts"]],
            meta={"cell": "texts"}, coloraxis="coloraxis",
            # Extra values are not known to the text in a square, only to what hovers over it.
            text=best["counts"], texttemplate="%{text:,}",
            hovertemplate="%{y} called %{x}: %{customdata[0]}<extra></extra>",
        )
    )  # fmt: skip
    figure.update_layout(coloraxis=theme.unit_coloraxis("share of the true class"))
    figure.update_xaxes(title="called")
    figure.update_yaxes(title="true", autorange="reversed")
    return theme.finish_figure(
        figure,
        title=f"Who is mistaken for whom ({FEATURE_LABELS[best['features']]}, {_prompt_label(best['prompt'])})",
        caption=f"Test texts of {formats.shorten(best['task'])}, {formats.shorten(best['model'])}: true "
        "class by row, called class by column; numbers are texts, colour is the share of the row.",
    )


def losses(rows: pl.DataFrame, record: RunOrRuns) -> go.Figure:
    """The loss curves of `cutaway quad`."""
    table = rows.filter(pl.col("step").is_not_null()) if "step" in rows.columns else rows.clear()
    if table.is_empty():
        raise Missing("This run trained nothing: cutaway quad --model smollm2-135m does.")
    figure = go.Figure()
    several = table["model"].n_unique() > 1
    for i, ((model, metric), mine) in enumerate(
        table.group_by(["model", "metric"], maintain_order=True)
    ):
        where = f" · {model}" if several else ""
        figure.add_trace(
            go.Scatter(
                x=mine["step"].to_list(), y=mine["value"].to_list(), mode="lines+markers",
                name=formats.figure_label(f"{LOSS_LABELS.get(str(metric), metric)}{where}"),
                line={"color": theme.PALETTE[i % 8]}, hovertemplate="step %{x}: %{y:.4g}",
            )
        )  # fmt: skip
    figure.update_xaxes(title="step")
    figure.update_yaxes(title="loss per token")
    return theme.finish_figure(
        figure,
        title="How training went",
        caption="Mean loss per token: of the training batches since the point before, and of "
        "held-out texts under both objectives. Under Quad f is no longer made for a softmax, so "
        "its cross-entropy is told for comparison only.",
    )


FIGURES: dict[str, Callable[[pl.DataFrame, RunOrRuns], go.Figure]] = {
    "features": features,
    "prompts": prompts,
    "tokens": tokens,
    "calibration": calibration,
    "confusion": confusion,
    "losses": losses,
}
