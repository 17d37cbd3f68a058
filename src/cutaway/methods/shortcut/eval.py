"""`cutaway shortcut eval`: every layer, every map, held against the full model."""

from collections.abc import Sequence
from typing import Any

import torch

from cutaway.console import Console
from cutaway.core.errors import BadData, BadSpec
from cutaway.extract.estimate import estimate_pass
from cutaway.methods.shortcut.block_parts import PART_GROUPS, final_states
from cutaway.methods.shortcut.fit import logits_fn
from cutaway.methods.shortcut.maps import ShortcutMaps, load_maps, text_fingerprints
from cutaway.methods.shortcut.maths.fidelity import StreamingR2
from cutaway.methods.shortcut.maths.fit import Shortcut
from cutaway.methods.shortcut.maths.lens import (
    LayerPredictions,
    concat_predictions,
    final_distribution,
    layer_predictions,
)
from cutaway.methods.shortcut.memory import MAX_LOGITS, eval_bytes, plus_memory
from cutaway.methods.shortcut.readings import PredictionsByLayer, predict_all_layers
from cutaway.methods.shortcut.rows import (
    ShortcutCoordinates,
    in_display_order,
    prediction_rows,
    r2_rows,
)
from cutaway.methods.shortcut.sample import (
    StateSample,
    TextRows,
    load_sample_texts,
    sample_request,
    take_sample,
)
from cutaway.methods.shortcut.save import find_finished, run_address, save_shortcut_run
from cutaway.methods.shortcut.schedules import candidate_schedules, run_schedule
from cutaway.methods.shortcut.spec import EvalSpec, ExitSpec
from cutaway.recipe.cost import Estimate
from cutaway.recipe.objects import Objects
from cutaway.recipe.open_for_spec import open_spec_model
from cutaway.recipe.provenance import measure_cost
from cutaway.recipe.result import Result
from cutaway.recipe.table import Row


def run(
    spec: EvalSpec, *, console: Console | None = None, objects: Objects | None = None
) -> Result:
    """r2, precision@k, surprisal, KL, entropy and perplexity by layer and kind of map."""
    console, lm = console or Console(quiet=True), open_spec_model(spec, objects)
    maps = load_maps(spec.shortcut, lm)
    kinds = maps.chosen(spec.kinds)
    with measure_cost() as meter:
        sample = take_sample(lm, spec, console, objects)
        name = run_address(spec, lm, sample, maps=maps.digest)
        done = find_finished(spec, name)
        if done is not None:
            return done
        rows = texts_not_fitted_on(sample, maps)
        console.print(f"Measuring on {len(rows)} texts of {sample.texts.name}.")
        found = predict_all_layers(sample, rows, maps, kinds, console)
        where = ShortcutCoordinates(lm.name, sample.texts.name, maps.fitted_on)
        r2 = r2_by_pair(sample, rows, maps, kinds, console)
        table = []
        for (kind, layer), reading in found.items():
            table += prediction_rows(where, kind, layer, lm.layers, reading)
        table = [*in_display_order(table), *r2_rows(where, r2)]
        if spec.parts and maps.meta.get("parts"):
            table += replaced_part_rows(sample, rows, maps, where, console)
        if spec.schedules:
            table += schedule_rows(sample, rows, maps, where, r2, console)
    return save_shortcut_run(
        "eval", spec, name, sample, meter,
        summary={"fitted_on": maps.fitted_on} | eval_summary(found, lm.layers, len(rows)),
        baselines={"id": precision_by_layer(found, "id")} if "id" in kinds else {}, rows=table,
    )  # fmt: skip


def texts_not_fitted_on(sample: StateSample, maps: ShortcutMaps) -> TextRows:
    """The texts that the maps were not fitted on: all of another text, the held-out of its own."""
    known = maps.fitted_texts
    rows = [i for i, mark in enumerate(text_fingerprints(sample.texts.texts)) if mark not in known]
    if not rows:
        raise BadData(
            f"The maps were fitted on every text of {sample.texts.name!r}: there is nothing left "
            "to measure on. Give more text, or another."
        )
    return torch.tensor(rows).numpy()


def r2_by_pair(
    sample: StateSample, rows: TextRows, maps: ShortcutMaps, kinds: Sequence[str], console: Console
) -> dict[Any, float]:
    """r2 of every pair of layers that the file has, by kind."""
    fidelity, jumps = StreamingR2(), maps_by_pair(maps, kinds)
    with console.progress("r2", len(rows)) as advance:
        for part, states in sample.states(rows, range(sample.lm.layers + 1)):
            fidelity.add(states, jumps)
            advance(len(part))
    return fidelity.all()


