"""What a finished piece keeps: tidy rows, details for figures, and what its repeats stand on."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from cutaway.measure.tested import Basis
from cutaway.report.details import AnyDetail, loads
from cutaway.run.probe_rows import Cell, Measured, basis_of, by_size, where

DETAIL, BASIS = "detail", "basis"
Place = tuple[Any, ...]
"""Model, data, kind, layers, pool, classifier and training rows."""
Bases = dict[Place, Basis]
NAMES = ("model", "data", "kind", "layers", "pool", "classifier", "n_train")


def bases(cell: Cell, measured: Sequence[Measured], metric: str) -> list[dict[str, Any]]:
    """What the repeats of each size stand on, where the rows of the table alone don't tell."""
    return [
        {BASIS: json.dumps([where(cell, group[0]), asdict(basis_of(group, metric))])}
        for group in by_size(measured)
        if metric in group[0].metrics and (group[0].tested or group[0].drawn)
    ]


def place(row: Mapping[str, Any]) -> Place:
    """Where a row stands, its repeat aside."""
    return tuple(row[name] for name in NAMES)


def told_apart(
    kept: Iterable[Mapping[str, Any]],
) -> tuple[list[Mapping[str, Any]], list[AnyDetail], Bases]:
    """Tidy rows, details, and what cells stand on."""
    rows: list[Mapping[str, Any]] = []
    details: list[AnyDetail] = []
    found: Bases = {}
    for row in kept:
        if DETAIL in row:
            details.extend(loads(json.dumps([json.loads(row[DETAIL])]).encode()))
        elif BASIS in row:
            at, basis = json.loads(row[BASIS])
            found[place(at)] = Basis(**{**basis, "blocks": tuple(basis["blocks"])})
        else:
            rows.append(row)
    return rows, details, found
