"""Cross-products of layers in one streaming pass: the sufficient statistics of a linear fit.

Precision: the Gram matrix of a source layer, which a fit inverts, is summed in float64. Products
between two layers are only multiplied, so float32 is enough, chunk by chunk: each chunk is centred
by its own mean, the product is added in float64, and the means are added back in float64. A
coordinate with a huge mean or scale then costs no digits of the others, and rounding errors of the
chunks average out instead of accumulating.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from cutaway.core.errors import BadData, Corrupt, Mismatch
from cutaway.core.float64 import float64_device

StateKey = int | str
"""A layer number, or the name of a point inside a block such as `3.attn.out`."""

StatePair = tuple[StateKey, StateKey]

# Rows per product: long enough for the matrix product to run at full speed.
CHUNK_ROWS = 4096


@dataclass(frozen=True)
class Moments:
    """Counts, sums, squares and cross-products over rows; two of them can be added."""

    rows: int
    sums: dict[StateKey, Tensor]
    squares: dict[StateKey, Tensor]
    grams: dict[StatePair, Tensor]

    def __add__(self, other: "Moments") -> "Moments":
        """The moments of both sets of rows together."""
        if self.grams.keys() != other.grams.keys() or self.sums.keys() != other.sums.keys():
            raise Mismatch(
                f"Moments over the pairs {sorted(map(str, self.grams))[:3]!r} and "
                f"{sorted(map(str, other.grams))[:3]!r} (first three) don't add up: "
                "both must come from the same layers."
            )
        return Moments(
            self.rows + other.rows,
            {site: value + other.sums[site] for site, value in self.sums.items()},
            {site: value + other.squares[site] for site, value in self.squares.items()},
            {pair: value + other.grams[pair] for pair, value in self.grams.items()},
        )

    @property
    def pairs(self) -> list[StatePair]:
        """The (source, target) pairs, a source with itself left out."""
        return [(source, target) for source, target in self.grams if source != target]

    def state_dict(self) -> dict[str, Tensor]:
        """Named tensors, from which `moments_from_state_dict` restores the moments."""
        named = {"rows": torch.tensor(self.rows)}
        named |= {f"sum/{site}": value for site, value in self.sums.items()}
        named |= {f"square/{site}": value for site, value in self.squares.items()}
        return named | {f"gram/{s}/{t}": value for (s, t), value in self.grams.items()}


def moments_from_state_dict(state: Mapping[str, Tensor]) -> Moments:
    """The moments of a `state_dict`."""
    if "rows" not in state:
        raise Corrupt("Stored moments have no row count: the file is incomplete; delete it.")
    tables: dict[str, dict] = {"sum": {}, "square": {}, "gram": {}}
    for name, tensor in state.items():
        kind, *sites = name.split("/")
        if sites:
            key = tuple(_state_key(site) for site in sites)
            tables[kind][key if kind == "gram" else key[0]] = tensor
    return Moments(int(state["rows"]), tables["sum"], tables["square"], tables["gram"])


def _state_key(name: str) -> StateKey:
    return int(name) if name.isdigit() else name


PAIRS: dict[str, Callable[[int, int], Iterable[int]]] = {
    "all": lambda source, last: range(source + 1, last + 1),
    "to-final": lambda source, last: (last,),
    "final-and-next": lambda source, last: sorted({source + 1, last}),
}
"""Choice of pairs -> (layer, last layer) -> the layers that maps lead to."""


def layer_pairs(layers: int, choice: str = "all") -> list[StatePair]:
    """The pairs i < j of the layers 0..L that maps are fitted for."""
    return [(i, j) for i in range(layers) for j in PAIRS[choice](i, layers)]


def moments_bytes(pairs: Iterable[StatePair], width: int, *, chunk: int = CHUNK_ROWS) -> int:
    """Peak memory of a pass over these pairs: all products, and one chunk of rows."""
    pairs = list(pairs)
    sources, sites = {s for s, _ in pairs}, {site for pair in pairs for site in pair}
    products = (len(pairs) + len(sources)) * width * width * 8
    # All rows of a chunk in float32, and one layer of them once more in float64.
    buffer = chunk * width * (4 * len(sites) + 8)
    return products + buffer + 2 * width * width * 8 + 2 * len(sites) * width * 8


@dataclass
class MomentAccumulator:
    """Moments of states that are added batch by batch.

    `cross` is the precision of products between two different layers. Rows are buffered until a
    chunk is full, so small batches cost no more than large ones.
    """

    pairs: list[StatePair]
    cross: torch.dtype = torch.float32
    chunk: int = CHUNK_ROWS
    _total: Moments | None = field(default=None, init=False)
    _buffer: dict[StateKey, Tensor] = field(default_factory=dict, init=False)
    _buffered: int = field(default=0, init=False)
    _skip: int = field(default=0, init=False)

    def add(self, batch: Mapping[Any, Float[Tensor, "m _"]]) -> None:
        """Add a batch: the same rows, in the same order, at every layer."""
        rows = _common_row_count(batch, self._sites())
        if not self._buffer:
            self._allocate(batch)
        done = min(self._skip, rows)
        self._skip -= done
        while done < rows:
            step = min(rows - done, self.chunk - self._buffered)
            for site, buffer in self._buffer.items():
                buffer[self._buffered : self._buffered + step] = batch[site][done : done + step]
            done, self._buffered = done + step, self._buffered + step
            if self._buffered == self.chunk:
                self._flush()

    def skip(self, rows: int) -> bool:
        """Whether the next `rows` rows are all in restored sums, so that they needn't be added."""
        if self._skip < rows:
            return False
        self._skip -= rows
        return True

    @property
    def rows(self) -> int:
        """The number of rows added so far."""
        return self._buffered + (0 if self._total is None else self._total.rows)

    def state_dict(self) -> dict[str, Tensor]:
        """Named tensors of the sums and of the rows that aren't in them yet."""
        total = {} if self._total is None else self._total.state_dict()
        rows = {f"buffer/{site}": b[: self._buffered] for site, b in self._buffer.items()}
        return {**total, **rows}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a state: the rows in it are skipped when they are added again."""
        buffered = {
            _state_key(name.removeprefix("buffer/")): rows
            for name, rows in state.items()
            if name.startswith("buffer/")
        }
        self._allocate(buffered)
        self._total = moments_from_state_dict(
            {name: value for name, value in state.items() if not name.startswith("buffer/")}
        )
        for site, rows in buffered.items():
            self._buffered = len(rows)
            self._buffer[site][: len(rows)] = rows
        self._skip = self.rows

    def moments(self) -> Moments:
        """The moments of all rows added so far."""
        self._flush()
        if self._total is None:
            raise BadData("No rows to fit on: no states were added.")
        return self._total

    def _sites(self) -> list[StateKey]:
        return list(dict.fromkeys(site for pair in self.pairs for site in pair))

    def _allocate(self, batch: Mapping[StateKey, Tensor]) -> None:
        self._buffer = {
            site: torch.empty(
                self.chunk, batch[site].shape[1], device=float64_device(batch[site].device)
            )
            for site in self._sites()
        }
        if self._total is None:
            self._total = _zero_moments(self.pairs, self._buffer)

    def _flush(self) -> None:
        if self._buffered and self._total is not None:
            rows = {site: buffer[: self._buffered] for site, buffer in self._buffer.items()}
            self._total = _add_chunk(self._total, rows, self.cross)
            self._buffered = 0


def _common_row_count(batch: Mapping[StateKey, Tensor], sites: Iterable[StateKey]) -> int:
    missing = [site for site in sites if site not in batch]
    if missing:
        raise Mismatch(f"The batch lacks the layers {missing[:5]!r} that the fit needs.")
    lengths = {site: len(batch[site]) for site in sites}
    if len(set(lengths.values())) != 1:
        raise Mismatch(f"Layers of one batch must have the same rows, got counts {lengths!r}.")
    return next(iter(lengths.values()))


def _zero_moments(pairs: list[StatePair], like: Mapping[StateKey, Tensor]) -> Moments:
    """The moments of no rows."""

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.float64, device=next(iter(like.values())).device)

    blocks = [(s, s) for s in dict.fromkeys(s for s, _ in pairs)] + pairs
    return Moments(
        0,
        {site: zeros(rows.shape[1]) for site, rows in like.items()},
        {site: zeros(rows.shape[1]) for site, rows in like.items()},
        {(s, t): zeros(like[s].shape[1], like[t].shape[1]) for s, t in blocks},
    )


def _add_chunk(total: Moments, rows: Mapping[StateKey, Tensor], cross: torch.dtype) -> Moments:
    """Add one chunk, in place: the products of 13 layers of 768 are 430 MB, too much to copy.

    The rows are centred in place too.
    """
    count = len(next(iter(rows.values())))
    sums = {site: value.sum(dim=0, dtype=torch.float64) for site, value in rows.items()}
    for site, value in rows.items():
        exact = value.double()
        total.sums[site].add_(sums[site])
        total.squares[site].add_(torch.linalg.vecdot(exact, exact, dim=0))
        if (site, site) in total.grams:
            _add_gram(total.grams[site, site], exact)
    if cross == torch.float64:
        for source, target in total.pairs:
            gram = total.grams[source, target]
            gram.addmm_(rows[source].double().T, rows[target].double())
    else:
        _add_cross_centred(total, rows, sums, count)
    return Moments(total.rows + count, total.sums, total.squares, total.grams)


def _add_cross_centred(
    total: Moments, rows: Mapping[StateKey, Tensor], sums: Mapping[StateKey, Tensor], count: int
) -> None:
    """Products between layers in float32, centred by the chunk's means, which are added back."""
    means = {site: (value / count).float().double() for site, value in sums.items()}
    for site, value in rows.items():
        value.sub_(means[site].float())
    for source in dict.fromkeys(source for source, _ in total.pairs):
        # Transposed once for all targets: a row-major left side makes the product 10 % faster.
        left = rows[source].T.contiguous()
        for pair in total.pairs:
            if pair[0] == source:
                total.grams[pair].add_(left @ rows[pair[1]])
                _undo_centring(total.grams[pair], means, sums, count, pair)


def _add_gram(gram: Tensor, rows: Tensor, pieces: int = 3) -> None:
    """Add rows.T @ rows; only blocks on or above the diagonal are multiplied."""
    width = len(gram)
    cuts = [slice(width * i // pieces, width * (i + 1) // pieces) for i in range(pieces)]
    for i, upper in enumerate(cuts):
        for right in cuts[i:]:
            gram[upper, right].addmm_(rows[:, upper].T, rows[:, right])
            if right != upper:
                gram[right, upper] = gram[upper, right].T


def _undo_centring(
    gram: Tensor,
    means: Mapping[StateKey, Tensor],
    sums: Mapping[StateKey, Tensor],
    count: int,
    pair: StatePair,
) -> None:
    """Turn a sum of centred products into the plain sum: s Σy' + (Σx - n s) t', in float64."""
    (source, target), left = pair, sums[pair[0]] - count * means[pair[0]]
    gram.addmm_(
        torch.stack([means[source], left], dim=1), torch.stack([sums[target], means[target]])
    )
