"""A base model and its fine-tuned version, opened as one live model."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.core.errors import BadData, BadSpec, Mismatch
from cutaway.core.params import check_same_parameters
from cutaway.methods.graft.maths.select import Params
from cutaway.methods.graft.maths.soft_mask import assign_weights
from cutaway.methods.graft.pair_precision import PairPrecision, count_moved, pair_precision
from cutaway.methods.graft.spec import LearnSpec
from cutaway.methods.graft.tuned_head import head_names, load_tuned_with_head
from cutaway.models.digests import checksum
from cutaway.models.lm import LM
from cutaway.models.start_token import tokens_in_front
from cutaway.models.weight_location import weight_locator
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
    """The values that a mask chooses: tuned where a weight moved, else the base's."""
    fixed: Params
    """Tuned tensors as they are in the checkpoint, where `tuned` is without them or rounded; only
    the tuned model has them."""
    facts: dict[str, Any]
    """Both checkpoints: name, digest, checksum."""
    precision: PairPrecision | None = None
    """How both are stored and compared; None for two states of one training."""

    @property
    def lm(self) -> LM:
        """The live language model."""
        return self.model.lm

    @cached_property
    def total(self) -> int:
        """The number of weights that moved, which a mask may choose from."""
        return count_moved(self.base, self.tuned)

    @property
    def trained_layers(self) -> list[int]:
        """The layers with a weight that a mask may choose: 0 is the embeddings, blocks are 1..L."""
        locate = weight_locator(self.lm)
        return sorted({locate(name)[0] for name in self.params})

    @property
    def identity(self) -> dict[str, Any]:
        """What the comparison adds to the identity of a run: nothing if all weights moved."""
        unmoved = self.total < sum(value.numel() for value in self.base.values())
        rounds = self.precision is not None and self.precision.rounds
        compared: dict[str, Any] = {"compared": self.compared} if rounds else {}
        return compared | ({"moved": self.total} if unmoved else {})

    @property
    def compared(self) -> dict[str, str]:
        """How both checkpoints are stored and compared, for summaries and skill files."""
        return {} if self.precision is None else self.precision.facts()

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
    precision = pair_precision(spec, lm.dtype, objects or {})
    values = {n: precision.moved_values(params[n].data, other[n].data) for n in params}
    changed = [name for name in params if not torch.equal(params[name].data, values[name])]
    if not changed:
        raise BadData(
            f"{spec.tuned!r} has exactly the weights of {spec.base!r} in {precision.compared}: "
            "nothing was tuned, so there is no skill to find."
        )
    names = _maskable_names(spec, changed, head_names(model))
    return ModelPair(
        model=model,
        params={name: params[name] for name in names},
        base={name: params[name].data.clone() for name in names},
        tuned={name: values[name] for name in names},
        fixed=_fixed_tensors(params, other, {name: values[name] for name in names}),
        facts={
            "base": {
                "name": lm.name,
                "digest": lm.digest,
                "checksum": checksum(lm.params()),
                "start_tokens": tokens_in_front(lm.tokenizer),
            },
            "tuned": {**facts, "checksum": checksum(other)},
        },
        precision=precision,
    )


def _fixed_tensors(base: Params, tuned: Params, chosen: Params) -> dict[str, Tensor]:
    """The tuned tensors that the values to choose from don't give: not chosen, or rounded."""
    given = {name: chosen.get(name, base[name].data) for name in base}
    return {n: tuned[n].data for n in base if not torch.equal(given[n], tuned[n].data)}


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
