"""Figures of the Live page: predictions, answers, probe outputs and early exits of one sentence.

Each takes the JSON-ready values that `cutaway.studies.live.serve` sends.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from cutaway.methods.shortcut.lens_page import visible_token
from cutaway.report import formats, theme

MAP_KIND_LABELS = {
    "id": "decoded by the logit lens (id)",
    "mat": "mapped linearly to the last layer, then decoded (mat)",
}
ROW_HEIGHT, MARGIN_HEIGHT = 22, 150
MAX_CLASSES = 8
LiveValues = Mapping[str, Any]


def lens_figure(values: LiveValues, kind: str) -> go.Figure:
    """The most likely next word per layer and token; a dot marks agreement with the full model."""
    words, probs, agree = (values[name][kind] for name in ("words", "probs", "agree"))
    layers, tokens = values["layers"], values["tokens"]
    figure = go.Figure(
        _grid(
            layers,
            tokens,
            [[cell[0] for cell in row] for row in probs],
            text=[[_word(cell[0], 9) for cell in row] for row in words],
            hover=[
                [_hover(tokens[t], layers[i], words[i][t], probs[i][t]) for t in range(len(tokens))]
                for i in range(len(layers))
            ],
            cell=("token", "word", "agrees"),
            extra=[
                [
                    (visible_token(tokens[t]), visible_token(words[i][t][0]), agree[i][t])
                    for t in range(len(tokens))
                ]
                for i in range(len(layers))
            ],
            bar="probability",
        )
    )
    figure.add_trace(_agreement_dots(layers, agree))
    _axes(figure, layers, tokens)
    return theme.finish_figure(
        figure,
        title="Next-word prediction of each layer",
        caption=f"{_map_kind_sentence(kind)} Rows are layers, the last on top; columns are tokens. "
        "Each cell shows the most likely next word (· is a space); brighter means more likely. "
        "A green dot marks the full model's prediction.",
        pointer="Hover for more words.",
        height=ROW_HEIGHT * len(layers) + MARGIN_HEIGHT,
    )


def exit_figure(values: LiveValues, kind: str, setting: float) -> go.Figure:
    """The confidence per layer and token, and the layer where an early exit would stop."""
    found = values["kinds"][kind]
    gaps, tokens = found["gap"], values["tokens"]
    layers = list(range(1, len(gaps) + 1))
    stops, kept = (found[name][f"{setting:.2f}"] for name in ("stops", "kept"))
    figure = go.Figure(
        _grid(
            layers,
            tokens,
            gaps,
            text=None,
            hover=[
                [
                    f"{_word(tokens[t])}, layer {i}: gap {gaps[i - 1][t]:.3f}"
                    for t in range(len(tokens))
                ]
                for i in layers
            ],
            cell=("token",),
            extra=[[(visible_token(token),) for token in tokens] for _ in layers],
            bar="gap",
        )
    )
    for right, name, colour in (
        (True, "same word as the full model", "#35c98e"),
        (False, "another word", "#ff8a3c"),
    ):
        mine = [t for t in range(len(tokens)) if bool(kept[t]) is right]
        if mine:
            figure.add_trace(_exit_markers(mine, [stops[t] for t in mine], f"stop, {name}", colour))
    _axes(figure, layers, tokens)
    mean, same = sum(stops) / len(stops), sum(map(bool, kept)) / len(kept)
    return theme.finish_figure(
        figure,
        title="Early exit layer per token",
        caption=f"{_map_kind_sentence(kind)} Brightness is the confidence: the probability of the "
        "most likely word minus that of the second. A diamond marks the first layer above lambda "
        f"{setting:g}: on average {mean:.1f} of {layers[-1]} layers are run, and {same:.0%} of the "
        "tokens keep the full model's prediction.",
        height=ROW_HEIGHT * len(layers) + MARGIN_HEIGHT + 30,
    )


def class_words_figure(values: LiveValues, *, share: bool = True) -> go.Figure:
    """The probability of each answer per layer, among the answers or among all words."""
    figure, layers = go.Figure(), values["layers"]
    names = _answers(values)[:MAX_CLASSES]
    several = len(values["probs"]) > 1
    for kind, rows in values["probs"].items():
        for place, (name, hue) in enumerate(zip(names, theme.PALETTE, strict=False)):
            y = [row[place] / max(sum(row), 1e-300) if share else row[place] for row in rows]
            figure.add_trace(
                _line(
                    layers,
                    y,
                    f"{name}, {kind}" if several else name,
                    hue,
                    dashed=several and kind == "id",
                )
            )
    figure.update_xaxes(title="layer")
    figure.update_yaxes(title="probability among the answers" if share else "probability")
    if share:
        figure.update_yaxes(range=[-0.02, 1.02])
    else:
        figure.update_yaxes(type="log", exponentformat="power")
    more = len(_answers(values)) - len(names)
    kinds = " Dashed: logit lens (id); solid: linear map (mat)." if several else ""
    return theme.finish_figure(
        figure,
        title="Probability of each answer by layer",
        caption="The probability of each answer after the sentence and the prompt, decoded from "
        "each layer." + kinds + (f" {more} more not shown." if more > 0 else ""),
        height=420,
    )


def probe_figure(values: LiveValues) -> go.Figure:
    """A probe's output for the sentence at each layer, with its score on held-out rows."""
    figure, layers, outputs = go.Figure(), values["layers"], values["said"]
    chances = values["task"] != "regression" and all(0 <= v <= 1 for row in outputs for v in row)
    names = list(values["classes"]) if len(outputs[0]) == len(values["classes"]) else ["score"]
    for place, (name, hue) in enumerate(zip(names[:MAX_CLASSES], theme.PALETTE, strict=False)):
        y = [row[place] for row in outputs]
        figure.add_trace(_line(layers, y, formats.figure_label(name, 32), hue))
    metric = values["metric"]
    held = _line(layers, values["held_out"], f"{metric} on held-out rows", theme.NEUTRAL)
    held.update(line={"dash": "dot", "color": theme.NEUTRAL, "width": 1.5}, mode="lines")
    figure.add_trace(held)
    figure.update_xaxes(title="layer")
    figure.update_yaxes(title="probability of the class" if chances else "the probe's score")
    if chances:
        figure.update_yaxes(range=[-0.02, 1.02])
    more = len(names) - MAX_CLASSES
    return theme.finish_figure(
        figure,
        title="Probe output by layer",
        caption=f"One {values['classifier']} probe per layer, fitted on {values['n_train']:,} rows "
        f"of {values['data']} (pooler {values['pool']}), tuned on {values['n_val']:,}. Grey: its "
        f"{metric} on {values['n_test']:,} held-out rows; near chance its output is meaningless."
        + (f" {more} more classes not shown." if more > 0 else ""),
        height=420,
    )


