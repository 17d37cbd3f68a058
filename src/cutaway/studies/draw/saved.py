"""Drawings beside the runs they are made from, so that report and app show them without a model.

runs/drawings/MODEL.json    the values
runs/drawings/MODEL.html    the page, unless another file was asked for
"""

from collections.abc import Iterable
from pathlib import Path

from cutaway.core.errors import CutawayError
from cutaway.core.names import short_name
from cutaway.report.drawing.values import Drawing, drawing_from
from cutaway.store import files
from cutaway.store.remote import local_folder

FOLDER = "drawings"


def drawing_path(runs: str | Path, model: str, suffix: str) -> Path:
    """Where the drawing of a model is kept."""
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in short_name(model))
    return local_folder(runs) / FOLDER / f"{name}{suffix}"


def save_values(drawing: Drawing, runs: str | Path, model: str) -> None:
    """Keep the values of a drawing beside the runs."""
    files.write_json(drawing_path(runs, model, ".json"), drawing.saved())


def all_drawings(runs: str | Path) -> list[Drawing]:
    """All drawings that are kept beside the runs, newest first."""
    found = local_folder(runs) / FOLDER
    with files.disk_errors(found):
        paths = sorted(found.glob("*.json"), key=lambda p: p.stat().st_mtime_ns, reverse=True)
    return [drawing for path in paths if (drawing := _read(path)) is not None]


def saved_drawings(runs: str | Path, models: Iterable[str]) -> list[Drawing]:
    """The drawings of these models that are there; damaged ones are passed over."""
    paths = (drawing_path(runs, model, ".json") for model in dict.fromkeys(models))
    return [drawing for path in paths if (drawing := _read(path)) is not None]


def _read(path: Path) -> Drawing | None:
    try:
        return drawing_from(files.read_json(path)) if path.is_file() else None
    except CutawayError:
        return None
