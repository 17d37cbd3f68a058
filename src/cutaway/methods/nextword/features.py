"""The features of one model, task and prompt: f from the activation cache, all others from f.

f comes from the one forward pass over the texts. What is computed from it once (Phi p,
log-partitions, projections) is stored in the same activation table, so it has the same identity:
weights, tokenizer, rows, prompt. A prompt with one character more has another table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from torch import Tensor

from cutaway.console import Console
from cutaway.core.textset import TextSet
from cutaway.extract.activations import StoredActivations, extract
from cutaway.extract.model_handle import ModelHandle, make_model_handle
from cutaway.extract.request import ExtractionRequest
from cutaway.methods.nextword.maths.readout import (
    OutputHead,
    expectations,
    random_projection,
    word_features,
)
from cutaway.methods.nextword.output_head import (
    answer_position,
    fill_task_template,
    make_output_head,
)
from cutaway.methods.nextword.spec import NextwordSpec
from cutaway.methods.nextword.task import NextwordTask
from cutaway.models.lm import LM


@dataclass(frozen=True)
class PromptedTexts:
    """The texts as the model reads them, and the forward pass that gives f."""

    texts: TextSet
    request: ExtractionRequest
    position: str
    """The token whose state is f: last, cls or mask."""
    prompt: str
    """The `prompt` column of the rows: the prompt, or the template."""


def prompt_texts(
    spec: NextwordSpec, lm: LM, task: NextwordTask, prompt: str, texts: TextSet
) -> PromptedTexts:
    """Put texts into the task's prompt or template.

    Long texts are truncated on the left, with the prompt and without, so that both have the same
    end. Only if a template has its mask before the text are they truncated on the right.
    """
    position, suffix, name = answer_position(lm, spec.position), prompt, prompt
    if position == "mask":
        name, mask = task.template, lm.tokenizer.mask_token
        texts, suffix = fill_task_template(texts, task.template, mask, task.edits)
    request = ExtractionRequest(
        layers=(), pools=(position,), heads=("final",), prompt=suffix, max_tokens=spec.max_tokens,
        truncation="right" if position == "mask" and not suffix else "left",
    )  # fmt: skip
    return PromptedTexts(texts, request, position, name)


def prompts_for(spec: NextwordSpec, lm: LM, task: NextwordTask) -> tuple[str, ...]:
    """The prompts to measure; a template replaces them all."""
    return task.prompts[-1:] if answer_position(lm, spec.position) == "mask" else task.prompts


@dataclass(frozen=True)
class NextwordFeatures:
    """f of every text, and the features computed from it on demand."""

    lm: LM
    prompted: PromptedTexts
    seed: int
    console: Console
    head: OutputHead
    engine: str = "local"
    handle: ModelHandle | None = None

    @cached_property
    def activations(self) -> StoredActivations:
        """The forward pass over the texts, or its cached result."""
        stored = extract(
            self.lm, self.prompted.texts, self.prompted.request, console=self.console,
            engine=self.engine, handle=self.handle,
        )  # fmt: skip
        if stored.num_truncated:
            side = self.prompted.request.truncation
            self.console.print(
                f"{stored.num_truncated:,} texts were too long: truncated on the {side}."
            )
        return stored

    @cached_property
    def f(self) -> Tensor:
        """The states that the output embedding is applied to (n, e)."""
        return self.activations.column("final", self.prompted.position)

    @property
    def phi_p(self) -> Tensor:
        """The conditional mean embedding Phi^T p (n, e)."""
        return self._column("phi_p")

    @property
    def projection(self) -> Tensor:
        """p through a seeded random projection, as wide as f."""
        return self._column(f"projection-{self.seed}")

    @cached_property
    def logz(self) -> Tensor:
        """The log-partition of each text (n,)."""
        return self._column("logz")[:, 0]

    def token_scores(self, ids: Sequence[int], kind: str) -> Tensor:
        """The logits or probabilities of some tokens (n, tokens)."""
        return word_features(self.head.at(self.f, ids), self.logz, kind)

    def _column(self, name: str) -> Tensor:
        table, column = self.activations.table, f"{name}/{self.prompted.position}"
        if column not in table.columns():
            self._compute(name)
        return table.read(column)

    def _compute(self, name: str) -> None:
        """Compute a column from f, with the log-partitions, and store both."""
        maps, table = self._maps(name), self.activations.table
        with self.console.progress(f"{name} of {len(self.f):,} texts", len(self.f)) as advance:
            result = expectations(self.f, self.head, maps, done=lambda rows: advance(rows))
        values = {**result.values, "logz": result.logz[:, None]}
        columns = {f"{k}/{self.prompted.position}": value for k, value in values.items()}
        stored = table.columns()
        with table.writer() as writer:
            new = {column: value for column, value in columns.items() if column not in stored}
            writer.append(np.arange(len(self.f)), new)

    def _maps(self, name: str) -> Mapping[str, Tensor]:
        if name.startswith("projection"):
            width, vocab = min(self.f.shape[1], self.head.vocab), self.head.vocab
            return {name: random_projection(width, vocab, seed=self.seed, like=self.head.phi)}
        return {"phi_p": self.head.phi} if name == "phi_p" else {}


def features_for(
    spec: NextwordSpec, lm: LM, task: NextwordTask, prompt: str, console: Console,
    *, texts: Sequence[str] | None = None,
) -> NextwordFeatures:  # fmt: skip
    """The features of a task's texts under a prompt, or of other `texts` prompted the same way."""
    rows = task.texts
    if texts is not None:
        pairs = None if rows.pairs is None else ("",) * len(texts)
        rows = replace(
            rows, name="content-free", texts=tuple(texts), labels=None, pairs=pairs, parts=None,
            messages=None, task="text", meta={},
        )  # fmt: skip
    prompted, head = prompt_texts(spec, lm, task, prompt, rows), make_output_head(lm)
    handle = model_handle_for(spec, lm)
    return NextwordFeatures(lm, prompted, spec.seed, console, head, spec.engine, handle)


def model_handle_for(spec: NextwordSpec, lm: LM) -> ModelHandle | None:
    """How workers open the model; None for a model given as an object, which has no such name."""
    return make_model_handle(lm, spec) if lm.name in spec.model else None
