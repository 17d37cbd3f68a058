"""From texts to examples: seeded token positions, and the states of all layers at them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.core.errors import BadData
from cutaway.core.textset import TextSet
from cutaway.data.load import load_text_set
from cutaway.extract.activations import extract
from cutaway.extract.model_handle import make_model_handle
from cutaway.extract.request import ExtractionRequest, TokenRows, build_token_rows
from cutaway.measure.splits import hold_out_split
from cutaway.methods.shortcut.spec import TextSampleSpec
from cutaway.models.lm import LM
from cutaway.models.tokens import tokenize
from cutaway.recipe.life_cycle import Context
from cutaway.recipe.objects import Objects
from cutaway.store.activations import ActivationTable
from cutaway.store.samples import split_frame, text_digests

TextRows = NDArray[np.int64]
# Texts whose states are in memory at the same time.
BATCH_TEXTS = 1024


@dataclass(frozen=True)
class SampleRequest:
    """The model and the texts of a spec, before the model has read them."""

    spec: Any
    lm: LM
    texts: TextSet
    skipped: int
    """Texts left out because they have fewer than two tokens."""

    @property
    def identity(self) -> dict[str, Any]:
        """The model's weights and the texts."""
        return {"model": self.lm.identity, "data": self.texts.digest}

    @property
    def extraction(self) -> ExtractionRequest:
        """All layers at seeded positions: the text up to there, or [MASK] put there."""
        return ExtractionRequest(
            layers=tuple(range(self.lm.layers + 1)),
            pools=("marks",),
            max_tokens=self.spec.max_tokens,
            input_mode="cut" if self.lm.kind == "causal" else "mask",
            positions=self.spec.positions_per_text,
            seed=self.spec.seed,
        )


@dataclass(frozen=True)
class StateSample:
    """Examples of a text set: their positions, the tokens that follow, their stored states."""

    lm: LM
    texts: TextSet
    table: ActivationTable
    full: TokenRows
    """Complete token rows, nothing masked, with the marked positions."""
    inputs: TokenRows
    """Token rows as the model reads them: masked at the marks, or cut after the last mark."""
    train: TextRows
    held_out: TextRows
    skipped: int

    def states(
        self, rows: TextRows, layers: Sequence[int], *, at_once: int = BATCH_TEXTS
    ) -> Iterator[tuple[TextRows, dict[int, Tensor]]]:
        """(texts, {layer: (examples, d)}) chunk by chunk; never all texts at once."""
        return stored_states(self.table, rows, layers, at_once=at_once)

    def positions(self, rows: TextRows) -> TextRows:
        """The token position of every example of these texts, 0-based."""
        return np.concatenate([self.full.marks[i] for i in rows]).astype(np.int64)

    def next_tokens(self, rows: TextRows) -> Tensor:
        """The token to predict at each example: the next or the masked one; -1 at a text's end."""
        following = [self.next_token(i, mark) for i in rows for mark in self.full.marks[i]]
        return torch.tensor(following, dtype=torch.long)

    def next_token(self, row: int, position: int) -> int:
        """The token to predict at one position of one text."""
        tokens, wanted = self.full.rows[row], position + (self.lm.kind == "causal")
        return tokens[wanted] if wanted < len(tokens) else -1

    def splits(self, parts: Mapping[str, TextRows]) -> pl.DataFrame:
        """The texts of each part with their marked positions, for splits.parquet."""
        digests = text_digests(self.texts)
        return pl.concat(
            split_frame(
                self.texts.name,
                part,
                [i for i in rows.tolist() for _ in self.full.marks[i]],
                digests,
                positions=self.positions(rows).tolist(),
            )
            for part, rows in parts.items()
        )

    @property
    def mean_length(self) -> float:
        """Mean number of tokens per text, as the model reads it."""
        return float(np.mean(self.inputs.lengths))

    @property
    def facts(self) -> dict[str, Any]:
        """What identifies the texts in results."""
        return {"name": self.texts.name, "rows": len(self.texts), "digest": self.texts.digest}


def stored_states(
    table: ActivationTable, rows: TextRows, layers: Sequence[int], *, at_once: int = BATCH_TEXTS
) -> Iterator[tuple[TextRows, dict[int, Tensor]]]:
    """(texts, {layer: (examples, d)}) of an activation table, chunk by chunk."""
    for start in range(0, len(rows), at_once):
        part = rows[start : start + at_once]
        yield part, {i: table.read_ragged(f"{i}/marks", part)[0] for i in layers}


def load_sample_texts(lm: LM, spec: TextSampleSpec, objects: Objects) -> tuple[TextSet, int]:
    """The texts with at least two ordinary tokens, and how many had fewer."""
    loaded = load_text_set(
        objects.get(spec.text, spec.text), text_column=spec.text_column, limit=spec.limit,
        seed=spec.seed, offline=spec.offline, as_task="text", drop_empty=True, chat=spec.chat,
    )  # fmt: skip
    texts = TextSet(loaded.name, loaded.texts, notes=loaded.notes, messages=loaded.messages)
    special = set(lm.tokenizer.all_special_ids)
    rows = tokenize(lm, texts.texts, messages=texts.messages, limit=spec.max_tokens).rows
    usable = [i for i, row in enumerate(rows) if sum(token not in special for token in row) >= 2]
    if len(usable) < 2:
        raise BadData(
            f"{loaded.name!r} has {len(usable)} texts of two tokens or more, at least 2 are "
            "needed. Give more or longer texts."
        )
    return texts.take(usable), len(texts) - len(usable)


def take_sample(request: SampleRequest, context: Context) -> StateSample:
    """The request's examples; their states come from the cache, or from one pass of the model."""
    lm, texts, spec = request.lm, request.texts, request.spec
    if request.skipped:
        context.console.print(f"Skipped {request.skipped} texts with fewer than two tokens.")
    stored = extract(
        lm, texts, request.extraction, console=context.console, engine=spec.engine,
        handle=make_model_handle(lm, spec, context.objects),
    )  # fmt: skip
    inputs = build_token_rows(lm, texts, request.extraction)
    plain = build_token_rows(lm, texts, replace(request.extraction, input_mode="plain"))
    held_out, train = hold_out_split(len(texts), spec.held_out, spec.seed)
    full = replace(inputs, rows=plain.rows)
    return StateSample(lm, texts, stored.table, full, inputs, train, held_out, request.skipped)
