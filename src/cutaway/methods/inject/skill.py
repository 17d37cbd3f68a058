"""The skill that is trained: its problems, their split, its loss and its scores."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.core.errors import BadData, BadSpec, UnknownName
from cutaway.core.lookup import suggestion
from cutaway.core.textset import TextSet
from cutaway.data.load import load_questions, load_text_set
from cutaway.data.questions import QuestionOptions
from cutaway.measure.intervals import Interval
from cutaway.methods.inject.answers import (
    AnswerFormat,
    answer_examples,
    generate_answers,
    generate_with_probabilities,
    make_answer_format,
    read_answers,
    right_answers,
)
from cutaway.methods.inject.examples import Examples, mean_cross_entropy, target_logits
from cutaway.methods.inject.maths.number_loss import (
    DigitPosition,
    NumberTokens,
    digit_positions,
    expected_numbers,
    find_number_tokens,
    squared_log_error,
)
from cutaway.methods.inject.maths.score import (
    Answers,
    AnswerScores,
    exact_match_by_group,
    exact_matches,
    score_answers,
)
from cutaway.methods.inject.spec import SKILLS, InjectSpec
from cutaway.models.lm import LM
from cutaway.models.tokens import pad
from cutaway.recipe.objects import Objects

DEV_ROWS, TEST_ROWS, LONGER_ROWS = 200, 1000, 200


@dataclass(frozen=True, eq=False)
class QuestionSkill:
    """A skill: questions with answers for training, dev and test, and test problems beyond them."""

    name: str
    """As rows show it: a known skill, or the name of its data."""
    source: str
    digest: str
    train: TextSet
    dev: TextSet
    test: TextSet
    beyond: dict[str, TextSet]
    answer_format: AnswerFormat
    train_examples: Examples
    dev_examples: Examples
    notes: tuple[str, ...]


def read_skill(lm: LM, spec: InjectSpec, objects: Objects | None = None) -> QuestionSkill:
    """The skill of a spec; no dev or test question is in train."""
    texts = with_row_numbers(_load_skill(spec, objects or {}))
    if spec.regression:
        _check_regression(texts)
    if spec.beyond and "op" not in texts.meta:
        raise BadSpec(f"--beyond makes longer arithmetic problems, {texts.name!r} has none.")
    train, dev, test = split_problems(texts, spec.seed)
    known = set(problem_keys(train))
    (test, shared), (dev, _) = drop_known_problems(test, known), drop_known_problems(dev, known)
    beyond = {f"beyond {d} digits": _longer_problems(texts, d, spec, known) for d in spec.beyond}
    form = make_answer_format(lm, [train, dev, test, *beyond.values()], masks=spec.masks)
    notes = [f"{shared} test questions were in train: left out"] if shared else []
    return QuestionSkill(
        spec.skill if spec.skill in SKILLS else texts.name,
        texts.name,
        texts.digest,
        train,
        dev,
        test,
        beyond,
        form,
        answer_examples(lm, train, form),
        answer_examples(lm, dev, form),
        (*texts.notes, *notes),
    )


def _load_skill(spec: InjectSpec, objects: Objects) -> TextSet:
    """The questions of a known skill, or of the source that `--skill` names."""
    known = SKILLS.get(spec.skill)
    named = str(spec.data) if known else spec.skill
    options = QuestionOptions(spec.prompt_column, spec.answer_column, spec.template)
    try:
        texts = load_questions(
            objects.get(named, named), options, seed=spec.seed, offline=spec.offline
        )
    except UnknownName as error:
        if known or ":" in named:
            raise
        raise UnknownName(
            f"Unknown skill {named!r}. {suggestion(named, SKILLS)}Known: {', '.join(SKILLS)}; or "
            "questions and answers: a file, a folder, hf:ID, gen:NAME."
        ) from error
    if known and not set(known.needs) <= set(texts.meta):
        raise BadData(
            f"{texts.name!r} is no {spec.skill}. Give {known.data} as --data; to train another "
            f"skill, give its questions and answers as --skill {named}."
        )
    return texts


def _check_regression(texts: TextSet) -> None:
    """Raise BadSpec unless every answer is a whole number of 0 or more."""
    numbers = np.asarray(texts.meta.get("result", [-1])).tolist()
    if texts.meta.get("format") == "scratch" or not all(n == int(n) and n >= 0 for n in numbers):
        raise BadSpec(
            "--regression needs answers that are whole numbers of 0 or more, and the answers of "
            f"{texts.name!r} are not. Leave it out."
        )


def problem_keys(texts: TextSet) -> Iterator[str]:
    """The identity of each question: its words, or what the source knows to be the same."""
    keys = texts.meta.get("key")
    if keys is not None:
        yield from keys.tolist()
        return
    for text in texts.texts:
        yield " ".join(text.casefold().split())


def drop_known_problems(texts: TextSet, known: set[str]) -> tuple[TextSet, int]:
    """The problems that are not known, and how many were dropped; BadData when none is left."""
    rows = [i for i, key in enumerate(problem_keys(texts)) if key not in known]
    if not rows:
        raise BadData(
            f"Every test question of {texts.name!r} is in train: nothing can be measured. Give "
            "more questions."
        )
    return texts.take(rows), len(texts) - len(rows)


def split_problems(texts: TextSet, seed: int) -> tuple[TextSet, TextSet, TextSet]:
    """Train, dev and test: the parts of the source, or drawn by seed where it has none."""
    parts = set() if texts.parts is None else set(texts.parts.tolist())
    if {"train", "test"} <= parts:
        train, test = texts.part("train"), texts.part("test")
    elif len(texts) < 10:
        raise BadData(f"{texts.name!r} has {len(texts)} questions, at least 10 are needed.")
    else:
        parts = set()
        train, test = _random_split(texts, 0.2, seed)
    if "dev" in parts:
        dev = texts.part("dev")
    else:
        train, dev = _random_split(train, 0.1, seed)
    return train, _subsample(dev, DEV_ROWS, seed), _subsample(test, TEST_ROWS, seed)


def _random_split(texts: TextSet, share: float, seed: int) -> tuple[TextSet, TextSet]:
    order = np.random.default_rng([seed, len(texts)]).permutation(len(texts))
    cut = max(1, round(share * len(texts)))
    return texts.take(np.sort(order[cut:])), texts.take(np.sort(order[:cut]))


def _subsample(texts: TextSet, most: int, seed: int) -> TextSet:
    order = np.random.default_rng([seed, len(texts)]).permutation(len(texts))
    return texts.take(np.sort(order[:most]))


def _longer_problems(texts: TextSet, digits: int, spec: InjectSpec, known: set[str]) -> TextSet:
    """Test problems with this many digits, with the same operators and format."""
    ops = "".join(sorted(set(texts.meta["op"].tolist()), key="+-x/".index))
    form = texts.meta.get("format", "plain")
    most = min(LONGER_ROWS, 9 * 10 ** (digits - 1))
    source = f"gen:arithmetic?n=1,dev=1,test={most},ops={ops},digits={digits},format={form}"
    generated = with_row_numbers(load_text_set(source, seed=spec.seed))
    return drop_known_problems(generated.part("test"), known)[0]


def with_row_numbers(texts: TextSet) -> TextSet:
    """The texts, with the row of each in `meta`, which parts of them keep."""
    return replace(texts, meta={**texts.meta, "row": np.arange(len(texts))})


def solve_problems(lm: LM, skill: QuestionSkill, texts: TextSet) -> Answers:
    """What the model answers, as `read_answers` reads it."""
    return read_answers(generate_answers(lm, texts, skill.answer_format), texts)


@dataclass(frozen=True, eq=False)
class SetAnswers:
    """What a model answers to the questions of one set."""

    texts: TextSet
    truth: Answers
    answers: Answers
    probabilities: NDArray[np.float64]


def tested_sets(skill: QuestionSkill) -> dict[str, TextSet]:
    """The sets that a trained model is tested on, by name."""
    return {"test": skill.test, **skill.beyond}


def answer_tests(lm: LM, skill: QuestionSkill) -> dict[str, SetAnswers]:
    """The model's answers to every test set."""
    found = {}
    for name, texts in tested_sets(skill).items():
        given, probabilities = generate_with_probabilities(lm, texts, skill.answer_format)
        answers = read_answers(given, texts)
        found[name] = SetAnswers(texts, right_answers(lm, texts), answers, probabilities)
    return found


