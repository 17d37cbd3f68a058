"""Small runs and activation tables for the tests of the store."""

from pathlib import Path
from typing import Any

import polars as pl
from hypothesis import settings

from cutaway.store.records import Record
from cutaway.store.results import save_record

# A shared disk has its own idea of time, so no single example is held to one.
DISK = settings(deadline=None, max_examples=60)

ADDRESS = "0123456789abcdef"


def rows(value: float = 0.5, n: int = 4) -> pl.DataFrame:
    return pl.DataFrame(
        {"layers": [str(i) for i in range(n)], "metric": ["accuracy"] * n, "value": [value] * n}
    )


def fields(**changed: Any) -> dict[str, Any]:
    return {
        "method": "probe",
        "address": ADDRESS,
        "spec": {"model": "gpt2", "seed": 3},
        "summary": {"best": 0.9, "layer": 7},
        "baselines": {"majority": 0.5},
        "model": {"name": "gpt2", "layers": 12},
        "data": {"name": "sst2", "rows": 100},
        "seed": 3,
        "versions": {"torch": "2"},
        "seconds": 1.5,
        "peak_memory_mb": 200.0,
        "command": "cutaway probe --model gpt2 --data sst2",
        **changed,
    }


def keep(folder: Path, table: pl.DataFrame | None = None, **changed: Any) -> Record:
    files = changed.pop("files", None)
    return save_record(
        folder, rows=rows() if table is None else table, files=files, **fields(**changed)
    )
