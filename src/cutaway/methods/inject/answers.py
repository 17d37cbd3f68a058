"""Questions and answers as tokens: what a model is asked, what it generates, and how that is read.

Causal models get the question and generate until their end token. Masked models get the question
and a fixed number of mask tokens, the same for every question, and fill those they don't need with
their separator token. So the length of an answer is never revealed.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from cutaway.core.digest import digest_json
from cutaway.core.errors import BadData, BadSpec
from cutaway.core.textset import TextSet
from cutaway.data.questions import parse_decimal
from cutaway.methods.inject.examples import Examples, target_logits
from cutaway.methods.inject.maths.score import Answers
from cutaway.models.digests import module_checksum
from cutaway.models.lm import LM
from cutaway.store.row_passes import fill_rows

# Tokens that an answer may be longer than the longest correct one before generation stops.
EXTRA_TOKENS = 4
BATCH_TOKENS = 2048
# After the end of an answer.
NO_TOKEN = -1
_WHOLE_NUMBER = re.compile(r"-?\d{1,18}", re.ASCII)


def with_answers(texts: TextSet) -> TextSet:
    """The questions with their answers, as plain text."""
    return replace(texts, texts=tuple(_lines(texts)))


def _lines(texts: TextSet) -> list[str]:
    """Each question with its answer, a space between them unless the question ends in one."""
    pairs = zip(texts.texts, texts.answers or (), strict=True)
    return [f"{q}{'' if q[-1:].isspace() else ' '}{answer}" for q, answer in pairs]


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
    """One format for all questions; BadSpec when an answer is longer than the masks."""
    if lm.kind == "causal" and masks is not None:
        raise BadSpec(
            f"--masks {masks} is for masked models, {lm.name!r} is causal and answers token by "
            "token. Leave it out."
        )
    sizes = {
        answer: len(ids)
        for texts in sets
        for answer, ids in zip(texts.answers or (), answer_tokens(lm, texts), strict=True)
    }
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


def answer_tokens(lm: LM, texts: TextSet) -> list[list[int]]:
    """The tokens of each answer as it follows its question."""
    before = lm.tokenizer(list(texts.texts), add_special_tokens=False)["input_ids"]
    both = lm.tokenizer(_lines(texts), add_special_tokens=False)["input_ids"]
    tokens = []
    for question, answer, start, line in zip(
        texts.texts, texts.answers or (), before, both, strict=True
    ):
        if line[: len(start)] != start:
            raise BadData(
                f"The tokenizer of {lm.name!r} joins {question[-20:]!r} and the answer "
                f"{answer[:20]!r} that follows it. End the question with another character."
            )
        ids = line[len(start) :]
        if not ids or lm.tokenizer.unk_token_id in ids:
            raise BadData(f"The tokenizer of {lm.name!r} has no tokens for {answer[:40]!r}.")
        tokens.append(ids)
    return tokens


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
    """Questions as examples: the positions of each answer and its end, and the tokens there."""
    answer_format = answer_format or make_answer_format(lm, [texts])
    rows, positions, targets = [], [], []
    for question, ids in zip(texts.texts, answer_tokens(lm, texts), strict=True):
        row, at = question_ids(lm, question, answer_format)
        if lm.kind == "causal":
            rows.append(row + ids)
            ids = [*ids, answer_format.end]
        else:
            rows.append(row)
            ids = ids + [answer_format.end] * (answer_format.masks - len(ids))
        positions.append(list(range(at, at + len(ids))))
        targets.append(ids)
    longest = max(range(len(rows)), key=lambda i: len(rows[i]))
    if len(rows[longest]) > lm.context:
        raise BadData(
            f"The question {texts.texts[longest][:40]!r} has {len(rows[longest])} tokens with its "
            f"answer, and {lm.name!r} takes {lm.context}. Shorten or remove it."
        )
    return Examples(rows, positions, targets)


def generate_answers(lm: LM, texts: TextSet, answer_format: AnswerFormat) -> list[str | None]:
    """The model's answers as text; None where an answer never ends."""
    return generate_with_probabilities(lm, texts, answer_format)[0]


