"""Texts become examples: seeded token positions, and the states of all layers there."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.console import Console
from cutaway.core.errors import BadData
from cutaway.core.textset import TextSet
from cutaway.data.load import load_text_set
from cutaway.extract.activations import StoredActivations, extract
from cutaway.extract.model_handle import make_model_handle
from cutaway.extract.request import ExtractionRequest
from cutaway.extract.token_rows import TokenRows, build_token_rows
from cutaway.measure.splits import hold_out_split
from cutaway.methods.shortcut.spec import TextSampleSpec
from cutaway.models.lm import LM
from cutaway.models.tokens import tokenize
from cutaway.recipe.objects import Objects
from cutaway.store.activations import ActivationTable

TextRows = NDArray[np.int64]
# Texts whose states are held at once.
BATCH_TEXTS = 1024


@dataclass(frozen=True)
class StateSample:
    """Examples of a text set: where they stand, what comes next, and their states on disk."""

    lm: LM
    texts: TextSet
    features: StoredActivations
    fed: TokenRows
    """Rows of tokens as they are (whole, nothing masked) with the marked positions."""
    seen: TokenRows
    """Rows of tokens as the model sees them: masked at the marks, or cut behind the last."""
    train: TextRows
    held: TextRows
    skipped: int
    """Texts left out because they have less than two tokens."""

    def states(
        self, rows: TextRows, layers: Sequence[int], *, at_once: int = BATCH_TEXTS
    ) -> Iterator[tuple[TextRows, dict[int, Tensor]]]:
        """(texts, {layer: (examples, d)}) chunk by chunk; never all texts at once."""
        return stored_states(self.features.table, rows, layers, at_once=at_once)

    def places(self, rows: TextRows) -> TextRows:
        """The token position of every example of these texts, 0-based."""
        return np.concatenate([self.fed.marks[i] for i in rows]).astype(np.int64)

    def answers(self, rows: TextRows) -> Tensor:
        """The token each example should say: the next one, or the masked one; -1 at the end."""
        step = 1 if self.lm.kind == "causal" else 0
        found = [
            self.fed.rows[i][place + step] if place + step < len(self.fed.rows[i]) else -1
            for i in rows
            for place in self.fed.marks[i]
        ]
        return torch.tensor(found, dtype=torch.long)

    @property
    def mean_length(self) -> float:
        """Mean tokens per text, as the model sees it."""
        return float(np.mean(self.seen.lengths))


def stored_states(
    shelf: ActivationTable, rows: TextRows, layers: Sequence[int], *, at_once: int = BATCH_TEXTS
) -> Iterator[tuple[TextRows, dict[int, Tensor]]]:
    """(texts, {layer: (examples, d)}) of a shelf, chunk by chunk."""
    for start in range(0, len(rows), at_once):
        part = rows[start : start + at_once]
        yield part, {i: shelf.read_ragged(f"{i}/marks", part)[0] for i in layers}


def load_sample_texts(
    lm: LM, spec: TextSampleSpec, objects: Objects | None = None
) -> tuple[TextSet, int]:
    """The texts with at least two tokens of their own, and how many had fewer."""
    found = load_text_set(
        (objects or {}).get(spec.text, spec.text),
        text_column=spec.text_column,
        limit=spec.limit,
        seed=spec.seed,
        offline=spec.offline,
        as_task="text",
        drop_empty=True,
    )
    plain = TextSet(found.name, found.texts, notes=found.notes)
    special = set(lm.tokenizer.all_special_ids)
    rows = tokenize(lm, plain.texts, limit=spec.max_tokens).rows
    enough = [i for i, row in enumerate(rows) if sum(token not in special for token in row) >= 2]
    if len(enough) < 2:
        raise BadData(
            f"{found.name!r} has {len(enough)} texts of two tokens or more, at least 2 are needed: "
            "a shortcut needs words to stand on. Give more or longer texts."
        )
    return plain.take(enough), len(plain) - len(enough)


def sample_request(lm: LM, spec: TextSampleSpec) -> ExtractionRequest:
    """All layers at seeded positions: the prefix up to there, or [MASK] put there."""
    return ExtractionRequest(
        layers=tuple(range(lm.layers + 1)),
        pools=("marks",),
        max_tokens=spec.max_tokens,
        input_mode="cut" if lm.kind == "causal" else "mask",
        positions=spec.positions_per_text,
        seed=spec.seed,
    )


def take_sample(
    lm: LM, spec: TextSampleSpec, console: Console, objects: Objects | None = None
) -> StateSample:
    """The spec's examples; their states come from the cache, or from one pass of the model."""
    texts, skipped = load_sample_texts(lm, spec, objects)
    if skipped:
        console.print(f"{skipped} texts have less than two tokens and are left out.")
    ask = sample_request(lm, spec)
    features = extract(
        lm,
        texts,
        ask,
        console=console,
        engine=spec.engine,
        handle=make_model_handle(lm, spec, objects),
    )
    seen = build_token_rows(lm, texts, ask)
    fed = replace(seen, rows=build_token_rows(lm, texts, replace(ask, input_mode="plain")).rows)
    held, train = hold_out_split(len(texts), spec.held_out, spec.seed)
    return StateSample(lm, texts, features, fed, seen, train, held, skipped)
