"""Where a skill and the rest clash: the Fisher of each, and how they overlap."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from cutaway.console import Console
from cutaway.core.errors import Corrupt, Missing
from cutaway.extract.model_handle import make_model_handle
from cutaway.methods.inject.arithmetic import answer_examples
from cutaway.methods.inject.examples import Examples
from cutaway.methods.inject.fisher_file import load_fisher
from cutaway.methods.inject.fisher_workers import sum_squared_gradients_on
from cutaway.methods.inject.maths.overlap import (
    LargestEntries,
    fisher_mass,
    jaccard,
    largest_entries,
    moving_average,
    rank_correlation,
    values_at,
)
from cutaway.methods.inject.retain import RetainedSet
from cutaway.methods.inject.rows import InjectCoordinates
from cutaway.methods.inject.skill import ArithmeticSkill
from cutaway.methods.inject.spec import InjectSpec
from cutaway.models.lm import LM
from cutaway.models.weight_location import weight_locator
from cutaway.recipe.table import Row
from cutaway.store import files
from cutaway.store.artefacts import load_artefact, save_artefact

FisherTensors = Mapping[str, Tensor]
TOP_ENTRIES, WINDOW = 800, 40
"""As in the paper: so many of the largest entries, and their moving average."""
RETAINED_FILE, OVERLAP_FILE = "retained.safetensors", "clash.json"


@dataclass(frozen=True)
class FisherOverlap:
    """Rows for the tables and curves for the figure."""

    rows: list[Row]
    tops: list[dict[str, Any]]


def retained_fisher(
    lm: LM,
    spec: InjectSpec,
    skill: ArithmeticSkill,
    kept: Sequence[RetainedSet],
    folder: Path,
    console: Console,
) -> tuple[FisherTensors | None, FisherOverlap | None]:
    """The Fisher of what should be kept, and where the skill's clashes with it; made only once.

    Neither where nothing asks for it. What is in `folder` is read back.
    """
    if not (spec.clash or "ewc" in spec.held):
        return None, None
    held, looked = _load_retained(spec, lm, folder), _load_overlap(folder)
    if held is not None and (looked is not None or not spec.clash):
        return held, looked
    view = None
    if spec.clash:
        console.print("Looking where the skill and the retained texts clash.")
        lessons = answer_examples(lm, skill.train, skill.spelling)
        own = mean_squared_gradients(
            lm, sample_examples(lessons, spec.fisher_examples, spec.seed), spec, console
        )
        view = FisherComparison(
            lm, InjectCoordinates(lm.name, spec.skill, "fisher"), "skill", own, seed=spec.seed
        )
        view.weigh("skill", own)
    held, parts = {}, 1 if spec.fisher is not None else len(kept)
    for name, part in _fisher_per_set(lm, spec, kept, console):
        if view is not None:
            view.compare(name, part)
        held = part if parts == 1 else {n: v / parts + held.get(n, 0) for n, v in part.items()}
    if view is not None:
        view.weigh("retained", held)
        files.write_sealed(folder / OVERLAP_FILE, asdict(view.found))
    if spec.fisher is None:
        save_artefact(folder / RETAINED_FILE, held, {"kind": "mean"})
    return held, None if view is None else view.found


def _load_retained(spec: InjectSpec, lm: LM, folder: Path) -> FisherTensors | None:
    """The Fisher that is there already: the file that was given, or the one made before."""
    if spec.fisher is not None:
        return load_fisher(spec.fisher, lm).tensors()
    try:
        kept = load_artefact(folder / RETAINED_FILE)
    except (Corrupt, Missing):
        return None
    return {name: kept.tensor(name) for name in kept.names}


def _load_overlap(folder: Path) -> FisherOverlap | None:
    try:
        kept = files.read_sealed(folder / OVERLAP_FILE)
    except (Corrupt, Missing):
        return None
    return FisherOverlap(kept["rows"], kept["tops"])


def _fisher_per_set(
    lm: LM, spec: InjectSpec, kept: Sequence[RetainedSet], console: Console
) -> Iterator[tuple[str, FisherTensors]]:
    """(name, Fisher) of each retained set, or of the file that was given."""
    if spec.fisher is not None:
        found = load_fisher(spec.fisher, lm)
        yield found.name, found.tensors()
        return
    share = max(1, spec.fisher_examples // len(kept))
    for one in kept:
        yield (
            one.name,
            mean_squared_gradients(lm, sample_examples(one.fit, share, spec.seed), spec, console),
        )


def mean_squared_gradients(
    lm: LM, examples: Examples, spec: InjectSpec, console: Console
) -> dict[str, Tensor]:
    """The mean over examples of the squared gradients of each."""
    # A model given as an object has a name of its own in the spec, by which nobody can open it.
    door = make_model_handle(lm, spec) if lm.name == spec.model else None
    sums = sum_squared_gradients_on(spec.engine, door, lm, examples, console=console)
    for value in sums.total.values():
        value /= len(examples)
    return sums.total


def sample_examples(examples: Examples, most: int, seed: int) -> Examples:
    """At most so many examples, drawn with the seed."""
    order = np.random.default_rng([seed, len(examples)]).permutation(len(examples))
    return examples.take(np.sort(order[:most]))


class FisherComparison:
    """One Fisher and its largest entries; others are looked at there, one after the other."""

    def __init__(
        self,
        lm: LM,
        where: InjectCoordinates,
        name: str,
        own: FisherTensors,
        *,
        seed: int,
        most: int = TOP_ENTRIES,
    ) -> None:
        self.own, self.seed, self.place, self.where = own, seed, weight_locator(lm), where
        layers = sorted({1, (lm.layers + 1) // 2, lm.layers})
        inside = {f"layer {i}": [n for n in own if self.place(n)[0] == i] for i in layers}
        groups = {"all layers": list(own), **inside}
        self.tops = {
            group: largest_entries({n: own[n] for n in names}, most)
            for group, names in groups.items()
            if names
        }
        self.found = FisherOverlap([], [{"where": group, "curves": {}} for group in self.tops])
        self._draw(name, own)

    def weigh(self, name: str, fisher: FisherTensors) -> None:
        """Rows of a Fisher's mass by layer and module."""
        self.found.rows.extend(
            self.where.row("fisher", f"{layer}/{module}", f"mass of {name}", value)
            for (layer, module), value in fisher_mass(fisher, self.place).items()
        )

    def compare(self, name: str, other: FisherTensors) -> dict[str, float]:
        """How far another Fisher overlaps with this one; its rows, and its curve at the top."""
        found = overlap_metrics(self.own, other, self.tops["all layers"], seed=self.seed)
        self.found.rows.extend(self.where.row("overlap", name, m, v) for m, v in found.items())
        self._draw(name, other)
        return found

    def _draw(self, name: str, fisher: FisherTensors) -> None:
        for panel, entries in zip(self.found.tops, self.tops.values(), strict=True):
            values = values_at(fisher, entries)
            panel["curves"][name] = {
                "values": _rounded(values),
                "mean": _rounded(moving_average(values, WINDOW)),
            }


def overlap_metrics(
    own: FisherTensors, other: FisherTensors, entries: LargestEntries, *, seed: int
) -> dict[str, float]:
    """How far the largest entries and the ranks of two Fishers agree, beside chance."""
    share = min(1.0, len(entries.names) / sum(v.numel() for v in own.values()))
    return {
        "jaccard": jaccard(entries, largest_entries(other, len(entries.names))),
        "chance": share / (2 - share),
        "rank_correlation": rank_correlation(own, other, rng=np.random.default_rng(seed)),
    }


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
