"""The main job on the bundled model and data, as a story with a report at its end.

Each method adds its stop. A stop is a spec: run once, then found again by its address, so a
second tour takes seconds.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from cutaway.catalog import VERBS, Verb
from cutaway.console import Console
from cutaway.core.spec import build_spec
from cutaway.models.check import check
from cutaway.models.lm import LM
from cutaway.models.load import open_model
from cutaway.recipe import life_cycle
from cutaway.recipe.options import RunOptions
from cutaway.recipe.result import Result
from cutaway.report.html import write_html


@dataclass(frozen=True)
class TourStop:
    """One place the tour visits: a question, and the recipe that answers it."""

    question: str
    words: str
    """The verb, as in the catalog."""
    options: dict[str, Any]

    @property
    def verb(self) -> Verb:
        """The catalog's row."""
        return VERBS[self.words]


SharedOptions = Mapping[str, Any]
NO_OPTIONS: SharedOptions = MappingProxyType({})
OPEN_OPTIONS = ("device", "dtype", "offline")
# Under the runs, where the app's Live page looks for fitted maps.
MAPS_FILE = "{out}/runs/shortcut.safetensors"
# Several positions of each sentence: a map needs more rows than the model is wide.
DOCS_OPTIONS = {"text": "docs", "limit": 1_000, "positions_per_text": 4}
PROBE_OPTIONS = {
    "layers": "all",
    "pool": ["last", "mean"],
    "classifier": ["logistic", "lda", "centroid"],
    "protocol": "fixed",
}
SENTIMENT_OPTIONS = {
    "data": "gen:sentiment",
    "prompt_text": " All in all, it was",
    "class_words": ["terrible", "great"],
    "subset_words": "great,good,terrible,bad,boring,fantastic,sad,happy,exciting",
    "features": "f,phi_p,subset,classwords,p,zeroshot",
}
TOPIC_OPTIONS = {
    "data": "gen:topic",
    "prompt_text": " This is all about",
    "class_words": ["business", "cooking", "science", "sport"],
    "subset_words": "business,money,market,food,cooking,science,research,sport,sports,football",
    "features": "f,phi_p,subset,classwords,zeroshot",
    "limit": 400,
}
GENERATE_OPTIONS = {
    "shortcut": MAPS_FILE,
    "prompt": "The ship left the harbour at dawn, and",
    "max_new_tokens": 32,
}
# The last fifth of the blocks learns: quick, and enough for a few words of feeling.
FINETUNE_OPTIONS = {
    "task": "sst2",
    "data": "gen:sentiment",
    "template": "{{text}} All in all, it was",
    "words": ["bad", "good"],
    "shots": 16,
    "test_limit": 40,
}
TUNED_FOLDER = "{out}/tuned"
ARITHMETIC_OPTIONS = {
    "data": "gen:arithmetic?n=600,dev=30,test=60,ops=+,digits=1-2",
    "regulariser": "none,ewc",
    "strength": [1.0],
    "retain": "docs",
    "retain_limit": 80,
    "max_tokens": 24,
    "fisher_examples": 16,
    "weights": "last",
    "steps": 30,
    "every": 15,
    "batch": 16,
    "lr": 3e-4,
    "checkpoints": False,
}
TOUR_STOPS: tuple[TourStop, ...] = (
    TourStop(
        "Which layers know whether a sentence is happy, when every telling word is new?",
        "probe", {**PROBE_OPTIONS, "data": "gen:sentiment"},
    ),
    TourStop(
        "Which layers know the tense of a verb they were never shown?",
        "probe", {**PROBE_OPTIONS, "data": "gen:tense", "pool": "last"},
    ),
    TourStop(
        "Does predicting the next word already say whether a sentence is happy, by which words?",
        "nextword", SENTIMENT_OPTIONS,
    ),
    TourStop(
        "Does it also say what a sentence is about?",
        "nextword", TOPIC_OPTIONS,
    ),
    TourStop(
        "How linear is the way from each layer to the last?",
        "shortcut fit", {**DOCS_OPTIONS, "layers": "to-final", "out": MAPS_FILE},
    ),
    TourStop(
        "What would the model say if it stopped at each layer, as it is or after a jump?",
        "shortcut eval", {**DOCS_OPTIONS, "shortcut": MAPS_FILE},
    ),
    TourStop(
        "How many layers could it skip without changing its answer?",
        "shortcut exit", {**DOCS_OPTIONS, "shortcut": MAPS_FILE, "agreement": 0.95},
    ),
    TourStop(
        "Can its own first layers draft what the whole model then only checks?",
        "shortcut generate", GENERATE_OPTIONS,
    ),
    TourStop(
        "Can the model be taught to say it, with 16 examples a class?",
        "finetune",
        {**FINETUNE_OPTIONS, "params": "{last}", "steps": 20, "batch": 8, "lr": 0.02,
         "every": 10, "out": TUNED_FOLDER},
    ),
    TourStop(
        "Which few weights hold what it was taught?",
        "graft learn",
        {**FINETUNE_OPTIONS, "base": "{model}", "tuned": TUNED_FOLDER, "sparsity": 1e-3, "steps": 10,
         "step_examples": 16, "slope_examples": 8, "text_limit": 16,
         "baselines": "random,movement,grad_movement"},
    ),
    TourStop(
        "Can it be taught sums, and what does that cost its language?",
        "inject", ARITHMETIC_OPTIONS,
    ),
)  # fmt: skip
ROWS, QUICK_ROWS = 600, 300


