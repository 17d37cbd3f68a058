"""The file of fitted maps: matrices by name, and the model they were fitted on.

mat/3/12            matrix from layer 3 to layer 12 (rows are examples: hidden @ matrix)
lowrank/3/12/right  second factor of a low-rank map
affine/3/12/bias    bias
ahead/3/12          map that drafts the next token (draft_maps.py)
part/5.attn         map of one part of block 5
words               ids of the tokens a draft chooses from
fitted              fingerprints of the texts that the maps were fitted on
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutaway.core.errors import BadData, BadSpec, Mismatch, Missing
from cutaway.core.lookup import lookup
from cutaway.methods.shortcut.maths.fit import IDENTITY, Shortcut
from cutaway.models.lm import LM
from cutaway.models.start_token import report_other_start
from cutaway.recipe.artefact_handle import SavedArtefact
from cutaway.store.artefacts import load_artefact, save_artefact
from cutaway.store.snapshots import Snapshots
from cutaway.store.versions import report_other_versions

if TYPE_CHECKING:
    from torch import Tensor

MAP_KINDS = ("id", "mat", "affine", "ridge", "lowrank", "tuned")
"""From the baseline to the strongest; `id` needs no file."""

FittedMaps = Mapping[tuple[str, int, int], Shortcut]


@dataclass(frozen=True)
class ShortcutMaps(SavedArtefact):
    """The maps in a file, read one at a time; `id` (the identity) is always available.

    `meta` has the model, the texts, the sampling, the kinds and their r2.
    """

    @property
    def layers(self) -> int:
        """The number of the last layer."""
        return int(self.meta["model"]["layers"])

    @property
    def fitted_on(self) -> str:
        """The name of the texts that the maps were fitted on."""
        return str(self.meta["text"]["name"])

    @cached_property
    def fitted_texts(self) -> frozenset[int]:
        """Fingerprints of the texts that the maps were fitted on; empty when unknown."""
        fingerprints = self._optional("fitted")
        return frozenset() if fingerprints is None else frozenset(fingerprints.tolist())

    @property
    def size(self) -> int:
        """The file's size in bytes."""
        return self.artefact.path.stat().st_size

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of maps in the file, `id` first."""
        return tuple(kind for kind in MAP_KINDS if kind == "id" or kind in self.meta["kinds"])

    def pairs(self, kind: str) -> list[tuple[int, int]]:
        """The (source, target) layers of all maps of a kind."""
        names = (name.split("/") for name in self.artefact.names)
        return [(int(n[1]), int(n[2])) for n in names if n[0] == kind and len(n) == 3]

    def jump(self, source: int, target: int, kind: str = "mat") -> Shortcut:
        """The map from one layer to another."""
        if not 0 <= source <= target <= self.layers:
            raise BadSpec(
                f"A shortcut goes forward within layers 0..{self.layers}, got {source} to {target}."
            )
        lookup(dict.fromkeys(self.kinds), kind, kind="map kind in this file")
        if kind == "id" or source == target:
            return IDENTITY
        if f"{kind}/{source}/{target}" not in self.artefact.names:
            raise BadSpec(
                f"{self.artefact.path.name!r} has no {kind} map from layer {source} to {target}: "
                "it was fitted without --layers all, or this kind only ends in the last layer."
            )
        return self.stored_map(f"{kind}/{source}/{target}")

    def stored_map(self, name: str) -> Shortcut:
        """The map with this name in the file, with its second factor and bias if it has them."""
        right, bias = self._optional(f"{name}/right"), self._optional(f"{name}/bias")
        factors = (self.artefact.tensor(name), *([] if right is None else [right]))
        return Shortcut(factors, bias)

    def part(self, block: int, part: str) -> Shortcut | None:
        """The map of one part of a block; None when parts were not fitted."""
        name = f"part/{block}.{part}"
        return self.stored_map(name) if name in self.artefact.names else None

    def draft_tokens(self, vocab: int) -> "Tensor":
        """Ids of the tokens a draft chooses from: the frequent ones of the fit's texts, or all."""
        import torch

        frequent = self._optional("words")
        return torch.arange(vocab) if frequent is None else frequent

    def select_kinds(self, kinds: Iterable[str]) -> tuple[str, ...]:
        """The given kinds; those of the file for `all`; UnknownName for one that it lacks."""
        wanted, known = tuple(kinds), dict.fromkeys(self.kinds)
        if wanted == ("all",):
            return self.kinds
        for kind in wanted:
            lookup(known, kind, kind="map kind in this file")
        return wanted

    def need_model(self, lm: LM) -> None:
        """Mismatch unless the maps were fitted on exactly these weights."""
        fitted = self.meta["model"]
        if fitted["digest"] != lm.digest:
            raise Mismatch(
                f"{str(self.artefact.path)!r} was fitted on {fitted['name']!r} (weights "
                f"{fitted['digest'][:12]}), not on {lm.name!r} (weights {lm.digest[:12]}): "
                "a different model, revision or adapter. Fit maps for this one: "
                f"cutaway shortcut fit --model {lm.name}"
            )
        precision = fitted.get("quantise", "none")
        if precision != lm.quantise:
            raise Mismatch(
                f"{str(self.artefact.path)!r} was fitted with --quantise {precision}, the model is "
                f"open with {lm.quantise}: its layers differ. Give the same, or fit maps again."
            )
        report_other_start(self.artefact.path, fitted, lm)

    def _optional(self, name: str) -> "Tensor | None":
        return self.artefact.tensor(name) if name in self.artefact.names else None


