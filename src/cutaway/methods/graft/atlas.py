"""Where a skill lives: how many of its weights each module of each block holds, and each head."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.methods.graft.rows import GraftCoordinates
from cutaway.methods.graft.skill import Skill
from cutaway.models.anatomy import Anatomy
from cutaway.models.lm import LM
from cutaway.recipe.table import Row

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class AttentionShape:
    """The sizes that tell heads apart."""

    heads: int
    keys: int
    """Heads of keys and values; fewer than `heads` where they are shared."""
    width: int
    """Numbers per head."""


@dataclass(frozen=True)
class ModuleLocation:
    """A weight's block (None outside the blocks) and its module within it."""

    layer: int | None
    module: str


def module_location(lm: LM, name: str) -> ModuleLocation:
    """Block 1..L and module of a weight, by the family's anatomy."""
    blocks = f"{lm.anatomy.blocks}."
    module = name.rpartition(".")[0]
    if not name.startswith(blocks):
        return ModuleLocation(None, module.rpartition(".")[2] or module)
    number, _, inner = module.removeprefix(blocks).partition(".")
    return ModuleLocation(int(number) + 1, inner)


def atlas_rows(where: GraftCoordinates, lm: LM, skill: Skill) -> list[Row]:
    """Counts by block and module, with the share of the module's weights; counts by head."""
    held: Counter[ModuleLocation] = Counter()
    sizes: Counter[ModuleLocation] = Counter()
    for name, value in lm.params().items():
        sizes[module_location(lm, name)] += value.numel()
    for name, places in skill.patch.mask.indices.items():
        held[module_location(lm, name)] += len(places)
    rows = []
    for place in sizes:
        at: dict[str, Any] = {"layer": place.layer, "part": place.module}
        rows.append(where.row("learned", "weights", float(held[place]), **at))
        rows.append(where.row("learned", "density", held[place] / sizes[place], **at))
    return rows + [
        where.row("learned", "head_weights", found, layer=layer, head=head, part="attn")
        for (layer, head), found in sorted(weights_by_head(lm, skill).items())
    ]


def weights_by_head(lm: LM, skill: Skill) -> dict[tuple[int, int], float]:
    """Weights per block and attention head; a shared key or value head counts for its group."""
    shape = attention_shape(lm)
    total: dict[tuple[int, int], float] = {}
    if shape is None:
        return total
    share = shape.heads // shape.keys
    for name, places in skill.patch.mask.indices.items():
        place = module_location(lm, name)
        reader = head_layout(place.module, lm.anatomy)
        if place.layer is None or reader is None:
            continue
        rows, columns = _outputs_and_inputs(lm, name, skill.shapes[name], places.numpy())
        queries, keys = reader(rows, columns, shape)
        for head in queries[queries < shape.heads]:
            key = (place.layer, int(head))
            total[key] = total.get(key, 0.0) + 1.0
        for head in keys[keys < shape.keys]:
            for one in range(int(head) * share, int(head) * share + share):
                total[place.layer, one] = total.get((place.layer, one), 0.0) + 1.0 / share
    return total


def head_layout(module: str, anatomy: Anatomy) -> "HeadLayout | None":
    """How a module's weights are assigned to heads; None if they belong to no head."""
    within, _, word = module.rpartition(".")
    if word in FUSED_NAMES:
        return FUSED_LAYOUTS[anatomy.fused_qkv]
    if word in SHARED_OUTPUT_NAMES:
        # The feed-forward part has a map of the same name.
        return _output_layout if "att" in within.lower() else None
    return HEAD_LAYOUTS.get(word)


