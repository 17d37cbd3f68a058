"""`cutaway shortcut exit`: what an early exit saves and costs, for every threshold at once."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cutaway.core.lookup import lookup
from cutaway.measure.intervals import Interval
from cutaway.methods.shortcut.comparisons import (
    TriedExit,
    mean_over_texts,
    share_over_texts,
)
from cutaway.methods.shortcut.exit_timing import ExitCurves, exit_timing
from cutaway.methods.shortcut.maths.exit_simulation import (
    ALL_LAMBDAS,
    CONFIDENCES,
    FINE_LAMBDAS,
    NO_EXIT_LAMBDA,
    CalibratedExit,
    ExitPoint,
    LayerConfidences,
    agreement_at,
    calibrate,
    exit_curve,
    exit_layers,
    fixed_exit_curve,
    saved_share,
)
from cutaway.methods.shortcut.predictions import (
    MapsRequest,
    PredictionsByLayer,
    estimate_predictions,
    examples_to_measure,
    predict_all_layers,
    resolve_maps,
    texts_not_fitted_on,
)
from cutaway.methods.shortcut.rows import ShortcutCoordinates, shortcut_outcome
from cutaway.methods.shortcut.sample import StateSample, TextRows, take_sample
from cutaway.methods.shortcut.samples import CELL_BYTES, EXIT_BYTES, examples_of, sample_writer
from cutaway.methods.shortcut.spec import ExitSpec
from cutaway.methods.shortcut.verdict import exit_verdict
from cutaway.recipe.cost import SampleSize
from cutaway.recipe.life_cycle import Context, Outcome, Run
from cutaway.recipe.result import Row

estimate = estimate_predictions
DEFAULT_AGREEMENT = 0.95
"""The agreement for which savings are reported unless --agreement gives another."""

ConfidencesByKind = dict[tuple[str, str], LayerConfidences]
"""By kind of map and confidence measure."""


def resolve(spec: ExitSpec, context: Context) -> MapsRequest:
    """The model, its maps and the texts."""
    for name in spec.confidence:
        lookup(CONFIDENCES, name, kind="confidence")
    return resolve_maps(spec, context)


def measure(request: MapsRequest, run: Run) -> Outcome:
    """Mean layers against agreement for every lambda, confidence and kind of map."""
    lm, maps, spec, kinds = request.lm, request.maps, request.spec, request.kinds
    sample = take_sample(request, run.context)
    rows = texts_not_fitted_on(sample.texts, maps)
    coordinates = ShortcutCoordinates(lm.name, sample.texts.name, maps.fitted_on)
    writer = sample_writer(run, sample, coordinates)
    kept = run.folder / "predictions"
    predictions = predict_all_layers(sample, rows, maps, kinds, run.console, writer, kept)
    confidences = confidences_by_kind(sample, rows, predictions, kinds, spec.confidence)
    curves = {key: exit_curve(one, ALL_LAMBDAS) for key, one in confidences.items()}
    drawn = {key: [p for p in of if p.setting in FINE_LAMBDAS] for key, of in curves.items()}
    fixed = {kind: fixed_exit_curve(confidences[kind, spec.confidence[0]]) for kind in kinds}
    calibrated = [] if spec.agreement is None else calibrations(confidences, spec)
    if writer is not None:
        lambdas = sorted({*FINE_LAMBDAS, *(one.setting for *_, one in calibrated)})
        for (kind, name), one in confidences.items():
            writer.write_exits(examples_of(sample, rows), kind, name, one, lambdas)
    tried = tried_exit(confidences, examples_of(sample, rows).rows)
    timing = {}
    if lm.kind == "causal":
        agreement = spec.agreement or DEFAULT_AGREEMENT
        saved = max(layers_saved(of, lm.layers, agreement).mean for of in curves.values())
        prompts = [sample.full.rows[i] for i in rows]
        timing = exit_timing(lm, maps, prompts, curves, saved, agreement)
    return shortcut_outcome(
        "exit",
        sample,
        summary=exit_summary(curves, tried, calibrated, spec, lm.layers, timing),
        baselines={"fixed": {kind: [p.agreement.mean for p in of] for kind, of in fixed.items()}},
        rows=[*lambda_rows(coordinates, drawn), *fixed_rows(coordinates, fixed)],
        parts={"measured": rows},
    )


def sample_size(request: MapsRequest) -> SampleSize:
    """The samples of every layer through every kind of map, and where each one exits."""
    examples, kinds = examples_to_measure(request), len(request.kinds)
    cells = examples * (request.lm.layers + 1) * kinds
    exits = examples * kinds * len(request.spec.confidence) * len(FINE_LAMBDAS)
    total = cells * CELL_BYTES + exits * EXIT_BYTES
    return SampleSize(cells + exits, -(-total // (cells + exits)))


def confidences_by_kind(
    sample: StateSample,
    rows: TextRows,
    predictions: PredictionsByLayer,
    kinds: Sequence[str],
    names: Sequence[str],
) -> ConfidencesByKind:
    """How confident each layer 1..L is, and whether its prediction is the full model's."""
    lm, positions = sample.lm, sample.positions(rows)
    final = predictions[kinds[0], lm.layers].guess
    by_kind: ConfidencesByKind = {}
    for kind in kinds:
        layers = [predictions[kind, layer] for layer in range(1, lm.layers + 1)]
        correct = np.stack([(one.guess == final).numpy() for one in layers])
        for name in names:
            values = np.stack([CONFIDENCES[name](one, lm.vocab) for one in layers])
            by_kind[kind, name] = LayerConfidences(values, correct, positions, sample.mean_length)
    return by_kind


