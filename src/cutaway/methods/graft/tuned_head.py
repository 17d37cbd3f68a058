"""Mode head: the tuned checkpoint's classification head is kept, and only the trunk is masked.

A head that was initialised for fine-tuning has no counterpart in the base. So base, grafts and
tuned model all use the tuned head; the comparison is about the trunk.
"""

from typing import Any

import torch
from torch import Tensor

from cutaway.console import quiet_transformers
from cutaway.core.errors import BadModel
from cutaway.methods.graft.maths.soft_mask import assign_weights
from cutaway.methods.graft.spec import LearnSpec
from cutaway.models.checkpoint import fetch_checkpoint, need_config, need_weights
from cutaway.models.digests import weights_digest
from cutaway.recipe.open_for_spec import open_for_spec
from cutaway.store.artefacts import load_artefact
from cutaway.training.task_model import HEAD_FILE, TaskModel

TunedCheckpoint = tuple[dict[str, Tensor], dict[str, Any]]
"""Weights by name, and facts about the checkpoint."""


def head_names(model: TaskModel) -> list[str]:
    """The names of the head's weights: those that the language model doesn't have."""
    trunk = model.lm.params()
    return [name for name in model.params() if name not in trunk]


def copy_head(model: TaskModel) -> dict[str, Tensor]:
    """A copy of the head's weights by name; empty for a language model without a new head."""
    params = model.params()
    return {name: params[name].detach().clone() for name in head_names(model)}


def load_tuned_with_head(model: TaskModel, spec: LearnSpec, name: str) -> TunedCheckpoint:
    """The tuned weights under the names of `model`, whose head becomes the tuned one."""
    read = _load_linear_head if spec.at != "auto" else _load_family_head
    params, facts = read(model, spec, name)
    heads = head_names(model)
    missing = [head for head in heads if head not in params]
    if missing:
        raise BadModel(
            f"{name!r} has no head {missing[0]!r}: it was not tuned with --mode head, or with "
            "another --at."
        )
    own = model.params()
    assign_weights(own, {head: params[head].to(own[head]) for head in heads})
    return {key: params[key] for key in own if key in params}, facts


def _load_family_head(model: TaskModel, spec: LearnSpec, name: str) -> TunedCheckpoint:
    """A checkpoint with the family's own classification head."""
    from transformers import AutoModelForSequenceClassification

    source = fetch_checkpoint(name, offline=spec.offline)
    config, files = need_config(source.folder), need_weights(source.folder)
    architectures = ", ".join(config.get("architectures") or ["nothing"])
    if "ForSequenceClassification" not in architectures:
        raise BadModel(f"{name!r} has no classification head: its config names {architectures}.")
    with quiet_transformers():
        module: Any = AutoModelForSequenceClassification.from_pretrained(
            source.folder, dtype=getattr(torch, model.lm.dtype), use_safetensors=True,
            local_files_only=True,
        )  # fmt: skip
    params = {key: value.data.to(model.lm.device) for key, value in module.named_parameters()}
    digest = source.digest or weights_digest(files, source.folder / "config.json")
    return params, {"name": name, "digest": digest}


def _load_linear_head(model: TaskModel, spec: LearnSpec, name: str) -> TunedCheckpoint:
    """A language model with a linear head in a separate file."""
    head = load_artefact(fetch_checkpoint(name, offline=spec.offline).folder / HEAD_FILE)
    lm = open_for_spec(name, spec, check=False)
    weights = {f"head.{part}": head.tensor(part) for part in ("weight", "bias")}
    return {**lm.params(), **weights}, {"name": lm.name, "digest": lm.digest}