def maps_by_pair(
    maps: ShortcutMaps, kinds: Sequence[str]
) -> dict[str, dict[tuple[int, int], Shortcut]]:
    """The maps by kind and pair of layers; `id` on the pairs of `mat`."""
    named = [name.split("/") for name in maps.artefact.names]
    has = {
        kind: [(int(n[1]), int(n[2])) for n in named if n[0] == kind and len(n) == 3]
        for kind in kinds
    }
    if "id" in has:
        has["id"] = [(int(n[1]), int(n[2])) for n in named if n[0] == "mat" and len(n) == 3]
    return {kind: {pair: maps.jump(*pair, kind) for pair in pairs} for kind, pairs in has.items()}


def replaced_part_rows(
    sample: StateSample,
    rows: TextRows,
    maps: ShortcutMaps,
    where: ShortcutCoordinates,
    console: Console,
    most: int = 8,
) -> list[Row]:
    """Blocks after a layer with their norms, attention or mlp replaced; at most 8 such layers."""
    last = sample.lm.layers
    starts = sorted({round(i * (last - 1) / (most - 1)) for i in range(most)})
    full = torch.cat([states[last] for _, states in sample.states(rows, [last])])
    table: list[Row] = []
    with console.progress("parts", len(starts) * len(PART_GROUPS)) as advance:
        for start in starts:
            for group in PART_GROUPS:
                hidden = final_states(sample.lm, sample.seen, rows.tolist(), maps, group, start)
                reading = predictions_from_states(sample, hidden, full, sample.answers(rows))
                table += prediction_rows(where, f"part:{group}", start, last, reading)
                advance()
    return table


def schedule_rows(
    sample: StateSample,
    rows: TextRows,
    maps: ShortcutMaps,
    where: ShortcutCoordinates,
    r2: dict[Any, float],
    console: Console,
) -> list[Row]:
    """Schedules that run some blocks and jump the others; `layer` is how many blocks run."""
    lm, last = sample.lm, sample.lm.layers
    if maps.meta["pairs"] == "to-final":
        raise BadSpec("Schedules need maps between all layers: fit with --layers all.")
    ways = candidate_schedules(
        {pair: value for (kind, pair), value in r2.items() if kind == "mat"}, last
    )
    full = torch.cat([states[last] for _, states in sample.states(rows, [last])])
    table: list[Row] = []
    with console.progress("schedules", len(ways)) as advance:
        for name, way in ways.items():
            hidden = run_schedule(lm, sample.seen, rows.tolist(), maps, way)
            reading = predictions_from_states(sample, hidden, full, sample.answers(rows))
            table += prediction_rows(where, name, way.blocks, last, reading)
            advance()
    return table


def predictions_from_states(
    sample: StateSample, hidden: torch.Tensor, full: torch.Tensor, coming: torch.Tensor
) -> LayerPredictions:
    """The reading of states that stand for the last layer, chunk by chunk."""
    head, size = logits_fn(sample.lm), max(1, MAX_LOGITS // sample.lm.vocab)
    pieces = [slice(i, i + size) for i in range(0, len(hidden), size)]
    with torch.inference_mode():
        return concat_predictions(
            [
                layer_predictions(head(hidden[p]), final_distribution(head(full[p])), coming[p])
                for p in pieces
            ]
        )


def precision_by_layer(found: PredictionsByLayer, kind: str, k: int = 1) -> list[float]:
    """Precision@k of each layer."""
    layers = sorted(layer for name, layer in found if name == kind)
    return [float(found[kind, layer].hit(k).double().mean()) for layer in layers]


def eval_summary(found: PredictionsByLayer, last: int, texts: int) -> dict[str, Any]:
    """The findings: precision@1 by layer and kind, and one sentence about the middle."""
    kinds = list(dict.fromkeys(kind for kind, _ in found))
    table = {kind: precision_by_layer(found, kind) for kind in kinds}
    half, best = last // 2, max(kinds, key=lambda kind: sum(table[kind]))
    said = (
        f"At layer {half} of {last} the {best} map already has the full model's top token for "
        f"{table[best][half]:.0%} of the tokens"
    )
    said += (
        f"; the identity for {table['id'][half]:.0%}." if "id" in table and best != "id" else "."
    )
    return {"texts": texts, "precision@1": table, "best_kind": best, "verdict": [said]}


def estimate(spec: EvalSpec | ExitSpec, *, console: Console | None = None) -> list[Estimate]:
    """What the pass and the look at every layer will cost, before they start."""
    lm = open_spec_model(spec)
    maps = load_maps(spec.shortcut, lm)
    texts, _ = load_sample_texts(lm, spec)
    reading = estimate_pass(lm, texts, sample_request(lm, spec))
    return [plus_memory(reading, eval_bytes(lm, maps, spec.positions_per_text))]
