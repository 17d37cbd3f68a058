"""Finished pieces of an unfinished run, so that a killed run continues where it stopped."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutaway.core.digest import digest_json
from cutaway.core.errors import BadData, Corrupt, Missing
from cutaway.store import files

Row = Mapping[str, Any]
Piece = dict[str, list[dict[str, Any]]]
"""The `rows` of a piece, and its `details`."""

PARTIAL_SUFFIX = ".partial"

# JSON has no representation for these, and rows must be restored exactly.
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


@dataclass(frozen=True)
class Progress:
    """The finished pieces of one run, in a folder next to its result folder."""

    folder: Path

    def put(self, key: str, rows: Sequence[Row], details: Sequence[Mapping[str, Any]] = ()) -> None:
        """Save the rows of the finished piece `key`, and other JSON-ready values with them."""
        content = {"rows": [_encode_row(r) for r in rows], "details": [dict(d) for d in details]}
        self._write({key: content})

    def done(self) -> set[str]:
        """The keys of all finished pieces."""
        return set(self._pieces())

    def rows(self, keys: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """The rows of these pieces in this order; by default of all pieces, sorted by key."""
        found = self._select(keys)
        return [_decode_row(row) for piece in found for row in piece["rows"]]

    def details(self, keys: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """The details of these pieces, in this order."""
        return [detail for piece in self._select(keys) for detail in piece["details"]]

    def discard(self) -> None:
        """Remove all pieces."""
        files.remove_folder(Path(self.folder))

    def _select(self, keys: Iterable[str] | None) -> list[Piece]:
        pieces = self._pieces()
        order = sorted(pieces) if keys is None else list(keys)
        lacking = [key for key in order if key not in pieces]
        if lacking:
            raise Missing(
                f"{len(lacking)} pieces are not done in {str(self.folder)!r}, the first is "
                f"{lacking[0]!r}. Repeat the command to continue from there."
            )
        return [pieces[key] for key in order]

    def _pieces(self) -> dict[str, Piece]:
        """Pieces by key; a damaged file counts as not done, so its pieces are made again."""
        pieces: dict[str, Piece] = {}
        for path in sorted(Path(self.folder).glob("*.json")):
            try:
                pieces.update(files.read_sealed(path)["pieces"])
            except (Corrupt, Missing, KeyError):
                continue
        # Before details were kept, a piece was the list of its rows.
        return {
            k: {"rows": p, "details": []} if isinstance(p, list) else p for k, p in pieces.items()
        }

    def _write(self, pieces: Mapping[str, Piece]) -> None:
        name = f"{digest_json(sorted(pieces))[:32]}.json"
        files.write_sealed(Path(self.folder) / name, {"pieces": dict(pieces)})


def _encode_row(row: Row) -> dict[str, Any]:
    return {
        name: _encode_value(value.item() if hasattr(value, "item") else value)
        for name, value in row.items()
    }


def _encode_value(value: Any) -> Any:
    if isinstance(value, Mapping | list | tuple):
        raise BadData(f"Rows must be tidy: one value per cell, got {value!r}.")
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(float(value))}
    return value


def _decode_row(row: Row) -> dict[str, Any]:
    return {
        name: _NON_FINITE[value["float"]] if isinstance(value, dict) else value
        for name, value in row.items()
    }
