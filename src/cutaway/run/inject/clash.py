"""Where a skill and the rest clash: the Fisher of each, and how they overlap."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from cutaway.core.errors import Corrupt, Missing
from cutaway.methods.inject.overlap import (
    Top,
    at,
    jaccard,
    mass,
    moving_average,
    rank_correlation,
    top,
)
from cutaway.models.lm import LM
from cutaway.run.door import door_of
from cutaway.run.inject.arithmetic import answer_examples
from cutaway.run.inject.examples import Examples
from cutaway.run.inject.files import load_fisher
from cutaway.run.inject.parts import add_up_on
from cutaway.run.inject.places import place_of
from cutaway.run.inject.retain import Kept
from cutaway.run.inject.rows import Where
from cutaway.run.inject.skill import Skill
from cutaway.run.screen import Screen
from cutaway.run.specs.inject import InjectSpec
from cutaway.run.table import Row
from cutaway.store import files
from cutaway.store.artefacts import load_artefact, save_artefact

Fisher = Mapping[str, Tensor]
TOP, WINDOW = 800, 40
"""As in the paper: so many of the largest entries, and their moving average."""
HELD, LOOKED = "retained.safetensors", "clash.json"


@dataclass(frozen=True)
class Clash:
    """Rows for the tables and curves for the figure."""

    rows: list[Row]
    tops: list[dict[str, Any]]


def fishers(
    lm: LM, spec: InjectSpec, skill: Skill, kept: Sequence[Kept], folder: Path, screen: Screen
) -> tuple[Fisher | None, Clash | None]:
    """The Fisher of what should be kept, and where the skill's clashes with it; made only once.

    Neither where nothing asks for it. What is in `folder` is read back.
    """
    if not (spec.clash or "ewc" in spec.held):
        return None, None
    held, looked = _held(spec, lm, folder), _looked(folder)
    if held is not None and (looked is not None or not spec.clash):
        return held, looked
    view = None
    if spec.clash:
        screen.say("Looking where the skill and the retained texts clash.")
        lessons = answer_examples(lm, skill.train, skill.spelling)
        own = fisher_on(lm, some(lessons, spec.fisher_examples, spec.seed), spec, screen)
        view = View(lm, Where(lm.name, spec.skill, "fisher"), "skill", own, seed=spec.seed)
        view.weigh("skill", own)
    held, parts = {}, 1 if spec.fisher is not None else len(kept)
    for name, part in _parts(lm, spec, kept, screen):
        if view is not None:
            view.compare(name, part)
        held = part if parts == 1 else {n: v / parts + held.get(n, 0) for n, v in part.items()}
    if view is not None:
        view.weigh("retained", held)
        files.write_sealed(folder / LOOKED, asdict(view.found))
    if spec.fisher is None:
        save_artefact(folder / HELD, held, {"kind": "mean"})
    return held, None if view is None else view.found


def _held(spec: InjectSpec, lm: LM, folder: Path) -> Fisher | None:
    """The Fisher that is there already: the file that was given, or the one made before."""
    if spec.fisher is not None:
        return load_fisher(spec.fisher, lm).tensors()
    try:
        kept = load_artefact(folder / HELD)
    except (Corrupt, Missing):
        return None
    return {name: kept.tensor(name) for name in kept.names}


def _looked(folder: Path) -> Clash | None:
    try:
        kept = files.read_sealed(folder / LOOKED)
    except (Corrupt, Missing):
        return None
    return Clash(kept["rows"], kept["tops"])


def _parts(
    lm: LM, spec: InjectSpec, kept: Sequence[Kept], screen: Screen
) -> Iterator[tuple[str, Fisher]]:
    """(name, Fisher) of each retained set, or of the file that was given."""
    if spec.fisher is not None:
        found = load_fisher(spec.fisher, lm)
        yield found.name, found.tensors()
        return
    share = max(1, spec.fisher_examples // len(kept))
    for one in kept:
        yield one.name, fisher_on(lm, some(one.fit, share, spec.seed), spec, screen)


def fisher_on(lm: LM, examples: Examples, spec: InjectSpec, screen: Screen) -> dict[str, Tensor]:
    """The mean over examples of the squared gradients of each."""
    # A model given as an object has a name of its own in the spec, by which nobody can open it.
    door = door_of(lm, spec) if lm.name == spec.model else None
    sums = add_up_on(spec.engine, door, lm, examples, screen=screen)
    for value in sums.total.values():
        value /= len(examples)
    return sums.total


def some(examples: Examples, most: int, seed: int) -> Examples:
    """At most so many examples, drawn with the seed."""
    order = np.random.default_rng([seed, len(examples)]).permutation(len(examples))
    return examples.take(np.sort(order[:most]))


class View:
    """One Fisher and its largest entries; others are looked at there, one after the other."""

    def __init__(
        self, lm: LM, where: Where, name: str, own: Fisher, *, seed: int, most: int = TOP
    ) -> None:
        self.own, self.seed, self.place, self.where = own, seed, place_of(lm), where
        layers = sorted({1, (lm.layers + 1) // 2, lm.layers})
        inside = {f"layer {i}": [n for n in own if self.place(n)[0] == i] for i in layers}
        groups = {"all layers": list(own), **inside}
        self.tops = {
            group: top({n: own[n] for n in names}, most) for group, names in groups.items() if names
        }
        self.found = Clash([], [{"where": group, "curves": {}} for group in self.tops])
        self._draw(name, own)

    def weigh(self, name: str, fisher: Fisher) -> None:
        """Rows of a Fisher's mass by layer and module."""
        self.found.rows.extend(
            self.where.row("fisher", f"{layer}/{module}", f"mass of {name}", value)
            for (layer, module), value in mass(fisher, self.place).items()
        )

    def compare(self, name: str, other: Fisher) -> dict[str, float]:
        """How far another Fisher overlaps with this one; its rows, and its curve at the top."""
        found = overlap(self.own, other, self.tops["all layers"], seed=self.seed)
        self.found.rows.extend(self.where.row("overlap", name, m, v) for m, v in found.items())
        self._draw(name, other)
        return found

    def _draw(self, name: str, fisher: Fisher) -> None:
        for panel, entries in zip(self.found.tops, self.tops.values(), strict=True):
            values = at(fisher, entries)
            panel["curves"][name] = {
                "values": _short(values),
                "mean": _short(moving_average(values, WINDOW)),
            }


def overlap(own: Fisher, other: Fisher, entries: Top, *, seed: int) -> dict[str, float]:
    """How far the largest entries and the ranks of two Fishers agree, beside chance."""
    share = min(1.0, len(entries.names) / sum(v.numel() for v in own.values()))
    return {
        "jaccard": jaccard(entries, top(other, len(entries.names))),
        "chance": share / (2 - share),
        "rank_correlation": rank_correlation(own, other, rng=np.random.default_rng(seed)),
    }


def _short(values: np.ndarray) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
