"""What a finished piece keeps: tidy rows, details for figures, and what its repeats stand on."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from cutaway.measure.repeats import RepeatMetrics, group_by_size, resampling_info
from cutaway.measure.shared_test_variance import ResamplingInfo
from cutaway.methods.probe.rows import ProbeCell, row_coordinates
from cutaway.report.details import AnyDetail, parse_details

DETAIL, BASIS = "detail", "basis"
CellKey = tuple[Any, ...]
"""Model, data, kind, layers, pool, classifier and training rows."""
CellResampling = dict[CellKey, ResamplingInfo]
KEY_COLUMNS = ("model", "data", "kind", "layers", "pool", "classifier", "n_train")


def resampling_records(
    cell: ProbeCell, measured: Sequence[RepeatMetrics], metric: str
) -> list[dict[str, Any]]:
    """What the repeats of each size stand on, where the rows of the table alone don't tell."""
    return [
        {
            BASIS: json.dumps(
                [row_coordinates(cell, group[0]), asdict(resampling_info(group, metric))]
            )
        }
        for group in group_by_size(measured)
        if metric in group[0].metrics and (group[0].tested or group[0].drawn)
    ]


def cell_key(row: Mapping[str, Any]) -> CellKey:
    """Where a row stands, its repeat aside."""
    return tuple(row[name] for name in KEY_COLUMNS)


def split_details(
    kept: Iterable[Mapping[str, Any]],
) -> tuple[list[Mapping[str, Any]], list[AnyDetail], CellResampling]:
    """Tidy rows, details, and what cells stand on."""
    rows: list[Mapping[str, Any]] = []
    details: list[AnyDetail] = []
    found: CellResampling = {}
    for row in kept:
        if DETAIL in row:
            details.extend(parse_details(json.dumps([json.loads(row[DETAIL])]).encode()))
        elif BASIS in row:
            at, basis = json.loads(row[BASIS])
            found[cell_key(at)] = ResamplingInfo(**{**basis, "blocks": tuple(basis["blocks"])})
        else:
            rows.append(row)
    return rows, details, found
