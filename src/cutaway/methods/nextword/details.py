"""`nextword.json`, saved with `result.json`: what figures need in addition to the rows.

A JSON list. Each entry has the coordinates of its cell (model, task, prompt, features) and the name
of its `figure`:

    tokens        label, token, id, weight, effect, examples[]
    confusion     classes[], counts[true][called]
    calibration   confidence[], accuracy[], count[], ece
"""

import json
from pathlib import Path
from typing import Any

from cutaway.core.errors import Corrupt
from cutaway.methods.nextword.rows import CELL_COLUMNS
from cutaway.report.records import RunOrRuns, model_suffix, single_runs
from cutaway.store.files import disk_errors

DETAILS_FILE = "nextword.json"
DETAIL_FIELDS = {
    "tokens": ("label", "token", "weight", "effect", "examples"),
    "confusion": ("classes", "counts"),
    "calibration": ("confidence", "accuracy", "count", "ece"),
}


def read_details(record: RunOrRuns, figure: str) -> list[dict[str, Any]]:
    """The entries of a figure, over all runs of a record; [] without the file."""
    found = []
    for part in single_runs(record):
        more = model_suffix(record, part)
        for one in _entries(Path(part.path)) if part.path is not None else []:
            if one["figure"] == figure:
                found.append({**one, "model": f"{one['model']}{more}"})
    return found


def _entries(folder: Path) -> list[dict[str, Any]]:
    path = folder / DETAILS_FILE
    with disk_errors(path):
        text = path.read_bytes() if path.exists() else b"[]"
    try:
        entries = json.loads(text)
        for one in entries:
            for name in (*CELL_COLUMNS, *DETAIL_FIELDS[one["figure"]]):
                one[name]
    except (ValueError, TypeError, KeyError) as error:
        raise Corrupt(
            f"{path} can't be read: {error!r}. Delete it to go on without these figures, or "
            "repeat the run."
        ) from None
    return list(entries)
