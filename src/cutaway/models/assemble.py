"""From a loaded module and its tokenizer to an LM: the anatomy, and the facts of the model."""

from collections.abc import Sequence
from typing import Any

import torch

from cutaway.models.anatomy import Anatomy, ModelKind
from cutaway.models.digests import tokenizer_digest
from cutaway.models.lm import LM
from cutaway.models.model_warnings import ModelWarning, version_warnings
from cutaway.models.placement import input_device, module_placement
from cutaway.models.propose import choose_anatomy, propose_anatomy
from cutaway.models.tokens import need_embedding_rows, uses_token_types
from cutaway.models.weights import has_trained_head

NO_LENGTH_LIMIT = 1_000_000


def assemble_lm(
    module: Any,
    tokenizer: Any,
    kind: ModelKind,
    row: Anatomy | None,
    missing: Sequence[str],
    *,
    name: str,
    digest: str,
    dtype: str,
    attention: str,
    bos: str = "auto",
    quantise: str = "none",
    device: str | None = None,
    notes: tuple[str, ...] = (),
    warnings: tuple[ModelWarning, ...] = (),
) -> LM:
    """The LM of a module in evaluation mode.

    `missing` are the weights that its checkpoint lacks; `device` is by default where the module
    takes its input.
    """
    anatomy = row or propose_anatomy(module, kind)
    has_head, head_notes = has_trained_head(name, anatomy, list(missing))
    rows = module.get_submodule(anatomy.embeddings).weight.shape[0]
    notes += need_embedding_rows(name, tokenizer, rows)
    lm = LM(
        name=name,
        family=module.config.model_type,
        kind=kind,
        digest=digest,
        tokenizer_digest=tokenizer_digest(tokenizer),
        context=_context(module.config.get_text_config(decoder=True), tokenizer, anatomy),
        dtype=dtype,
        device=device or input_device(module, anatomy.embeddings),
        device_map=module_placement(module),
        quantise=quantise,
        anatomy=anatomy,
        module=module,
        tokenizer=tokenizer,
        bos=bos,
        has_head=has_head,
        token_types=uses_token_types(tokenizer, module),
        notes=(*notes, *head_notes, *_opening_notes(module, anatomy, attention)),
        warnings=(*warnings, *version_warnings(module.config.model_type)),
        **_sizes(module, anatomy),
    )
    # For a family without a row the checks complete the proposed anatomy.
    return lm if row else choose_anatomy(lm)


def _sizes(module: Any, anatomy: Anatomy) -> dict[str, Any]:
    """The facts of the loaded module."""
    table, decoder = (module.get_submodule(n) for n in (anatomy.embeddings, anatomy.decoder))
    config = module.config.get_text_config(decoder=True)
    blocks = len(module.get_submodule(anatomy.blocks))
    return {
        # One block may be called several times (albert); a proposal has one module per layer.
        "layers": blocks if anatomy.proposed else int(config.num_hidden_layers),
        "width": int(config.hidden_size),
        "vocab": int(decoder.weight.shape[0]),
        "parameters": int(module.num_parameters()),
        "tied": _is_tied(module, table.weight, decoder.weight),
        "attention": str(module.config._attn_implementation),
    }


def _is_tied(module: Any, table: torch.Tensor, decoder: torch.Tensor) -> bool:
    """Whether two weights are one; for offloaded ones, which have no memory, as the config says."""
    if "meta" in (table.device.type, decoder.device.type):
        return bool(getattr(module.config, "tie_word_embeddings", False))
    return bool(table.data_ptr() == decoder.data_ptr())


def _opening_notes(module: Any, anatomy: Anatomy, attention: str) -> list[str]:
    """Notes about anything unusual."""
    used, notes = module.config._attn_implementation, []
    if used != attention:
        notes.append(f"attention={attention!r} isn't available for this family; {used!r} is used.")
    if anatomy.proposed:
        family = module.config.model_type
        notes.append(f"Family {family!r} has no row: its anatomy was proposed by inspection.")
    return notes


def _context(config: Any, tokenizer: Any, anatomy: Anatomy) -> int:
    """The context length that both model and tokenizer allow."""
    positions = getattr(config, "max_position_embeddings", None) or 0
    # xlnet says -1: no limit.
    limits = [int(positions) - anatomy.first_position] if positions > 0 else []
    if 0 < tokenizer.model_max_length < NO_LENGTH_LIMIT:
        limits.append(int(tokenizer.model_max_length))
    # Families without a position table (bloom) have no limit; they were trained on 2048.
    return min(limits) if limits else 2048
