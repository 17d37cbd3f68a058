"""A base and its tuned model as one live model: the base's weights, the tuned ones beside them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from cutaway.core.errors import BadData, BadSpec, Mismatch
from cutaway.core.params import check_same_parameters
from cutaway.methods.graft.maths.select import Params
from cutaway.methods.graft.maths.soft_mask import assign_weights
from cutaway.methods.graft.spec import LearnSpec
from cutaway.methods.graft.tuned_head import head_names, load_tuned_with_head
from cutaway.models.digests import checksum
from cutaway.models.lm import LM
from cutaway.recipe.objects import Objects
from cutaway.recipe.open_for_spec import open_for_spec
from cutaway.training.task_model import TaskModel, finetune_mode, make_task_model
from cutaway.training.task_split import TaskSplit


@dataclass(frozen=True, eq=False)
class ModelPair:
    """The live model holds the base's weights; `base` and `tuned` are those that moved."""

    lm: LM
    pupil: TaskModel
    live: Mapping[str, nn.Parameter]
    """The weights that a mask may choose from, as the model has them."""
    base: Params
    tuned: Params
    besides: Params
    """Tuned weights that moved too but may not be chosen: only the tuned model has them."""
    facts: dict[str, Any]
    """Both checkpoints: name, digest, checksum, weights."""

    @property
    def total(self) -> int:
        """How many weights a mask may choose from."""
        return sum(value.numel() for value in self.base.values())

    @contextmanager
    def as_tuned(self) -> Iterator[None]:
        """The live model with every tuned weight; the base again afterwards."""
        params = self.pupil.params()
        kept = {name: params[name].data.clone() for name in self.besides}
        try:
            assign_weights(params, self.tuned)
            assign_weights(params, self.besides)
            yield
        finally:
            assign_weights(params, self.base)
            assign_weights(params, kept)


def open_model_pair(
    spec: LearnSpec, lm: LM, lesson: TaskSplit, objects: Objects | None = None
) -> ModelPair:
    """Both checkpoints, weight by weight; Mismatch when they are not one architecture."""
    pupil = make_task_model(
        lm, lesson, finetune_mode(lm, spec.mode), template=spec.template, words=spec.words,
        at=spec.at, max_tokens=spec.max_tokens, seed=spec.seed,
    )  # fmt: skip
    if pupil.mode == "head":
        other, facts = load_tuned_with_head(
            pupil, spec.tuned, spec.at, **second_model_options(spec)
        )
    else:
        tuned = open_for_spec(spec.tuned, spec, objects, check=False)
        other, facts = tuned.params(), {"name": tuned.name, "digest": tuned.digest}
        check_same_parameters(lm.params(), tuned=other)
        _need_same_tokenizer(lm, tuned)
    params = pupil.params()
    check_same_parameters(params, tuned=other)
    moved = [name for name in params if not torch.equal(params[name].data, other[name].data)]
    if not moved:
        raise BadData(
            f"{spec.tuned!r} has the weights of {spec.base!r}: nothing was tuned, so there is "
            "nothing to find."
        )
    allowed = _maskable_names(spec, moved, head_names(pupil))
    return ModelPair(
        lm=lm,
        pupil=pupil,
        live={name: params[name] for name in allowed},
        base={name: params[name].data.clone() for name in allowed},
        tuned={name: other[name].data for name in allowed},
        besides={name: other[name].data for name in moved if name not in allowed},
        facts={
            "base": {"name": lm.name, "digest": lm.digest, "checksum": checksum(lm.params())},
            "tuned": {**facts, "checksum": checksum(other)},
        },
    )


def second_model_options(spec: Any) -> dict[str, Any]:
    """How a second model is opened: as the first one, without the check at the door again."""
    return {
        "dtype": spec.dtype, "device": spec.device, "offline": spec.offline, "check": False,
        "track_changes": False,
    }  # fmt: skip


def _maskable_names(spec: LearnSpec, moved: Sequence[str], heads: Sequence[str]) -> list[str]:
    """The moved weights that fit the patterns; a head is never masked, it is kept whole."""
    patterns = spec.params or ("*",)
    found = [n for n in moved if n not in heads and any(fnmatchcase(n, p) for p in patterns)]
    if not found:
        raise BadSpec(
            f"No weight that moved fits {' '.join(patterns)!r}. A name looks like "
            f"{moved[len(moved) // 2]!r}."
        )
    return found


def _need_same_tokenizer(lm: LM, tuned: LM) -> None:
    if lm.tokenizer_digest != tuned.tokenizer_digest:
        raise Mismatch(
            f"{lm.name!r} and {tuned.name!r} have different tokenizers "
            f"({lm.tokenizer_digest[:12]}, {tuned.tokenizer_digest[:12]}): the same text would be "
            "other tokens. Save the base's tokenizer with the tuned model."
        )
