"""Where in the model a weight is: its layer, and the part of the block it belongs to."""

from collections.abc import Callable

from cutaway.models.block_layout import BlockPart
from cutaway.models.lm import LM

PART_ORDER: tuple[BlockPart, ...] = ("norm1", "norm2", "attn", "mlp")
"""Norms first: in some families they are inside the module of another part."""


def weight_locator(lm: LM) -> Callable[[str], tuple[int, str]]:
    """name -> (layer, module): blocks are 1..L, embeddings 0, final norm and head L + 1."""
    anatomy = lm.anatomy
    after_blocks = {
        "head": anatomy.head,
        "norm": tuple(name.removesuffix("?") for name in anatomy.final),
    }
    parts = {part: tuple((getattr(anatomy, part) or "").split(":")) for part in PART_ORDER}

    def place(name: str) -> tuple[int, str]:
        inner = name.removeprefix(f"{anatomy.blocks}.")
        if inner != name:
            number, _, rest = inner.partition(".")
            matches = (part for part in PART_ORDER if _has_prefix(rest, parts[part]))
            return int(number) + 1, next(matches, "other")
        for module, prefixes in after_blocks.items():
            if _has_prefix(name, prefixes):
                return lm.layers + 1, module
        # Everything else is before the blocks: embeddings, their norms and projections.
        return 0, "embeddings"

    return place


def _has_prefix(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(prefix and (name == prefix or name.startswith(f"{prefix}.")) for prefix in prefixes)
