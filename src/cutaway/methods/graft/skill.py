"""A skill: the few weights that hold what a model was fine-tuned for, and its file.

The file has `places` (flat indices, tensor after tensor), `before` (the base's values) and `after`
(the tuned values); for a skill learned with a classification head also `head.NAME`. The JSON beside
it has each tensor's name, shape and number of indices, the checksums of both checkpoints, the task
and the metrics.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from cutaway.core.errors import BadData, Mismatch
from cutaway.methods.graft.maths.patch import (
    Patch,
    count_mismatches,
    need_matching_shapes,
    write_values,
)
from cutaway.methods.graft.maths.select import Mask, Params
from cutaway.models.digests import checksum
from cutaway.models.lm import LM
from cutaway.models.start_token import report_other_start
from cutaway.recipe.artefact_handle import InFile
from cutaway.store.artefacts import load_artefact, save_artefact
from cutaway.store.tensors import dtype_name
from cutaway.store.versions import report_other_versions

BaseCheck = Literal["all", "places"]
CHECKSUM_CHARS = 12
HEAD_PREFIX = "head."


@dataclass(frozen=True, eq=False)
class Skill(InFile):
    """A sparse change of weights; `meta` has its base, task and metrics."""

    patch: Patch
    shapes: dict[str, tuple[int, ...]]
    meta: dict[str, Any]
    head: dict[str, Tensor] = field(default_factory=dict)
    """The classification head that it was measured with, by weight name; may be empty."""
    file: Path | None = None
    """The file that it was loaded from; None for one that was made or changed since."""

    @property
    def size(self) -> int:
        """The number of weights it changes."""
        return self.patch.size

    @property
    def precision(self) -> str:
        """The precision that it was learned in."""
        return dtype_name(next(iter(self.patch.after.values())))

    def rounded_to(self, precision: str) -> "Skill":
        """The skill with the values that a checkpoint of this precision has with it."""
        patch, dtype = self.patch, getattr(torch, precision)
        after = {name: value.to(dtype).to(value.dtype) for name, value in patch.after.items()}
        return replace(self, patch=replace(patch, after=after), file=None)

    @property
    def task(self) -> str:
        """The name of its task; empty when unknown."""
        return str(self.meta.get("task", {}).get("name", ""))

    @property
    def label(self) -> str:
        """The name shown in tables."""
        return self.task or "skill"

    def attach(self, model: Any, *, check: BaseCheck = "all") -> Any:
        """Add the skill to a model in place, and return the model, which gets a new identity.

        Refuses a model that isn't the skill's base. With check="places" only the weights that it
        changes must be the base's, so that several skills can be attached.
        """
        if check == "all":
            self.need_base(model)
        params = self._checked_weights(model)
        wrong = count_mismatches(params, self.patch.mask, self.patch.before)
        if wrong:
            raise Mismatch(
                f"{wrong:,} of the {self.size:,} weights of the skill {self.label!r} differ from "
                "the base: it is attached already, or another skill has changed them."
            )
        write_values(params, self.patch.mask, self.patch.after)
        return _with_new_identity(model)

    def detach(self, model: Any, *, check: BaseCheck = "all") -> Any:
        """Remove the skill from a model in place: the base again, bit for bit.

        Refuses a model without the skill, or one that isn't the base afterwards; with
        check="places" other weights may differ from the base.
        """
        params = self._checked_weights(model)
        wrong = count_mismatches(params, self.patch.mask, self.patch.after)
        if wrong:
            raise Mismatch(
                f"{wrong:,} of the {self.size:,} weights of the skill {self.label!r} differ from "
                "its values: it isn't attached here, or the model was trained further."
            )
        write_values(params, self.patch.mask, self.patch.before)
        if check == "all":
            try:
                self.need_base(model)
            except Mismatch:
                write_values(params, self.patch.mask, self.patch.after)
                raise
        return _with_new_identity(model)

    def save(self, path: Path | str) -> Path:
        """Write the skill: a safetensors file and the JSON beside it."""
        names = list(self.patch.mask.indices)
        indices = list(self.patch.mask.indices.values())
        wide = max((int(one.max()) for one in indices), default=0) >= 2**31
        tensors = {
            "places": torch.cat(indices).to(torch.int64 if wide else torch.int32),
            "before": torch.cat([self.patch.before[name].cpu() for name in names]),
            "after": torch.cat([self.patch.after[name].cpu() for name in names]),
            **{HEAD_PREFIX + name: value.detach().cpu() for name, value in self.head.items()},
        }
        table = [
            {"name": name, "shape": list(self.shapes[name]), "places": len(one)}
            for name, one in self.patch.mask.indices.items()
        ]
        meta = {**self.meta, "method": "graft", "tensors": table}
        return save_artefact(Path(path), tensors, meta)

    def _checked_weights(self, model: Any) -> dict[str, Tensor]:
        params = model_weights(model)
        need_matching_shapes(params, self.patch.mask, self.shapes)
        kinds, mine = self._dtypes(params)
        if kinds != {mine}:
            raise Mismatch(
                f"The skill {self.label!r} has {mine} weights, the model {', '.join(kinds)}: open "
                f"the model with dtype {mine}."
            )
        return params

    def need_base(self, model: Any) -> None:
        """Mismatch, with both checksums, unless the model is the base, bit for bit."""
        found, mine = checksum(model_weights(model)), self.meta["base"]
        if isinstance(model, LM):
            report_other_start(f"The skill {self.label!r}", mine, model)
        if found != mine["checksum"]:
            raise Mismatch(
                f"The skill {self.label!r} belongs to {mine['name']!r} (weights "
                f"{mine['checksum'][:CHECKSUM_CHARS]}), not to {_model_name(model)!r} (weights "
                f"{found[:CHECKSUM_CHARS]}): {self._why_other(model)}"
            )

    def _why_other(self, model: Any) -> str:
        kinds, mine = self._dtypes(model_weights(model))
        if kinds and kinds != {mine}:
            return (
                f"the skill's weights are {mine}, the model's {', '.join(sorted(kinds))}. Open the "
                f"model with dtype {mine}."
            )
        return "another model or other weights. Give the base it was learned from."

    def _dtypes(self, params: Params) -> tuple[set[str], str]:
        """The dtypes of the weights that the skill changes in the model, and the skill's dtype."""
        kinds = {dtype_name(params[n]) for n in self.patch.mask.indices if n in params}
        return kinds, self.precision


