"""A guess at the anatomy of a family without a row, from its modules; the laws decide."""

import inspect
from collections.abc import Iterable
from typing import Any

from torch import nn

from cutaway.core.errors import BadModel
from cutaway.models.anatomy import Anatomy, Kind


def propose(module: Any, kind: Kind) -> Anatomy:
    """An anatomy read off the module tree: good for layers and logits, not for parts of blocks.

    Parts are named where their names tell, but their layout isn't known; `norm1`, `norm2` and
    `mlp` are therefore left out, `attn` only serves attention weights.
    """
    blocks = _blocks(module)
    decoder = _name_of(module, module.get_output_embeddings())
    embeddings = _name_of(module, module.get_input_embeddings())
    if decoder is None or embeddings is None:
        raise BadModel(
            f"{type(module).__name__} shows no input or output embedding: its anatomy can't be "
            "proposed. Write a row for it: docs/howto/add-a-model-family.md"
        )
    body = _name_of(module, module.base_model) or ""
    return Anatomy(
        kind=kind,
        embeddings=embeddings,
        blocks=blocks,
        norm1=None,
        attn=_attention(module.get_submodule(blocks)[0]),
        norm2=None,
        mlp=None,
        final=_final(module, blocks),
        head=_head(module, body, decoder),
        decoder=decoder,
        positions=_positions(module),
        proposed=True,
    )


def _blocks(module: Any) -> str:
    """The list of modules with most weights, one per layer of the config."""
    lists = {n: m for n, m in module.named_modules() if isinstance(m, nn.ModuleList) and len(m)}
    layers = getattr(module.config, "num_hidden_layers", None)
    fit = {n: _weight(m) for n, m in lists.items() if len(m) == layers}
    if not fit:
        raise BadModel(
            f"{type(module).__name__} has no list of {layers} blocks: its anatomy can't be "
            "proposed. Write a row for it: docs/howto/add-a-model-family.md"
        )
    # The outermost of equals: a list inside a block can't have more weights than the blocks.
    best: str = max(fit, key=lambda name: (fit[name], -name.count(".")))
    return best


def _final(module: Any, blocks: str) -> tuple[str, ...]:
    """The norm that stands beside the blocks, if there is one."""
    parent, _, _ = blocks.rpartition(".")
    beside = module.get_submodule(parent).named_children()
    norms = [name for name, child in beside if _is_norm(name, child)]
    # Families with a norm on their embeddings list it first; the final one comes last.
    return (f"{parent}.{norms[-1]}",) if norms else ()


def _is_norm(name: str, child: nn.Module) -> bool:
    kind = f"{name} {type(child).__name__}".lower()
    return ("norm" in kind or name.lower().startswith("ln")) and "emb" not in name.lower()


def _head(module: Any, body: str, decoder: str) -> tuple[str, ...]:
    """The module beside the body that holds the decoder, with what stands before it."""
    tops = [name for name, _ in module.named_children() if name != body.split(".")[0]]
    holder = decoder.split(".")[0]
    return tuple(name for name in tops[: tops.index(holder) + 1] if _weight(getattr(module, name)))


def _attention(block: nn.Module) -> str | None:
    """The module in a block that is called attention."""
    names = [name for name, _ in block.named_children()]
    return next((n for n in names if "attn" in n.lower() or "attention" in n.lower()), None)


def _positions(module: Any) -> Any:
    """`count` when the body takes position ids, `own` otherwise."""
    takes = inspect.signature(module.base_model.forward).parameters
    return "count" if "position_ids" in takes else "own"


def _name_of(root: Any, wanted: nn.Module | None) -> str | None:
    named: Iterable[tuple[str, nn.Module]] = root.named_modules()
    return next((name for name, found in named if found is wanted), None)


def _weight(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())
