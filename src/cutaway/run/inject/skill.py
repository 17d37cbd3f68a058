"""The skill that is taught: its problems in parts, and how well a model solves them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cutaway.core.errors import BadData, BadSpec
from cutaway.core.textset import TextSet
from cutaway.data.load import load
from cutaway.measure.intervals import Interval
from cutaway.methods.inject.number import Digits, Place, digits_of, log_gap, meant, places_of
from cutaway.methods.inject.score import Score, by_group, exact, score
from cutaway.models.lm import LM
from cutaway.models.tokens import pad
from cutaway.run.inject.arithmetic import (
    Spelling,
    answer_examples,
    need_arithmetic,
    numbers,
    say,
    spelling_of,
)
from cutaway.run.inject.examples import Examples, logits
from cutaway.run.objects import Objects
from cutaway.run.specs.inject import InjectSpec

DEV_ROWS, TEST_ROWS = 200, 1000
FACTS = ("digits", "op", "carries")


@dataclass(frozen=True, eq=False)
class Skill:
    """Problems to learn from, to choose by, to be measured on, and beyond what was learned."""

    name: str
    digest: str
    train: TextSet
    dev: TextSet
    test: TextSet
    beyond: dict[str, TextSet]
    spelling: Spelling
    lessons: Examples
    exam: Examples
    """The dev problems, for the loss that training watches."""
    notes: tuple[str, ...]


def read_skill(lm: LM, spec: InjectSpec, objects: Objects | None = None) -> Skill:
    """The problems of a spec; no question of a test part is in train."""
    source = (objects or {}).get(spec.data, spec.data)
    whole = need_arithmetic(load(source, seed=spec.seed, offline=spec.offline))
    if spec.regression and whole.meta.get("format") == "scratch":
        raise BadSpec("--regression needs answers that are numbers, not format=scratch.")
    train, dev, test = parts_of(whole, spec.seed)
    known = set(keys(train))
    test, shared = without(test, known)
    dev, _ = without(dev, known)
    beyond = {f"beyond {d} digits": _further(whole, d, spec, known) for d in spec.beyond}
    spelling = spelling_of(lm, [train, dev, test, *beyond.values()], masks=spec.masks)
    notes = [*whole.notes, *([f"{shared} test questions were in train: left out"] * bool(shared))]
    return Skill(
        whole.name,
        whole.digest,
        train,
        dev,
        test,
        beyond,
        spelling,
        answer_examples(lm, train, spelling),
        answer_examples(lm, dev, spelling),
        tuple(notes),
    )


def keys(texts: TextSet) -> Iterator[tuple[int, str, int]]:
    """What each problem asks; the order of a sum or product makes no difference."""
    columns = (texts.meta[name].tolist() for name in ("a", "op", "b"))
    for a, op, b in zip(*columns, strict=True):
        yield (min(a, b), op, max(a, b)) if op in "+x" else (a, op, b)


def without(texts: TextSet, known: set[tuple[int, str, int]]) -> tuple[TextSet, int]:
    """The problems that aren't known yet, and how many were; BadData when none is left."""
    rows = [i for i, key in enumerate(keys(texts)) if key not in known]
    if not rows:
        raise BadData(
            f"Every test question of {texts.name!r} is in train: nothing can be measured."
        )
    return texts.take(rows), len(texts) - len(rows)


def parts_of(whole: TextSet, seed: int) -> tuple[TextSet, TextSet, TextSet]:
    """Train, dev and test, at most some hundreds of each for measuring; seeded where unsplit."""
    have = set() if whole.parts is None else set(whole.parts.tolist())
    if {"train", "test"} <= have:
        train, test = whole.part("train"), whole.part("test")
        if "dev" in have:
            return train, _some(whole.part("dev"), DEV_ROWS, seed), _some(test, TEST_ROWS, seed)
        rest, dev = _split(train, 0.1, seed)
        return rest, _some(dev, DEV_ROWS, seed), _some(test, TEST_ROWS, seed)
    if len(whole) < 10:
        raise BadData(f"{whole.name!r} has {len(whole)} problems, at least 10 are needed.")
    rest, test = _split(whole, 0.2, seed)
    train, dev = _split(rest, 0.1, seed)
    return train, _some(dev, DEV_ROWS, seed), _some(test, TEST_ROWS, seed)


