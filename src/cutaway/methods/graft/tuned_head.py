"""Mode head: the tuned checkpoint's head is kept whole, and only the trunk is masked.

A head that fine-tuning made from nothing has no base to go back to. So base, grafts and tuned
model all answer through the tuned head; what is measured is the trunk.
"""

from typing import Any

import torch
from torch import Tensor

from cutaway.console import quiet_transformers
from cutaway.core.errors import BadModel
from cutaway.methods.graft.maths.soft_mask import assign_weights
from cutaway.models.checkpoint import fetch_checkpoint, need_config, need_weights
from cutaway.models.digests import weights_digest
from cutaway.models.load import open_model
from cutaway.store.artefacts import load_artefact
from cutaway.training.task_model import HEAD_FILE, TaskModel

TunedCheckpoint = tuple[dict[str, Tensor], dict[str, Any]]


def head_names(pupil: TaskModel) -> list[str]:
    """Names of weights that the language model hasn't: the head's."""
    known = pupil.lm.params()
    return [name for name in pupil.params() if name not in known]


def copy_head(pupil: TaskModel) -> dict[str, Tensor]:
    """The head's weights as they are, by name; none where the language model's own head answers."""
    params = pupil.params()
    return {name: params[name].detach().clone() for name in head_names(pupil)}


def load_tuned_with_head(pupil: TaskModel, name: str, at: str, **options: Any) -> TunedCheckpoint:
    """The tuned weights by the pupil's names, and what is known of the checkpoint.

    The pupil's own head becomes the tuned one.
    """
    read = _load_linear_head if at != "auto" else _load_family_head
    params, facts = read(pupil, name, options)
    heads = head_names(pupil)
    lost = [head for head in heads if head not in params]
    if lost:
        raise BadModel(
            f"{name!r} has no head {lost[0]!r}: it was not tuned with --mode head, or with "
            "another --at."
        )
    assign_weights(pupil.params(), {head: params[head].to(pupil.params()[head]) for head in heads})
    return {key: params[key] for key in pupil.params() if key in params}, facts


def _load_family_head(pupil: TaskModel, name: str, options: dict[str, Any]) -> TunedCheckpoint:
    """A checkpoint with the family's own classification head."""
    from transformers import AutoModelForSequenceClassification

    source = fetch_checkpoint(name, offline=options["offline"])
    config = need_config(source.folder)
    files = need_weights(source.folder)
    made = ", ".join(config.get("architectures") or ["nothing"])
    if "ForSequenceClassification" not in made:
        raise BadModel(f"{name!r} has no classification head: its config names {made}.")
    dtype = getattr(torch, pupil.lm.dtype)
    with quiet_transformers():
        module: Any = AutoModelForSequenceClassification.from_pretrained(
            source.folder, dtype=dtype, use_safetensors=True, local_files_only=True
        )
    params = {key: value.data.to(pupil.lm.device) for key, value in module.named_parameters()}
    digest = source.digest or weights_digest(files, source.folder / "config.json")
    return params, {"name": name, "digest": digest}


def _load_linear_head(pupil: TaskModel, name: str, options: dict[str, Any]) -> TunedCheckpoint:
    """A language model with a linear head in a file beside it."""
    source = fetch_checkpoint(name, offline=options["offline"])
    head = load_artefact(source.folder / HEAD_FILE)
    lm = open_model(name, **options)
    weights = {f"head.{part}": head.tensor(part) for part in ("weight", "bias")}
    return {**lm.params(), **weights}, {"name": lm.name, "digest": lm.digest}
