"""A task as prompts: texts in their template, and one label word per class.

    examples = make_prompted_examples(lm, find_task("sst2"), texts)
    predict_proba(lm, examples)                  # (n, cls) probabilities
    prompt_logits(lm, examples, rows)            # (rows, cls), differentiable in the weights

Masked models fill the mask of the template, causal models predict the word that follows it. The
probabilities are the softmax over the logits of the label words; a regression predicts a point
between its two words.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.core.digest import digest_json
from cutaway.core.errors import BadData, BadSpec
from cutaway.core.float64 import to_float64
from cutaway.core.textset import Task, TextSet
from cutaway.data.tasks import TaskFile
from cutaway.data.templates import check_template, fill_template
from cutaway.models.batches import TokenBudget, batches_by_length
from cutaway.models.digests import module_checksum
from cutaway.models.lm import LM
from cutaway.models.loss import label_word_logits
from cutaway.models.tokens import pad, without_start_token
from cutaway.store.row_passes import fill_rows

EVAL_BATCH_TOKENS = 2048
"""Padded tokens per batch when a model is evaluated."""
LABEL_WORD_HINT = (
    "Choose another word with --words, or, where a command has no --words, in a copy of the "
    "task's .toml file given as --task."
)


@dataclass(frozen=True)
class PromptFormat:
    """How a task is prompted: the template around each text, and one word for each class."""

    template: str
    words: tuple[str, ...]
    edits: dict[str, str]
    """Changes to a text before it is put into the template, by side."""


@dataclass(frozen=True, eq=False)
class PromptedExamples:
    """Every example as a row of tokens, with its target and the label words."""

    format: PromptFormat
    rows: list[list[int]]
    word_ids: Tensor
    """The label words' token ids, in class order."""
    targets: Tensor
    """(n, cls) target probabilities; one 1 per row for classes."""
    labels: NDArray[Any]
    task: Task
    metric: str
    bounds: tuple[float, float] = (0.0, 1.0)
    """The values of the first and the last word, in a regression."""
    truncated: int = 0
    """How many texts were truncated to fit the context."""

    def __len__(self) -> int:
        """The number of examples."""
        return len(self.rows)

    def losses(self, rows: Sequence[int] | NDArray[np.integer], logits: Tensor) -> Tensor:
        """Cross-entropy per row between the targets and these logits."""
        targets = self.targets[torch.as_tensor(np.asarray(rows))]
        return -(targets * logits.float().log_softmax(dim=1)).sum(dim=1)

    def take(self, rows: Sequence[int] | NDArray[np.integer]) -> "PromptedExamples":
        """Some of the examples."""
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
    """The task's template and words for this kind of model, or the ones given."""
    own_template, own_words, edits = task.template, task.label_words, task.edits
    if lm.kind == "causal":
        causal = task.autoregressive
        own_template, own_words = (causal.template, causal.words) if causal else ("", ())
        edits = edits if causal is None or causal.edits is None else causal.edits
    template, words = template or own_template, tuple(words) or own_words
    if not template or not words:
        raise BadSpec(
            f"Task {task.name!r} has no template and label words for a {lm.kind} model: give "
            "--template and --words, one word for each class, or, where a command has neither, "
            "write them in a copy of the task's .toml file given as --task."
        )
    expected = len(task.classes) if task.kind in ("binary", "multiclass") else 2
    if len(words) != expected:
        raise BadSpec(f"--words has {len(words)} words, expected {expected}: {', '.join(words)}.")
    try:
        check_template(template, pair=bool(task.columns.pair), mask=lm.kind == "masked")
    except ValueError as error:
        raise BadSpec(str(error)) from None
    return PromptFormat(template, words, {str(side): edit for side, edit in edits.items()})


def make_prompted_examples(
    lm: LM,
    task: TaskFile,
    texts: TextSet,
    *,
    template: str | None = None,
    words: Sequence[str] = (),
    max_tokens: int | None = None,
) -> PromptedExamples:
    """The texts as prompts; BadSpec when a label word isn't a single token of this model."""
    if texts.labels is None:
        raise BadData(f"{texts.name!r} has no labels: task {task.name!r} needs them.")
    prompt = make_prompt_format(lm, task, template=template, words=words)
    ids = torch.tensor([label_word_id(lm, prompt, word) for word in prompt.words], device=lm.device)
    if len(set(ids.tolist())) < len(ids):
        raise BadSpec(f"Label words {', '.join(prompt.words)} are not different tokens.")
    limit = min(max_tokens or lm.context, lm.context)
    pairs = texts.pairs or (None,) * len(texts)
    made = [
        _prompted_row(lm, prompt, one, two, limit)
        for one, two in zip(texts.texts, pairs, strict=True)
    ]
    targets, bounds = target_distribution(task, texts, len(prompt.words))
    return PromptedExamples(
        format=prompt,
        rows=[row for row, _ in made],
        word_ids=ids,
        targets=targets.to(lm.device),
        labels=np.asarray(texts.labels),
        task=texts.task,
        metric=task.metric,
        bounds=bounds,
        truncated=sum(shortened for _, shortened in made),
    )


