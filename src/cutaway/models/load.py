"""Opening a model: from a name to an LM that has passed the check at the door."""

from pathlib import Path
from typing import Any

import torch

from cutaway.core.digest import digest_json
from cutaway.core.errors import BadModel, BadSpec
from cutaway.core.lookup import lookup
from cutaway.home import expand_path
from cutaway.models.adapter import adapter_digest, merge_adapter, need_adapter
from cutaway.models.anatomy import Anatomy
from cutaway.models.digests import tokenizer_digest, weights_digest
from cutaway.models.fetch import CheckpointSource, fetch_checkpoint
from cutaway.models.folder import need_config, need_memory, need_tokenizer, need_weights
from cutaway.models.lm import LM
from cutaway.models.propose import choose_anatomy, propose_anatomies
from cutaway.models.tokenizer import load_tokenizer, need_embedding_rows, uses_token_types
from cutaway.models.weight_checksum import with_checksum
from cutaway.models.weights import (
    ATTENTION_KERNELS,
    DTYPES,
    has_trained_head,
    kind_and_anatomy,
    load_config,
    load_weights,
    need_plausible_config,
)

NO_LENGTH_LIMIT = 1_000_000


def open_model(
    name: str | Path | LM,
    *,
    revision: str | None = None,
    adapter: str | Path | None = None,
    dtype: str = "float32",
    device: str = "auto",
    offline: bool = False,
    attention: str = "sdpa",
    trust_remote_code: bool = False,
    check: bool = True,
    watch: bool = True,
) -> LM:
    """The model called `name`: bundled, a hub id, a folder, or `base+adapter`.

    Weights come from safetensors only, in evaluation mode and frozen. With `check` the model
    must pass the quick laws of `cutaway.models.check`; a pass is remembered. Families without
    a row in ANATOMIES are looked at, and opened if what is found holds every law. With `watch` a
    print is made of the weights: given to a verb as an object, the model is then known to be the
    opened one, or to have been changed since.
    """
    if isinstance(name, LM):
        return name
    lookup(DTYPES, dtype, kind="dtype")
    lookup(ATTENTION_KERNELS, attention, kind="attention kernel")
    where = choose_device(device)
    base, extra = _split_adapter(str(name), adapter)
    source = fetch_checkpoint(base, revision=revision, offline=offline, code=trust_remote_code)
    patch = None if extra is None else fetch_checkpoint(extra, offline=offline)
    lm = _load_lm(source, patch, dtype, where, attention, trust_remote_code)
    if check:
        from cutaway.models.check import quick_check

        quick_check(lm)
    return with_checksum(lm, same_each_time=patch is None and lm.has_head) if watch else lm


def choose_device(device: str) -> str:
    """`auto` made definite; BadSpec for a device this machine hasn't."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise BadSpec(f"device {device!r} can't be used: {reason}. Try auto or cpu.") from None
    return device


def _split_adapter(name: str, adapter: str | Path | None) -> tuple[str, str | None]:
    """Base and adapter of a name; a folder whose own name has a + is no pair."""
    if adapter is not None:
        return name, str(adapter)
    if "+" not in name or expand_path(name).exists():
        return name, None
    base, _, extra = name.partition("+")
    return base, extra


def _load_lm(
    source: CheckpointSource,
    patch: CheckpointSource | None,
    dtype: str,
    device: str,
    attention: str,
    trust: bool,
) -> LM:
    """What can be refused without loading is refused first; then weights, then the facts."""
    need_config(source.folder)
    files = need_weights(source.folder)
    need_tokenizer(source.folder)
    if device == "cpu":
        need_memory(files, DTYPES[dtype].itemsize)
    if patch is not None:
        need_adapter(patch.folder)
    config = load_config(source, trust)
    kind, row = kind_and_anatomy(source, config)
    if not trust:
        need_plausible_config(source, config, kind, files)
    tokenizer, notes = load_tokenizer(source.folder, trust)
    digest = _digest(source, files, patch)
    module, unfilled = load_weights(source.folder, config, kind, dtype, attention, trust)
    if patch is not None:
        module = merge_adapter(module, patch.folder)
    if _digest(source, files, patch) != digest:
        raise BadModel(f"{source.folder} was changed while it was read. Open it once more.")
    module = module.to(device).eval().requires_grad_(False)
    # For a family without a row the laws choose among what its modules suggest.
    candidates = [row] if row else propose_anatomies(module, kind)
    anatomy = candidates[0]
    has_head, missed = has_trained_head(source.name, anatomy, unfilled)
    rows = module.get_submodule(anatomy.embeddings).weight.shape[0]
    notes += need_embedding_rows(source.name, tokenizer, rows)
    lm = LM(
        name=source.name if patch is None else f"{source.name}+{patch.name}",
        family=config.model_type,
        kind=kind,
        digest=digest,
        tokenizer_digest=tokenizer_digest(tokenizer),
        context=_context(module.config, tokenizer, anatomy),
        dtype=dtype,
        device=device,
        anatomy=anatomy,
        module=module,
        tokenizer=tokenizer,
        has_head=has_head,
        token_types=uses_token_types(tokenizer, module),
        notes=(*notes, *missed, *_opening_notes(module, anatomy, attention)),
        **_sizes(module, anatomy),
    )
    return lm if row else choose_anatomy(lm, candidates)


def _digest(source: CheckpointSource, files: list[Path], patch: CheckpointSource | None) -> str:
    """The identity of the weights, with the adapter's where there is one."""
    base = source.digest or weights_digest(files, source.folder / "config.json")
    if patch is None:
        return base
    return digest_json({"base": base, "adapter": adapter_digest(patch.folder)})


def _sizes(module: Any, anatomy: Anatomy) -> dict[str, Any]:
    """The facts that are read off the loaded module."""
    table, decoder = (module.get_submodule(n) for n in (anatomy.embeddings, anatomy.decoder))
    return {
        "layers": int(module.config.num_hidden_layers),
        "width": int(module.config.hidden_size),
        "vocab": int(decoder.weight.shape[0]),
        "parameters": sum(p.numel() for p in module.parameters()),
        "tied": bool(table.weight.data_ptr() == decoder.weight.data_ptr()),
        "attention": str(module.config._attn_implementation),
    }


def _opening_notes(module: Any, anatomy: Anatomy, attention: str) -> list[str]:
    """What isn't as asked for or as usual."""
    used, said = module.config._attn_implementation, []
    if used != attention:
        said.append(f"attention={attention!r} isn't made for this family; {used!r} is used.")
    if anatomy.proposed:
        family = module.config.model_type
        said.append(f"Family {family!r} has no row: its anatomy was proposed by inspection.")
    return said


def _context(config: Any, tokenizer: Any, anatomy: Anatomy) -> int:
    """The longest row of tokens both model and tokenizer stand for."""
    positions = getattr(config, "max_position_embeddings", None)
    limits = [] if positions is None else [int(positions) - anatomy.first_position]
    if 0 < tokenizer.model_max_length < NO_LENGTH_LIMIT:
        limits.append(int(tokenizer.model_max_length))
    # Families without a position table (bloom) say nothing; 2048 is what they were trained on.
    return min(limits) if limits else 2048
