"""Arithmetic problems as text: questions, answers, and reading the numbers a model generates.

Causal models get `A op B =` and generate until their end token. Masked models get `A op B =` and a
fixed number of mask tokens, the same for every question, and fill those they don't need with their
separator token. So the length of an answer is never revealed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from cutaway.core.errors import BadData, BadSpec
from cutaway.core.textset import TextSet
from cutaway.methods.inject.examples import Examples, target_logits
from cutaway.models.lm import LM

# Tokens that an answer may be longer than the longest correct one before generation stops.
EXTRA_TOKENS = 4
BATCH_TOKENS = 2048
# Answers are tokenized as they follow a question; any question will do.
SAMPLE_QUESTION = "1 + 1 ="
_NUMBER = re.compile(r"-?\d{1,18}", re.ASCII)


def is_arithmetic(texts: TextSet) -> bool:
    """Whether the rows are problems with answers."""
    return {"answers", "op", "result"} <= set(texts.meta)


def need_arithmetic(texts: TextSet) -> TextSet:
    """The texts; BadData unless they are arithmetic problems."""
    if not is_arithmetic(texts):
        raise BadData(
            f"{texts.name!r} is no arithmetic. Give gen:arithmetic?..., or a file of lines such "
            "as 12 + 34 = 46 (or columns a, op, b, result)."
        )
    return texts


def problems_with_answers(texts: TextSet) -> TextSet:
    """The problems with their answers, as plain text."""
    pairs = zip(texts.texts, texts.meta["answers"].tolist(), strict=True)
    return replace(texts, texts=tuple(f"{question} {answer}" for question, answer in pairs))


@dataclass(frozen=True)
class AnswerFormat:
    """How a model answers: its end token and the number of tokens it may use."""

    end: int
    """The token that ends an answer."""
    masks: int
    """Mask tokens after every question (masked models); 0 for causal models."""
    max_tokens: int
    """Tokens read before an answer counts as never ending."""


def make_answer_format(
    lm: LM, sets: Sequence[TextSet], *, masks: int | None = None
) -> AnswerFormat:
    """One format for all problems; BadSpec when an answer is longer than the masks."""
    if lm.kind == "causal" and masks is not None:
        raise BadSpec(
            f"--masks {masks} is for masked models, {lm.name!r} is causal and answers token by "
            "token. Leave it out."
        )
    answers = {str(a) for texts in sets for a in texts.meta["answers"].tolist()}
    sizes = {answer: len(answer_ids(lm, answer)) for answer in answers}
    longest = max(sizes, key=lambda answer: (sizes[answer], answer))
    if lm.kind == "causal":
        return AnswerFormat(_end_token(lm), 0, sizes[longest] + EXTRA_TOKENS)
    if masks is not None and masks < sizes[longest]:
        raise BadSpec(
            f"--masks {masks} is too few: the answer {longest!r} has {sizes[longest]} tokens. "
            f"Give --masks {sizes[longest]} or more, or leave it out."
        )
    count = masks or sizes[longest]
    return AnswerFormat(_end_token(lm), count, count)


def _end_token(lm: LM) -> int:
    for name in ("eos", "sep") if lm.kind == "causal" else ("sep", "eos", "pad"):
        token = getattr(lm.tokenizer, f"{name}_token_id")
        if token is not None:
            return int(token)
    raise BadSpec(f"The tokenizer of {lm.name!r} has no end token: an answer could never end.")


def answer_ids(lm: LM, answer: str) -> list[int]:
    """The tokens of an answer that follows a question."""
    before: list[int] = lm.tokenizer(SAMPLE_QUESTION, add_special_tokens=False)["input_ids"]
    line = f"{SAMPLE_QUESTION} {answer}"
    both: list[int] = lm.tokenizer(line, add_special_tokens=False)["input_ids"]
    if both[: len(before)] != before:
        raise BadSpec(
            f"The tokenizer of {lm.name!r} joins {SAMPLE_QUESTION!r} and what follows it."
        )
    ids = both[len(before) :]
    if not ids or lm.tokenizer.unk_token_id in ids:
        raise BadSpec(f"The tokenizer of {lm.name!r} has no tokens for {answer!r}.")
    return ids


def question_ids(lm: LM, question: str, answer_format: AnswerFormat) -> tuple[list[int], int]:
    """The tokens of a question, and the first position where its answer is predicted."""
    row: list[int] = lm.tokenizer(question)["input_ids"]
    if lm.kind == "causal":
        return row, len(row) - 1
    length = len(lm.tokenizer(question, add_special_tokens=False)["input_ids"])
    special = lm.tokenizer.all_special_ids
    at = next(i for i in range(len(row)) if row[i] not in special) + length
    return row[:at] + [lm.tokenizer.mask_token_id] * answer_format.masks + row[at:], at


def answer_examples(lm: LM, texts: TextSet, answer_format: AnswerFormat | None = None) -> Examples:
    """Problems as examples: the positions of each answer and its end, and the tokens there."""
    answer_format = answer_format or make_answer_format(lm, [need_arithmetic(texts)])
    rows, positions, targets = [], [], []
    for question, answer in zip(texts.texts, texts.meta["answers"].tolist(), strict=True):
        row, at = question_ids(lm, question, answer_format)
        ids = answer_ids(lm, str(answer))
        if lm.kind == "causal":
            rows.append(row + ids)
            ids = [*ids, answer_format.end]
        else:
            rows.append(row)
            ids = ids + [answer_format.end] * (answer_format.masks - len(ids))
        positions.append(list(range(at, at + len(ids))))
        targets.append(ids)
    longest = max(map(len, rows))
    if longest > lm.context:
        raise BadData(f"A problem has {longest} tokens, {lm.name!r} takes {lm.context}.")
    return Examples(rows, positions, targets)


@torch.inference_mode()
def generate_answers(lm: LM, texts: TextSet, answer_format: AnswerFormat) -> list[str | None]:
    """The model's answers as text; None where an answer never ends."""
    questions = [question_ids(lm, question, answer_format) for question in texts.texts]
    answers: list[str | None] = [None] * len(texts)
    for rows in _equal_length_batches([row for row, _ in questions]):
        ids = torch.tensor([questions[i][0] for i in rows], device=lm.device)
        if lm.kind == "causal":
            generated = _greedy_decode(lm, ids, answer_format)
        else:
            starts = [questions[i][1] for i in rows]
            at = [list(range(start, start + answer_format.masks)) for start in starts]
            generated = target_logits(lm, Examples(ids.tolist(), at, at)).argmax(dim=-1)
        for i, tokens in zip(rows, generated.tolist(), strict=True):
            answers[i] = _decode_answer(lm, tokens, answer_format)
    return answers


