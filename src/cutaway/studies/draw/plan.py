"""What the drawing is made of: a step per track, each a verb with its options."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from cutaway.catalog import VERBS, Verb
from cutaway.core.spec import build_spec
from cutaway.models.lm import LM
from cutaway.recipe.options import RunOptions
from cutaway.report.drawing.values import Track
from cutaway.store.results import Record
from cutaway.studies.draw import tracks
from cutaway.studies.draw.spec import DrawSpec

TEXTS = "docs"
FISHER_TOKENS, POSITIONS = 64, 4
PROBE_OPTIONS = {
    "layers": "all", "classifier": "logistic", "repeats": 5,
    "baselines": ("majority", "bow", "tfidf", "control"),
}  # fmt: skip
POOLS = {"causal": "last", "masked": "mean"}


@dataclass(frozen=True)
class Sizes:
    """Rows of each probe, texts of the linear maps, texts of the Fisher information."""

    rows: int
    fit_texts: int
    fisher_texts: int


@dataclass(frozen=True)
class ProbeSet:
    """A labelled set as it was given, its own name, and how it is split."""

    data: str
    name: str
    protocol: str


FULL, QUICK = Sizes(600, 1_000, 32), Sizes(240, 400, 8)


@dataclass(frozen=True)
class Step:
    """One run that fills one track."""

    words: str
    """The verb, as in the catalog."""
    options: Mapping[str, Any]
    read: Callable[[Record], Track | None]
    """The track of a finished run; None if the run lacks what the track needs."""
    empty: Track
    """The track before it is measured."""

    @property
    def verb(self) -> Verb:
        """The catalog's row."""
        return VERBS[self.words]

    def spec(self) -> RunOptions:
        """The options as the verb's spec."""
        built: Any = build_spec(self.verb.spec_class, self.options)
        return cast(RunOptions, built)


def steps(
    lm: LM, spec: DrawSpec, sets: Sequence[ProbeSet], shared: Mapping[str, Any]
) -> list[Step]:
    """The steps of the chosen tracks, in the order in which they are measured.

    The maps come first: they give the words in the drawing, and the agreement needs them.
    """
    sizes, made = QUICK if spec.quick else FULL, list[Step]()
    if {"agreement", "linearity"} & set(spec.tracks):
        made.append(_fit_step(lm, sizes, shared))
    if "agreement" in spec.tracks and lm.has_head:
        made.append(_eval_step(lm, sizes, shared))
    if "property" in spec.tracks:
        made += [_probe_step(lm, sizes, shared, one) for one in sets]
    if "fisher" in spec.tracks and lm.has_head and spec.quantise == "none":
        made.append(_fisher_step(lm, sizes, shared))
    return made


def with_maps(step: Step, path: str) -> Step:
    """The step with the file of the maps, which is known after they are fitted."""
    return replace(step, options={**step.options, "shortcut": path})


def _probe_step(lm: LM, sizes: Sizes, shared: Mapping[str, Any], of: ProbeSet) -> Step:
    """A probe of every layer on one data set."""
    options = {
        **shared, **PROBE_OPTIONS, "data": of.data, "protocol": of.protocol, "pool": POOLS[lm.kind],
        "limit": sizes.rows,
    }  # fmt: skip
    name = tracks.track_name(of.name)
    empty = Track("property", name, "probe", "What each layer knows", name)
    return Step("probe", options, lambda r: tracks.probe_track(r, of.name, lm.layers), empty)


def _fit_step(lm: LM, sizes: Sizes, shared: Mapping[str, Any]) -> Step:
    """Linear maps from every layer to the last and to the next one."""
    options = {**_texts(sizes, shared), "layers": "final-and-next"}
    empty = Track("linearity", "linearity", "shortcut", "How linear?", "r² to the last layer")
    return Step("shortcut fit", options, lambda r: tracks.linearity_track(r, lm.layers), empty)


def _eval_step(lm: LM, sizes: Sizes, shared: Mapping[str, Any]) -> Step:
    """The agreement of every layer with the full model, through the maps in a file."""
    options = {**_texts(sizes, shared), "shortcut": "", "parts": False}
    label = "agreement with the last layer"
    empty = Track("agreement", "agreement", "shortcut", "What it would say", label)
    return Step("shortcut eval", options, lambda r: tracks.agreement_track(r, lm.layers), empty)


def _fisher_step(lm: LM, sizes: Sizes, shared: Mapping[str, Any]) -> Step:
    """The Fisher information of plain text by layer."""
    options = {
        **shared, "text": TEXTS, "max_tokens": FISHER_TOKENS, "file": False,
        "limit": sizes.fisher_texts,
    }  # fmt: skip
    label = "share of the Fisher information"
    empty = Track("fisher", "fisher", "inject", "Where it would clash", label)
    return Step("fisher", options, lambda record: tracks.fisher_track(record, lm.layers), empty)


def _texts(sizes: Sizes, shared: Mapping[str, Any]) -> dict[str, Any]:
    limit = sizes.fit_texts
    return {**shared, "text": TEXTS, "limit": limit, "positions_per_text": POSITIONS}
