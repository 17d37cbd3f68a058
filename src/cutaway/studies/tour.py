"""The tour: all five methods on one model, with a report at the end.

Each stop is a verb with a spec. Finished runs are found by their address, so a second tour takes
seconds.
"""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from cutaway.catalog import VERBS, Verb
from cutaway.console import Console, messages_on
from cutaway.core.spec import build_spec
from cutaway.models.check import check
from cutaway.models.lm import LM
from cutaway.models.load import open_model
from cutaway.recipe import life_cycle
from cutaway.recipe.options import RunOptions
from cutaway.report.html import write_html


@dataclass(frozen=True)
class TourStop:
    """One step of the tour: a question and the verb that answers it."""

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
OPEN_OPTIONS = ("device", "dtype", "offline", "bos")
# In the runs folder, where the app's Live page looks for fitted maps.
MAPS_FILE = "{out}/runs/shortcut.safetensors"
# Several positions per sentence: fitting a map needs more rows than the model's width.
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
# Only the last fifth of the blocks is trained, which is quick and enough for this task.
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
        "Which layers encode sentiment, when no sentiment word of the test split is in training?",
        "probe", {**PROBE_OPTIONS, "data": "gen:sentiment"},
    ),
    TourStop(
        "Which layers encode the tense of verbs that are not in training?",
        "probe", {**PROBE_OPTIONS, "data": "gen:tense", "pool": "last"},
    ),
    TourStop(
        "Does next-word prediction already classify sentiment, and through which words?",
        "nextword", SENTIMENT_OPTIONS,
    ),
    TourStop(
        "Does it also classify topics?",
        "nextword", TOPIC_OPTIONS,
    ),
    TourStop(
        "Is the last layer a linear function of each earlier layer?",
        "shortcut fit", {**DOCS_OPTIONS, "layers": "final-and-next", "out": MAPS_FILE},
    ),
    TourStop(
        "How close is each layer to the final prediction, with and without a linear map?",
        "shortcut eval", {**DOCS_OPTIONS, "shortcut": MAPS_FILE},
    ),
    TourStop(
        "How many layers can an early exit skip without changing the prediction?",
        "shortcut exit", {**DOCS_OPTIONS, "shortcut": MAPS_FILE, "agreement": 0.95},
    ),
    TourStop(
        "Can the first layers draft tokens that the full model only verifies?",
        "shortcut generate", GENERATE_OPTIONS,
    ),
    TourStop(
        "How well does fine-tuning work with 16 examples per class?",
        "finetune",
        {**FINETUNE_OPTIONS, "params": "{last}", "steps": 20, "batch": 8, "lr": 0.02,
         "every": 10, "out": TUNED_FOLDER},
    ),
    TourStop(
        "Which few weights hold the fine-tuned skill?",
        "graft learn",
        {**FINETUNE_OPTIONS, "base": "{model}", "tuned": TUNED_FOLDER, "sparsity": 1e-3,
         "steps": 10, "step_examples": 16, "slope_examples": 8, "text_limit": 16,
         "baselines": "random,movement,grad_movement"},
    ),
    TourStop(
        "Can the model learn arithmetic, and what does that cost in language modelling?",
        "inject", ARITHMETIC_OPTIONS,
    ),
)  # fmt: skip
ROWS, QUICK_ROWS = 600, 300
DRAWN_DATA = ("gen:sentiment", "gen:tense")
"""The sets that the tour probes."""


@dataclass(frozen=True)
class TourResult:
    """The findings of the tour and the path of its report."""

    story: str
    report: str
    runs: str
    addresses: tuple[str, ...]
    seconds: float

    def plain(self) -> dict[str, Any]:
        """The result as JSON-ready values."""
        return asdict(self)


def tour(
    out: Path,
    *,
    model: str,
    quick: bool = False,
    shared: SharedOptions = NO_OPTIONS,
    console: Console,
) -> TourResult:
    """Run every stop and write OUT/report.html."""
    begin = time.monotonic()
    lm, introduction = _open_and_check(model, shared, console)
    story, records = [introduction], []
    for number, (stop, spec) in enumerate(tour_specs(lm, out, model, quick, shared), start=1):
        console.print(f"\n{number} of {len(TOUR_STOPS)}: {stop.question}")
        result = life_cycle.run(stop.verb, spec, life_cycle.Context(console))
        records.append(result.record)
        story += [f"\n{stop.question}", *(f"  - {sentence}" for sentence in result.verdict)]
    drawn = _draw(out, model, shared, console, lm)
    story[1:1] = ["\nWhat is inside the model?", *(f"  - {line}" for line in drawn.drawing.verdict)]
    page = write_html(
        records, out / "report.html", title="Cutaway tour", story="\n".join(story),
        drawings=[drawn.drawing],
    )  # fmt: skip
    seconds = time.monotonic() - begin
    story += [
        f"\nThe tour took {seconds / 60:.1f} minutes. Open the report: {page}",
        f"Open the app:    cutaway app --runs {out / 'runs'}",
    ]
    addresses = tuple(record.address for record in records)
    return TourResult("\n".join(story), str(page), str(out / "runs"), addresses, round(seconds, 1))


def _draw(out: Path, model: str, shared: SharedOptions, console: Console, lm: LM) -> Any:
    """The drawing of the model, made from the runs of the tour."""
    console.print("\nThe drawing: what is inside the model?")
    verb = VERBS["draw"]
    known = {name: v for name, v in shared.items() if name in verb.spec_class.model_fields}
    given = {**known, "model": model, "runs": f"{out}/runs", "data": DRAWN_DATA}
    spec: Any = build_spec(verb.spec_class, given)
    return life_cycle.run(verb, spec, life_cycle.Context(console, {model: lm}))


def tour_specs(
    lm: LM, out: Path, model: str, quick: bool = False, shared: SharedOptions = NO_OPTIONS
) -> list[tuple[TourStop, RunOptions]]:
    """Every stop with its spec; `shared` are options of all verbs: seed, device ..."""
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
    """Open the model with the shared options."""
    options = {name: shared[name] for name in OPEN_OPTIONS if name in shared}
    return open_model(model, track_changes=False, **options)


def _open_and_check(model: str, shared: SharedOptions, console: Console) -> tuple[LM, str]:
    """Open and check the model; returns it with a sentence about it."""
    console.print(f"Opening {model} and verifying that its activations are read correctly ...")
    with messages_on(console):
        lm = open_tour_model(model, shared)
    report = check(lm)
    report.need_passed()
    return lm, (
        f"{lm.name}: {lm.parameters / 1e6:.0f} M parameters, {lm.layers} layers of width "
        f"{lm.width}; all {len(report.checks)} consistency checks passed."
    )
