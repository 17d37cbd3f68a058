"""`cutaway shortcut eval`: every layer, every map, held against the full model."""

from collections.abc import Sequence
from typing import Any

import torch

from cutaway.core.errors import BadData, BadSpec
from cutaway.methods.shortcut.fidelity import Fidelity
from cutaway.methods.shortcut.fit import Shortcut
from cutaway.methods.shortcut.lens import Reading, answer, join, read
from cutaway.run.estimate import Estimate
from cutaway.run.estimate import estimate as estimate_pass
from cutaway.run.objects import Objects
from cutaway.run.opened import model_of
from cutaway.run.record import measured
from cutaway.run.result import Result
from cutaway.run.screen import Screen
from cutaway.run.shortcut.finish import done_before, finish, name_of
from cutaway.run.shortcut.fit import head_of
from cutaway.run.shortcut.maps import Maps, fingerprints, load_maps
from cutaway.run.shortcut.needs import AT_ONCE, besides, look_bytes
from cutaway.run.shortcut.parts import GROUPS, final_states
from cutaway.run.shortcut.readings import Readings, readings
from cutaway.run.shortcut.rows import Where, best_known_first, r2_rows, reading_rows
from cutaway.run.shortcut.sample import (
    Rows,
    Sample,
    ask_for,
    read_texts,
    take_sample,
)
from cutaway.run.shortcut.schedules import candidates, follow
from cutaway.run.specs.shortcut import EvalSpec, ExitSpec
from cutaway.run.table import Row


def run(spec: EvalSpec, *, screen: Screen | None = None, objects: Objects | None = None) -> Result:
    """r2, precision@k, surprisal, KL, entropy and perplexity by layer and kind of map."""
    screen, lm = screen or Screen(quiet=True), model_of(spec, objects)
    maps = load_maps(spec.shortcut, lm)
    kinds = maps.chosen(spec.kinds)
    with measured() as meter:
        sample = take_sample(lm, spec, screen, objects)
        name = name_of(spec, lm, sample, maps=maps.digest)
        done = done_before(spec, name)
        if done is not None:
            return done
        rows = fresh_rows(sample, maps)
        screen.say(f"Measuring on {len(rows)} texts of {sample.texts.name}.")
        found = readings(sample, rows, maps, kinds, screen)
        where = Where(lm.name, sample.texts.name, maps.fitted_on)
        r2 = all_r2(sample, rows, maps, kinds, screen)
        table = []
        for (kind, layer), reading in found.items():
            table += reading_rows(where, kind, layer, lm.layers, reading)
        table = [*best_known_first(table), *r2_rows(where, r2)]
        if spec.parts and maps.meta.get("parts"):
            table += part_rows(sample, rows, maps, where, screen)
        if spec.schedules:
            table += schedule_rows(sample, rows, maps, where, r2, screen)
    return finish(
        "eval", spec, name, sample, meter,
        summary={"fitted_on": maps.fitted_on} | summarise(found, lm.layers, len(rows)),
        baselines={"id": by_layer(found, "id")} if "id" in kinds else {}, rows=table,
    )  # fmt: skip


def fresh_rows(sample: Sample, maps: Maps) -> Rows:
    """The texts that the maps were not fitted on: all of another text, the held-out of its own."""
    known = maps.fitted_texts
    rows = [i for i, mark in enumerate(fingerprints(sample.texts.texts)) if mark not in known]
    if not rows:
        raise BadData(
            f"The maps were fitted on every text of {sample.texts.name!r}: there is nothing left "
            "to measure on. Give more text, or another."
        )
    return torch.tensor(rows).numpy()


def all_r2(
    sample: Sample, rows: Rows, maps: Maps, kinds: Sequence[str], screen: Screen
) -> dict[Any, float]:
    """r2 of every pair of layers that the file has, by kind."""
    fidelity, jumps = Fidelity(), pair_maps(maps, kinds)
    with screen.progress("r2", len(rows)) as advance:
        for part, states in sample.states(rows, range(sample.lm.layers + 1)):
            fidelity.add(states, jumps)
            advance(len(part))
    return fidelity.all()


