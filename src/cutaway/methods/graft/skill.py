"""A skill: the few weights that hold it, for which base, and how well it does.

In its file: `places` (flat positions, tensor after tensor), `before` (the base's values) and
`after` (the tuned ones); of a skill learned with a head also `head.NAME`, the head's weights. Which
tensors, their shapes and how many places each has stand in the JSON beside it, with the checksums
of both checkpoints, the task and the metrics.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
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
from cutaway.store.artefacts import load_artefact, save_artefact
from cutaway.store.tensors import dtype_name

BaseCheck = Literal["all", "places"]
CHECKSUM_CHARS = 12
HEAD_PREFIX = "head."


@dataclass(frozen=True, eq=False)
class Skill:
    """Weights of a skill with the values before and after; `meta` says what it is."""

    patch: Patch
    shapes: dict[str, tuple[int, ...]]
    meta: dict[str, Any]
    head: dict[str, Tensor] = field(default_factory=dict)
    """The head that it was measured with, by weight name; empty where the model's own answers."""

    @property
    def size(self) -> int:
        """How many weights it changes."""
        return self.patch.size

    @property
    def task(self) -> str:
        """What it was learned for."""
        return str(self.meta.get("task", {}).get("name", ""))

    @property
    def label(self) -> str:
        """A name for tables: the task."""
        return self.task or "skill"

    def attach(self, model: Any, *, check: BaseCheck = "all") -> Any:
        """The model, which now has the skill: changed in place, and known as another model.

        Refuses a model that isn't the skill's base. With check="places" only the weights it
        changes must be the base's, so that skills can be put on one after the other.
        """
        if check == "all":
            self.need_base(model)
        params = self._fitting(model)
        wrong = count_mismatches(params, self.patch.mask, self.patch.before)
        if wrong:
            raise Mismatch(
                f"{wrong:,} of the {self.size:,} weights of the skill {self.label!r} are not the "
                "base's here: it is attached already, or another skill has changed them."
            )
        write_values(params, self.patch.mask, self.patch.after)
        return _with_new_identity(model)

    def detach(self, model: Any, *, check: BaseCheck = "all") -> Any:
        """The model without the skill: its base again, bit for bit, changed in place.

        Refuses a model that hasn't the skill, or isn't the base once it is gone; with
        check="places" other weights may differ from the base.
        """
        params = self._fitting(model)
        wrong = count_mismatches(params, self.patch.mask, self.patch.after)
        if wrong:
            raise Mismatch(
                f"{wrong:,} of the {self.size:,} weights of the skill {self.label!r} are not as "
                "it left them: it isn't attached here, or the model was trained further."
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
        names = list(self.patch.mask.places)
        where = [self.patch.mask.places[name] for name in names]
        wide = max((int(p.max()) for p in where), default=0) >= 2**31
        tensors = {
            "places": torch.cat(where).to(torch.int64 if wide else torch.int32),
            "before": torch.cat([self.patch.before[name].cpu() for name in names]),
            "after": torch.cat([self.patch.after[name].cpu() for name in names]),
            **{HEAD_PREFIX + name: value.detach().cpu() for name, value in self.head.items()},
        }
        table = [
            {"name": n, "shape": list(self.shapes[n]), "places": len(p)}
            for n, p in zip(names, where, strict=True)
        ]
        return save_artefact(
            Path(path), tensors, {**self.meta, "method": "graft", "tensors": table}
        )

    def _fitting(self, model: Any) -> dict[str, Tensor]:
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
        """The number types of the model where the skill changes it, and the skill's own."""
        kinds = {dtype_name(params[n]) for n in self.patch.mask.places if n in params}
        return kinds, dtype_name(next(iter(self.patch.after.values())))


def load_skill(path: Path | str) -> Skill:
    """The skill in a file; BadData when it is another kind of file."""
    artefact = load_artefact(Path(path))
    meta = dict(artefact.meta) if isinstance(artefact.meta, dict) else {}
    if meta.get("method") != "graft":
        raise BadData(f"{str(path)!r} is no skill: its method is {meta.get('method')!r}.")
    table = _tensor_table(path, meta.pop("tensors", None))
    counts = [row["places"] for row in table]
    parts = {}
    for part in ("places", "before", "after"):
        values = artefact.tensor(part)
        if values.dim() != 1 or len(values) != sum(counts):
            raise BadData(
                f"{str(path)!r}: {part!r} has the shape {list(values.shape)}, but its description "
                f"speaks of {sum(counts):,} weights."
            )
        parts[part] = dict(
            zip([row["name"] for row in table], torch.split(values, counts), strict=True)
        )
    places = {name: value.long() for name, value in parts["places"].items()}
    shapes = {row["name"]: tuple(row["shape"]) for row in table}
    _need_valid_indices(path, places, shapes)
    before, after = ({n: v.clone() for n, v in parts[k].items()} for k in ("before", "after"))
    heads = [name for name in artefact.names if name.startswith(HEAD_PREFIX)]
    head = {name.removeprefix(HEAD_PREFIX): artefact.tensor(name).clone() for name in heads}
    return Skill(Patch(Mask(places), before, after), shapes, meta, head)


def _tensor_table(path: Path | str, table: Any) -> list[dict[str, Any]]:
    """The described tensors; BadData unless each has a name, a shape and a count of places."""
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
                "shape and how many of its places the skill has."
            )
    names = [row["name"] for row in rows]
    if len(set(names)) < len(names):
        raise BadData(f"{str(path)!r} describes a tensor twice.")
    return rows


def _are_sizes(values: list[Any]) -> bool:
    """Whether all are whole numbers a tensor can have."""
    return all(isinstance(v, int) and 0 <= v < 2**48 for v in values)


def _need_valid_indices(
    path: Path | str, places: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]
) -> None:
    for name, where in places.items():
        size = torch.Size(shapes[name]).numel()
        if len(where) and not 0 <= int(where.min()) <= int(where.max()) < size:
            raise BadData(f"{str(path)!r} has places outside {name!r}, which has {size:,} weights.")


def model_weights(model: Any) -> dict[str, Tensor]:
    """The weights of a model of ours, or of a transformers module, by name; tied ones once."""
    module = model.module if isinstance(model, LM) else model
    if not isinstance(module, nn.Module):
        raise BadData(f"A model is needed, ours or a transformers one, got {type(model).__name__}.")
    return dict(module.named_parameters())


def _with_new_identity(model: Any) -> Any:
    """The model; one of ours is known from here on by the weights it has now."""
    return model.refresh_digest() if isinstance(model, LM) else model


def _model_name(model: Any) -> str:
    if isinstance(model, LM):
        return model.name
    return str(getattr(getattr(model, "config", None), "_name_or_path", "") or type(model).__name__)