@dataclass(frozen=True)
class TourResult:
    """What the tour found, and where its report lies."""

    story: str
    report: str
    runs: str
    addresses: tuple[str, ...]
    seconds: float

    def plain(self) -> dict[str, Any]:
        """As JSON-ready values."""
        return asdict(self)


def tour(
    out: Path,
    *,
    model: str,
    quick: bool = False,
    shared: SharedOptions = NO_OPTIONS,
    console: Console,
) -> TourResult:
    """Take every stop, write OUT/report.html, and tell what was found."""
    begin = time.monotonic()
    lm, said = _open_and_check(model, shared, console)
    story, records = [said], []
    for number, (stop, spec) in enumerate(tour_specs(lm, out, model, quick, shared), start=1):
        console.print(f"\n{number} of {len(TOUR_STOPS)}: {stop.question}")
        found = life_cycle.run(stop.verb, spec, life_cycle.Context(console))
        # A text that was written leaves no run: what it showed is told, here and in the report.
        records += [found.record] if isinstance(found, Result) else []
        story += [f"\n{stop.question}", *(f"  - {said}" for said in found.verdict)]
    page = write_html(records, out / "report.html", title="Cutaway tour", story="\n".join(story))
    seconds = time.monotonic() - begin
    story += [
        f"\nThe tour took {seconds / 60:.1f} minutes. Open the report: {page}",
        f"Open the app:    cutaway app --runs {out / 'runs'}",
    ]
    addresses = tuple(record.address for record in records)
    return TourResult("\n".join(story), str(page), str(out / "runs"), addresses, round(seconds, 1))


def tour_specs(
    lm: LM, out: Path, model: str, quick: bool = False, shared: SharedOptions = NO_OPTIONS
) -> list[tuple[TourStop, RunOptions]]:
    """Every stop with its spec. `shared` are options that every recipe has: seed, device ..."""
    places = {"out": str(out), "model": model, "last": last_blocks(lm)}
    stops = [stop for stop in TOUR_STOPS if stop.words in VERBS]
    return [(stop, _stop_spec(stop, places, quick, shared)) for stop in stops]


def last_blocks(lm: LM) -> str:
    """Name patterns of the last fifth of the blocks."""
    count = len(lm.blocks)
    chosen = range(count - max(1, count // 5), count)
    return ",".join(f"{lm.anatomy.blocks}.{number}.*" for number in chosen)


def _stop_spec(
    stop: TourStop, places: dict[str, str], quick: bool, options: SharedOptions
) -> RunOptions:
    placed = {
        name: value.format(**places) if isinstance(value, str) else value
        for name, value in stop.options.items()
    }
    limit, runs = QUICK_ROWS if quick else ROWS, f"{places['out']}/runs"
    shared = {**options, "limit": limit, "model": places["model"], "runs": runs}
    known = {
        name: value for name, value in shared.items() if name in stop.verb.spec_class.model_fields
    }
    spec: Any = build_spec(stop.verb.spec_class, {**known, **placed})
    return cast(RunOptions, spec)


def open_tour_model(model: str, shared: SharedOptions = NO_OPTIONS) -> LM:
    """The model, as the options of the stops say."""
    told = {name: shared[name] for name in OPEN_OPTIONS if name in shared}
    return open_model(model, track_changes=False, **told)


def _open_and_check(model: str, shared: SharedOptions, console: Console) -> tuple[LM, str]:
    """The model, checked at the door, and what it is."""
    console.print(f"Opening {model} and checking that what we read is what it computes ...")
    lm = open_tour_model(model, shared)
    report = check(lm)
    report.need_passed()
    return lm, (
        f"{lm.name}: {lm.parameters / 1e6:.0f} M weights, {lm.layers} layers of {lm.width}; "
        f"All {len(report.checks)} consistency checks passed."
    )
