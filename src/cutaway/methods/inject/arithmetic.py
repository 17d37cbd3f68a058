"""Arithmetic put to a language model: questions, answers, and reading what it says.

Causal models get `A op B =` and go on by themselves until they say their end token; masked models
get `A op B =` and a fixed number of mask tokens, the same for every question, and fill those they
don't need with their separator. So the length of an answer is never given away.
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

# Tokens an answer may be longer than the longest right one before it counts as never ending.
EXTRA_TOKENS = 4
BATCH_TOKENS = 2048
# Any question: an answer is cut into tokens as it stands behind one.
SAMPLE_QUESTION = "1 + 1 ="
_NUMBER = re.compile(r"-?\d{1,18}", re.ASCII)


def is_arithmetic(texts: TextSet) -> bool:
    """Whether the rows are problems with answers."""
    return {"answers", "op", "result"} <= set(texts.meta)


def need_arithmetic(texts: TextSet) -> TextSet:
    """The texts; BadData unless they are problems."""
    if not is_arithmetic(texts):
        raise BadData(
            f"{texts.name!r} is no arithmetic. Give gen:arithmetic?..., or a file of lines such "
            "as 12 + 34 = 46 (or columns a, op, b, result)."
        )
    return texts


def problems_with_answers(texts: TextSet) -> TextSet:
    """The problems with their answers, as plain text."""
    pairs = zip(texts.texts, texts.meta["answers"].tolist(), strict=True)
    lines = tuple(f"{question} {answer}" for question, answer in pairs)
    return replace(texts, texts=lines)


@dataclass(frozen=True)
class AnswerFormat:
    """How a model is asked: what ends an answer, and how many places a masked one has."""

    end: int
    masks: int
    """Mask tokens behind every question (masked models); 0 for causal ones."""
    most: int
    """Tokens read before an answer counts as never ending."""


def make_answer_format(
    lm: LM, sets: Sequence[TextSet], *, masks: int | None = None
) -> AnswerFormat:
    """One spelling for all these problems; BadSpec when the masks don't hold an answer."""
    if lm.kind == "causal" and masks is not None:
        raise BadSpec(
            f"--masks {masks} is for masked models, {lm.name!r} is causal and answers word by "
            "word. Leave it out."
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
    """The token that ends an answer."""
    tokenizer = lm.tokenizer
    order = ("eos", "sep") if lm.kind == "causal" else ("sep", "eos", "pad")
    for name in order:
        token = getattr(tokenizer, f"{name}_token_id")
        if token is not None:
            return int(token)
    raise BadSpec(f"The tokenizer of {lm.name!r} has no end token: an answer could never end.")


def answer_ids(lm: LM, answer: str) -> list[int]:
    """An answer's tokens as they stand behind a question."""
    before: list[int] = lm.tokenizer(SAMPLE_QUESTION, add_special_tokens=False)["input_ids"]
    whole: list[int] = lm.tokenizer(f"{SAMPLE_QUESTION} {answer}", add_special_tokens=False)[
        "input_ids"
    ]
    if whole[: len(before)] != before:
        raise BadSpec(
            f"The tokenizer of {lm.name!r} joins {SAMPLE_QUESTION!r} and what follows it."
        )
    found = whole[len(before) :]
    if not found or lm.tokenizer.unk_token_id in found:
        raise BadSpec(f"The tokenizer of {lm.name!r} can't spell {answer!r}.")
    return found


def question_ids(lm: LM, question: str, spelling: AnswerFormat) -> tuple[list[int], int]:
    """A question's tokens, and the first place where its answer is read."""
    row: list[int] = lm.tokenizer(question)["input_ids"]
    if lm.kind == "causal":
        return row, len(row) - 1
    bare = len(lm.tokenizer(question, add_special_tokens=False)["input_ids"])
    front = next(i for i in range(len(row)) if row[i] not in lm.tokenizer.all_special_ids)
    at = front + bare
    return row[:at] + [lm.tokenizer.mask_token_id] * spelling.masks + row[at:], at


def answer_examples(lm: LM, texts: TextSet, spelling: AnswerFormat | None = None) -> Examples:
    """Problems as examples: the places of the answer and its end, and the right tokens there."""
    spelling = spelling or make_answer_format(lm, [need_arithmetic(texts)])
    rows, places, targets = [], [], []
    for question, answer in zip(texts.texts, texts.meta["answers"].tolist(), strict=True):
        row, at = question_ids(lm, question, spelling)
        said = answer_ids(lm, str(answer))
        if lm.kind == "causal":
            rows.append(row + said)
            said = [*said, spelling.end]
        else:
            rows.append(row)
            said = said + [spelling.end] * (spelling.masks - len(said))
        places.append(list(range(at, at + len(said))))
        targets.append(said)
    longest = max(map(len, rows))
    if longest > lm.context:
        raise BadData(f"A problem has {longest} tokens, {lm.name!r} takes {lm.context}.")
    return Examples(rows, places, targets)


@torch.inference_mode()
def generate_answers(lm: LM, texts: TextSet, spelling: AnswerFormat) -> list[str | None]:
    """What the model answers, each as text; None where it never ends."""
    asked = [question_ids(lm, question, spelling) for question in texts.texts]
    found: list[str | None] = [None] * len(texts)
    for rows in _equal_length_batches([row for row, _ in asked]):
        ids = torch.tensor([asked[i][0] for i in rows], device=lm.device)
        if lm.kind == "causal":
            said = _greedy_decode(lm, ids, spelling)
        else:
            at = [list(range(asked[i][1], asked[i][1] + spelling.masks)) for i in rows]
            said = target_logits(lm, Examples(ids.tolist(), at, at)).argmax(dim=-1)
        for i, tokens in zip(rows, said.tolist(), strict=True):
            found[i] = _decode_answer(lm, tokens, spelling)
    return found


def _equal_length_batches(rows: list[list[int]]) -> list[list[int]]:
    """Row numbers in groups of equal length: nothing is padded, so nothing can go wrong."""
    groups: dict[int, list[int]] = {}
    for i, row in enumerate(rows):
        groups.setdefault(len(row), []).append(i)
    return [
        group[start : start + max(1, BATCH_TOKENS // length)]
        for length, group in sorted(groups.items())
        for start in range(0, len(group), max(1, BATCH_TOKENS // length))
    ]


def _greedy_decode(lm: LM, ids: Tensor, spelling: AnswerFormat) -> Tensor:
    """(rows, most) likeliest next tokens, one after the other."""
    said: list[Tensor] = []
    past, ended = None, torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    for _ in range(spelling.most):
        out = lm.module(input_ids=ids, past_key_values=past, use_cache=True)
        past, ids = out.past_key_values, out.logits[:, -1].argmax(dim=-1, keepdim=True)
        said.append(ids)
        ended |= ids[:, 0] == spelling.end
        if bool(ended.all()):
            break
    return torch.cat(said, dim=1)


def _decode_answer(lm: LM, tokens: list[int], spelling: AnswerFormat) -> str | None:
    if spelling.end in tokens:
        tokens = tokens[: tokens.index(spelling.end)]
    elif lm.kind == "causal":
        return None
    text: str = lm.tokenizer.decode(tokens, skip_special_tokens=False)
    return text


def parse_number(text: str | None, form: str) -> int | float:
    """The whole number that an answer says; NaN when it says none.

    Spaces between digits don't count: tokenizers put them there. Of a scratch only what stands
    behind the last step counts.
    """
    if text is None:
        return float("nan")
    last = text.rpartition(";")[2] if form == "scratch" else text
    match = _NUMBER.fullmatch(re.sub(r"\s+", "", last))
    return int(match[0]) if match else float("nan")


def parse_numbers(said: Sequence[str | None], texts: TextSet) -> np.ndarray:
    """The numbers that answers say, whole as they are, NaN for those that say none."""
    form = str(texts.meta.get("format", "plain"))
    return np.array([parse_number(text, form) for text in said], dtype=object)