def calibrations(
    confidences: ConfidencesByKind, spec: ExitSpec
) -> list[tuple[str, str, CalibratedExit]]:
    """The loosest safe lambda of each kind and confidence, the one that saves most first.

    The risk is divided among them (Bonferroni), so the guarantee holds for whichever is chosen
    after seeing what they save.
    """
    assert spec.agreement is not None, "only called when a calibration was requested"
    risk = spec.risk / len(confidences)
    calibrated = [
        (kind, name, calibrate(one, spec.agreement, risk=risk))
        for (kind, name), one in confidences.items()
    ]
    return sorted(calibrated, key=lambda one: one[2].layers.mean)


def lambda_rows(coordinates: ShortcutCoordinates, curves: ExitCurves) -> list[Row]:
    """Two rows per lambda: mean layers and precision@1."""
    return [
        coordinates.row(kind, metric, value, confidence=name, **{"lambda": point.setting})
        for (kind, name), points in curves.items()
        for point in points
        for metric, value in (("layers", point.layers), ("precision@1", point.agreement))
    ]


def fixed_rows(coordinates: ShortcutCoordinates, fixed: dict[str, list[ExitPoint]]) -> list[Row]:
    """Precision@1 when every token exits at the same layer."""
    return [
        coordinates.row(
            kind, "precision@1", point.agreement, layer=int(point.setting), confidence="fixed"
        )
        for kind, points in fixed.items()
        for point in points
    ]


def layers_saved(
    points: Sequence[ExitPoint], layers: int, agreement: float = DEFAULT_AGREEMENT
) -> Interval:
    """The largest share of layers saved by a lambda that reaches the agreement."""
    safe = [point.layers for point in points if point.agreement.mean >= agreement]
    tokens = points[0].layers
    used = min(
        safe,
        key=lambda one: one.mean,
        default=replace(tokens, mean=layers, low=layers, high=layers),
    )
    return saved_share(used, layers)


def tried_exit(
    confidences: ConfidencesByKind, texts: TextRows, agreement: float = DEFAULT_AGREEMENT
) -> TriedExit | None:
    """What the setting that saves most on every second text does on the others.

    None with a single text. `texts` has the text of every token.
    """
    _, place = np.unique(texts, return_inverse=True)
    learn, test = (np.flatnonzero(place % 2 == side) for side in (0, 1))
    if not len(test):
        return None
    key, setting = _best_setting(confidences, learn, agreement)
    here = confidences[key].take(test)
    used = exit_layers(here, setting)
    return TriedExit(
        "/".join(key),
        setting,
        saved_share(mean_over_texts(used, texts[test]), len(here.values)),
        share_over_texts(agreement_at(here, used), texts[test]),
    )


def _best_setting(
    confidences: ConfidencesByKind, tokens: TextRows, agreement: float
) -> tuple[tuple[str, str], float]:
    """The map, confidence and lambda that use fewest layers at this agreement."""
    found = [
        (point.layers.mean, key, point.setting)
        for key, one in confidences.items()
        for point in exit_curve(one.take(tokens), ALL_LAMBDAS)
        if point.agreement.mean >= agreement
    ]
    _, key, setting = min(found, default=(0.0, next(iter(confidences)), NO_EXIT_LAMBDA))
    return key, setting


def _plain(one: Interval) -> dict[str, float | None]:
    """The interval for JSON, which has no NaN."""
    ends = {"value": one.mean, "low": one.low, "high": one.high}
    return {name: None if np.isnan(end) else float(end) for name, end in ends.items()}


def exit_summary(
    curves: ExitCurves,
    tried: TriedExit | None,
    calibrated: list[tuple[str, str, CalibratedExit]],
    spec: ExitSpec,
    layers: int,
    timing: dict[str, float],
) -> dict[str, Any]:
    """Layers saved at 95 % agreement, calibrated thresholds, timing and the verdict."""
    saved = {f"{kind}/{name}": layers_saved(of, layers) for (kind, name), of in curves.items()}
    return {
        "layers": layers,
        "timing": timing,
        "tokens": next(iter(saved.values())).n,
        "saved_at_95": {key: one.mean for key, one in saved.items()},
        "tried": None if tried is None else {
            "setting": tried.setting, "lambda": tried.threshold, "saved": _plain(tried.saved),
            "agreement": _plain(tried.agreement),
        },
        "saved_at_95_interval": {key: [one.low, one.high] for key, one in saved.items()},
        "calibrated": [
            {"kind": kind, "confidence": name, **one.plain()} for kind, name, one in calibrated
        ],
        "verdict": exit_verdict(
            saved, tried, calibrated, timing, layers=layers, risk=spec.risk,
            positions=spec.positions_per_text,
        ),
    }  # fmt: skip