@torch.inference_mode()
def generate_with_probabilities(
    lm: LM, texts: TextSet, answer_format: AnswerFormat
) -> tuple[list[str | None], NDArray[np.float64]]:
    """The model's answers, and the probability of each with its end."""
    questions = [question_ids(lm, question, answer_format) for question in texts.texts]
    shape = len(texts), answer_format.max_tokens
    tokens, logs = np.full(shape, NO_TOKEN), np.zeros(shape)

    def answer(rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        ids = torch.tensor([questions[i][0] for i in rows], device=lm.device)
        if lm.kind == "causal":
            generated, each = _greedy_decode(lm, ids, answer_format)
        else:
            starts = [questions[i][1] for i in rows]
            at = [list(range(start, start + answer_format.masks)) for start in starts]
            scores = target_logits(lm, Examples(ids.tolist(), at, at)).float().log_softmax(dim=-1)
            each, generated = scores.max(dim=-1)
        rest = (0, shape[1] - generated.shape[1])
        return {
            "tokens": F.pad(generated, rest, value=NO_TOKEN).cpu().numpy(),
            "logs": F.pad(each, rest).cpu().double().numpy(),
        }

    rows = [row for row, _ in questions]
    fill_rows(
        {"tokens": tokens, "logs": logs},
        [np.array(some) for some in _equal_length_batches(rows)],
        answer,
        inputs=lambda: digest_json(["answers", rows, list(shape), answer_format.end]),
        weights=lambda: module_checksum(lm.module),
    )
    found = [_decode_answer(lm, *one, answer_format) for one in zip(tokens, logs, strict=True)]
    return [text for text, _ in found], np.array([each for _, each in found])


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


def _greedy_decode(lm: LM, ids: Tensor, answer_format: AnswerFormat) -> tuple[Tensor, Tensor]:
    """(rows, tokens) most likely next tokens until every row ended, and their log-probabilities."""
    generated: list[Tensor] = []
    logs: list[Tensor] = []
    past, ended = None, torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    for _ in range(answer_format.max_tokens):
        out = lm.module(input_ids=ids, past_key_values=past, use_cache=True)
        past, scores = out.past_key_values, out.logits[:, -1]
        ids = scores.argmax(dim=-1, keepdim=True)
        generated.append(ids)
        logs.append(scores.float().log_softmax(dim=-1).gather(1, ids))
        ended |= ids[:, 0] == answer_format.end
        if bool(ended.all()):
            break
    return torch.cat(generated, dim=1), torch.cat(logs, dim=1)


def _decode_answer(
    lm: LM, row: NDArray[np.int64], logs: NDArray[np.float64], answer_format: AnswerFormat
) -> tuple[str | None, float]:
    """The text of an answer, None when it never ends, and the probability of its tokens."""
    tokens, end = [t for t in row.tolist() if t != NO_TOKEN], answer_format.end
    last = tokens.index(end) if lm.kind == "causal" and end in tokens else len(tokens)
    probability = float(np.exp(sum(logs.tolist()[: last + 1])))
    if end in tokens:
        tokens = tokens[: tokens.index(end)]
    elif lm.kind == "causal":
        return None, probability
    text: str = lm.tokenizer.decode(tokens, skip_special_tokens=False)
    return text, probability


def parse_number(text: str | None, form: str) -> Any:
    """The number in an answer; NaN when there is none.

    The answers of arithmetic are whole numbers: spaces between digits are ignored, because
    tokenizers add them, and in the scratch format only the text after the last step counts.
    """
    if text is None:
        return float("nan")
    last = text.rpartition(";")[2] if form == "scratch" else text
    joined = re.sub(r"\s+", "", last)
    if form == "number":
        number = parse_decimal(joined)
        return float("nan") if number is None else number
    match = _WHOLE_NUMBER.fullmatch(joined)
    return int(match[0]) if match else float("nan")


def read_answers(generated: Sequence[str | None], texts: TextSet) -> Answers:
    """What a model answers: numbers, NaN where there is none; or texts, None without an end."""
    form = str(texts.meta.get("format", ""))
    if "result" in texts.meta:
        return np.array([parse_number(text, form) for text in generated], dtype=object)
    return np.array([None if t is None else " ".join(t.split()) for t in generated], dtype=object)


def answer_text(value: Any) -> str:
    """A read answer as text, equal for equal answers; empty for an undecodable one."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return format(value.normalize(), "f") if isinstance(value, Decimal) else str(value)


def right_answers(lm: LM, texts: TextSet) -> Answers:
    """The correct answers in the form of `read_answers`.

    Texts are decoded from their tokens: a tokenizer may ignore case or change spaces.
    """
    if "result" in texts.meta:
        return np.asarray(texts.meta["result"])
    decoded = [lm.tokenizer.decode(ids) for ids in answer_tokens(lm, texts)]
    return read_answers(decoded, texts)
