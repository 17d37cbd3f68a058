"""The runs the app shows: those in its folder, read again only when the folder changes."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import overload

import polars as pl
import streamlit as st

from cutaway.app.launch import RUNS_VARIABLE
from cutaway.core.digest import digest_text
from cutaway.core.errors import CutawayError
from cutaway.report.overview import overview_table, read_overview
from cutaway.store.records import RESULT_FILE, read_record
from cutaway.store.results import Record, results
from cutaway.store.run_places import run_places

# The results of `make tour`, shown until the user has runs.
TOUR_RUNS = Path("tour") / "runs"


class RecordsOnDemand(Sequence[Record]):
    """The runs of a listing, each read when it is first used."""

    def __init__(self, folder: Path, listed: pl.DataFrame) -> None:
        self._paths = [folder / m / a for m, a in listed.select("method", "address").iter_rows()]
        self._read: dict[Path, Record] = {}

    def __len__(self) -> int:
        """The number of runs."""
        return len(self._paths)

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> list[Record]: ...
    def __getitem__(self, place: int | slice) -> Record | list[Record]:
        """The run at this place of the listing, or those of a slice."""
        if isinstance(place, int):
            return self._record(self._paths[place])
        return [self._record(path) for path in self._paths[place]]

    def _record(self, path: Path) -> Record:
        if path not in self._read:
            self._read[path] = read_record(path)
        return self._read[path]


@dataclass(frozen=True)
class Library:
    """The runs of a folder: readable ones, broken ones, and whether they are the tour's."""

    folder: Path
    broken: tuple[tuple[str, str], ...]
    listed: pl.DataFrame
    """One line per run, newest first."""
    tour: bool

    @cached_property
    def records(self) -> RecordsOnDemand:
        """The runs, in the order of their lines."""
        return RecordsOnDemand(self.folder, self.listed)

    def find(self, address: str, method: str | None = None) -> Record | None:
        """The record with exactly this address; None for anything else."""
        found = self.listed.filter(pl.col("address") == address, _is_method(method)).head(1)
        # It may have been removed just now.
        with suppress(CutawayError):
            return next(iter(RecordsOnDemand(self.folder, found)), None)
        return None

    def of(self, method: str) -> RecordsOnDemand:
        """The records of one method, newest first."""
        return RecordsOnDemand(self.folder, self.listed.filter(_is_method(method)))


def _is_method(method: str | None) -> pl.Expr:
    return pl.lit(value=True) if method is None else pl.col("method") == method


def runs_folder() -> Path:
    """The folder the app was started with."""
    return Path(os.environ.get(RUNS_VARIABLE, "runs")).absolute()


def current_library() -> Library:
    """The user's runs; the tour's when there are none yet."""
    mine = read_library(runs_folder())
    tour = TOUR_RUNS.absolute()
    if mine.listed.height or mine.broken or not tour.is_dir():
        return mine
    return read_library(tour, tour=True)


def read_library(folder: Path, *, tour: bool = False) -> Library:
    """The runs in a folder, cached until something in it changes."""
    return _read(str(folder), folder_state(folder), tour)


def folder_state(folder: Path) -> str:
    """A digest of the names of all runs and the stamps of their result.json."""
    try:
        places = run_places(folder)
    except CutawayError:
        return ""
    return digest_text(repr([(place.key, place.stamp((RESULT_FILE,))) for place in places]))


@st.cache_resource(max_entries=4, show_spinner="Reading the runs …")
def _read(folder: str, state: str, tour: bool) -> Library:
    try:
        found = read_overview(results(folder).folder)
        key = pl.concat_str("method", "address", separator="/")
        outside = key.is_in(list(_links_outside(Path(folder))))
        listed = found.listed.filter(~outside)
        reason = "It is a link that leads out of the runs folder. Copy the run here to see it."
        linked = found.listed.filter(outside).select(key).to_series()
        broken = [*found.broken, *((Path(folder, one), reason) for one in linked)]
    except CutawayError as error:
        listed, broken = overview_table([]), [(Path(folder), str(error))]
    unreadable = tuple((path.name, reason) for path, reason in broken)
    return Library(Path(folder), unreadable, listed, tour)


def _links_outside(folder: Path) -> set[str]:
    """Runs behind symbolic links that lead out of the runs folder, which the app must not show."""
    root = folder.resolve()
    return {
        f"{method.name}/{run.name}"
        for method in _folders(folder)
        for run in _folders(Path(method.path))
        if method.is_symlink() or run.is_symlink()
        if not Path(run.path).resolve().is_relative_to(root)
    }


def _folders(folder: Path) -> "list[os.DirEntry[str]]":
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return [entry for entry in entries if entry.is_dir()]