def _split(texts: TextSet, share: float, seed: int) -> tuple[TextSet, TextSet]:
    order = np.random.default_rng([seed, len(texts)]).permutation(len(texts))
    cut = max(1, round(share * len(texts)))
    return texts.take(np.sort(order[cut:])), texts.take(np.sort(order[:cut]))


def _some(texts: TextSet, most: int, seed: int) -> TextSet:
    order = np.random.default_rng([seed, len(texts)]).permutation(len(texts))
    return texts.take(np.sort(order[:most]))


def _further(
    whole: TextSet, digits: int, spec: InjectSpec, known: set[tuple[int, str, int]]
) -> TextSet:
    """Test problems of so many digits, with the same operators and format."""
    ops = "".join(sorted(set(whole.meta["op"].tolist()), key="+-x/".index))
    form = whole.meta.get("format", "plain")
    most = min(200, 9 * 10 ** (digits - 1))
    source = f"gen:arithmetic?n=1,dev=1,test={most},ops={ops},digits={digits},format={form}"
    return without(load(source, seed=spec.seed).part("test"), known)[0]


def solve(lm: LM, skill: Skill, texts: TextSet) -> np.ndarray:
    """The whole numbers the model answers, NaN where it says none."""
    return numbers(say(lm, texts, skill.spelling), texts)


def judge(lm: LM, skill: Skill, *, seed: int) -> tuple[dict[str, Score], dict[str, Interval]]:
    """Scores of test and of every set beyond, and the test's exact match by group."""
    scores, groups = {}, {}
    for name, texts in {"test": skill.test, **skill.beyond}.items():
        truth, said = texts.meta["result"], solve(lm, skill, texts)
        scores[name] = score(truth, said, seed=seed)
        if name == "test":
            facts = {fact: texts.meta[fact] for fact in FACTS}
            groups = dict(by_group(truth, said, facts))
    return scores, groups


def exact_on_dev(lm: LM, skill: Skill) -> float:
    """The share of dev problems solved."""
    said = solve(lm, skill, skill.dev)
    return float(exact(skill.dev.meta["result"], said).mean())


@dataclass(frozen=True, eq=False)
class Teacher:
    """The loss of a batch of problems: cross-entropy, and the regression term when asked for."""

    lm: LM
    skill: Skill
    regression: float
    digits: Digits | None
    places: list[list[Place]]
    results: Tensor

    def parts(self, rows: np.ndarray) -> dict[str, Tensor]:
        """The named parts of the loss; `skill` is their weighted sum."""
        chosen = self.skill.lessons.take(rows)
        said = logits(self.lm, chosen)
        targets, asked = (x.to(self.lm.device) for x in pad(chosen.targets, 0))
        each = F.cross_entropy(said.flatten(0, 1).float(), targets.flatten(), reduction="none")
        entropy = ((each.reshape(asked.shape) * asked).sum(1) / asked.sum(1)).mean()
        if self.digits is None:
            return {"skill": entropy}
        number = meant(said, [self.places[int(i)] for i in rows], self.digits)
        index = torch.as_tensor(np.asarray(rows))
        gap = log_gap(number, self.results[index].to(self.lm.device)).mean()
        return {"skill": entropy + self.regression * gap, "regression": gap}


def teacher(lm: LM, skill: Skill, regression: float) -> Teacher:
    """The loss to learn this skill with."""
    results = torch.from_numpy(skill.train.meta["result"].astype(np.float32))
    if not regression:
        return Teacher(lm, skill, 0.0, None, [], results)
    digits = digits_of({i: _bare(lm, i) for i in range(len(lm.tokenizer))})
    if not digits.of:
        raise BadSpec(f"No token of {lm.name!r} is a number: leave --regression out.")
    places = [places_of(target, digits) for target in skill.lessons.targets]
    return Teacher(lm, skill, regression, digits, places, results)


def _bare(lm: LM, token: int) -> str:
    """A token's text without the marks that tokenizers put on pieces and word starts."""
    piece = str(lm.tokenizer.convert_ids_to_tokens(token))
    return piece.removeprefix("##").lstrip("Ġ▁ ")
