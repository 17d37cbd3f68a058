"""The skill that is taught: its problems in parts, and how well a model solves them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from cutaway.core.errors import BadData, BadSpec
from cutaway.core.textset import TextSet
from cutaway.data.load import load_text_set
from cutaway.measure.intervals import Interval
from cutaway.methods.inject.arithmetic import (
    AnswerFormat,
    answer_examples,
    generate_answers,
    make_answer_format,
    need_arithmetic,
    parse_numbers,
)
from cutaway.methods.inject.examples import Examples, target_logits
from cutaway.methods.inject.maths.number_loss import (
    DigitPosition,
    NumberTokens,
    digit_positions,
    expected_numbers,
    find_number_tokens,
    squared_log_error,
)
from cutaway.methods.inject.maths.score import (
    AnswerScores,
    exact_match_by_group,
    exact_matches,
    score_answers,
)
from cutaway.methods.inject.spec import InjectSpec
from cutaway.models.lm import LM
from cutaway.models.tokens import pad
from cutaway.recipe.objects import Objects

DEV_ROWS, TEST_ROWS = 200, 1000
GROUP_COLUMNS = ("digits", "op", "carries")


@dataclass(frozen=True, eq=False)
class ArithmeticSkill:
    """Problems to learn from, to choose by, to be measured on, and beyond what was learned."""

    name: str
    digest: str
    train: TextSet
    dev: TextSet
    test: TextSet
    beyond: dict[str, TextSet]
    spelling: AnswerFormat
    lessons: Examples
    exam: Examples
    """The dev problems, for the loss that training watches."""
    notes: tuple[str, ...]


def read_arithmetic_skill(
    lm: LM, spec: InjectSpec, objects: Objects | None = None
) -> ArithmeticSkill:
    """The problems of a spec; no question of a test part is in train."""
    source = (objects or {}).get(spec.data, spec.data)
    whole = need_arithmetic(load_text_set(source, seed=spec.seed, offline=spec.offline))
    if spec.regression and whole.meta.get("format") == "scratch":
        raise BadSpec("--regression needs answers that are numbers, not format=scratch.")
    train, dev, test = split_problems(whole, spec.seed)
    known = set(problem_keys(train))
    test, shared = drop_known_problems(test, known)
    dev, _ = drop_known_problems(dev, known)
    beyond = {f"beyond {d} digits": _longer_problems(whole, d, spec, known) for d in spec.beyond}
    spelling = make_answer_format(lm, [train, dev, test, *beyond.values()], masks=spec.masks)
    notes = [*whole.notes, *([f"{shared} test questions were in train: left out"] * bool(shared))]
    return ArithmeticSkill(
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


def problem_keys(texts: TextSet) -> Iterator[tuple[int, str, int]]:
    """What each problem asks; the order of a sum or product makes no difference."""
    columns = (texts.meta[name].tolist() for name in ("a", "op", "b"))
    for a, op, b in zip(*columns, strict=True):
        yield (min(a, b), op, max(a, b)) if op in "+x" else (a, op, b)


def drop_known_problems(texts: TextSet, known: set[tuple[int, str, int]]) -> tuple[TextSet, int]:
    """The problems that aren't known yet, and how many were; BadData when none is left."""
    rows = [i for i, key in enumerate(problem_keys(texts)) if key not in known]
    if not rows:
        raise BadData(
            f"Every test question of {texts.name!r} is in train: nothing can be measured."
        )
    return texts.take(rows), len(texts) - len(rows)


def split_problems(whole: TextSet, seed: int) -> tuple[TextSet, TextSet, TextSet]:
    """Train, dev and test, at most some hundreds of each for measuring; seeded where unsplit."""
    have = set() if whole.parts is None else set(whole.parts.tolist())
    if {"train", "test"} <= have:
        train, test = whole.part("train"), whole.part("test")
        if "dev" in have:
            return (
                train,
                _subsample(whole.part("dev"), DEV_ROWS, seed),
                _subsample(test, TEST_ROWS, seed),
            )
        rest, dev = _random_split(train, 0.1, seed)
        return rest, _subsample(dev, DEV_ROWS, seed), _subsample(test, TEST_ROWS, seed)
    if len(whole) < 10:
        raise BadData(f"{whole.name!r} has {len(whole)} problems, at least 10 are needed.")
    rest, test = _random_split(whole, 0.2, seed)
    train, dev = _random_split(rest, 0.1, seed)
    return train, _subsample(dev, DEV_ROWS, seed), _subsample(test, TEST_ROWS, seed)


