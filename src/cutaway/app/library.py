"""The runs the app may show: those under its folder, read once per change on the disk."""

import os
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import streamlit as st

from cutaway.app.launch import RUNS_VARIABLE
from cutaway.core.errors import CutawayError
from cutaway.report.overview import overview_table
from cutaway.store.results import Record, Runs, results

# Where `make tour` leaves its results; shown while there are no runs of one's own.
TOUR_RUNS = Path("tour") / "runs"


@dataclass(frozen=True)
class Library:
    """What can be shown, what can't be read, and whether it is only the tour."""

    folder: Path
    records: tuple[Record, ...]
    broken: tuple[tuple[str, str], ...]
    listed: pl.DataFrame
    """One line per record, in the same order."""
    tour: bool

    def find(self, address: str, method: str | None = None) -> Record | None:
        """The record with exactly this address; None for anything else, whatever it says."""
        for record in self.records:
            if record.address == address and method in (None, record.method):
                return record
        return None

    def of(self, method: str) -> list[Record]:
        """The records of one method, newest first."""
        return [record for record in self.records if record.method == method]


def runs_folder() -> Path:
    """The folder the app was started with."""
    return Path(os.environ.get(RUNS_VARIABLE, "runs")).absolute()


def current_library() -> Library:
    """The user's runs; the tour's when there are none yet."""
    mine = read_library(runs_folder())
    tour = TOUR_RUNS.absolute()
    if mine.records or mine.broken or not tour.is_dir():
        return mine
    return read_library(tour, tour=True)


def read_library(folder: Path, *, tour: bool = False) -> Library:
    """The runs in a folder, from memory unless something in it changed."""
    return _read(str(folder), modification_times(folder), tour)


def modification_times(folder: Path) -> tuple[tuple[str, int], ...]:
    """When each run folder changed last: equal stamps mean equal runs."""
    if not folder.is_dir():
        return ()
    methods = [entry for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] != "."]
    return tuple(
        sorted(
            (f"{method.name}/{run.name}", _modified_at(run))
            for method in methods
            for run in os.scandir(method.path)
        )
    )


def _modified_at(run: "os.DirEntry[str]") -> int:
    try:
        return run.stat().st_mtime_ns
    except OSError:
        # Renamed away between listing and looking: a change like any other.
        return 0


@st.cache_resource(max_entries=4, show_spinner="Reading the runs …")
def _read(folder: str, stamped: tuple[tuple[str, int], ...], tour: bool) -> Library:
    try:
        found = results(folder)
        broken = [*found.broken, *_links_outside(found)]
        outside = {path for path, _ in broken}
        records = tuple(record for record in found if record.path not in outside)
    except CutawayError as error:
        records, broken = (), [(Path(folder), str(error))]
    told = tuple((path.name, reason) for path, reason in broken)
    return Library(Path(folder), records, told, overview_table(records), tour)


def _links_outside(found: Runs) -> list[tuple[Path, str]]:
    """Links among the runs that lead out of their folder: not ours to show."""
    root = found.folder.resolve()
    reason = "It is a link that leads out of the runs folder. Copy the run here to see it."
    return [(r.path, reason) for r in found if not r.path.resolve().is_relative_to(root)]
