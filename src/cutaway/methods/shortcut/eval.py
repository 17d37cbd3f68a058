"""`cutaway shortcut eval`: how close the prediction of each layer is to the full model's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cutaway.console import Console
from cutaway.core.errors import BadSpec
from cutaway.methods.shortcut.block_parts import PART_GROUPS, final_states
from cutaway.methods.shortcut.comparisons import best_map_gain
from cutaway.methods.shortcut.held_out_r2 import r2_on_texts
from cutaway.methods.shortcut.predictions import (
    MapsRequest,
    PredictionsByLayer,
    estimate_predictions,
    examples_to_measure,
    precision_by_layer,
    predict_all_layers,
    predictions_from_states,
    resolve_maps,
    texts_not_fitted_on,
)
from cutaway.methods.shortcut.rows import (
    ShortcutCoordinates,
    in_display_order,
    prediction_rows,
    r2_rows,
    shortcut_outcome,
)
from cutaway.methods.shortcut.sample import StateSample, TextRows, take_sample
from cutaway.methods.shortcut.samples import CELL_BYTES, SampleWriter, examples_of, sample_writer
from cutaway.methods.shortcut.schedules import candidate_schedules, run_schedule
from cutaway.methods.shortcut.spec import EvalSpec
from cutaway.methods.shortcut.verdict import eval_verdict
from cutaway.models.hooks import need_resumable
from cutaway.recipe.cost import SampleSize
from cutaway.recipe.life_cycle import Context, Outcome, Run
from cutaway.recipe.result import Row

estimate = estimate_predictions
MAX_START_LAYERS = 8
"""Start layers for which replaced parts are measured."""


def resolve(spec: EvalSpec, context: Context) -> MapsRequest:
    """The model, its maps and the texts."""
    request = resolve_maps(spec, context)
    if spec.schedules and request.maps.meta["pairs"] in ("to-final", "final-and-next"):
        raise BadSpec("Schedules need maps between all layers: fit with --layers all.")
    if spec.schedules:
        need_resumable(request.lm)
    return request


def measure(request: MapsRequest, run: Run) -> Outcome:
    """r2, precision@k, surprisal, KL, entropy and perplexity by layer and kind of map."""
    lm, maps, spec, console = request.lm, request.maps, request.spec, run.console
    sample = take_sample(request, run.context)
    rows = texts_not_fitted_on(sample.texts, maps)
    coordinates = ShortcutCoordinates(lm.name, sample.texts.name, maps.fitted_on)
    writer = sample_writer(run, sample, coordinates)
    console.print(f"Measuring on {len(rows)} texts of {sample.texts.name}.")
    kept = run.folder / "predictions"
    predictions = predict_all_layers(sample, rows, maps, request.kinds, console, writer, kept)
    r2 = r2_by_pair(request, sample, rows, console, run.folder / "r2")
    table: list[Row] = []
    for (kind, layer), predicted in predictions.items():
        table += prediction_rows(coordinates, kind, layer, lm.layers, predicted)
    table = [*in_display_order(table), *r2_rows(coordinates, r2)]
    if spec.parts and maps.meta.get("parts"):
        table += replaced_part_rows(request, sample, rows, coordinates, run, writer)
    if spec.schedules:
        table += schedule_rows(request, sample, rows, coordinates, r2, run, writer)
    return shortcut_outcome(
        "eval",
        sample,
        summary={
            "fitted_on": maps.fitted_on,
            **eval_summary(predictions, lm.layers, examples_of(sample, rows).rows),
        },
        baselines={"id": precision_by_layer(predictions, "id")} if "id" in request.kinds else {},
        rows=table,
        parts={"measured": rows},
    )


def sample_size(request: MapsRequest) -> SampleSize:
    """The samples of every layer through every kind of map, and of replaced parts."""
    spec, last = request.spec, request.lm.layers
    cells = (last + 1) * len(request.kinds)
    if spec.parts and request.maps.meta.get("parts"):
        cells += len(start_layers(last)) * len(PART_GROUPS)
    if spec.schedules:
        cells += min(last - 1, 6) + 3
    return SampleSize(examples_to_measure(request) * cells, CELL_BYTES)


def start_layers(last: int) -> list[int]:
    """The layers after which parts are replaced, spread over the model."""
    steps = MAX_START_LAYERS - 1
    return sorted({round(i * (last - 1) / steps) for i in range(MAX_START_LAYERS)})


def r2_by_pair(
    request: MapsRequest, sample: StateSample, rows: TextRows, console: Console, folder: Path
) -> dict[Any, float]:
    """r2 of every pair of layers in the file, by kind; `id` on the pairs of `mat`."""
    maps = request.maps
    pairs = {kind: maps.pairs("mat" if kind == "id" else kind) for kind in request.kinds}
    jumps = {kind: {pair: maps.jump(*pair, kind) for pair in of} for kind, of in pairs.items()}
    return r2_on_texts(sample, rows, jumps, console, folder)


def final_layer(sample: StateSample, rows: TextRows) -> torch.Tensor:
    """The states of the last layer at all examples of these texts."""
    last = sample.lm.layers
    return torch.cat([states[last] for _, states in sample.states(rows, [last])])


def replaced_part_rows(
    request: MapsRequest,
    sample: StateSample,
    rows: TextRows,
    coordinates: ShortcutCoordinates,
    run: Run,
    writer: SampleWriter | None,
) -> list[Row]:
    """Predictions when norms, attention or MLP are replaced in all blocks after a layer."""
    lm, last, full = sample.lm, sample.lm.layers, final_layer(sample, rows)
    starts = start_layers(last)
    keys, done = [], run.progress.done()
    with run.console.progress("parts", len(starts) * len(PART_GROUPS)) as advance:
        for start in starts:
            for group in PART_GROUPS:
                kind = f"part:{group}"
                keys.append(f"{kind} after {start}")
                if keys[-1] not in done:
                    hidden = final_states(
                        lm, sample.inputs, rows.tolist(), request.maps, group, start
                    )
                    predicted = predictions_from_states(
                        sample, rows, hidden, full, writer, kind=kind, layer=start
                    )
                    found = prediction_rows(coordinates, kind, start, last, predicted)
                    run.progress.put(keys[-1], found)
                advance()
    return run.progress.rows(keys)


def schedule_rows(
    request: MapsRequest,
    sample: StateSample,
    rows: TextRows,
    coordinates: ShortcutCoordinates,
    r2: Mapping[Any, float],
    run: Run,
    writer: SampleWriter | None,
) -> list[Row]:
    """Predictions of skip schedules; `layer` is the number of blocks that run."""
    lm, full = sample.lm, final_layer(sample, rows)
    fitted = {pair: value for (kind, pair), value in r2.items() if kind == "mat"}
    schedules = candidate_schedules(fitted, lm.layers)
    done = run.progress.done()
    with run.console.progress("schedules", len(schedules)) as advance:
        for name, schedule in schedules.items():
            if name not in done:
                hidden = run_schedule(lm, sample.inputs, rows.tolist(), request.maps, schedule)
                predicted = predictions_from_states(
                    sample, rows, hidden, full, writer, kind=name, layer=schedule.blocks
                )
                blocks = schedule.blocks
                found = prediction_rows(coordinates, name, blocks, lm.layers, predicted)
                run.progress.put(name, found)
            advance()
    return run.progress.rows(schedules)


def eval_summary(predictions: PredictionsByLayer, last: int, texts: TextRows) -> dict[str, Any]:
    """Precision@1 by kind and layer, the best kind, and the verdict; `texts` of every example."""
    kinds = list(dict.fromkeys(kind for kind, _ in predictions))
    correct = {kind: predictions[kind, last // 2].in_top(1).double().numpy() for kind in kinds}
    precision = {kind: precision_by_layer(predictions, kind) for kind in kinds}
    best = max(kinds, key=lambda kind: sum(precision[kind]))
    return {
        "texts": len(np.unique(texts)),
        "precision@1": precision,
        "best_kind": best,
        "verdict": eval_verdict(
            precision, best, last, best_map_gain(correct, best, texts), len(np.unique(texts))
        ),
    }
