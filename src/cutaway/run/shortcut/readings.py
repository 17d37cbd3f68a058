"""Every layer read through every map, held against the full model, in one pass over states."""

from collections.abc import Sequence

from torch import Tensor

from cutaway.methods.shortcut.fit import Shortcut
from cutaway.methods.shortcut.lens import Head, Reading, answer, join, read
from cutaway.run.screen import Screen
from cutaway.run.shortcut.fit import head_of
from cutaway.run.shortcut.maps import Maps
from cutaway.run.shortcut.needs import AT_ONCE
from cutaway.run.shortcut.sample import Rows, Sample

Readings = dict[tuple[str, int], Reading]


def readings(
    sample: Sample, rows: Rows, maps: Maps, kinds: Sequence[str], screen: Screen
) -> Readings:
    """{(kind, layer): reading} over all examples of these texts, layers 0..L."""
    lm = sample.lm
    jumps = {
        (kind, layer): maps.jump(layer, lm.layers, kind)
        for kind in kinds
        for layer in range(lm.layers)
    }
    head = head_of(lm)
    found: dict[tuple[str, int], list[Reading]] = {}
    size = max(1, AT_ONCE // lm.vocab)
    with screen.progress("reading layers", len(rows)) as advance:
        for part, states in sample.states(rows, range(lm.layers + 1), at_once=size):
            chunk = _chunk(states, sample.answers(part), jumps, head, kinds)
            for key, reading in chunk.items():
                found.setdefault(key, []).append(reading)
            advance(len(part))
    return {key: join(pieces) for key, pieces in found.items()}


def _chunk(
    states: dict[int, Tensor],
    coming: Tensor,
    jumps: dict[tuple[str, int], Shortcut],
    head: Head,
    kinds: Sequence[str],
) -> Readings:
    last = max(states)
    logits = head(states[last])
    full = answer(logits)
    own = read(logits, full, coming)
    found = {(kind, last): own for kind in kinds}
    for (kind, layer), jump in jumps.items():
        found[kind, layer] = read(head(jump(states[layer])), full, coming)
    return found
