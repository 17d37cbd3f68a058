"""`cutaway shortcut lens`: what every layer would say at every token of a text."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cutaway.console import Console
from cutaway.core.errors import BadData, BadSpec
from cutaway.methods.shortcut.fit import logits_fn
from cutaway.methods.shortcut.maps import ShortcutMaps, load_maps
from cutaway.methods.shortcut.spec import LensSpec
from cutaway.models.lm import LM
from cutaway.models.read import collect_states
from cutaway.models.read_texts import parse_layers
from cutaway.models.tokens import tokenize
from cutaway.recipe.objects import Objects
from cutaway.recipe.open_for_spec import open_spec_model
from cutaway.store.files import write_atomic


@dataclass(frozen=True)
class LensGrid:
    """The grid: for each kind, layer and token the likeliest words with their probabilities."""

    model: str
    tokens: tuple[str, ...]
    layers: tuple[int, ...]
    kinds: tuple[str, ...]
    words: dict[str, list[list[list[str]]]]
    """kind -> layer -> token -> the likeliest words."""
    probs: dict[str, list[list[list[float]]]]
    agree: dict[str, list[list[bool]]]
    """kind -> layer -> token: the first word is the full model's."""

    def plain(self) -> dict[str, Any]:
        """JSON-ready values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def show(self) -> None:
        """Print the grid on stdout."""
        from cutaway.methods.shortcut.lens_terminal import print_lens

        print_lens(self.plain())


def run(
    spec: LensSpec, *, console: Console | None = None, objects: Objects | None = None
) -> LensGrid:
    """The grid of a text; written as a web page too when `html` names a file."""
    lm = open_spec_model(spec, objects)
    maps = load_maps(spec.shortcut, lm) if spec.shortcut else None
    lens = compute_lens(lm, maps, spec)
    if spec.html:
        from cutaway.methods.shortcut.lens_page import lens_page

        write_atomic(Path(spec.html), lens_page(lens.plain()).encode())
        (console or Console(quiet=True)).print(f"Written: {spec.html}")
    return lens


@torch.inference_mode()
def compute_lens(lm: LM, maps: ShortcutMaps | None, spec: LensSpec) -> LensGrid:
    """The grid, with a model and maps that are open already."""
    kinds, layers = _lens_kinds(maps, spec), parse_layers(lm, spec.layers)
    row = tokenize(lm, [spec.text]).rows[0]
    if len(row) < 2:
        raise BadData(f"The text {spec.text!r} has less than two tokens: give a longer one.")
    ids = torch.tensor([row], device=lm.device)
    seen = collect_states(
        lm, ids, torch.ones_like(ids, dtype=torch.bool), {*layers, lm.layers}
    ).layers
    head = logits_fn(lm)
    answer = head(seen[lm.layers][0]).argmax(dim=-1)
    words: dict[str, Any] = {}
    probs: dict[str, Any] = {}
    agree: dict[str, Any] = {}
    for kind in kinds:
        tops = [_top_tokens(lm, maps, kind, layer, seen[layer][0], spec.top) for layer in layers]
        words[kind] = [_decode_tokens(lm, ids_) for _, ids_ in tops]
        probs[kind] = [values.tolist() for values, _ in tops]
        agree[kind] = [(ids_[:, 0] == answer).tolist() for _, ids_ in tops]
    shown = tuple(word for [word] in _decode_tokens(lm, ids[0][:, None]))
    return LensGrid(lm.name, shown, tuple(layers), kinds, words, probs, agree)


def _lens_kinds(maps: ShortcutMaps | None, spec: LensSpec) -> tuple[str, ...]:
    if maps is not None:
        return maps.chosen(spec.kinds)
    wanted = [kind for kind in spec.kinds if kind != "id"]
    if wanted and spec.kinds != ("id", "mat"):
        raise BadSpec(f"Kind {wanted[0]!r} needs --shortcut FILE; without one there is only id.")
    return ("id",)


def _top_tokens(
    lm: LM, maps: ShortcutMaps | None, kind: str, layer: int, hidden: Tensor, count: int
) -> tuple[Tensor, Tensor]:
    """Probabilities and ids of the likeliest tokens after each state."""
    moved = hidden if maps is None else maps.jump(layer, lm.layers, kind)(hidden)
    found = torch.softmax(logits_fn(lm)(moved), dim=-1).topk(min(count, lm.vocab), dim=-1)
    return found.values, found.indices


def _decode_tokens(lm: LM, ids: Tensor) -> list[list[str]]:
    """Tokens as people read them, spaces kept visible."""
    return [[lm.tokenizer.decode([token]) for token in row] for row in ids.tolist()]
