"""Where a skill's weights are: counts by block and module, and by attention head."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.methods.graft.rows import GraftCoordinates
from cutaway.methods.graft.skill import Skill
from cutaway.models.anatomy import Anatomy
from cutaway.models.lm import LM
from cutaway.recipe.result import Row

IntArray = NDArray[np.int64]
HeadPair = tuple[IntArray, IntArray]
"""The query heads and the key or value heads that weights belong to."""


@dataclass(frozen=True)
class AttentionShape:
    """Number and width of a model's attention heads."""

    heads: int
    keys: int
    """Heads of keys and values; fewer than `heads` with grouped-query attention."""
    width: int


@dataclass(frozen=True)
class ModuleLocation:
    """A weight's block (None outside the blocks) and its module within the block."""

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


def atlas_rows(coordinates: GraftCoordinates, lm: LM, skill: Skill) -> list[Row]:
    """Counts by block and module, their share of the module's weights, and counts by head."""
    chosen: Counter[ModuleLocation] = Counter()
    sizes: Counter[ModuleLocation] = Counter()
    for name, value in lm.params().items():
        sizes[module_location(lm, name)] += value.numel()
    for name, indices in skill.patch.mask.indices.items():
        chosen[module_location(lm, name)] += len(indices)
    rows = []
    for location, size in sizes.items():
        counts = {"weights": float(chosen[location]), "density": chosen[location] / size}
        cell: dict[str, Any] = {"layer": location.layer, "part": location.module}
        rows += coordinates.scores("learned", counts, **cell)
    return rows + [
        coordinates.row("learned", "head_weights", n, layer=layer, head=head, part="attn")
        for (layer, head), n in sorted(weights_by_head(lm, skill).items())
    ]


def weights_by_head(lm: LM, skill: Skill) -> dict[tuple[int, int], float]:
    """Weights per block and head; those of a shared key or value head are split equally."""
    shape = attention_shape(lm)
    if shape is None:
        return {}
    total: defaultdict[tuple[int, int], float] = defaultdict(float)
    group = shape.heads // shape.keys
    for name, indices in skill.patch.mask.indices.items():
        location = module_location(lm, name)
        layout = head_layout(location.module, lm.anatomy)
        if location.layer is None or layout is None:
            continue
        outputs, inputs = _outputs_and_inputs(lm, name, skill.shapes[name], indices.numpy())
        queries, keys = layout(outputs, inputs, shape)
        for head in queries[queries < shape.heads]:
            total[location.layer, int(head)] += 1
        for head in keys[keys < shape.keys]:
            for one in range(int(head) * group, int(head) * group + group):
                total[location.layer, one] += 1.0 / group
    return dict(total)


def head_layout(module: str, anatomy: Anatomy) -> "HeadLayout | None":
    """How a module's weights are assigned to heads; None if they belong to no head."""
    within, _, word = module.rpartition(".")
    if word in FUSED_NAMES:
        return FUSED_LAYOUTS[anatomy.fused_qkv]
    if word in SHARED_OUTPUT_NAMES:
        return _output_layout if "att" in within.lower() else None
    return HEAD_LAYOUTS.get(word)


def attention_shape(lm: LM) -> AttentionShape | None:
    """Number and width of the heads from the config; None if the config has none."""
    config = lm.module.config
    heads = getattr(config, "num_attention_heads", None) or getattr(config, "n_head", None)
    if not heads:
        return None
    width = int(getattr(config, "head_dim", 0) or lm.width // heads)
    return AttentionShape(int(heads), _key_value_heads(config, int(heads)), width)


def _key_value_heads(config: Any, heads: int) -> int:
    """Heads of keys and values; falcon has its own name for them, and one if multi-query."""
    newer = getattr(config, "new_decoder_architecture", False)
    if getattr(config, "multi_query", False) and not newer:
        return 1
    named = (getattr(config, name, None) for name in ("num_key_value_heads", "num_kv_heads"))
    return int(next(filter(None, named), heads))


def _outputs_and_inputs(
    lm: LM, name: str, shape: tuple[int, ...], indices: IntArray
) -> tuple[IntArray, IntArray]:
    """The output and input features of each weight; -1 as the input of a bias."""
    if len(shape) == 1:
        return indices, np.full_like(indices, -1)
    first, second = np.divmod(indices, shape[1])
    module = lm.module.get_submodule(name.rpartition(".")[0])
    # gpt2's Conv1D has its matrix transposed.
    return (second, first) if type(module).__name__ == "Conv1D" else (first, second)


CODEGEN_BLOCKS = 4
"""Blocks of codegen's fused projection, one per chip that it was trained on."""
NO_HEADS = np.zeros(0, dtype=np.int64)
HeadLayout = Callable[[IntArray, IntArray, AttentionShape], HeadPair]
"""Output features, input features, shape -> query heads, key or value heads."""


def _query_layout(outputs: IntArray, inputs: IntArray, shape: AttentionShape) -> HeadPair:
    return outputs // shape.width, NO_HEADS


def _key_layout(outputs: IntArray, inputs: IntArray, shape: AttentionShape) -> HeadPair:
    return NO_HEADS, outputs // shape.width


def _output_layout(outputs: IntArray, inputs: IntArray, shape: AttentionShape) -> HeadPair:
    # A bias of the output projection belongs to no head.
    return inputs[inputs >= 0] // shape.width, NO_HEADS


def _concatenated_layout(outputs: IntArray, inputs: IntArray, shape: AttentionShape) -> HeadPair:
    """All queries, then all keys, then all values."""
    border, each = shape.heads * shape.width, shape.keys * shape.width
    queries = outputs[outputs < border] // shape.width
    return queries, ((outputs[outputs >= border] - border) % each) // shape.width


def _interleaved_layout(outputs: IntArray, inputs: IntArray, shape: AttentionShape) -> HeadPair:
    """Group after group: its queries, then its key, then its value."""
    queries = shape.heads // shape.keys
    group, within = np.divmod(outputs // shape.width, queries + 2)
    is_query = within < queries
    return group[is_query] * queries + within[is_query], group[~is_query]


def _codegen_layout(outputs: IntArray, inputs: IntArray, shape: AttentionShape) -> HeadPair:
    """Four blocks, each with the queries, then the values, then the keys of a quarter of heads."""
    each = shape.heads // CODEGEN_BLOCKS
    block, within = np.divmod(outputs // shape.width, 3 * each)
    return block * each + within % each, NO_HEADS


HEAD_LAYOUTS: dict[str, HeadLayout] = {
    **dict.fromkeys(("q_proj", "query", "q_lin", "q", "query_proj"), _query_layout),
    **dict.fromkeys(("k_proj", "key", "k_lin", "k", "key_proj"), _key_layout),
    **dict.fromkeys(("v_proj", "value", "v_lin", "v", "value_proj"), _key_layout),
    **dict.fromkeys(("o_proj", "out_proj", "out_lin", "o"), _output_layout),
}
"""By the last part of a module's name."""
FUSED_NAMES = frozenset({"c_attn", "qkv_proj", "Wqkv", "query_key_value"})
"""Names of one projection for queries, keys and values."""
FUSED_LAYOUTS: dict[str, HeadLayout] = {
    "concatenated": _concatenated_layout,
    "interleaved": _interleaved_layout,
    "codegen": _codegen_layout,
}
"""By `Anatomy.fused_qkv`."""
SHARED_OUTPUT_NAMES = frozenset({"dense", "c_proj", "Wo"})
"""Names of the output projection of attention that other modules of the block have too."""
