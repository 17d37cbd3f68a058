"""Drawings for the tests: values like those of a real model, of any size, and hostile words."""

import math
from dataclasses import replace

from cutaway.report.drawing.values import Drawing, LayerWord, Observation, Series, Track

HOSTILE = (
    "<script>alert(1)</script>", "]]>", "مرحبا", "👩‍👩‍👧", "\x00", "x" * 300, "", "   ", "\n",
    "&amp;", "\u202eevil", "\ud800", "a'b\"c", "\x1b[31m", " Paris", "日本語", "\ufffe",
)  # fmt: skip


def curve(layers: int, first: float, last: float, middle: float, steep: float = 8.0) -> list[float]:
    """A smooth rise from `first` to `last` around a relative depth."""
    places = [n / max(1, layers - 1) for n in range(layers)]
    return [first + (last - first) / (1 + math.exp(-steep * (x - middle))) for x in places]


def wobble(n: int) -> float:
    return math.sin(n * 2.4) * 0.012


def score_track(name: str, layers: int, middle: float, baseline: float = 0.53) -> Track:
    value = [min(0.999, v + wobble(n)) for n, v in enumerate(curve(layers, 0.45, 0.985, middle))]
    return Track(
        kind="property",
        name=name,
        method="probe",
        question="What each layer knows",
        label=f"{name}, accuracy above words alone ({baseline})",
        series={
            "value": tuple(value),
            "low": tuple(v - 0.05 * (1.05 - v) * 4 - 0.01 for v in value),
            "high": tuple(min(1.0, v + 0.03) for v in value),
            "control": tuple(0.62 + 0.2 * math.sin(n / 5) ** 2 for n in range(layers)),
        },
        sentence=f"{name.capitalize()} is known from layer 5: 0.97 [0.95, 0.99]; words give 0.53.",
        baseline=baseline,
        top=1.0,
        run="probe/0123",
        command=f"cutaway probe --model m --data gen:{name}",
    )


