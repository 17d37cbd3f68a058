"""The prediction of every layer through every map, compared with the full model's."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cutaway.console import Console
from cutaway.core.errors import BadData
from cutaway.core.textset import TextSet
from cutaway.methods.shortcut.maps import ShortcutMaps, load_maps, text_fingerprints
from cutaway.methods.shortcut.maths.lens import (
    LayerPredictions,
    concat_predictions,
    final_distribution,
    layer_predictions,
)
from cutaway.methods.shortcut.memory import MAX_LOGITS, estimate_sample, eval_bytes
from cutaway.methods.shortcut.sample import SampleRequest, StateSample, TextRows, load_sample_texts
from cutaway.methods.shortcut.samples import LensCells, SampleWriter, examples_of
from cutaway.methods.shortcut.spec import EvalSpec, ExitSpec
from cutaway.models.lm import LM
from cutaway.recipe.cost import Estimate
from cutaway.recipe.life_cycle import Context
from cutaway.recipe.open_for_spec import open_spec_model
from cutaway.store.snapshots import Snapshots, saved_tensors

PredictionsByLayer = dict[tuple[str, int], LayerPredictions]
"""By kind of map and layer."""


@dataclass(frozen=True)
class MapsRequest(SampleRequest):
    """A model, its fitted maps, and the texts to measure them on."""

    maps: ShortcutMaps
    kinds: tuple[str, ...]

    @property
    def identity(self) -> dict[str, Any]:
        """The model's weights, the texts and the maps."""
        return super().identity | {"maps": self.maps.digest}


def resolve_maps(spec: EvalSpec | ExitSpec, context: Context) -> MapsRequest:
    """The model, the maps that were fitted on it, and the texts."""
    lm = open_spec_model(spec, context.objects)
    maps = load_maps(spec.shortcut, lm)
    kinds = maps.select_kinds(spec.kinds)
    return MapsRequest(spec, lm, *load_sample_texts(lm, spec, context.objects), maps, kinds)


def estimate_predictions(request: MapsRequest) -> list[Estimate]:
    """The cost of reading the texts and of predicting from every layer."""
    positions = request.spec.positions_per_text
    return estimate_sample(request, eval_bytes(request.lm, request.maps.size, positions))


def examples_to_measure(request: MapsRequest) -> int:
    """About how many tokens are measured on: those of texts that the maps were not fitted on."""
    texts = texts_not_fitted_on(request.texts, request.maps)
    return len(texts) * int(request.spec.positions_per_text)


def texts_not_fitted_on(texts: TextSet, maps: ShortcutMaps) -> TextRows:
    """The texts that the maps were not fitted on; BadData when there are none."""
    known = maps.fitted_texts
    rows = [i for i, mark in enumerate(text_fingerprints(texts.texts)) if mark not in known]
    if not rows:
        raise BadData(
            f"The maps were fitted on every text of {texts.name!r}, so none is left to "
            "measure on. Give more or other texts."
        )
    return torch.tensor(rows).numpy()


def logits_fn(lm: LM) -> Callable[[Tensor], Tensor]:
    """The function from states of the last layer to logits, in float32 on the CPU."""
    lm.need_head()
    dtype = getattr(torch, lm.dtype)
    return lambda hidden: lm.unembed(lm.final_norm(hidden.to(lm.device, dtype))).float().cpu()


def predict_all_layers(
    sample: StateSample,
    rows: TextRows,
    maps: ShortcutMaps,
    kinds: Sequence[str],
    console: Console,
    writer: SampleWriter | None = None,
    folder: Path | None = None,
) -> PredictionsByLayer:
    """Predictions at all examples of these texts, for layers 0..L; samples go to the writer.

    Unfinished predictions are saved in `folder`.
    """
    lm, head = sample.lm, logits_fn(sample.lm)
    jumps = {
        (kind, layer): maps.jump(layer, lm.layers, kind)
        for kind in kinds
        for layer in range(lm.layers)
    }
    snapshots = Snapshots(folder, console)
    done, chunks = _load_predictions(snapshots)
    size = max(1, MAX_LOGITS // lm.vocab)
    with console.progress("predictions", len(rows)) as advance:
        advance(done)
        for part, states in sample.states(rows[done:], range(lm.layers + 1), at_once=size):
            following, cells = sample.next_tokens(part), LensCells()
            last = head(states[lm.layers])
            full = final_distribution(last)
            own = layer_predictions(last, full, following)
            for kind in kinds:
                for layer in range(lm.layers + 1):
                    logits, predicted = last, own
                    if layer < lm.layers:
                        logits = head(jumps[kind, layer](states[layer]))
                        predicted = layer_predictions(logits, full, following)
                    chunks.setdefault((kind, layer), []).append(predicted)
                    if writer is not None:
                        cells.add(kind, layer, logits, predicted)
            if writer is not None:
                writer.write_cells(f"cells/{part[0]:09d}", examples_of(sample, part), cells)
            advance(len(part))
            done += len(part)
            if snapshots.due(at_end=done == len(rows)):
                _save_predictions(snapshots, done, chunks)
    return {key: concat_predictions(parts) for key, parts in chunks.items()}


def _save_predictions(
    snapshots: Snapshots, done: int, chunks: dict[tuple[str, int], list[LayerPredictions]]
) -> None:
    """Save the predictions at the first `done` texts."""
    tensors = {
        f"{kind}/{layer}/{name}": value
        for (kind, layer), parts in chunks.items()
        for name, value in vars(concat_predictions(parts)).items()
    }
    snapshots.save(done, tensors, {"done": done, "cells": [list(key) for key in chunks]})


def _load_predictions(
    snapshots: Snapshots,
) -> tuple[int, dict[tuple[str, int], list[LayerPredictions]]]:
    """The number of texts in the newest snapshot, and their predictions."""
    saved = snapshots.load()
    if saved is None:
        return 0, {}
    return int(saved.meta["done"]), {
        (kind, layer): [LayerPredictions(**saved_tensors(saved, f"{kind}/{layer}"))]
        for kind, layer in saved.meta["cells"]
    }


def predictions_from_states(
    sample: StateSample,
    rows: TextRows,
    hidden: Tensor,
    full: Tensor,
    writer: SampleWriter | None = None,
    *,
    kind: str = "",
    layer: int = 0,
) -> LayerPredictions:
    """Predictions from states that replace those of the last layer, chunk by chunk.

    Samples go to the writer as those of this kind and layer.
    """
    head, following = logits_fn(sample.lm), sample.next_tokens(rows)
    size, examples = max(1, MAX_LOGITS // sample.lm.vocab), examples_of(sample, rows)
    predictions: list[LayerPredictions] = []
    with torch.inference_mode():
        for start in range(0, len(hidden), size):
            part = slice(start, start + size)
            logits, final = head(hidden[part]), final_distribution(head(full[part]))
            predictions.append(layer_predictions(logits, final, following[part]))
            if writer is not None:
                cells = LensCells()
                cells.add(kind, layer, logits, predictions[-1])
                key = f"replaced/{kind}/{layer:04d}/{start:09d}"
                writer.write_cells(key, examples.take(part), cells)
    return concat_predictions(predictions)


def precision_by_layer(predictions: PredictionsByLayer, kind: str) -> list[float]:
    """Precision@1 of each layer."""
    layers = sorted(layer for name, layer in predictions if name == kind)
    return [float(predictions[kind, layer].in_top(1).double().mean()) for layer in layers]
