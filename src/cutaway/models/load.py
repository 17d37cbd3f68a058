"""Opening a model: from a name to an LM that passed the consistency checks."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from cutaway.core.digest import digest_json
from cutaway.core.errors import BadModel, BadSpec
from cutaway.core.lookup import lookup
from cutaway.home import expand_path, path_exists
from cutaway.models.assemble import assemble_lm
from cutaway.models.chat import with_chat
from cutaway.models.checkpoint import (
    CheckpointSource,
    fetch_checkpoint,
    need_config,
    need_tokenizer,
    need_weights,
    tensor_shapes,
)
from cutaway.models.digests import weights_digest, with_checksum
from cutaway.models.in_memory import ModelLike, model_and_tokenizer, open_in_memory
from cutaway.models.lm import LM
from cutaway.models.load_tokenizer import load_tokenizer
from cutaway.models.memory import Workload, need_memory
from cutaway.models.model_warnings import tied_weights_warnings
from cutaway.models.placement import (
    DTYPES,
    MaxMemory,
    Placement,
    choose_placement,
    refuse_undistributable,
)
from cutaway.models.plausible_config import need_plausible_config
from cutaway.models.start_token import need_same_bos, set_start_token
from cutaway.models.weights import (
    ATTENTION_KERNELS,
    adapter_digest,
    kind_and_anatomy,
    load_config,
    load_weights,
    merge_adapter,
    need_adapter,
)


def open_model(
    name: ModelLike,
    tokenizer: Any = None,
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
    chat: bool = False,
    system: str | None = None,
    workload: Workload | None = None,
) -> LM:
    """The model called `name`: bundled, a hub id, a folder, a GGUF file, or `base+adapter`; or a
    model of transformers in memory, with its tokenizer.

    Weights are read from safetensors only; the model is frozen and in evaluation mode. With
    `check` it must pass the quick consistency checks, and a pass is remembered. For families
    without a row in ANATOMIES an anatomy is proposed, which must pass every check. With
    `track_changes` a checksum of the weights is made, so that a model given to a verb as an object
    is known to be unchanged, or to have been changed since it was opened. `bos` is `auto` (special
    tokens as the tokenizer adds them, and a warning if the start token is missing), `keep` (the
    same without the warning) or `add` (every text gets the start token).

    `device="map"` distributes the layers over all GPUs, the CPU and the disk with accelerate;
    `max_memory` limits what each of them holds. With `chat` everything is read in the tokenizer's
    chat template, after the message `system` if that is given. `copies` are those of the weights
    that will be needed besides the model; if there is no memory for them, nothing is loaded.
    """
    if system is not None and not chat:
        raise BadSpec(f"system={system[:40]!r} is for conversations: add chat=True.")
    if isinstance(name, LM):
        need_same_bos(name, bos)
        return with_chat(name, system=system) if chat else name
    pair = model_and_tokenizer(name, tokenizer)
    if pair is not None:
        lm = open_in_memory(*pair, bos=bos, check=check)
        return with_chat(lm, system=system) if chat else lm
    lookup(ATTENTION_KERNELS, attention, kind="attention kernel")
    choose_placement(device, dtype, quantise, max_memory=max_memory)  # refused before any download
    base, extra = split_adapter(str(name), adapter)
    source = fetch_checkpoint(base, revision=revision, offline=offline, code=trust_remote_code)
    adapter_source = None if extra is None else fetch_checkpoint(extra, offline=offline)
    where = {"device": device, "dtype": dtype, "quantise": quantise, "max_memory": max_memory}
    lm = _load_lm(source, adapter_source, where, workload, attention, trust_remote_code, bos)
    if check:
        from cutaway.models.check import quick_check
        from cutaway.models.english_loss import show_warnings, with_loss_warnings

        with refuse_undistributable(lm):
            lm = with_loss_warnings(quick_check(lm))
        show_warnings(lm)
    if track_changes:
        plain = not lm.device_map and lm.quantise == "none" and adapter_source is None
        lm = with_checksum(lm, same_each_time=plain and lm.has_head)
    return with_chat(lm, system=system) if chat else lm


def split_adapter(name: str, adapter: str | Path | None) -> tuple[str, str | None]:
    """Base and adapter of a name; a folder whose own name has a + is not split."""
    if adapter is not None:
        return name, str(adapter)
    if "+" not in name or path_exists(expand_path(name)):
        return name, None
    base, _, extra = name.partition("+")
    return base, extra


def _load_lm(
    source: CheckpointSource,
    adapter: CheckpointSource | None,
    where: dict[str, Any],
    workload: Workload | None,
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
    need_memory(source.name, files, config, placement, workload)
    kind, row = kind_and_anatomy(source, config)
    if not trust:
        need_plausible_config(source.name, config, kind, tensor_shapes(files))
    tokenizer, notes, warnings = load_tokenizer(source.folder, trust)
    notes = (*source.notes, *notes)
    notes += set_start_token(tokenizer, config, bos, kind=kind, name=source.name)
    digest = _digest(source, files, adapter)
    module, missing = load_weights(source.folder, config, kind, placement, attention, trust)
    if adapter is not None:
        module = merge_adapter(module, adapter.folder)
    if _digest(source, files, adapter) != digest:
        raise BadModel(f"{source.folder} changed while it was read. Open it again.")
    module = _placed(module, placement).eval().requires_grad_(False)
    lm = assemble_lm(
        module, tokenizer, kind, row, missing,
        name=source.name if adapter is None else f"{source.name}+{adapter.name}",
        digest=digest, dtype=placement.dtype, attention=attention, bos=bos, notes=notes,
        warnings=warnings, quantise=placement.quantise,
        device=placement.device if placement.moves else None,
    )  # fmt: skip
    found = tied_weights_warnings(config, lm.module, lm.anatomy, files, missing)
    return replace(lm, warnings=(*lm.warnings, *found))


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
    return replace(
        lm, name=name, module=module, digest=digest, device_map={}, quantise="none", warnings=()
    )
