"""Choices of layers and how several layers are combined into one feature matrix."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from cutaway.core.errors import BadSpec, Missing
from cutaway.core.lookup import lookup

MixFunction = Callable[[list[Tensor]], Tensor]

MIXES: dict[str, MixFunction] = {
    "one": lambda layers: layers[0],
    "mean": lambda layers: torch.stack(layers).mean(0),
    "max": lambda layers: torch.stack(layers).amax(0),
    "min": lambda layers: torch.stack(layers).amin(0),
    "concat": lambda layers: torch.cat(layers, 1),
}


@dataclass(frozen=True)
class LayerMix:
    """One feature matrix made from one or several layers."""

    name: str
    """As in results: `6`, `mean:all`, `concat:8,9`."""
    layers: tuple[int, ...]
    how: str = "one"
    """A row of the MIXES table."""


def parse_layers(text: str, total: int) -> list[LayerMix]:
    """The mixes that a text such as `all`, `0,6,12`, `3-7`, `mean:all` or `concat:8,9` names.

    `total` is the number of blocks: layers run from 0 (the embeddings) to `total`. Several
    texts are joined by `;`. BadSpec for layers out of range or other text.
    """
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if not parts:
        raise BadSpec(f"layers is empty; allowed are {_allowed_values(total)}.")
    found = [mix for part in parts for mix in _parse_part(part, total)]
    return list({mix.name: mix for mix in found}.values())


def _parse_part(text: str, total: int) -> list[LayerMix]:
    how, colon, rest = text.partition(":")
    if not colon:
        return [LayerMix(str(layer), (layer,)) for layer in _layer_numbers(text, total)]
    if how.strip() == "one":
        raise BadSpec(
            f"layers {text!r}: write a single layer as its number, {_allowed_values(total)}."
        )
    lookup(MIXES, how.strip(), kind="mix of layers")
    name = f"{how.strip()}:{re.sub(r'[ ]+', '', rest)}"
    return [LayerMix(name, tuple(_layer_numbers(rest, total)), how.strip())]


def _layer_numbers(text: str, total: int) -> list[int]:
    if text.strip() == "all":
        return list(range(total + 1))
    found = [layer for word in text.split(",") for layer in _parse_range(word.strip(), total)]
    return list(dict.fromkeys(found))


def _parse_range(word: str, total: int) -> range:
    match = re.fullmatch(r"(\d+)(?:\s*-\s*(\d+))?", word)
    if match is None:
        raise BadSpec(f"layers {word!r} can't be read; allowed are {_allowed_values(total)}.")
    first = int(match[1])
    last = int(match[2]) if match[2] else first
    if not first <= last <= total:
        raise BadSpec(f"layers {word!r} is out of range; allowed are {_allowed_values(total)}.")
    return range(first, last + 1)


def _allowed_values(total: int) -> str:
    return (
        f"layers 0 (embeddings) to {total}, never negative: all, 0,{total}, 0-{total}, "
        f"mean:all, max:0,{total}, concat:0,{total}"
    )


def mix_layers(
    layers: Mapping[int, Shaped[Tensor, "n d"]], spec: LayerMix
) -> Float[Tensor, "n features"]:
    """The feature matrix of a mix; Missing if a layer was not extracted."""
    absent = [layer for layer in spec.layers if layer not in layers]
    if absent:
        raise Missing(
            f"Mix {spec.name!r} needs layers {absent!r}, which were not read; there are "
            f"{sorted(layers)!r}."
        )
    chosen = [layers[layer] for layer in spec.layers]
    if len(chosen) > 1:
        # Combine half-precision layers in float32 to keep their digits.
        chosen = [layer if layer.dtype == torch.float64 else layer.float() for layer in chosen]
    return lookup(MIXES, spec.how, kind="mix of layers")(chosen)
