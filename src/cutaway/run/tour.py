"""The main job on the bundled model and data, as a story with a report at its end.

Each method adds its stop. A stop is a spec: run once, then found again by its address, so a
second tour takes seconds.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutaway.core.spec import build
from cutaway.models.check import check
from cutaway.models.load import open_model
from cutaway.report.html import write_html
from cutaway.run import nextword, probe
from cutaway.run.result import Result
from cutaway.run.screen import Screen
from cutaway.run.shortcut import eval as evaluate
from cutaway.run.shortcut import fit
from cutaway.run.specs import ProbeSpec
from cutaway.run.specs.nextword import NextwordSpec
from cutaway.run.specs.shortcut import EvalSpec, FitSpec


@dataclass(frozen=True)
class Stop:
    """One place the tour visits: a question, and the recipe that answers it."""

    question: str
    run: Callable[..., Result]
    spec: type
    options: dict[str, Any]


MAPS = "{out}/shortcut.safetensors"
# Several positions of each sentence: a map needs more rows than the model is wide.
DOCS = {"text": "docs", "limit": 1_000, "positions_per_text": 4}
PROBE = {
    "layers": "all",
    "pool": ["last", "mean"],
    "classifier": ["logistic", "lda", "centroid"],
    "protocol": "fixed",
}
NEXTWORD = {
    "data": "gen:sentiment",
    "prompt_text": " All in all, it was",
    "class_words": ["terrible", "great"],
    "subset_words": "great,good,terrible,bad,boring,fantastic,sad,happy,exciting",
    "features": "f,phi_p,subset,classwords,p,zeroshot",
}
STOPS: tuple[Stop, ...] = (
    Stop(
        "Which layers know whether a sentence is happy, when every telling word is new?",
        probe.run, ProbeSpec, {**PROBE, "data": "gen:sentiment"},
    ),
    Stop(
        "Which layers know the tense of a verb they were never shown?",
        probe.run, ProbeSpec, {**PROBE, "data": "gen:tense"},
    ),
    Stop(
        "Does predicting the next word already say whether a sentence is happy, by which words?",
        nextword.run, NextwordSpec, NEXTWORD,
    ),
    Stop(
        "How linear is the way from each layer to the last?",
        fit.run, FitSpec, {**DOCS, "layers": "to-final", "out": MAPS},
    ),
    Stop(
        "What would the model say if it stopped at each layer, as it is or after a jump?",
        evaluate.run, EvalSpec, {**DOCS, "shortcut": MAPS},
    ),
)  # fmt: skip
ROWS, QUICK_ROWS = 1_200, 300


def tour(out: Path, *, model: str, quick: bool = False, screen: Screen) -> str:
    """Take every stop, write OUT/report.html, and tell what was found."""
    begin = time.monotonic()
    story = [_introduce(model, screen)]
    results = []
    for number, stop in enumerate(STOPS, start=1):
        screen.say(f"\n{number} of {len(STOPS)}: {stop.question}")
        result = stop.run(_spec(stop, out, model, quick), screen=screen)
        results.append(result)
        story += [f"\n{stop.question}", *(f"  - {said}" for said in result.summary["verdict"])]
    page = write_html([r.record for r in results], out / "report.html", title="Cutaway tour")
    minutes = (time.monotonic() - begin) / 60
    story += [
        f"\nThe tour took {minutes:.1f} minutes. Open the report: {page}",
        f"Open the app:    cutaway app --runs {out / 'runs'}",
    ]
    return "\n".join(story)


def _spec(stop: Stop, out: Path, model: str, quick: bool) -> Any:
    limit = QUICK_ROWS if quick else ROWS
    placed = {
        name: value.format(out=out) if isinstance(value, str) else value
        for name, value in stop.options.items()
    }
    shared = {"limit": limit, "model": model, "runs": str(out / "runs")}
    return build(stop.spec, {**shared, **placed})


def _introduce(model: str, screen: Screen) -> str:
    """Check the model at the door and say what it is."""
    screen.say(f"Opening {model} and checking that what we read is what it computes ...")
    lm = open_model(model)
    report = check(lm)
    report.need_passed()
    return (
        f"{lm.name}: {lm.parameters / 1e6:.0f} M weights, {lm.layers} layers of {lm.width}; "
        f"{len(report.laws)} of {len(report.laws)} laws hold."
    )
