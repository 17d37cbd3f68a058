"""Where a skill lives: how many of its weights each module of each block holds, and each head."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.models.lm import LM
from cutaway.run.graft.rows import Where
from cutaway.run.graft.skill import Skill
from cutaway.run.table import Row

Heads = NDArray[np.int64]


@dataclass(frozen=True)
class Shape:
    """The sizes that tell heads apart."""

    heads: int
    keys: int
    """Heads of keys and values; fewer than `heads` where they are shared."""
    width: int
    """Numbers per head."""


@dataclass(frozen=True)
class Place:
    """A weight's block (None outside the blocks) and its module within it."""

    layer: int | None
    module: str


def place_of(lm: LM, name: str) -> Place:
    """Block 1..L and module of a weight, by the family's anatomy."""
    blocks = f"{lm.anatomy.blocks}."
    module = name.rpartition(".")[0]
    if not name.startswith(blocks):
        return Place(None, module.rpartition(".")[2] or module)
    number, _, inner = module.removeprefix(blocks).partition(".")
    return Place(int(number) + 1, inner)


def atlas_rows(where: Where, lm: LM, skill: Skill) -> list[Row]:
    """Counts by block and module, with the share of the module's weights; counts by head."""
    held: Counter[Place] = Counter()
    sizes: Counter[Place] = Counter()
    for name, value in lm.params().items():
        sizes[place_of(lm, name)] += value.numel()
    for name, places in skill.patch.mask.places.items():
        held[place_of(lm, name)] += len(places)
    rows = []
    for place in sizes:
        at: dict[str, Any] = {"layer": place.layer, "part": place.module}
        rows.append(where.row("learned", "weights", float(held[place]), **at))
        rows.append(where.row("learned", "density", held[place] / sizes[place], **at))
    return rows + [
        where.row("learned", "head_weights", found, layer=layer, head=head, part="attn")
        for (layer, head), found in sorted(by_head(lm, skill).items())
    ]


def by_head(lm: LM, skill: Skill) -> dict[tuple[int, int], float]:
    """Weights per block and attention head; a shared key or value head counts for its group."""
    shape = shape_of(lm)
    total: dict[tuple[int, int], float] = {}
    if shape is None:
        return total
    share = shape.heads // shape.keys
    for name, places in skill.patch.mask.places.items():
        place = place_of(lm, name)
        reader = reader_of(place.module, lm.family)
        if place.layer is None or reader is None:
            continue
        rows, columns = _rows_and_columns(lm, name, skill.shapes[name], places.numpy())
        queries, keys = reader(rows, columns, shape)
        for head in queries[queries < shape.heads]:
            key = (place.layer, int(head))
            total[key] = total.get(key, 0.0) + 1.0
        for head in keys[keys < shape.keys]:
            for one in range(int(head) * share, int(head) * share + share):
                total[place.layer, one] = total.get((place.layer, one), 0.0) + 1.0 / share
    return total


def reader_of(module: str, family: str = "") -> "Reader | None":
    """How a module's weights are dealt to heads; None where they belong to none."""
    within, _, word = module.rpartition(".")
    if (family, word) in OWN:
        return OWN[family, word]
    if word in EITHER:
        # The feed-forward part has a map of the same name.
        return _out if "att" in within.lower() else None
    return READERS.get(word)


def shape_of(lm: LM) -> Shape | None:
    """Heads and their width as the config says; None where it doesn't."""
    config = lm.module.config
    heads = getattr(config, "num_attention_heads", None) or getattr(config, "n_head", None)
    if not heads:
        return None
    width = int(getattr(config, "head_dim", 0) or lm.width // heads)
    return Shape(int(heads), _keys(config, int(heads)), width)


def _keys(config: Any, heads: int) -> int:
    """Heads of keys and values; falcon calls them otherwise and has one where it is multi-query."""
    newer = getattr(config, "new_decoder_architecture", False)
    if getattr(config, "multi_query", False) and not newer:
        return 1
    named = (getattr(config, name, None) for name in ("num_key_value_heads", "num_kv_heads"))
    return int(next(filter(None, named), heads))


def _rows_and_columns(
    lm: LM, name: str, shape: tuple[int, ...], places: Heads
) -> tuple[Heads, Heads]:
    """Output and input number of each weight; a bias has outputs only."""
    if len(shape) == 1:
        return places, np.full_like(places, -1)
    first, second = np.divmod(places, shape[1])
    module = lm.module.get_submodule(name.rpartition(".")[0])
    # gpt2's own linear map keeps its matrix the other way round.
    return (second, first) if type(module).__name__ == "Conv1D" else (first, second)


QUARTERS = 4
"""Blocks of codegen's map, one for each of the chips that it was trained on."""
NONE = np.zeros(0, dtype=np.int64)
Reader = Callable[[Heads, Heads, Shape], tuple[Heads, Heads]]


def _query(rows: Heads, columns: Heads, shape: Shape) -> tuple[Heads, Heads]:
    return rows // shape.width, NONE


def _key(rows: Heads, columns: Heads, shape: Shape) -> tuple[Heads, Heads]:
    return NONE, rows // shape.width


def _out(rows: Heads, columns: Heads, shape: Shape) -> tuple[Heads, Heads]:
    # A bias of the output belongs to no head.
    return columns[columns >= 0] // shape.width, NONE


def _thirds(rows: Heads, columns: Heads, shape: Shape) -> tuple[Heads, Heads]:
    """Queries, then keys, then values, head after head."""
    border, each = shape.heads * shape.width, shape.keys * shape.width
    queries = rows[rows < border] // shape.width
    return queries, ((rows[rows >= border] - border) % each) // shape.width


def _woven(rows: Heads, columns: Heads, shape: Shape) -> tuple[Heads, Heads]:
    """Group after group: its queries, then its key, then its value; most have a query each."""
    queries = shape.heads // shape.keys
    group, within = np.divmod(rows // shape.width, queries + 2)
    asks = within < queries
    return group[asks] * queries + within[asks], group[~asks]


def _quarters(rows: Heads, columns: Heads, shape: Shape) -> tuple[Heads, Heads]:
    """Four blocks, each with the queries, then the values, then the keys of a quarter of heads."""
    each = shape.heads // QUARTERS
    block, within = np.divmod(rows // shape.width, 3 * each)
    return block * each + within % each, NONE


READERS: dict[str, Reader] = {
    **dict.fromkeys(("q_proj", "query", "q_lin", "q", "query_proj"), _query),
    **dict.fromkeys(
        ("k_proj", "v_proj", "key", "value", "k_lin", "v_lin", "k", "v", "key_proj", "value_proj"),
        _key,
    ),
    **dict.fromkeys(("o_proj", "out_proj", "out_lin", "o"), _out),
    **dict.fromkeys(("c_attn", "qkv_proj", "Wqkv"), _thirds),
    "query_key_value": _woven,
}
"""By the last word of a module's name: which heads its weights belong to, queries' and keys'."""
OWN: dict[tuple[str, str], Reader] = {
    ("codegen", "qkv_proj"): _quarters,
    ("gpt_bigcode", "c_attn"): _woven,
}
"""Families that lay out a map otherwise than others who call it the same."""
EITHER = frozenset({"dense", "c_proj", "Wo"})
"""Names of the map out of attention in some families, and of one that is not attention's."""
