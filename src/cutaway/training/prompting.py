"""A task put to a language model: texts in their template, and the words it may answer.

    asked = ask(lm, find_task("sst2"), texts)          # rows of tokens, ready for any batch
    answers(lm, asked)                                 # (n, cls) probabilities
    losses(lm, asked, rows)                            # per row, differentiable in the weights

Masked models fill the template's mask, causal ones say the word that follows it. The answer is
the softmax over the label words' logits; a regression answers with a point between its two
words.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.core.errors import BadData, BadSpec
from cutaway.core.textset import Task, TextSet
from cutaway.data.tasks import TaskFile
from cutaway.data.templates import check_template, fill_template
from cutaway.models.batches import TokenBudget, batches_by_length
from cutaway.models.lm import LM
from cutaway.models.loss import label_word_logits
from cutaway.models.swap import Params
from cutaway.models.tokens import pad

# Padded tokens that go through the model together when answers are read.
EVAL_BATCH_TOKENS = 2048
LABEL_WORD_HINT = (
    "Choose another word with --words, or, where a command has no --words, in a copy of the "
    "task's .toml file given as --task."
)


@dataclass(frozen=True)
class PromptFormat:
    """How a task is asked: the text around each example, and one word for each answer."""

    template: str
    words: tuple[str, ...]
    edits: dict[str, str]


@dataclass(frozen=True, eq=False)
class PromptedExamples:
    """Every example as a row of tokens, what each should be answered with, and the words."""

    format: PromptFormat
    rows: list[list[int]]
    word_ids: Tensor
    """The label words' token ids, in class order."""
    targets: Tensor
    """(n, cls): how much of each answer is right; one 1 per row for classes."""
    labels: NDArray[Any]
    task: Task
    metric: str
    bounds: tuple[float, float] = (0.0, 1.0)
    """What the first and the last word stand for, in a regression."""
    truncated: int = 0
    """How many texts were cut to fit the context."""

    def __len__(self) -> int:
        """How many examples."""
        return len(self.rows)

    def take(self, rows: Sequence[int] | NDArray[np.integer]) -> "PromptedExamples":
        """The chosen examples."""
        index = np.asarray(rows, dtype=int)
        return replace(
            self,
            rows=[self.rows[i] for i in index],
            targets=self.targets[index],
            labels=self.labels[index],
        )


def make_prompt_format(
    lm: LM, task: TaskFile, *, template: str | None = None, words: Sequence[str] = ()
) -> PromptFormat:
    """The task's own way to ask this kind of model, or the one given."""
    own, spoken = task.template, task.label_words
    if lm.kind == "causal":
        said = task.autoregressive
        own, spoken = (said.template, said.words) if said else ("", ())
    chosen, named = template or own, tuple(words) or spoken
    if not chosen or not named:
        raise BadSpec(
            f"Task {task.name!r} has no template and label words for a {lm.kind} model: give "
            "--template and --words, one word for each class, or, where a command has neither, "
            "write them in a copy of the task's .toml file given as --task."
        )
    expected = len(task.classes) if task.kind in ("binary", "multiclass") else 2
    if len(named) != expected:
        raise BadSpec(f"--words has {len(named)} words, expected {expected}: {', '.join(named)}.")
    try:
        check_template(chosen, pair=bool(task.columns.pair), mask=lm.kind == "masked")
    except ValueError as error:
        raise BadSpec(str(error)) from None
    return PromptFormat(chosen, named, {str(side): edit for side, edit in task.edits.items()})


def make_prompted_examples(
    lm: LM,
    task: TaskFile,
    texts: TextSet,
    *,
    template: str | None = None,
    words: Sequence[str] = (),
    max_tokens: int | None = None,
) -> PromptedExamples:
    """The texts as questions; BadSpec when a label word isn't one token of this model."""
    if texts.labels is None:
        raise BadData(f"{texts.name!r} has no labels: task {task.name!r} needs them.")
    form = make_prompt_format(lm, task, template=template, words=words)
    ids = torch.tensor([label_word_id(lm, form, word) for word in form.words], device=lm.device)
    if len(set(ids.tolist())) < len(ids):
        raise BadSpec(f"Label words {', '.join(form.words)} are not different tokens.")
    limit = min(max_tokens or lm.context, lm.context)
    pairs = texts.pairs or (None,) * len(texts)
    made = [
        _prompted_row(lm, form, one, two, limit)
        for one, two in zip(texts.texts, pairs, strict=True)
    ]
    targets, bounds = target_distribution(task, texts, len(form.words))
    return PromptedExamples(
        format=form,
        rows=[row for row, _ in made],
        word_ids=ids,
        targets=targets.to(lm.device),
        labels=np.asarray(texts.labels),
        task=texts.task,
        metric=task.metric,
        bounds=bounds,
        truncated=sum(shortened for _, shortened in made),
    )