def attention_shape(lm: LM) -> AttentionShape | None:
    """Heads and their width as the config says; None where it doesn't."""
    config = lm.module.config
    heads = getattr(config, "num_attention_heads", None) or getattr(config, "n_head", None)
    if not heads:
        return None
    width = int(getattr(config, "head_dim", 0) or lm.width // heads)
    return AttentionShape(int(heads), _key_value_heads(config, int(heads)), width)


def _key_value_heads(config: Any, heads: int) -> int:
    """Heads of keys and values; falcon calls them otherwise and has one where it is multi-query."""
    newer = getattr(config, "new_decoder_architecture", False)
    if getattr(config, "multi_query", False) and not newer:
        return 1
    named = (getattr(config, name, None) for name in ("num_key_value_heads", "num_kv_heads"))
    return int(next(filter(None, named), heads))


def _outputs_and_inputs(
    lm: LM, name: str, shape: tuple[int, ...], places: IntArray
) -> tuple[IntArray, IntArray]:
    """Output and input number of each weight; a bias has outputs only."""
    if len(shape) == 1:
        return places, np.full_like(places, -1)
    first, second = np.divmod(places, shape[1])
    module = lm.module.get_submodule(name.rpartition(".")[0])
    # gpt2's own linear map keeps its matrix the other way round.
    return (second, first) if type(module).__name__ == "Conv1D" else (first, second)


CODEGEN_BLOCKS = 4
"""Blocks of codegen's map, one for each of the chips that it was trained on."""
NO_HEADS = np.zeros(0, dtype=np.int64)
HeadLayout = Callable[[IntArray, IntArray, AttentionShape], tuple[IntArray, IntArray]]


def _query_layout(
    rows: IntArray, columns: IntArray, shape: AttentionShape
) -> tuple[IntArray, IntArray]:
    return rows // shape.width, NO_HEADS


def _key_layout(
    rows: IntArray, columns: IntArray, shape: AttentionShape
) -> tuple[IntArray, IntArray]:
    return NO_HEADS, rows // shape.width


def _output_layout(
    rows: IntArray, columns: IntArray, shape: AttentionShape
) -> tuple[IntArray, IntArray]:
    # A bias of the output belongs to no head.
    return columns[columns >= 0] // shape.width, NO_HEADS


def _concatenated_layout(
    rows: IntArray, columns: IntArray, shape: AttentionShape
) -> tuple[IntArray, IntArray]:
    """Queries, then keys, then values, head after head."""
    border, each = shape.heads * shape.width, shape.keys * shape.width
    queries = rows[rows < border] // shape.width
    return queries, ((rows[rows >= border] - border) % each) // shape.width


def _interleaved_layout(
    rows: IntArray, columns: IntArray, shape: AttentionShape
) -> tuple[IntArray, IntArray]:
    """Group after group: its queries, then its key, then its value; most have a query each."""
    queries = shape.heads // shape.keys
    group, within = np.divmod(rows // shape.width, queries + 2)
    asks = within < queries
    return group[asks] * queries + within[asks], group[~asks]


def _codegen_layout(
    rows: IntArray, columns: IntArray, shape: AttentionShape
) -> tuple[IntArray, IntArray]:
    """Four blocks, each with the queries, then the values, then the keys of a quarter of heads."""
    each = shape.heads // CODEGEN_BLOCKS
    block, within = np.divmod(rows // shape.width, 3 * each)
    return block * each + within % each, NO_HEADS


HEAD_LAYOUTS: dict[str, HeadLayout] = {
    **dict.fromkeys(("q_proj", "query", "q_lin", "q", "query_proj"), _query_layout),
    **dict.fromkeys(
        ("k_proj", "v_proj", "key", "value", "k_lin", "v_lin", "k", "v", "key_proj", "value_proj"),
        _key_layout,
    ),
    **dict.fromkeys(("o_proj", "out_proj", "out_lin", "o"), _output_layout),
}
"""By the last word of a module's name: which heads its weights belong to, queries' and keys'."""
FUSED_NAMES = frozenset({"c_attn", "qkv_proj", "Wqkv", "query_key_value"})
"""Names of one map for queries, keys and values."""
FUSED_LAYOUTS: dict[str, HeadLayout] = {
    "concatenated": _concatenated_layout,
    "interleaved": _interleaved_layout,
    "codegen": _codegen_layout,
}
"""By `Anatomy.fused_qkv`."""
SHARED_OUTPUT_NAMES = frozenset({"dense", "c_proj", "Wo"})
"""Names of the map out of attention in some families, and of one that is not attention's."""
