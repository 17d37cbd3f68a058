"""Opening a model: from a name to an LM that passed the consistency checks."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from cutaway.core.digest import digest_json
from cutaway.core.errors import BadModel
from cutaway.core.lookup import lookup
from cutaway.home import expand_path
from cutaway.models.anatomy import Anatomy
from cutaway.models.checkpoint import (
    CheckpointSource,
    fetch_checkpoint,
    need_config,
    need_memory,
    need_tokenizer,
    need_weights,
    tensor_shapes,
)
from cutaway.models.digests import tokenizer_digest, weights_digest, with_checksum
from cutaway.models.lm import LM
from cutaway.models.placement import (
    DTYPES,
    MaxMemory,
    Placement,
    choose_placement,
    input_device,
    module_placement,
    refuse_undistributable,
)
from cutaway.models.plausible_config import need_plausible_config
from cutaway.models.propose import choose_anatomy, propose_anatomies
from cutaway.models.start_token import need_same_bos, set_start_token
from cutaway.models.tokens import load_tokenizer, need_embedding_rows, uses_token_types
from cutaway.models.weights import (
    ATTENTION_KERNELS,
    adapter_digest,
    has_trained_head,
    kind_and_anatomy,
    load_config,
    load_weights,
    merge_adapter,
    need_adapter,
)

NO_LENGTH_LIMIT = 1_000_000


def open_model(
    name: str | Path | LM,
    *,
    revision: str | None = None,
    adapter: str | Path | None = None,
    dtype: str = "auto",
    device: str = "auto",
    quantise: str = "none",
    max_memory: MaxMemory | None = None,
    offline: bool = False,
    attention: str = "sdpa",
    bos: str = "auto",
    trust_remote_code: bool = False,
    check: bool = True,
    track_changes: bool = True,
) -> LM:
    """The model called `name`: bundled, a hub id, a folder, a GGUF file, or `base+adapter`.

    Weights are read from safetensors only; the model is frozen and in evaluation mode. With
    `check` it must pass the quick consistency checks, and a pass is remembered. For families
    without a row in ANATOMIES an anatomy is proposed, which must pass every check. With
    `track_changes` a checksum of the weights is made, so that a model given to a verb as an object
    is known to be unchanged, or to have been changed since it was opened. `bos` is `auto` (special
    tokens as the tokenizer adds them, and a warning if the start token is missing), `keep` (the
    same without the warning) or `add` (every text gets the start token).

    `device="map"` distributes the layers over all GPUs, the CPU and the disk with accelerate;
    `max_memory` limits what each of them holds.
    """
    if isinstance(name, LM):
        need_same_bos(name, bos)
        return name
    lookup(ATTENTION_KERNELS, attention, kind="attention kernel")
    choose_placement(device, dtype, quantise, max_memory=max_memory)  # refused before any download
    base, extra = _split_adapter(str(name), adapter)
    source = fetch_checkpoint(base, revision=revision, offline=offline, code=trust_remote_code)
    adapter_source = None if extra is None else fetch_checkpoint(extra, offline=offline)
    where = {"device": device, "dtype": dtype, "quantise": quantise, "max_memory": max_memory}
    lm = _load_lm(source, adapter_source, where, attention, trust_remote_code, bos)
    if check:
        from cutaway.models.check import quick_check

        with refuse_undistributable(lm):
            lm = quick_check(lm)
    if not track_changes:
        return lm
    plain = not lm.device_map and lm.quantise == "none"
    return with_checksum(lm, same_each_time=plain and adapter_source is None and lm.has_head)


def _split_adapter(name: str, adapter: str | Path | None) -> tuple[str, str | None]:
    """Base and adapter of a name; a folder whose own name has a + is not split."""
    if adapter is not None:
        return name, str(adapter)
    if "+" not in name or expand_path(name).exists():
        return name, None
    base, _, extra = name.partition("+")
    return base, extra


def _load_lm(
    source: CheckpointSource,
    adapter: CheckpointSource | None,
    where: dict[str, Any],
    attention: str,
    trust: bool,
    bos: str,
) -> LM:
    """Validate the files, load the weights, then collect the facts."""
    need_config(source.folder)
    files = need_weights(source.folder)
    need_tokenizer(source.folder)
    if adapter is not None:
        need_adapter(adapter.folder)
    config = load_config(source, trust)
    placement = choose_placement(**where, checkpoint=config.dtype)
    if placement.device == "cpu" and placement.quantise == "none":
        need_memory(files, DTYPES[placement.dtype].itemsize)
    kind, row = kind_and_anatomy(source, config)
    if not trust:
        need_plausible_config(source.name, config, kind, tensor_shapes(files))
    tokenizer, notes = load_tokenizer(source.folder, trust)
    notes = (*source.notes, *notes)
    notes += set_start_token(tokenizer, config, bos, kind=kind, name=source.name)
    digest = _digest(source, files, adapter)
    module, missing = load_weights(source.folder, config, kind, placement, attention, trust)
    if adapter is not None:
        module = merge_adapter(module, adapter.folder)
    if _digest(source, files, adapter) != digest:
        raise BadModel(f"{source.folder} changed while it was read. Open it again.")
    module = _placed(module, placement).eval().requires_grad_(False)
    # For a family without a row the checks choose among the proposed anatomies.
    candidates = [row] if row else propose_anatomies(module, kind)
    anatomy = candidates[0]
    has_head, head_notes = has_trained_head(source.name, anatomy, missing)
    rows = module.get_submodule(anatomy.embeddings).weight.shape[0]
    notes += need_embedding_rows(source.name, tokenizer, rows)
    lm = LM(
        name=source.name if adapter is None else f"{source.name}+{adapter.name}",
        family=config.model_type,
        kind=kind,
        digest=digest,
        tokenizer_digest=tokenizer_digest(tokenizer),
        context=_context(module.config, tokenizer, anatomy),
        dtype=placement.dtype,
        device=input_device(module, anatomy.embeddings)
        if not placement.moves
        else placement.device,
        device_map=module_placement(module),
        quantise=placement.quantise,
        anatomy=anatomy,
        module=module,
        tokenizer=tokenizer,
        bos=bos,
        has_head=has_head,
        token_types=uses_token_types(tokenizer, module),
        notes=(*notes, *head_notes, *_opening_notes(module, anatomy, attention)),
        **_sizes(module, anatomy),
    )
    return lm if row else choose_anatomy(lm, candidates)


def _placed(module: Any, placement: Placement) -> Any:
    """The module on its device; what was distributed or quantised is there already."""
    moves = placement.moves and not getattr(module, "is_quantized", False)
    return module.to(placement.device) if moves else module


def _digest(source: CheckpointSource, files: list[Path], adapter: CheckpointSource | None) -> str:
    """The digest of the weights, with that of the adapter."""
    base = source.digest or weights_digest(files, source.folder / "config.json")
    if adapter is None:
        return base
    return digest_json({"base": base, "adapter": adapter_digest(adapter.folder)})


def _sizes(module: Any, anatomy: Anatomy) -> dict[str, Any]:
    """The facts of the loaded module."""
    table, decoder = (module.get_submodule(n) for n in (anatomy.embeddings, anatomy.decoder))
    return {
        "layers": int(module.config.num_hidden_layers),
        "width": int(module.config.hidden_size),
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
    positions = getattr(config, "max_position_embeddings", None)
    limits = [] if positions is None else [int(positions) - anatomy.first_position]
    if 0 < tokenizer.model_max_length < NO_LENGTH_LIMIT:
        limits.append(int(tokenizer.model_max_length))
    # Families without a position table (bloom) have no limit; they were trained on 2048.
    return min(limits) if limits else 2048


def random_twin(lm: LM, *, seed: int) -> LM:
    """A model like `lm` with untrained weights, as the family initialises them.

    It is on one device and not quantised, wherever and however `lm` is.
    """
    config = deepcopy(lm.module.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with torch.random.fork_rng(devices=[]):
        # The library initialises from the global random state, which fork_rng restores.
        torch.manual_seed(seed)
        module = type(lm.module)(config)
    module = module.to(device=lm.device, dtype=DTYPES[lm.dtype]).eval().requires_grad_(False)
    digest = digest_json({"twin of": config.to_json_string(), "dtype": lm.dtype, "seed": seed})
    name = f"{lm.name} (random weights)"
    return replace(lm, name=name, module=module, digest=digest, device_map={}, quantise="none")