def label_word_id(lm: LM, prompt: PromptFormat, word: str) -> int:
    """The token of a label word at its place in the template; BadSpec when it has several."""
    blank = fill_template(prompt.template, "it", pair="it", mask=_mask_text(lm))
    if lm.kind == "masked":
        with_word = _ids(lm, fill_template(prompt.template, "it", pair="it", mask=word))
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
        f"Label word {word!r} is not a single token of {lm.name!r} in {prompt.template!r}: it is "
        f"{pieces}. {LABEL_WORD_HINT}"
    )


def prompt_logits(lm: LM, examples: PromptedExamples, rows: Any) -> Tensor:
    """(rows, cls) logits of the label words."""
    ids, mask = pad([examples.rows[i] for i in rows], lm.pad_id)
    return label_word_logits(lm, ids.to(lm.device), mask.to(lm.device), examples.word_ids)


def predict_proba(lm: LM, examples: PromptedExamples) -> NDArray[np.float64]:
    """(n, cls) probabilities of the classes, in the order of the examples."""
    words: list[int] = examples.word_ids.tolist()
    return batched_proba(
        lambda rows: prompt_logits(lm, examples, rows), examples.rows, len(words),
        what=words, weights=lambda: module_checksum(lm.module),
    )  # fmt: skip


@torch.inference_mode()
def batched_proba(
    logits: Callable[[NDArray[np.int64]], Tensor],
    token_rows: Sequence[list[int]],
    classes: int,
    *,
    what: Any,
    weights: Callable[[], str],
) -> NDArray[np.float64]:
    """The softmax of `logits(rows)` for all rows, computed in batches of similar length.

    `what` (JSON) says what is predicted, `weights` is a digest of the weights: an evaluation that
    was killed is recognised by them.
    """
    proba = np.zeros((len(token_rows), classes))
    lengths, budget = [len(row) for row in token_rows], TokenBudget(fixed=EVAL_BATCH_TOKENS)
    fill_rows(
        {"proba": proba},
        [batch.rows for batch, _ in batches_by_length(lengths, budget)],
        lambda rows: {"proba": to_float64(logits(rows)).softmax(dim=1).cpu().numpy()},
        inputs=lambda: digest_json([what, list(token_rows)]),
        weights=weights,
    )
    return proba


def predict_from_proba(
    examples: PromptedExamples, probabilities: NDArray[np.float64]
) -> NDArray[Any]:
    """The most likely class of each row; for a regression the point between the two words."""
    if examples.task != "regression":
        return np.asarray(probabilities.argmax(axis=1))
    low, high = examples.bounds
    return np.asarray(low + (high - low) * probabilities[:, -1])


def target_distribution(
    task: TaskFile, texts: TextSet, many: int
) -> tuple[Tensor, tuple[float, float]]:
    """(n, cls) target probabilities, and the two ends of a regression."""
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
    lm: LM, prompt: PromptFormat, text: str, pair: str | None, limit: int
) -> tuple[list[int], bool]:
    """The tokens of one example; texts that don't fit are truncated, the template never is."""
    sides, shortened = [text] if pair is None else [text, pair], False
    while True:
        second = sides[1] if pair is not None else None
        whole = fill_template(
            prompt.template, sides[0], pair=second, mask=_mask_text(lm), edits=prompt.edits
        )
        row = _ids(lm, whole)
        if len(row) <= limit:
            return row, shortened
        longest = max(range(len(sides)), key=lambda i: len(sides[i]))
        if not sides[longest]:
            raise BadSpec(
                f"{limit} tokens leave no room for a text in {prompt.template!r}: allow more."
            )
        sides[longest], shortened = _drop_last_tokens(lm, sides[longest], len(row) - limit), True


def _drop_last_tokens(lm: LM, text: str, excess: int) -> str:
    """The text without its last `excess` tokens."""
    spans = lm.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    offsets = spans["offset_mapping"]
    return text[: offsets[-excess][0]].rstrip() if len(offsets) > excess else ""


def _ids(lm: LM, text: str, *, special: bool = True) -> list[int]:
    whole = without_start_token(lm, text) if special else text
    ids: list[int] = lm.tokenizer(whole, add_special_tokens=special, verbose=False)["input_ids"]
    return ids


def _mask_text(lm: LM) -> str:
    return str(lm.tokenizer.mask_token) if lm.kind == "masked" else ""


def _middle(row: list[int], other: list[int]) -> list[int]:
    """The part of a row between the start and the end that it shares with another row."""
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