def other_tracks(layers: int) -> tuple[Track, ...]:
    agreement = [*(0.9 * v for v in curve(layers, 0.3, 1.0, 0.75, 6)[:-1]), 1.0]
    lens = curve(layers, 0.02, 0.62, 0.8, 6)
    trained = tuple(n >= layers - max(1, layers // 5) for n in range(layers))
    held = [0.5 ** (layers - n) if t else None for n, t in enumerate(trained)]
    heavy = {0: 0.34, 1: 0.2, max(1, int((layers - 1) * 0.4)): 0.06, layers - 1: 0.08}
    fisher = [
        heavy.get(n, 0.012 + abs(wobble(n)) * 0.6) * min(1.0, 30 / layers) for n in range(layers)
    ]
    return (
        Track(
            "agreement", "agreement", "shortcut", "What it would say",
            "agreement with the last layer",
            {"map": tuple(min(1.0, v) for v in agreement), "lens": (*lens[:-1], 1.0),
             "low": tuple(v - 0.01 for v in agreement),
             "high": tuple(min(1.0, v + 0.01) for v in agreement)},
            "Half of the final words are there from layer 20 on; with the logit lens from 30.",
            run="shortcut/0123", command="cutaway shortcut eval --model m",
        ),
        Track(
            "linearity", "linearity", "shortcut", "How straight?", "r² of a linear map",
            {"last": (*curve(layers, 0.4, 1.0, 0.5, 3)[:-1], None),
             "next": (*[0.9 + 3 * wobble(n) for n in range(layers - 1)], None)},
            "One matrix from layer 15 explains 69 % of the last layer.", run="shortcut/0123",
        ),
        Track(
            "skill", "skill", "graft", "Where a skill sits", "share of the skill's weights",
            {"mlp": tuple(None if v is None else v * 0.7 for v in held),
             "attention": tuple(None if v is None else v * 0.2 for v in held),
             "norm": tuple(None if v is None else v * 0.1 for v in held)},
            "0.1 % of the weights keep 78 % of it; the last block holds half.", trained=trained,
        ),
        Track(
            "fisher", "fisher", "inject", "Where it would clash", "share of the Fisher information",
            {"text": tuple(fisher),
             "skill": tuple(v * (0.8 + 20 * wobble(n + 1)) for n, v in enumerate(fisher))},
            "Arithmetic and plain text depend on the same layers: 0, 1 and 12.",
        ),
    )  # fmt: skip


def movement_track(layers: int) -> Track:
    return Track(
        "movement", "movement", "compare", "How far it moved", "relative change of the weights",
        {"change": tuple(0.002 + 0.02 * n / layers for n in range(layers))},
        "The last block moved most, by 2.2 %.",
    )  # fmt: skip


def example_words(layers: int) -> tuple[LayerWord, ...]:
    first = int(layers * 0.78)
    early = [" a"] * max(0, first - 4) + [" of", " a", "\n", " the"]
    early = early[-first:] if first else []
    return tuple(
        LayerWord(" Paris", 0.25 + 0.7 * (n - first + 1) / (layers - first), True)
        if n >= first
        else LayerWord(early[n], 0.1 + 0.4 * n / layers, False)
        for n in range(layers)
    )


def example(blocks: int = 30, scores: int = 2, movement: bool = False) -> Drawing:
    """A drawing with everything measured."""
    layers = blocks + 1
    names = ("tense", "sentiment", "plural", "topic", "negation", "person", "length", "entity")
    tracks = tuple(score_track(n, layers, 0.08 + 0.15 * i) for i, n in enumerate(names[:scores]))
    middle = max(1, int(blocks * 0.4))
    return Drawing(
        model="SmolLM2-135M",
        blocks=blocks,
        facts={"family": "llama", "kind": "causal", "width": 576, "parameters": 134_515_008},
        title="Known by layer 5, said from layer 24 on.",
        sentence="The capital of France is",
        words=example_words(layers),
        tracks=tracks + other_tracks(layers) + ((movement_track(layers),) if movement else ()),
        observations=(
            Observation(
                middle,
                min(blocks, middle + 1),
                f"Layers {middle} and {middle + 1}: tense, agreement and fisher jump "
                "(0.12, 0.07 and 0.2; usual steps are below 0.02).",
            ),
        ),
        verdict=(
            "Tense is known from layer 5 on.",
            "Half of the final words are there from layer 20 on.",
        ),
        footer="10 runs, 2026-11-18.",
    )


def unmeasured(drawing: Drawing, *names: str) -> Drawing:
    """The drawing with these tracks (or all) not measured."""

    def empty(track: Track) -> Track:
        command = f"cutaway {track.method} --model smollm2-135m --data gen:{track.name} --layers 0"
        return replace(track, series={}, sentence="", command=track.command or command)

    wanted = names or [track.name for track in drawing.tracks]
    tracks = tuple(empty(t) if t.name in wanted else t for t in drawing.tracks)
    return replace(drawing, tracks=tracks)


def with_gaps(drawing: Drawing) -> Drawing:
    """The drawing with every third layer not measured."""

    def thin(values: Series) -> Series:
        return tuple(None if n % 3 == 1 else v for n, v in enumerate(values))

    tracks = tuple(
        replace(t, series={name: thin(values) for name, values in t.series.items()})
        for t in drawing.tracks
    )
    return replace(drawing, tracks=tracks)


def hostile(blocks: int = 16) -> Drawing:
    """The drawing with hostile text everywhere."""
    base = example(blocks, scores=4)
    words = tuple(
        LayerWord(HOSTILE[n % len(HOSTILE)], n / (blocks + 1), n % 4 == 0)
        for n in range(blocks + 1)
    )
    nasty = HOSTILE[0] + "]]>&\x00"
    tracks = tuple(
        replace(
            t, name=nasty + t.name, method=nasty, question=nasty, label=nasty, sentence=nasty,
            command=nasty,
        )
        for t in base.tracks
    )  # fmt: skip
    return replace(
        base, model=nasty, title=nasty * 3, sentence=nasty * 40, words=words, tracks=tracks,
        observations=(Observation(1, 1, nasty),), footer=nasty, verdict=(nasty,),
    )  # fmt: skip


def all_examples() -> dict[str, Drawing]:
    """One drawing per case that the tests go through."""
    cases = {f"{n} blocks": example(n) for n in (1, 2, 6, 30, 80)}
    cases["nothing measured"] = unmeasured(example(12))
    cases["two not measured"] = unmeasured(example(30), "skill", "fisher")
    cases["gaps"] = with_gaps(example(30))
    cases["strips"] = example(30, scores=8)
    cases["strips with gaps"] = unmeasured(with_gaps(example(80, scores=6)), "plural")
    cases["four scores and movement"] = example(80, scores=4, movement=True)
    cases["hostile"] = hostile()
    cases["no words"] = replace(example(6), words=(), sentence="")
    cases["no tracks"] = replace(example(6), tracks=())
    return cases