def _random_split(texts: TextSet, share: float, seed: int) -> tuple[TextSet, TextSet]:
    order = np.random.default_rng([seed, len(texts)]).permutation(len(texts))
    cut = max(1, round(share * len(texts)))
    return texts.take(np.sort(order[cut:])), texts.take(np.sort(order[:cut]))


def _subsample(texts: TextSet, most: int, seed: int) -> TextSet:
    order = np.random.default_rng([seed, len(texts)]).permutation(len(texts))
    return texts.take(np.sort(order[:most]))


def _longer_problems(
    whole: TextSet, digits: int, spec: InjectSpec, known: set[tuple[int, str, int]]
) -> TextSet:
    """Test problems of so many digits, with the same operators and format."""
    ops = "".join(sorted(set(whole.meta["op"].tolist()), key="+-x/".index))
    form = whole.meta.get("format", "plain")
    most = min(200, 9 * 10 ** (digits - 1))
    source = f"gen:arithmetic?n=1,dev=1,test={most},ops={ops},digits={digits},format={form}"
    return drop_known_problems(load_text_set(source, seed=spec.seed).part("test"), known)[0]


def solve_problems(lm: LM, skill: ArithmeticSkill, texts: TextSet) -> np.ndarray:
    """The whole numbers the model answers, NaN where it says none."""
    return parse_numbers(generate_answers(lm, texts, skill.spelling), texts)


def evaluate_skill(
    lm: LM, skill: ArithmeticSkill, *, seed: int
) -> tuple[dict[str, AnswerScores], dict[str, Interval]]:
    """Scores of test and of every set beyond, and the test's exact match by group."""
    scores, groups = {}, {}
    for name, texts in {"test": skill.test, **skill.beyond}.items():
        truth, said = texts.meta["result"], solve_problems(lm, skill, texts)
        scores[name] = score_answers(truth, said, seed=seed)
        if name == "test":
            facts = {fact: texts.meta[fact] for fact in GROUP_COLUMNS}
            groups = dict(exact_match_by_group(truth, said, facts))
    return scores, groups


def dev_exact_match(lm: LM, skill: ArithmeticSkill) -> float:
    """The share of dev problems solved."""
    said = solve_problems(lm, skill, skill.dev)
    return float(exact_matches(skill.dev.meta["result"], said).mean())


@dataclass(frozen=True, eq=False)
class SkillLoss:
    """The loss of a batch of problems: cross-entropy, and the regression term when asked for."""

    lm: LM
    skill: ArithmeticSkill
    regression: float
    digits: NumberTokens | None
    places: list[list[DigitPosition]]
    results: Tensor

    def parts(self, rows: np.ndarray) -> dict[str, Tensor]:
        """The named parts of the loss; `skill` is their weighted sum."""
        chosen = self.skill.lessons.take(rows)
        said = target_logits(self.lm, chosen)
        targets, asked = (x.to(self.lm.device) for x in pad(chosen.targets, 0))
        each = F.cross_entropy(said.flatten(0, 1).float(), targets.flatten(), reduction="none")
        entropy = ((each.reshape(asked.shape) * asked).sum(1) / asked.sum(1)).mean()
        if self.digits is None:
            return {"skill": entropy}
        number = expected_numbers(said, [self.places[int(i)] for i in rows], self.digits)
        index = torch.as_tensor(np.asarray(rows))
        gap = squared_log_error(number, self.results[index].to(self.lm.device)).mean()
        return {"skill": entropy + self.regression * gap, "regression": gap}


def make_skill_loss(lm: LM, skill: ArithmeticSkill, regression: float) -> SkillLoss:
    """The loss to learn this skill with."""
    results = torch.from_numpy(skill.train.meta["result"].astype(np.float32))
    if not regression:
        return SkillLoss(lm, skill, 0.0, None, [], results)
    digits = find_number_tokens({i: _token_text(lm, i) for i in range(len(lm.tokenizer))})
    if not digits.of:
        raise BadSpec(f"No token of {lm.name!r} is a number: leave --regression out.")
    places = [digit_positions(target, digits) for target in skill.lessons.targets]
    return SkillLoss(lm, skill, regression, digits, places, results)


def _token_text(lm: LM, token: int) -> str:
    """A token's text without the marks that tokenizers put on pieces and word starts."""
    piece = str(lm.tokenizer.convert_ids_to_tokens(token))
    return piece.removeprefix("##").lstrip("Ġ▁ ")