def _grid(
    layers: Sequence[int],
    tokens: Sequence[str],
    z: Sequence[Sequence[float]],
    *,
    text: Sequence[Sequence[str]] | None,
    hover: Sequence[Sequence[str]],
    cell: tuple[str, ...],
    extra: Sequence[Sequence[tuple[Any, ...]]],
    bar: str,
) -> go.Heatmap:
    return go.Heatmap(
        x=list(range(1, len(tokens) + 1)),
        y=list(layers),
        z=z,
        zmin=0,
        zmax=1,
        colorscale=theme.SEQUENTIAL,
        colorbar={"title": {"text": bar, "side": "right"}, "thickness": 10, "outlinewidth": 0},
        text=text,
        texttemplate=None if text is None else "%{text}",
        textfont={"size": 11},
        hovertext=hover,
        hovertemplate="%{hovertext}<extra></extra>",
        customdata=extra,
        meta={"cell": cell},
        xgap=1,
        ygap=1,
    )


def _agreement_dots(layers: Sequence[int], agree: Sequence[Sequence[bool]]) -> go.Scatter:
    """A dot in the corner of each cell that agrees with the full model."""
    same = [
        (t + 1.38, layer + 0.26)
        for layer, row in zip(layers, agree, strict=True)
        for t, yes in enumerate(row)
        if yes
    ]
    return go.Scatter(
        x=[x for x, _ in same],
        y=[y for _, y in same],
        mode="markers",
        marker={"color": "#35c98e", "size": 5},
        hoverinfo="skip",
        showlegend=False,
        # Not exported: the cells have this information.
        meta={"band": True},
    )


def _exit_markers(
    places: Sequence[int], stops: Sequence[int], name: str, colour: str
) -> go.Scatter:
    return go.Scatter(
        x=[t + 1 for t in places],
        y=list(stops),
        mode="markers",
        name=name,
        marker={
            "color": colour,
            "size": 11,
            "symbol": "diamond",
            "line": {"color": "#12161d", "width": 1},
        },
        hovertemplate="stops at layer %{y}<extra></extra>",
    )


def _axes(figure: go.Figure, layers: Sequence[int], tokens: Sequence[str]) -> None:
    places = list(range(1, len(tokens) + 1))
    figure.update_xaxes(
        tickvals=places, ticktext=[_word(token, 12) for token in tokens], tickangle=-40,
        range=[0.5, len(tokens) + 0.5], showgrid=False,
    )  # fmt: skip
    figure.update_yaxes(
        title="layer", tickmode="array", tickvals=list(layers), showgrid=False,
        range=[layers[0] - 0.5, layers[-1] + 0.5], tickfont={"size": 10},
    )  # fmt: skip


def _line(
    x: Sequence[Any], y: Sequence[float], name: str, hue: str, *, dashed: bool = False
) -> go.Scatter:
    return go.Scatter(
        x=list(x),
        y=list(y),
        name=name,
        mode="lines+markers",
        line={"color": hue, "width": 2, "dash": "dash" if dashed else "solid"},
        marker={"size": 5},
        hovertemplate="layer %{x}: %{y:.3g}",
    )


def _answers(values: LiveValues) -> list[str]:
    """Class and word; only one of them if they are equal."""
    pairs = zip(values["classes"], values["words"], strict=True)
    return [formats.figure_label(c if c == w else f"{c} ({w})", 32) for c, w in pairs]


def _map_kind_sentence(kind: str) -> str:
    return f"Layers are {MAP_KIND_LABELS.get(kind, f'decoded through {kind}')}."


def _word(word: str, limit: int = 24) -> str:
    return formats.figure_label(visible_token(word), limit)


def _hover(token: str, layer: int, words: Sequence[str], probs: Sequence[float]) -> str:
    lines = [f"{p:.3f}  {_word(w)}" for w, p in zip(words, probs, strict=True)]
    return "<br>".join([f"after {_word(token)}, layer {layer}", *lines])