def pair_maps(maps: Maps, kinds: Sequence[str]) -> dict[str, dict[tuple[int, int], Shortcut]]:
    """The maps by kind and pair of layers; `id` on the pairs of `mat`."""
    named = [name.split("/") for name in maps.artefact.names]
    has = {
        kind: [(int(n[1]), int(n[2])) for n in named if n[0] == kind and len(n) == 3]
        for kind in kinds
    }
    if "id" in has:
        has["id"] = [(int(n[1]), int(n[2])) for n in named if n[0] == "mat" and len(n) == 3]
    return {kind: {pair: maps.jump(*pair, kind) for pair in pairs} for kind, pairs in has.items()}


def part_rows(
    sample: Sample, rows: Rows, maps: Maps, where: Where, screen: Screen, most: int = 8
) -> list[Row]:
    """Blocks after a layer with their norms, attention or mlp replaced; at most 8 such layers."""
    last = sample.lm.layers
    starts = sorted({round(i * (last - 1) / (most - 1)) for i in range(most)})
    full = torch.cat([states[last] for _, states in sample.states(rows, [last])])
    table: list[Row] = []
    with screen.progress("parts", len(starts) * len(GROUPS)) as advance:
        for start in starts:
            for group in GROUPS:
                hidden = final_states(sample.lm, sample.seen, rows.tolist(), maps, group, start)
                reading = compare(sample, hidden, full, sample.answers(rows))
                table += reading_rows(where, f"part:{group}", start, last, reading)
                advance()
    return table


def schedule_rows(
    sample: Sample, rows: Rows, maps: Maps, where: Where, r2: dict[Any, float], screen: Screen
) -> list[Row]:
    """Schedules that run some blocks and jump the others; `layer` is how many blocks run."""
    lm, last = sample.lm, sample.lm.layers
    if maps.meta["pairs"] == "to-final":
        raise BadSpec("Schedules need maps between all layers: fit with --layers all.")
    ways = candidates({pair: value for (kind, pair), value in r2.items() if kind == "mat"}, last)
    full = torch.cat([states[last] for _, states in sample.states(rows, [last])])
    table: list[Row] = []
    with screen.progress("schedules", len(ways)) as advance:
        for name, way in ways.items():
            hidden = follow(lm, sample.seen, rows.tolist(), maps, way)
            reading = compare(sample, hidden, full, sample.answers(rows))
            table += reading_rows(where, name, way.blocks, last, reading)
            advance()
    return table


def compare(
    sample: Sample, hidden: torch.Tensor, full: torch.Tensor, coming: torch.Tensor
) -> Reading:
    """The reading of states that stand for the last layer, chunk by chunk."""
    head, size = head_of(sample.lm), max(1, AT_ONCE // sample.lm.vocab)
    pieces = [slice(i, i + size) for i in range(0, len(hidden), size)]
    with torch.inference_mode():
        return join([read(head(hidden[p]), answer(head(full[p])), coming[p]) for p in pieces])


def by_layer(found: Readings, kind: str, k: int = 1) -> list[float]:
    """Precision@k of each layer."""
    layers = sorted(layer for name, layer in found if name == kind)
    return [float(found[kind, layer].hit(k).double().mean()) for layer in layers]


def summarise(found: Readings, last: int, texts: int) -> dict[str, Any]:
    """The findings: precision@1 by layer and kind, and one sentence about the middle."""
    kinds = list(dict.fromkeys(kind for kind, _ in found))
    table = {kind: by_layer(found, kind) for kind in kinds}
    half, best = last // 2, max(kinds, key=lambda kind: sum(table[kind]))
    said = (
        f"At layer {half} of {last} the {best} map already has the full model's top token for "
        f"{table[best][half]:.0%} of the tokens"
    )
    said += (
        f"; the identity for {table['id'][half]:.0%}." if "id" in table and best != "id" else "."
    )
    return {"texts": texts, "precision@1": table, "best_kind": best, "verdict": [said]}


def estimate(spec: EvalSpec | ExitSpec, *, screen: Screen | None = None) -> list[Estimate]:
    """What the pass and the look at every layer will cost, before they start."""
    lm = model_of(spec)
    maps = load_maps(spec.shortcut, lm)
    texts, _ = read_texts(lm, spec)
    reading = estimate_pass(lm, texts, ask_for(lm, spec))
    return [besides(reading, look_bytes(lm, maps, spec.positions_per_text))]
