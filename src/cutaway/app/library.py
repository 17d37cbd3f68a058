"""The runs the app shows: those in its folder, read again only when the folder changes."""

import os
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import streamlit as st

from cutaway.app.launch import RUNS_VARIABLE
from cutaway.core.errors import CutawayError
from cutaway.report.overview import overview_table
from cutaway.store.results import Record, Runs, results

# The results of `make tour`, shown until the user has runs.
TOUR_RUNS = Path("tour") / "runs"


@dataclass(frozen=True)
class Library:
    """The runs of a folder: readable ones, broken ones, and whether they are the tour's."""

    folder: Path
    records: tuple[Record, ...]
    broken: tuple[tuple[str, str], ...]
    listed: pl.DataFrame
    """One line per record, in the same order."""
    tour: bool

    def find(self, address: str, method: str | None = None) -> Record | None:
        """The record with exactly this address; None for anything else."""
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
    """The runs in a folder, cached until something in it changes."""
    return _read(str(folder), modification_times(folder), tour)


def modification_times(folder: Path) -> tuple[tuple[str, int], ...]:
    """When each run folder was last modified."""
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
        # Renamed between listing and reading: a change like any other.
        return 0


@st.cache_resource(max_entries=4, show_spinner="Reading the runs …")
def _read(folder: str, modified: tuple[tuple[str, int], ...], tour: bool) -> Library:
    try:
        found = results(folder)
        broken = [*found.broken, *_links_outside(found)]
        outside = {path for path, _ in broken}
        records = tuple(record for record in found if record.path not in outside)
    except CutawayError as error:
        records, broken = (), [(Path(folder), str(error))]
    unreadable = tuple((path.name, reason) for path, reason in broken)
    return Library(Path(folder), records, unreadable, overview_table(records), tour)


def _links_outside(found: Runs) -> list[tuple[Path, str]]:
    """Symbolic links that lead out of the runs folder, which the app must not show."""
    root = found.folder.resolve()
    reason = "It is a link that leads out of the runs folder. Copy the run here to see it."
    return [(r.path, reason) for r in found if not r.path.resolve().is_relative_to(root)]
