"""Hundreds of small runs with different columns, written without waiting for the disk."""

import hashlib
import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from cutaway.store.files import sealed_bytes
from cutaway.store.results import parquet_bytes
from tests.store.samples import fields

START = datetime(2026, 1, 1, tzinfo=UTC)


def table_of(number: int) -> tuple[str, pl.DataFrame]:
    """A method and its rows: columns, types and odd values differ from run to run."""
    value = number / 7
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("probe", {"layers": ["0", "1", None], "metric": "accuracy", "value": [value, -0.0, 1.0]}),
        ("shortcut", {"layers": [3, 4], "metric": "r2", "value": [math.nan, math.inf]}),
        ("graft", {"seed": [1, 2], "kind": ["baseline", "learned"], "metric": "accuracy",
                   "value": [value, None], "low": 0.1, "high": 0.9}),
        ("inject", {"layers": [1.5, 2e-05], "empty": None, "yes": [True, False], "value": 1}),
        ("fisher", {"part": pl.Series([], dtype=pl.String), "value": pl.Series([], dtype=pl.Int8)}),
        ("inject", {'odd "name"': ["'", "é\x1b"], "value": pl.Series([1, 2], dtype=pl.Float32)}),
        ("probe", {"layers": pl.Series([7], dtype=pl.Int16), "value": [value], "metric": "f1"}),
    ]  # fmt: skip
    method, columns = kinds[number % len(kinds)]
    return method, pl.DataFrame(columns)


def write_run(folder: Path, number: int, **changed: Any) -> Path:
    """Write one run; returns its folder."""
    method, table = table_of(number)
    address = hashlib.sha256(str(number).encode()).hexdigest()[:12]
    place = folder / method / address
    place.mkdir(parents=True, exist_ok=True)
    data = parquet_bytes(table)
    content = fields(
        method=method,
        address=address,
        seed=[number] if number % 5 == 0 else number,
        summary={"metric": "accuracy", "best": {"value": number / 1000, "metric": "accuracy"}},
        created=(START + timedelta(minutes=number // 2)).isoformat(),
        files={"rows.parquet": {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}},
        **changed,
    )
    (place / "rows.parquet").write_bytes(data)
    (place / "result.json").write_bytes(sealed_bytes(content))
    return place


def write_runs(folder: Path, numbers: range) -> list[Path]:
    return [write_run(folder, number) for number in numbers]


def rewrite(place: Path, **changed: Any) -> None:
    """Change fields of a run's result.json, in place."""
    content = json.loads((place / "result.json").read_text())
    content.pop("seal")
    (place / "result.json").write_bytes(sealed_bytes({**content, **changed}))