def evaluate_skill(
    tested: Mapping[str, SetAnswers], *, seed: int
) -> tuple[dict[str, AnswerScores], dict[str, Interval]]:
    """Scores of the test set and of longer problems, and the test's exact match by group."""
    scores, groups = {}, {}
    for name, given in tested.items():
        texts, truth, answers = given.texts, given.truth, given.answers
        scores[name] = score_answers(truth, answers, seed=seed)
        if name == "test":
            columns = {n: texts.meta[key] for n, key in texts.meta.get("groups", {}).items()}
            groups = dict(exact_match_by_group(truth, answers, columns))
    return scores, groups


def dev_exact_match(lm: LM, skill: QuestionSkill) -> float:
    """The share of dev questions answered correctly."""
    answers = solve_problems(lm, skill, skill.dev)
    return float(exact_matches(right_answers(lm, skill.dev), answers).mean())


@dataclass(frozen=True, eq=False)
class SkillLoss:
    """The loss of a batch of questions: cross-entropy, and a regression term if requested."""

    lm: LM
    skill: QuestionSkill
    regression: float
    tokens: NumberTokens | None
    positions: list[list[DigitPosition]]
    results: Tensor

    def parts(self, rows: np.ndarray) -> dict[str, Tensor]:
        """The named parts of the loss; `skill` is their weighted sum."""
        batch = self.skill.train_examples.take(rows)
        logits = target_logits(self.lm, batch)
        targets, mask = (x.to(self.lm.device) for x in pad(batch.targets, 0))
        entropy = mean_cross_entropy(logits, targets, mask).mean()
        if self.tokens is None:
            return {"skill": entropy}
        numbers = expected_numbers(logits, [self.positions[int(i)] for i in rows], self.tokens)
        truth = self.results[torch.as_tensor(np.asarray(rows))].to(self.lm.device)
        error = squared_log_error(numbers, truth).mean()
        return {"skill": entropy + self.regression * error, "regression": error}


def make_skill_loss(lm: LM, skill: QuestionSkill, regression: float) -> SkillLoss:
    """The training loss of a skill."""
    if not regression:
        return SkillLoss(lm, skill, 0.0, None, [], torch.zeros(0))
    results = torch.from_numpy(skill.train.meta["result"].astype(np.float32))
    tokens = find_number_tokens({i: _token_text(lm, i) for i in range(len(lm.tokenizer))})
    if not tokens.digits:
        raise BadSpec(f"No token of {lm.name!r} is a number: leave --regression out.")
    positions = [digit_positions(target, tokens) for target in skill.train_examples.targets]
    return SkillLoss(lm, skill, regression, tokens, positions, results)


def _token_text(lm: LM, token: int) -> str:
    """A token's text without the marks of word pieces and word starts."""
    piece = str(lm.tokenizer.convert_ids_to_tokens(token))
    return piece.removeprefix("##").lstrip("Ġ▁ ")