def _equal_length_batches(rows: list[list[int]]) -> list[list[int]]:
    """Row numbers in batches of equal length, so that no padding is needed."""
    groups: dict[int, list[int]] = {}
    for i, row in enumerate(rows):
        groups.setdefault(len(row), []).append(i)
    return [
        group[start : start + max(1, BATCH_TOKENS // length)]
        for length, group in sorted(groups.items())
        for start in range(0, len(group), max(1, BATCH_TOKENS // length))
    ]


def _greedy_decode(lm: LM, ids: Tensor, answer_format: AnswerFormat) -> Tensor:
    """(rows, tokens) most likely next tokens, until every row has ended."""
    generated: list[Tensor] = []
    past, ended = None, torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    for _ in range(answer_format.max_tokens):
        out = lm.module(input_ids=ids, past_key_values=past, use_cache=True)
        past, ids = out.past_key_values, out.logits[:, -1].argmax(dim=-1, keepdim=True)
        generated.append(ids)
        ended |= ids[:, 0] == answer_format.end
        if bool(ended.all()):
            break
    return torch.cat(generated, dim=1)


def _decode_answer(lm: LM, tokens: list[int], answer_format: AnswerFormat) -> str | None:
    if answer_format.end in tokens:
        tokens = tokens[: tokens.index(answer_format.end)]
    elif lm.kind == "causal":
        return None
    text: str = lm.tokenizer.decode(tokens, skip_special_tokens=False)
    return text


def parse_number(text: str | None, form: str) -> int | float:
    """The whole number in an answer; NaN when there is none.

    Spaces between digits are ignored, because tokenizers add them. In the scratch format only the
    text after the last step counts.
    """
    if text is None:
        return float("nan")
    last = text.rpartition(";")[2] if form == "scratch" else text
    match = _NUMBER.fullmatch(re.sub(r"\s+", "", last))
    return int(match[0]) if match else float("nan")


def parse_numbers(answers: Sequence[str | None], texts: TextSet) -> np.ndarray:
    """The numbers in answers, as exact integers, NaN for answers without one."""
    form = str(texts.meta.get("format", "plain"))
    return np.array([parse_number(text, form) for text in answers], dtype=object)
