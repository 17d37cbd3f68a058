"""Where a skill and the rest clash: the Fisher of each, and how they overlap."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from cutaway.methods.inject.overlap import (
    at,
    jaccard,
    mass,
    moving_average,
    rank_correlation,
    top,
)
from cutaway.models.lm import LM
from cutaway.run.inject.arithmetic import answer_examples
from cutaway.run.inject.examples import Examples
from cutaway.run.inject.files import load_fisher
from cutaway.run.inject.places import place_of
from cutaway.run.inject.retain import Kept
from cutaway.run.inject.rows import Where
from cutaway.run.inject.skill import Skill
from cutaway.run.inject.sums import add_up
from cutaway.run.screen import Screen
from cutaway.run.specs.inject import InjectSpec
from cutaway.run.table import Row

TOP, WINDOW = 800, 40
"""As in the paper: so many of the largest entries, and their moving average."""


def fisher_on(lm: LM, examples: Examples, screen: Screen) -> dict[str, Tensor]:
    """The mean over examples of the squared gradients of each."""
    sums = add_up(lm, examples, screen=screen)
    for value in sums.total.values():
        value /= len(examples)
    return sums.total


def some(examples: Examples, most: int, seed: int) -> Examples:
    """At most so many examples, drawn with the seed."""
    order = np.random.default_rng([seed, len(examples)]).permutation(len(examples))
    return examples.take(np.sort(order[:most]))


def retained_fisher(
    lm: LM, spec: InjectSpec, kept: Sequence[Kept], screen: Screen
) -> dict[str, Tensor]:
    """The Fisher of what should be kept: from the file, or made on the retained texts."""
    if spec.fisher is not None:
        return load_fisher(spec.fisher, lm).tensors()
    share = max(1, spec.fisher_examples // len(kept))
    found: dict[str, Tensor] = {}
    for one in kept:
        part = fisher_on(lm, some(one.fit, share, spec.seed), screen)
        found = {n: v / len(kept) + (found[n] if found else 0) for n, v in part.items()}
    return found


@dataclass(frozen=True, eq=False)
class Clash:
    """Rows for the tables and lists for the figure."""

    rows: list[Row]
    curves: dict[str, Any]


def clash(
    lm: LM,
    spec: InjectSpec,
    skill: Skill,
    retained: Mapping[str, Tensor],
    screen: Screen,
) -> Clash:
    """The mass of both Fishers by layer and module, their overlap, and one at the other's top."""
    screen.say("Looking where the skill and the retained texts clash.")
    lessons = some(
        answer_examples(lm, skill.train, skill.spelling), spec.fisher_examples, spec.seed
    )
    own = fisher_on(lm, lessons, screen)
    where, place = Where(lm.name, spec.skill, "fisher"), place_of(lm)
    rows = [
        where.row("fisher", f"{layer}/{module}", f"mass of {name}", value)
        for name, fisher in (("skill", own), ("retained", retained))
        for (layer, module), value in mass(fisher, place).items()
    ]
    mine, theirs = top(own, TOP), top(retained, TOP)
    share = min(1.0, TOP / sum(v.numel() for v in own.values()))
    found = {
        "jaccard": jaccard(mine, theirs),
        "jaccard by chance": share / (2 - share),
        "rank_correlation": rank_correlation(own, retained, rng=np.random.default_rng(spec.seed)),
    }
    rows += [where.row("overlap", "retained", metric, value) for metric, value in found.items()]
    values = {"skill": mine.values, "retained": at(retained, mine)}
    curves = {
        name: {"values": v.tolist(), "mean": moving_average(v, WINDOW).tolist()}
        for name, v in values.items()
    }
    return Clash(rows, curves)
