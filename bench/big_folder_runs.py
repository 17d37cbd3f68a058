"""A folder of tens of thousands of runs: real small runs, copied under other addresses.

    python -m bench.big_folder_runs FOLDER RUNS ROWS

Seven commands run once on a tiny model. Each copy gets its own address, seed and
time, one of some hundred variants of its rows (other numbers, another length), and a valid seal.
"""

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bench.extract_setup import fresh_home
from bench.forked import one_thread
from bench.kill_commands import all_commands, prepare
from cutaway.store.files import sealed_bytes
from cutaway.store.results import Record, parquet_bytes, results

TEMPLATES = (
    "probe", "nextword", "shortcut fit", "finetune", "graft learn", "fisher", "inject",
)  # fmt: skip
VARIANTS = 60
"""Of the rows of each command."""
START = datetime(2026, 1, 1, tzinfo=UTC)
MEASURED = ("value", "low", "high")
COUNTERS = ("repeat", "seed", "source")
"""Of these the first that a table has tells its repetitions apart."""


def templates(work: Path) -> list[Record]:
    """One real run of each long command."""
    with fresh_home(), one_thread():
        commands, found = all_commands(prepare(work)), list[Record]()
        for number, name in enumerate(TEMPLATES):
            place = work / f"template-{number}"
            place.mkdir()
            commands[name](place)
            found += [record for record in results(place / "runs") if record.rows.height]
        return found


def make_runs(folder: Path, count: int, rows: int) -> Path:
    """Write `count` runs with about `rows` rows in all."""
    with tempfile.TemporaryDirectory(prefix="cutaway-templates-") as work:
        return copy_runs(templates(Path(work)), folder, count, rows)


def copy_runs(real: Sequence[Record], folder: Path, count: int, rows: int) -> Path:
    """Write `count` copies of these runs with about `rows` rows in all."""
    rng = np.random.default_rng(0)
    variants = [list(_variants(record, rows / count, rng)) for record in real]
    contents = [json.loads((r.path / "result.json").read_text()) for r in real]
    for number in range(count):
        which, variant = number % len(real), number // len(real) % VARIANTS
        _write_run(folder, contents[which], variants[which][variant], number)
    return folder


def _variants(record: Record, rows: float, rng: np.random.Generator) -> Iterator[bytes]:
    """Tables of this run with other values and lengths, `rows` on average."""
    counter = next(name for name in COUNTERS if name in record.rows.columns)
    for size in np.linspace(0.2, 1.8, VARIANTS) * rows:
        copies = int(size // record.rows.height) + 1
        # Each copy is another repeat, as if the run had had more of them.
        more = [pl.col(counter).fill_null(0) + 10 * i for i in range(1, copies)]
        repeats = [record.rows, *(record.rows.with_columns(one) for one in more)]
        table = pl.concat(repeats).head(max(1, round(size)))
        shift = pl.Series(rng.uniform(-0.1, 0.1, table.height))
        changed = [pl.col(c) + shift for c in MEASURED if table.schema.get(c) == pl.Float64]
        yield parquet_bytes(table.with_columns(changed))


def _write_run(folder: Path, content: dict[str, Any], data: bytes, number: int) -> None:
    address = hashlib.sha256(str(number).encode()).hexdigest()[:16]
    place = folder / content["method"] / address
    place.mkdir(parents=True)
    sums = {"rows.parquet": {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}}
    created = (START + timedelta(minutes=number)).isoformat()
    changed = {"address": address, "seed": number, "created": created, "files": sums}
    fields = {k: v for k, v in content.items() if k != "seal"}
    (place / "rows.parquet").write_bytes(data)
    (place / "result.json").write_bytes(sealed_bytes({**fields, **changed}))
    # Finished some time ago, as most runs of such a folder.
    for name in ("rows.parquet", "result.json"):
        os.utime(place / name, (START.timestamp() + number, START.timestamp() + number))


if __name__ == "__main__":
    make_runs(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
