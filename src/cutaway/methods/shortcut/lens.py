"""`cutaway shortcut lens`: the prediction of every layer at every token of a text."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cutaway.core.errors import BadData, BadSpec
from cutaway.methods.shortcut.lens_page import lens_page
from cutaway.methods.shortcut.maps import ShortcutMaps, load_maps
from cutaway.methods.shortcut.predictions import logits_fn
from cutaway.methods.shortcut.spec import LensSpec
from cutaway.models.hooks import collect_states
from cutaway.models.lm import LM
from cutaway.models.read_texts import parse_layers
from cutaway.models.tokens import tokenize_typed
from cutaway.recipe.life_cycle import Context
from cutaway.recipe.open_for_spec import open_spec_model
from cutaway.store.files import write_atomic


@dataclass(frozen=True)
class LensGrid:
    """For each kind, layer and token the most likely next tokens with their probabilities."""

    model: str
    tokens: tuple[str, ...]
    layers: tuple[int, ...]
    kinds: tuple[str, ...]
    words: dict[str, list[list[list[str]]]]
    """kind -> layer -> token -> the most likely next tokens."""
    probs: dict[str, list[list[list[float]]]]
    agree: dict[str, list[list[bool]]]
    """kind -> layer -> token: whether the first one is the full model's."""

    def plain(self) -> dict[str, Any]:
        """JSON-ready values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def show(self) -> None:
        """Print the grid on stdout."""
        from cutaway.methods.shortcut.lens_terminal import print_lens

        print_lens(self.plain())


@dataclass(frozen=True)
class LensRequest:
    """The model, its maps if a file was given, and the text as token ids."""

    spec: LensSpec
    lm: LM
    maps: ShortcutMaps | None
    kinds: tuple[str, ...]
    layers: list[int]
    row: list[int]


def resolve(spec: LensSpec, context: Context) -> LensRequest:
    """The model, its maps and the text."""
    lm = open_spec_model(spec, context.objects)
    return lens_request(lm, load_maps(spec.shortcut, lm) if spec.shortcut else None, spec)


def lens_request(lm: LM, maps: ShortcutMaps | None, spec: LensSpec) -> LensRequest:
    """The request of a model and maps that are already open."""
    row = tokenize_typed(lm, spec.text).rows[0]
    if len(row) < 2:
        raise BadData(f"The text {spec.text!r} has fewer than two tokens: give a longer one.")
    layers = list(parse_layers(lm, spec.layers))
    return LensRequest(spec, lm, maps, _lens_kinds(maps, spec), layers, row)


def perform(request: LensRequest, context: Context) -> LensGrid:
    """The grid of a text; also written as a web page when `html` names a file."""
    lens, html = compute_lens(request), request.spec.html
    if html:
        write_atomic(Path(html), lens_page(lens.plain()).encode())
        context.console.print(f"Written: {html}")
    return lens


@torch.inference_mode()
def compute_lens(request: LensRequest) -> LensGrid:
    """The grid of the request's text."""
    lm, maps, layers = request.lm, request.maps, request.layers
    ids, head = torch.tensor([request.row], device=lm.device), logits_fn(lm)
    mask = torch.ones_like(ids, dtype=torch.bool)
    states = collect_states(lm, ids, mask, {*layers, lm.layers}).layers
    final = head(states[lm.layers][0]).argmax(dim=-1)
    words: dict[str, Any] = {}
    probs: dict[str, Any] = {}
    agree: dict[str, Any] = {}
    for kind in request.kinds:
        tops = []
        for layer in layers:
            hidden = states[layer][0]
            hidden = hidden if maps is None else maps.jump(layer, lm.layers, kind)(hidden)
            count = min(request.spec.top, lm.vocab)
            tops.append(torch.softmax(head(hidden), dim=-1).topk(count, dim=-1))
        words[kind] = [_decode_tokens(lm, top.indices) for top in tops]
        probs[kind] = [top.values.tolist() for top in tops]
        agree[kind] = [(top.indices[:, 0] == final).tolist() for top in tops]
    tokens = tuple(token for [token] in _decode_tokens(lm, ids[0][:, None]))
    return LensGrid(lm.name, tokens, tuple(layers), request.kinds, words, probs, agree)


def _lens_kinds(maps: ShortcutMaps | None, spec: LensSpec) -> tuple[str, ...]:
    if maps is not None:
        return maps.select_kinds(spec.kinds)
    wanted = [kind for kind in spec.kinds if kind != "id"]
    if wanted and spec.kinds != ("id", "mat"):
        raise BadSpec(f"Kind {wanted[0]!r} needs --shortcut FILE; without one there is only id.")
    return ("id",)


def _decode_tokens(lm: LM, ids: Tensor) -> list[list[str]]:
    """Each token as text, with its spaces."""
    return [[lm.tokenizer.decode([token]) for token in row] for row in ids.tolist()]