def label_word_id(lm: LM, form: PromptFormat, word: str) -> int:
    """The token a label word is in its place in the template; BadSpec when it is several."""
    blank = fill_template(form.template, "it", pair="it", mask=_mask(lm))
    if lm.kind == "masked":
        with_word = _ids(lm, fill_template(form.template, "it", pair="it", mask=word))
        middle = _middle(with_word, _ids(lm, blank))
        if len(middle) == 1:
            return _need_known_word(lm, word, middle[0])
    else:
        without = _ids(lm, blank, special=False)
        space = "" if blank[-1:].isspace() else " "
        with_word = _ids(lm, blank + space + word, special=False)
        if with_word[: len(without)] == without and len(with_word) == len(without) + 1:
            return _need_known_word(lm, word, with_word[-1])
    pieces = lm.tokenizer.tokenize(word if lm.kind == "masked" else " " + word)
    raise BadSpec(
        f"Label word {word!r} is not a single token of {lm.name!r} in {form.template!r}: it is "
        f"{pieces}. {LABEL_WORD_HINT}"
    )


def prompt_logits(
    lm: LM, asked: PromptedExamples, rows: Any, params: Params | None = None
) -> Tensor:
    """(rows, cls) logits of the label words."""
    ids, mask = pad([asked.rows[i] for i in rows], lm.pad_id)
    return label_word_logits(lm, params, ids.to(lm.device), mask.to(lm.device), asked.word_ids)


def prompt_losses(
    lm: LM, asked: PromptedExamples, rows: Any, params: Params | None = None
) -> Tensor:
    """Cross-entropy per row between what should be answered and what is."""
    said = prompt_logits(lm, asked, rows, params).float().log_softmax(dim=1)
    return -(asked.targets[torch.as_tensor(np.asarray(rows))] * said).sum(dim=1)


@torch.inference_mode()
def predict_proba(lm: LM, asked: PromptedExamples) -> NDArray[np.float64]:
    """(n, cls) probabilities of the answers, in the order of the examples."""
    found = np.zeros((len(asked), len(asked.word_ids)))
    for batch, _ in batches_by_length(
        [len(row) for row in asked.rows], TokenBudget(fixed=EVAL_BATCH_TOKENS)
    ):
        said = prompt_logits(lm, asked, batch.rows).double().softmax(dim=1)
        found[batch.rows] = said.cpu().numpy()
    return found


def predict_from_proba(asked: PromptedExamples, probabilities: NDArray[np.float64]) -> NDArray[Any]:
    """The likeliest class of each row; the point between the two words for a regression."""
    if asked.task != "regression":
        return np.asarray(probabilities.argmax(axis=1))
    low, high = asked.bounds
    return np.asarray(low + (high - low) * probabilities[:, -1])


def target_distribution(
    task: TaskFile, texts: TextSet, many: int
) -> tuple[Tensor, tuple[float, float]]:
    """(n, cls) how much of each answer is right, and what the ends of a regression stand for."""
    labels = np.asarray(texts.labels)
    if texts.task == "regression":
        low, high = task.labels.bounds or (float(labels.min()), float(labels.max()))
        share = torch.from_numpy((labels.astype(np.float64) - low) / max(high - low, 1e-12))
        return torch.stack([1 - share, share], dim=1).float(), (low, high)
    if labels.ndim != 1 or int(labels.max()) >= many:
        raise BadData(
            f"{texts.name!r} has classes up to {int(labels.max())}, task {task.name!r} has {many} "
            "label words: these labels are not the task's."
        )
    return torch.eye(many)[torch.from_numpy(labels.astype(np.int64))], (0.0, 1.0)


def _prompted_row(
    lm: LM, form: PromptFormat, text: str, pair: str | None, limit: int
) -> tuple[list[int], bool]:
    """The tokens of one example; the texts lose their ends when it doesn't fit, never the form."""
    sides, shortened = [text] if pair is None else [text, pair], False
    while True:
        second = sides[1] if pair is not None else None
        whole = fill_template(
            form.template, sides[0], pair=second, mask=_mask(lm), edits=form.edits
        )
        row = _ids(lm, whole)
        if len(row) <= limit:
            return row, shortened
        longest = max(range(len(sides)), key=lambda i: len(sides[i]))
        if not sides[longest]:
            raise BadSpec(
                f"{limit} tokens leave no room for a text in {form.template!r}: allow more."
            )
        sides[longest], shortened = _drop_last_tokens(lm, sides[longest], len(row) - limit), True


def _drop_last_tokens(lm: LM, text: str, excess: int) -> str:
    """The text without its last `excess` tokens."""
    spans = lm.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    offsets = spans["offset_mapping"]
    return text[: offsets[-excess][0]].rstrip() if len(offsets) > excess else ""


def _ids(lm: LM, text: str, *, special: bool = True) -> list[int]:
    found: list[int] = lm.tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"]
    return found


def _mask(lm: LM) -> str:
    return str(lm.tokenizer.mask_token) if lm.kind == "masked" else ""


def _middle(row: list[int], other: list[int]) -> list[int]:
    """What a row has between the beginning and the end that it shares with another."""
    both = min(len(row), len(other))
    start = next((i for i in range(both) if row[i] != other[i]), both)
    end = next((i for i in range(both - start) if row[-1 - i] != other[-1 - i]), both - start)
    return row[start : len(row) - end]


def _need_known_word(lm: LM, word: str, token: int) -> int:
    if token == lm.tokenizer.unk_token_id and word != lm.tokenizer.unk_token:
        raise BadSpec(
            f"Label word {word!r} is unknown to the tokenizer of {lm.name!r}. {LABEL_WORD_HINT}"
        )
    return token
