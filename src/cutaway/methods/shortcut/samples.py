"""Every sample of `shortcut eval` and `shortcut exit`, as rows of samples.parquet.

Two sorts of rows: what a layer predicts through a map, and where a token exits (`lambda` is set,
and `layer` is the exit layer). Rows of the second sort have no text and no tokens: the first sort
has them under the same row, position, kind and layer.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch import Tensor

from cutaway.methods.shortcut.maths.exit_simulation import (
    LayerConfidences,
    agreement_at,
    exit_layers,
)
from cutaway.methods.shortcut.maths.lens import LayerPredictions
from cutaway.methods.shortcut.maths.top_tokens import top_tokens
from cutaway.methods.shortcut.rows import ShortcutCoordinates
from cutaway.methods.shortcut.sample import StateSample, TextRows
from cutaway.recipe.life_cycle import Run
from cutaway.store.samples import SamplePieces, text_digests

CELL_BYTES, EXIT_BYTES = 120, 4
"""Size on disk of a prediction with its tokens, and of an exit."""
PIECE_ROWS = 1 << 16

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class MarkedTokens:
    """Marked tokens: the row of each one's text, and its position there."""

    rows: Ids
    positions: Ids

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.rows)

    def take(self, part: slice) -> "MarkedTokens":
        """Some of the examples."""
        return MarkedTokens(self.rows[part], self.positions[part])


def examples_of(sample: StateSample, rows: TextRows) -> MarkedTokens:
    """The examples of these texts, in the order of their stored states."""
    counts = [len(sample.full.marks[i]) for i in rows]
    return MarkedTokens(np.repeat(rows, counts), sample.positions(rows))


@dataclass
class LensCells:
    """What layers predict for the same examples, until they are written."""

    keys: list[tuple[str, int]] = field(default_factory=list)
    """Kind of map and layer."""
    tops: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    predictions: list[LayerPredictions] = field(default_factory=list)

    def add(self, kind: str, layer: int, logits: Tensor, predicted: LayerPredictions) -> None:
        """Keep the ten most likely tokens of one layer."""
        self.keys.append((kind, layer))
        self.tops.append(top_tokens(logits, predicted))
        self.predictions.append(predicted)


@dataclass(frozen=True)
class SampleWriter:
    """Writes the samples of a run, a few examples at a time."""

    pieces: SamplePieces
    sample: StateSample
    coordinates: Mapping[str, str]
    """The columns that all rows share."""
    digests: Sequence[str]
    """Of every text of the set."""
    texts_of_tokens: dict[int, str] = field(default_factory=dict)

    def write_cells(self, key: str, examples: MarkedTokens, cells: LensCells) -> None:
        """One row per example, kind and layer, the rows of an example together."""
        count, width = len(examples), len(cells.keys)
        shown = self._shown(examples)
        names = ("rank", "surprisal", "kl", "entropy", "loss")
        numbers = {n: _by_example([getattr(p, n) for p in cells.predictions]) for n in names}
        ids = _by_example([ids for ids, _ in cells.tops])
        probs = _by_example([probs for _, probs in cells.tops]).astype(np.float32)
        depth = ids.shape[-1]
        kinds, layers = zip(*cells.keys, strict=True)
        frame = pl.DataFrame(
            {
                **{
                    name: column.gather(np.repeat(np.arange(count), width))
                    for name, column in shown
                },
                "kind": pl.Series(kinds).gather(np.tile(np.arange(width), count)),
                "layer": np.tile(np.array(layers), count),
                "tokens": self._decode(ids.ravel()).reshape((-1, depth)).arr.to_list(),
                "token_ids": _lists(ids.astype(np.int32), depth),
                "scores": _lists(probs, depth),
                "agree": numbers["rank"].ravel() == 0,
                **{name: values.ravel() for name, values in numbers.items()},
            }
        )
        self.pieces.put(
            key, self._with_coordinates(frame.with_columns(pl.col("loss").fill_nan(None)))
        )

    def write_exits(
        self, examples: MarkedTokens, kind: str, confidence: str,
        values: LayerConfidences, lambdas: Sequence[float],
    ) -> None:  # fmt: skip
        """One row per example and lambda: the layer where the token exits."""
        size = max(1, PIECE_ROWS // len(lambdas))
        for start in range(0, len(examples), size):
            chosen = np.arange(start, min(start + size, len(examples)))
            some = values.take(chosen)
            layers = [exit_layers(some, one) for one in lambdas]
            agree = [agreement_at(some, one) for one in layers]
            part = examples.take(slice(start, start + size))
            each = np.repeat(np.arange(len(part)), len(lambdas))
            frame = pl.DataFrame(
                {
                    "row": part.rows[each],
                    "position": part.positions[each],
                    "kind": pl.Series([kind]).new_from_index(0, len(each)),
                    "layer": np.stack(layers, axis=1).ravel(),
                    "agree": np.stack(agree, axis=1).ravel(),
                    "confidence": pl.Series([confidence]).new_from_index(0, len(each)),
                    "lambda": np.tile(np.array(lambdas), len(part)),
                }
            )
            key = f"exits/{kind}/{confidence}/{start:09d}"
            self.pieces.put(key, self._with_coordinates(frame))

    def _shown(self, examples: MarkedTokens) -> Iterator[tuple[str, pl.Series]]:
        """The columns that describe an example."""
        tokens, pairs = (
            self.sample.full.rows,
            list(zip(examples.rows, examples.positions, strict=True)),
        )
        truth = [self.sample.next_token(row, position) for row, position in pairs]
        read = np.array([tokens[row][position] for row, position in pairs])
        known = pl.Series([one >= 0 for one in truth])
        yield "row", pl.Series(examples.rows)
        yield "position", pl.Series(examples.positions)
        yield "text_digest", pl.Series([self.digests[i] for i in examples.rows])
        yield "text", pl.Series([_valid(self.sample.texts.texts[i]) for i in examples.rows])
        yield "token", self._decode(read)
        yield "truth", self._decode(np.maximum(truth, 0)).set(~known, None)

    def _decode(self, ids: Ids) -> pl.Series:
        """Each token as text, with its spaces."""
        unique, where = np.unique(ids, return_inverse=True)
        for token in unique.tolist():
            if token not in self.texts_of_tokens:
                self.texts_of_tokens[token] = _valid(self.sample.lm.tokenizer.decode([token]))
        texts = pl.Series(
            [self.texts_of_tokens[token] for token in unique.tolist()], dtype=pl.String
        )
        return texts.gather(where)

    def _with_coordinates(self, frame: pl.DataFrame) -> pl.DataFrame:
        shared = [pl.lit(_valid(value)).alias(name) for name, value in self.coordinates.items()]
        return frame.select(*shared, pl.all())


def sample_writer(
    run: Run, sample: StateSample, coordinates: ShortcutCoordinates
) -> SampleWriter | None:
    """What writes the run's samples; None unless they were asked for."""
    if run.samples is None:
        return None
    return SampleWriter(run.samples, sample, coordinates.shared, text_digests(sample.texts))


def _by_example(layers: Sequence[Tensor]) -> NDArray[Any]:
    """(example, layer, ...) of one tensor per layer."""
    return np.stack([one.numpy() for one in layers], axis=1)


def _lists(values: NDArray[Any], depth: int) -> pl.Series:
    return pl.Series(values.ravel()).reshape((-1, depth)).arr.to_list()


def _valid(text: str) -> str:
    """The text with `?` for lone surrogates, which tables can't hold."""
    return text.encode("utf-8", "replace").decode()
