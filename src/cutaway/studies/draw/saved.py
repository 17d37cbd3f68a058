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


def saved_drawings(runs: str | Path, models: Iterable[str]) -> list[Drawing]:
    """The drawings of these models that are there; damaged ones are passed over."""
    found = []
    for model in dict.fromkeys(models):
        path = drawing_path(runs, model, ".json")
        try:
            if path.is_file():
                found.append(drawing_from(files.read_json(path)))
        except CutawayError:
            continue
    return found
