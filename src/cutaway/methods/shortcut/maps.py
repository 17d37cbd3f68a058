"""The file of a fitted shortcut: matrices by name, and for which model they hold.

mat/3/12            matrix from layer 3 to layer 12 (rows are examples: hidden @ matrix)
lowrank/3/12/right  second factor of a low-rank map
affine/3/12/bias    what is added
part/5.attn         map of one part of block 5
words               the tokens a draft chooses from
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
from cutaway.recipe.artefact_handle import SavedArtefact
from cutaway.store.artefacts import load_artefact, save_artefact

if TYPE_CHECKING:
    from torch import Tensor

MAP_KINDS = ("id", "mat", "affine", "ridge", "lowrank", "tuned")
"""From the baseline to the strongest; `id` needs no file."""

FittedMaps = Mapping[tuple[str, int, int], Shortcut]


@dataclass(frozen=True)
class ShortcutMaps(SavedArtefact):
    """The shortcuts in a file, read one at a time; `id` is always there.

    `meta` has model, text, sampling, kinds and r2, as written by the fit.
    """

    @property
    def layers(self) -> int:
        """The number of the last layer."""
        return int(self.meta["model"]["layers"])

    @property
    def fitted_on(self) -> str:
        """The text that the maps were fitted on."""
        return str(self.meta["text"]["name"])

    @cached_property
    def fitted_texts(self) -> frozenset[int]:
        """Fingerprints of the texts that the maps were fitted on; none where they are unknown."""
        found = self._optional("fitted")
        return frozenset() if found is None else frozenset(found.tolist())

    @property
    def size(self) -> int:
        """Bytes of all matrices together."""
        return self.artefact.path.stat().st_size

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of maps in the file, `id` first."""
        return tuple(kind for kind in MAP_KINDS if kind == "id" or kind in self.meta["kinds"])

    def jump(self, source: int, target: int, kind: str = "mat") -> Shortcut:
        """The shortcut from one layer to another."""
        self._check(source, target)
        lookup(dict.fromkeys(self.kinds), kind, kind="map kind in this file")
        if kind == "id" or source == target:
            return IDENTITY
        name = f"{kind}/{source}/{target}"
        if name not in self.artefact.names:
            raise BadSpec(
                f"{self.artefact.path.name!r} has no {kind} map from layer {source} to {target}: "
                "it was fitted with --layers to-final, or this kind only ends in the last layer."
            )
        right, bias = self._optional(f"{name}/right"), self._optional(f"{name}/bias")
        factors = (self.artefact.tensor(name), *([] if right is None else [right]))
        return Shortcut(factors, bias)

    def part(self, block: int, part: str) -> Shortcut | None:
        """The map of one part of a block; None when parts were not fitted."""
        found = self._optional(f"part/{block}.{part}")
        return None if found is None else Shortcut((found,))

    def words(self, vocab: int) -> "Tensor":
        """The tokens a draft chooses from: the frequent ones of the fit's text, else all."""
        import torch

        found = self._optional("words")
        return torch.arange(vocab) if found is None else found

    def chosen(self, kinds: Iterable[str]) -> tuple[str, ...]:
        """The wanted kinds; all of the file for `all`, UnknownName for one it lacks."""
        wanted = tuple(kinds)
        if wanted == ("all",):
            return self.kinds
        known = dict.fromkeys(self.kinds)
        for kind in wanted:
            lookup(known, kind, kind="map kind in this file")
        return wanted

    def need_model(self, lm: LM) -> None:
        """Mismatch unless the maps were fitted on these very weights."""
        mine = self.meta["model"]
        if mine["digest"] != lm.digest:
            raise Mismatch(
                f"{str(self.artefact.path)!r} was fitted on {mine['name']!r} (weights "
                f"{mine['digest'][:12]}), not on {lm.name!r} (weights {lm.digest[:12]}): "
                "another model, revision or adapter. Fit it for this one: "
                f"cutaway shortcut fit --model {lm.name}"
            )

    def _check(self, source: int, target: int) -> None:
        if not 0 <= source <= target <= self.layers:
            raise BadSpec(
                f"A shortcut goes forward within layers 0..{self.layers}, got {source} to {target}."
            )

    def _optional(self, name: str) -> "Tensor | None":
        return self.artefact.tensor(name) if name in self.artefact.names else None


def load_maps(path: Path | str, lm: LM | None = None) -> ShortcutMaps:
    """The maps in a file; with a model, only if they are its own."""
    if not Path(path).is_file():
        raise Missing(
            f"No shortcut {str(path)!r}. Fit one with: cutaway shortcut fit --model "
            f"{'MODEL' if lm is None else lm.name} --out {str(path)!r}"
        )
    artefact = load_artefact(Path(path))
    if artefact.meta.get("method") != "shortcut":
        raise BadData(
            f"{str(path)!r} is no shortcut: its method is {artefact.meta.get('method')!r}."
        )
    maps = ShortcutMaps(artefact)
    if lm is not None:
        maps.need_model(lm)
    return maps


def save_maps(
    path: Path,
    fitted: FittedMaps,
    parts: Mapping[str, Shortcut],
    meta: Mapping[str, Any],
    beside: "Mapping[str, Tensor] | None" = None,
) -> Path:
    """Write the maps and what else is kept beside them; the JSON is written last."""
    tensors: dict[str, Tensor] = dict(beside or {})
    for (kind, source, target), jump in fitted.items():
        tensors |= _named_tensors(f"{kind}/{source}/{target}", jump)
    for name, jump in parts.items():
        tensors |= _named_tensors(f"part/{name}", jump)
    kinds = [kind for kind in MAP_KINDS if any(key[0] == kind for key in fitted)]
    return save_artefact(path, tensors, {**meta, "method": "shortcut", "kinds": kinds})


def text_fingerprints(texts: Iterable[str]) -> list[int]:
    """A number for each text by which it is known again."""
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    return [int.from_bytes(digest[:8], "big", signed=True) for digest in digests]


def _named_tensors(name: str, jump: Shortcut) -> dict[str, "Tensor"]:
    named = {name: jump.factors[0].contiguous()}
    if len(jump.factors) > 1:
        named[f"{name}/right"] = jump.factors[1].contiguous()
    return named if jump.bias is None else named | {f"{name}/bias": jump.bias.contiguous()}
