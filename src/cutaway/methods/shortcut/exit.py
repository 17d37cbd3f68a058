"""`cutaway shortcut exit`: what an early exit saves and costs, for every threshold at once."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from cutaway.console import Console
from cutaway.core.lookup import lookup
from cutaway.methods.shortcut.eval import estimate as estimate_eval
from cutaway.methods.shortcut.eval import texts_not_fitted_on
from cutaway.methods.shortcut.exit_timing import wall_clock
from cutaway.methods.shortcut.maps import ShortcutMaps, load_maps
from cutaway.methods.shortcut.maths.exit import (
    ALL_LAMBDAS,
    CONFIDENCES,
    FINE_LAMBDAS,
    CalibratedExit,
    ExitPoint,
    LayerConfidences,
    calibrate,
    exit_curve,
    fixed_exit_curve,
)
from cutaway.methods.shortcut.readings import PredictionsByLayer, predict_all_layers
from cutaway.methods.shortcut.rows import ShortcutCoordinates
from cutaway.methods.shortcut.sample import StateSample, TextRows, take_sample
from cutaway.methods.shortcut.save import find_finished, run_address, save_shortcut_run
from cutaway.methods.shortcut.spec import ExitSpec
from cutaway.recipe.cost import Estimate
from cutaway.recipe.objects import Objects
from cutaway.recipe.open_for_spec import open_spec_model
from cutaway.recipe.provenance import measure_cost
from cutaway.recipe.result import Result
from cutaway.recipe.table import Row

ExitCurves = dict[tuple[str, str], list[ExitPoint]]
DEFAULT_AGREEMENT = 0.95
"""The agreement that savings are told for, unless another is asked for."""


def run(
    spec: ExitSpec, *, console: Console | None = None, objects: Objects | None = None
) -> Result:
    """Mean layers against agreement for every lambda, confidence and kind of map."""
    console, lm = console or Console(quiet=True), open_spec_model(spec, objects)
    maps = load_maps(spec.shortcut, lm)
    kinds = maps.chosen(spec.kinds)
    for name in spec.confidence:
        lookup(CONFIDENCES, name, kind="confidence")
    with measure_cost() as meter:
        sample = take_sample(lm, spec, console, objects)
        name = run_address(spec, lm, sample, maps=maps.digest)
        done = find_finished(spec, name)
        if done is not None:
            return done
        rows = texts_not_fitted_on(sample, maps)
        found = predict_all_layers(sample, rows, maps, kinds, console)
        tracks = confidences_by_kind(sample, rows, found, kinds, spec.confidence)
        every = {key: exit_curve(track, ALL_LAMBDAS) for key, track in tracks.items()}
        curves = {
            key: [p for p in all_ if p.setting in FINE_LAMBDAS] for key, all_ in every.items()
        }
        fixed = {kind: fixed_exit_curve(tracks[kind, spec.confidence[0]]) for kind in kinds}
        chosen = [] if spec.agreement is None else calibrations(tracks, spec)
        clock = exit_timing_of(sample, rows, maps, every, spec.agreement or DEFAULT_AGREEMENT)
    where = ShortcutCoordinates(lm.name, sample.texts.name, maps.fitted_on)
    return save_shortcut_run(
        "exit", spec, name, sample, meter,
        summary=exit_summary(every, chosen, spec, lm.layers, clock),
        baselines={"fixed": {kind: [p.agreement.mean for p in ps] for kind, ps in fixed.items()}},
        rows=[*lambda_rows(where, curves), *fixed_rows(where, fixed)],
    )  # fmt: skip


def confidences_by_kind(
    sample: StateSample,
    rows: TextRows,
    found: PredictionsByLayer,
    kinds: Sequence[str],
    confidences: Sequence[str],
) -> dict[tuple[str, str], LayerConfidences]:
    """By kind and confidence: how sure each layer 1..L is, and whether it is right."""
    lm, tracks = sample.lm, {}
    own = found[kinds[0], lm.layers].guess
    for kind in kinds:
        layers = [found[kind, layer] for layer in range(1, lm.layers + 1)]
        right = np.stack([(reading.guess == own).numpy() for reading in layers])
        for name in confidences:
            sure = np.stack([CONFIDENCES[name](reading, lm.vocab) for reading in layers])
            tracks[kind, name] = LayerConfidences(
                sure, right, sample.places(rows), sample.mean_length
            )
    return tracks


def calibrations(
    tracks: dict[tuple[str, str], LayerConfidences], spec: ExitSpec
) -> list[tuple[str, str, CalibratedExit]]:
    """The loosest safe lambda of each kind and confidence, the one that saves most first.

    The risk is shared out among them (Bonferroni): whichever is taken after seeing what they
    save, its promise holds.
    """
    assert spec.agreement is not None, "only called when a calibration is wanted"
    risk = spec.risk / len(tracks)
    found = [
        (kind, name, calibrate(track, spec.agreement, risk=risk))
        for (kind, name), track in tracks.items()
    ]
    return sorted(found, key=lambda one: one[2].layers)


def lambda_rows(where: ShortcutCoordinates, curves: ExitCurves) -> list[Row]:
    """Two rows per lambda: mean layers and precision@1."""
    return [
        where.row(kind, metric, value, confidence=name, **{"lambda": point.setting})
        for (kind, name), points in curves.items()
        for point in points
        for metric, value in (("layers", point.layers), ("precision@1", point.agreement))
    ]


def fixed_rows(where: ShortcutCoordinates, fixed: dict[str, list[ExitPoint]]) -> list[Row]:
    """Precision@1 when every token exits at the same layer."""
    return [
        where.row(
            kind, "precision@1", point.agreement, layer=int(point.setting), confidence="fixed"
        )
        for kind, points in fixed.items()
        for point in points
    ]


def exit_timing_of(
    sample: StateSample, rows: TextRows, maps: ShortcutMaps, curves: ExitCurves, wished: float
) -> dict[str, float]:
    """Milliseconds per token on this machine; nothing for models that don't write."""
    lm = sample.lm
    if lm.kind != "causal":
        return {}
    saved = max(layers_saved(points, lm.layers, wished) for points in curves.values())
    begins = [sample.fed.rows[i] for i in rows]
    return wall_clock(lm, maps, begins, curves, saved, wished)


