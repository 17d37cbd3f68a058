"""Rows and details of a nextword run, for the tests of figures and tables."""

import polars as pl

PROMPT = " This movie is "
SCORES = {"f": (0.85, 0.86), "phi_p": (0.8, 0.84), "p": (0.79, 0.83), "subset": (0.7, 0.78)}
SCORES |= {"zeroshot": (0.5, 0.7), "zeroshot_calibrated": (0.55, 0.72)}


def a_row(features: str, value: float | None, prompt: str = "", **place) -> dict:
    ends = {"low": value - 0.02, "high": value + 0.02} if value is not None else {}
    return {
        "model": "m", "task": "sst2", "prompt": prompt, "features": features, "repeat": 0,
        "n_train": 100, "n_test": 50, "step": None, "metric": "accuracy", "value": value,
        "low": None, "high": None, "status": "done", "reason": "", **ends, **place,
    }  # fmt: skip


def frame(rows: list[dict]) -> pl.DataFrame:
    kinds = dict.fromkeys(("value", "low", "high"), pl.Float64) | {"step": pl.Int64}
    return pl.DataFrame(rows, schema_overrides=kinds, infer_schema_length=None)


MEASURED = [
    a_row(kind, value, prompt)
    for kind, values in SCORES.items()
    for value, prompt in zip(values, ("", PROMPT), strict=True)
] + [a_row("majority", 0.5), a_row("tfidf", 0.79)]
CURVES = [
    a_row("quad", 3.0 - step / 100, step=step, metric=metric)
    for step in (0, 50, 100)
    for metric in ("held_quad", "held_ce")
]
ALL = frame(MEASURED + CURVES)
CELL = {"model": "m", "task": "sst2", "prompt": PROMPT, "features": "p"}
DETAILS = [
    {**CELL, "figure": "tokens", "label": label, "token": token, "id": i, "weight": 2.0,
     "effect": effect, "examples": ["a <b>good</b> film"]}
    for i, (label, token, effect) in enumerate(
        [("negative", " bad", 3.0), ("positive", " good", 2.0), ("positive", " the", 1e-9)]
    )
] + [
    {**CELL, "figure": "confusion", "classes": ["negative", "positive"],
     "counts": [[9, 1], [2, 8]]},
    {**CELL, "features": "zeroshot", "figure": "calibration", "confidence": [0.6, 0.9],
     "accuracy": [0.5, 0.8], "count": [10, 40], "ece": 0.1},
]  # fmt: skip