def load_skill(path: Path | str) -> Skill:
    """The skill in a file; BadData when it is another kind of file."""
    artefact = load_artefact(Path(path))
    report_other_versions(artefact.path, artefact.versions)
    meta = dict(artefact.meta) if isinstance(artefact.meta, dict) else {}
    if meta.get("method") != "graft":
        raise BadData(f"{str(path)!r} is not a skill: its method is {meta.get('method')!r}.")
    table = _tensor_table(path, meta.pop("tensors", None))
    counts = [row["places"] for row in table]
    parts = {}
    for part in ("places", "before", "after"):
        values = artefact.tensor(part)
        if values.dim() != 1 or len(values) != sum(counts):
            raise BadData(
                f"{str(path)!r}: {part!r} has the shape {list(values.shape)}, but its JSON "
                f"describes {sum(counts):,} weights."
            )
        parts[part] = dict(
            zip([row["name"] for row in table], torch.split(values, counts), strict=True)
        )
    indices = {name: value.long() for name, value in parts["places"].items()}
    shapes = {row["name"]: tuple(row["shape"]) for row in table}
    _need_valid_indices(path, indices, shapes)
    before, after = ({n: v.clone() for n, v in parts[k].items()} for k in ("before", "after"))
    heads = [name for name in artefact.names if name.startswith(HEAD_PREFIX)]
    head = {name.removeprefix(HEAD_PREFIX): artefact.tensor(name).clone() for name in heads}
    return Skill(Patch(Mask(indices), before, after), shapes, meta, head, artefact.path)


def _tensor_table(path: Path | str, table: Any) -> list[dict[str, Any]]:
    """The described tensors; BadData unless each has a name, a shape and a count of indices."""
    rows = table if isinstance(table, list) else [table]
    for row in rows:
        if not (
            isinstance(row, dict)
            and isinstance(row.get("name"), str)
            and _are_sizes([row.get("places")])
            and isinstance(row.get("shape"), list)
            and _are_sizes(row["shape"])
        ):
            raise BadData(
                f"{str(path)!r} describes a tensor as {str(row)[:60]!r}; expected its name, its "
                "shape and the number of its weights in the skill."
            )
    names = [row["name"] for row in rows]
    if len(set(names)) < len(names):
        raise BadData(f"{str(path)!r} describes a tensor twice.")
    return rows


def _are_sizes(values: list[Any]) -> bool:
    """Whether all are integers that a tensor's shape can have."""
    return all(isinstance(v, int) and 0 <= v < 2**48 for v in values)


def _need_valid_indices(
    path: Path | str, indices: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]
) -> None:
    for name, one in indices.items():
        size = torch.Size(shapes[name]).numel()
        if len(one) and not 0 <= int(one.min()) <= int(one.max()) < size:
            raise BadData(
                f"{str(path)!r} has indices outside {name!r}, which has {size:,} weights."
            )


def model_weights(model: Any) -> dict[str, Tensor]:
    """The weights of an opened model or a transformers module by name; tied ones once."""
    module = model.module if isinstance(model, LM) else model
    if not isinstance(module, nn.Module):
        raise BadData(f"Expected an LM or a torch module, got {type(model).__name__}.")
    return dict(module.named_parameters())


def _with_new_identity(model: Any) -> Any:
    """The model, identified by the weights that it has now."""
    return model.refresh_digest() if isinstance(model, LM) else model


def _model_name(model: Any) -> str:
    if isinstance(model, LM):
        return model.name
    return str(getattr(getattr(model, "config", None), "_name_or_path", "") or type(model).__name__)