def load_maps(path: Path | str, lm: LM | None = None) -> ShortcutMaps:
    """The maps in a file; with a model, Mismatch unless they were fitted on it."""
    if not Path(path).is_file():
        raise Missing(
            f"No shortcut {str(path)!r}. Fit one with: cutaway shortcut fit --model "
            f"{'MODEL' if lm is None else lm.name} --out {str(path)!r}"
        )
    artefact = load_artefact(Path(path))
    if artefact.meta.get("method") != "shortcut":
        raise BadData(
            f"{str(path)!r} is not a shortcut file: its method is {artefact.meta.get('method')!r}."
        )
    report_other_versions(artefact.path, artefact.versions)
    maps = ShortcutMaps(artefact)
    if lm is not None:
        maps.need_model(lm)
    return maps


def save_maps(
    path: Path,
    fitted: FittedMaps,
    parts: Mapping[str, Shortcut],
    meta: Mapping[str, Any],
    extra: "Mapping[str, Tensor] | None" = None,
) -> Path:
    """Write the maps and extra tensors; the JSON is written last."""
    tensors: dict[str, Tensor] = dict(extra or {})
    for (kind, source, target), jump in fitted.items():
        tensors |= _named_tensors(f"{kind}/{source}/{target}", jump)
    for name, jump in parts.items():
        tensors |= _named_tensors(f"part/{name}", jump)
    kinds = [kind for kind in MAP_KINDS if any(key[0] == kind for key in fitted)]
    return save_artefact(path, tensors, {**meta, "method": "shortcut", "kinds": kinds})


def save_unfinished(snapshots: Snapshots, fitted: FittedMaps, *, at_end: bool = False) -> None:
    """Save the maps fitted so far when it is time."""
    if snapshots.due(at_end=at_end):
        tensors: dict[str, Tensor] = {}
        for (kind, source, target), jump in fitted.items():
            tensors |= _named_tensors(f"{kind}/{source}/{target}", jump)
        described = [[*key, jump.ridge, jump.note] for key, jump in fitted.items()]
        snapshots.save(len(fitted), tensors, {"maps": described})


def load_unfinished(snapshots: Snapshots) -> dict[tuple[str, int, int], Shortcut]:
    """The maps of the newest snapshot, in the order in which they were fitted."""
    saved, fitted = snapshots.load(), dict[tuple[str, int, int], Shortcut]()
    if saved is not None:
        for kind, source, target, ridge, note in saved.meta["maps"]:
            name = f"{kind}/{source}/{target}"
            parts = [saved.tensor(n).clone() for n in (name, f"{name}/right") if n in saved.names]
            bias = f"{name}/bias"
            offset = saved.tensor(bias).clone() if bias in saved.names else None
            fitted[kind, source, target] = Shortcut(tuple(parts), offset, ridge, note)
    return fitted


def text_fingerprints(texts: Iterable[str]) -> list[int]:
    """A 64-bit hash of each text."""
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    return [int.from_bytes(digest[:8], "big", signed=True) for digest in digests]


def _named_tensors(name: str, jump: Shortcut) -> dict[str, "Tensor"]:
    named = {name: jump.factors[0].contiguous()}
    if len(jump.factors) > 1:
        named[f"{name}/right"] = jump.factors[1].contiguous()
    return named if jump.bias is None else named | {f"{name}/bias": jump.bias.contiguous()}
