"""A base model and its fine-tuned version, opened as one live model."""

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
    """A live model with the base's weights, and copies of the weights that tuning changed."""

    model: TaskModel
    params: Mapping[str, nn.Parameter]
    """The live parameters that a mask may choose from."""
    base: Params
    tuned: Params
    fixed: Params
    """Tuned weights that a mask may not choose; only the tuned model has them."""
    facts: dict[str, Any]
    """Both checkpoints: name, digest, checksum."""

    @property
    def lm(self) -> LM:
        """The live language model."""
        return self.model.lm

    @property
    def total(self) -> int:
        """The number of weights that a mask may choose from."""
        return sum(value.numel() for value in self.base.values())

    @contextmanager
    def as_tuned(self) -> Iterator[None]:
        """The live model has all tuned weights; those of the base are restored afterwards."""
        params = self.model.params()
        before = {name: params[name].data.clone() for name in self.fixed}
        try:
            assign_weights(params, {**self.tuned, **self.fixed})
            yield
        finally:
            assign_weights(params, {**self.base, **before})


def open_model_pair(
    spec: LearnSpec, lm: LM, split: TaskSplit, objects: Objects | None = None
) -> ModelPair:
    """Both checkpoints, matched by weight name; Mismatch for different architectures."""
    model = make_task_model(
        lm, split, finetune_mode(lm, spec.mode), template=spec.template, words=spec.words,
        at=spec.at, max_tokens=spec.max_tokens, seed=spec.seed,
    )  # fmt: skip
    if model.mode == "head":
        other, facts = load_tuned_with_head(model, spec, spec.tuned)
    else:
        tuned = open_for_spec(spec.tuned, spec, objects, check=False)
        other, facts = tuned.params(), {"name": tuned.name, "digest": tuned.digest}
        check_same_parameters(lm.params(), tuned=other)
        _need_same_tokenizer(lm, tuned)
    params = model.params()
    check_same_parameters(params, tuned=other)
    changed = [name for name in params if not torch.equal(params[name].data, other[name].data)]
    if not changed:
        raise BadData(
            f"{spec.tuned!r} has exactly the weights of {spec.base!r}: nothing was tuned, so there "
            "is no skill to find."
        )
    names = _maskable_names(spec, changed, head_names(model))
    return ModelPair(
        model=model,
        params={name: params[name] for name in names},
        base={name: params[name].data.clone() for name in names},
        tuned={name: other[name].data for name in names},
        fixed={name: other[name].data for name in changed if name not in names},
        facts={
            "base": {"name": lm.name, "digest": lm.digest, "checksum": checksum(lm.params())},
            "tuned": {**facts, "checksum": checksum(other)},
        },
    )


def _maskable_names(spec: LearnSpec, changed: Sequence[str], heads: Sequence[str]) -> list[str]:
    """The changed weights that match the patterns; a classification head is never masked."""
    patterns = spec.params or ("*",)
    names = [n for n in changed if n not in heads and any(fnmatchcase(n, p) for p in patterns)]
    if not names:
        raise BadSpec(
            f"No changed weight matches params {' '.join(patterns)!r}. A name looks like "
            f"{changed[len(changed) // 2]!r}."
        )
    return names


def _need_same_tokenizer(lm: LM, tuned: LM) -> None:
    if lm.tokenizer_digest != tuned.tokenizer_digest:
        raise Mismatch(
            f"{lm.name!r} and {tuned.name!r} have different tokenizers "
            f"({lm.tokenizer_digest[:12]}, {tuned.tokenizer_digest[:12]}), so the same text has "
            "different tokens. Save the base's tokenizer with the tuned model; if it was "
            "trained with --bos add, give that here too."
        )