def layers_saved(points: list[ExitPoint], layers: int, wished: float = DEFAULT_AGREEMENT) -> float:
    """The largest share of layers saved by a lambda that keeps the wished agreement."""
    kept = [p.layers.mean for p in points if p.agreement.mean >= wished]
    return 1 - min(kept, default=float(layers)) / layers


def exit_summary(
    curves: ExitCurves,
    chosen: list[tuple[str, str, CalibratedExit]],
    spec: ExitSpec,
    layers: int,
    clock: dict[str, float],
) -> dict[str, Any]:
    """What is saved at 95 % agreement, and the calibrated thresholds if asked for."""
    saved = {
        f"{kind}/{name}": layers_saved(points, layers) for (kind, name), points in curves.items()
    }
    best = max(saved, key=lambda key: saved[key])
    said = [
        f"At 95 % agreement an early exit skips {saved[best]:.1%} of the {layers} layers at best "
        f"({best})."
    ]
    for kind, name, one in chosen[:1]:
        said.append(
            f"Calibrated on {one.tokens} held-out tokens: with {kind}/{name} and lambda "
            f"{one.setting:g}, agreement is at least {one.wished:.0%} with {1 - spec.risk:.0%} "
            f"confidence; {one.saved:.1%} of the layers are skipped."
        )
        if spec.positions_per_text > 1:
            said.append(
                "That counts the tokens of one text as independent; for a strict promise take one "
                "position per text."
            )
        if one.tokens < one.needed:
            said.append(
                f"{one.tokens} tokens are too few to promise {one.wished:.0%} for any early exit: "
                f"even a perfect record needs {one.needed}. Give more text."
            )
    if clock:
        said.append(
            "On this machine a block takes {block_ms:.2g} ms and a look at a layer {look_ms:.2g} "
            "ms: asking every layer makes {exit_ms:.3g} ms per token, plain {plain_ms:.3g} "
            "ms.".format(**clock)
        )
    if "run_exit_ms" in clock:
        said.append(
            "Really run, with a cache and asking at two layers only (lambda {run_lambda:g}): "
            "{run_exit_ms:.3g} ms per token after {run_layers:.1f} layers, {run_plain_ms:.3g} ms "
            "without exits.".format(**clock)
        )
    return {
        "layers": layers,
        "wall_clock": clock,
        "saved_at_95": saved,
        "calibrated": [
            {"kind": k, "confidence": n, **asdict(c), "saved": c.saved} for k, n, c in chosen
        ],
        "verdict": said,
    }


def estimate(spec: ExitSpec, *, console: Console | None = None) -> list[Estimate]:
    """What the pass will cost, before it starts."""
    return estimate_eval(spec, console=console)
