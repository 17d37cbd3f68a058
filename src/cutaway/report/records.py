"""The records that reports are made from: one run, or several runs of a method combined."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import polars as pl

from cutaway.core.names import short_name


class RecordLike(Protocol):
    """A finished run as returned by the store.

    The report uses these keys of `summary`, all of them optional: `verdict` (list of sentences),
    `metric` (the metric of the verdict), `headline` or `best` (the score to lead with: model, data,
    layers, pool, classifier, metric, value, low, high), `imported` (true for imported logs).
    """

    @property
    def method(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def spec(self) -> Any: ...
    @property
    def summary(self) -> Any: ...
    @property
    def baselines(self) -> Any: ...
    @property
    def model(self) -> Any: ...
    @property
    def data(self) -> Any: ...
    @property
    def seed(self) -> Any: ...
    @property
    def versions(self) -> Any: ...
    @property
    def seconds(self) -> Any: ...
    @property
    def peak_memory_mb(self) -> Any: ...
    @property
    def command(self) -> Any: ...
    @property
    def path(self) -> Any: ...
    @property
    def created(self) -> str: ...
    @property
    def rows(self) -> pl.DataFrame: ...


@dataclass(frozen=True)
class CombinedRuns:
    """Several runs of one method combined into one table.

    If two runs measured the same model on the same data (another seed, another prompt), the run's
    address is added to the model's name, which keeps their cells separate.
    """

    records: tuple[RecordLike, ...]

    @property
    def summary(self) -> dict[str, Any]:
        """The main metric, if the runs agree on one."""
        metrics = {(r.summary or {}).get("metric") for r in self.records}
        return {"metric": metrics.pop()} if len(metrics) == 1 else {}

    @cached_property
    def rows(self) -> pl.DataFrame:
        """The rows of all runs, columns matched by name."""
        renamed = [_with_model_suffix(one.rows, self.suffixes[one.address]) for one in self.records]
        return pl.concat(renamed, how="diagonal_relaxed")

    @cached_property
    def suffixes(self) -> dict[str, str]:
        """Address -> suffix of the run's model names; empty if none is needed."""
        pairs = {r.address: _model_data_pairs(r) for r in self.records}
        all_pairs = [pair for found in pairs.values() for pair in found]
        return {
            address: f" [{address[:4]}]" if any(all_pairs.count(p) > 1 for p in found) else ""
            for address, found in pairs.items()
        }


RunOrRuns = RecordLike | CombinedRuns


def single_runs(record: RunOrRuns) -> tuple[RecordLike, ...]:
    """The single runs of a record."""
    return record.records if isinstance(record, CombinedRuns) else (record,)


def model_suffix(record: RunOrRuns, part: RecordLike) -> str:
    """The suffix of a run's model names in the combined rows."""
    return record.suffixes[part.address] if isinstance(record, CombinedRuns) else ""


# The columns that name the model and the data, depending on the method.
MODEL_COLUMNS, DATA_COLUMNS = ("model", "base"), ("data", "text", "task", "skill")


def _with_model_suffix(rows: pl.DataFrame, more: str) -> pl.DataFrame:
    found = [c for c in MODEL_COLUMNS if c in rows.columns][:1]
    return rows.with_columns(pl.col(found) + pl.lit(more)) if more else rows


def _model_data_pairs(record: RecordLike) -> set[tuple[Any, ...]]:
    columns = [c for c in (*MODEL_COLUMNS, *DATA_COLUMNS) if c in record.rows.columns]
    return set(record.rows.select(columns).unique().rows())


def fact_entries(value: Any) -> list[Mapping[str, Any]]:
    """A record's `model` or `data` as a list; a grid has several entries."""
    if isinstance(value, Mapping):
        return [value]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [v for v in value if isinstance(v, Mapping)]
    return []


def entry_names(value: Any) -> list[str]:
    """The unique names in a record's `model` or `data`."""
    return list(dict.fromkeys(str(e["name"]) for e in fact_entries(value) if e.get("name")))


def parameter_counts(record: RunOrRuns) -> dict[str, int]:
    """Model name -> number of parameters, if recorded."""
    found = [
        (e, model_suffix(record, part))
        for part in single_runs(record)
        for e in fact_entries(part.model)
    ]
    return {f"{e['name']}{more}": int(e["parameters"]) for e, more in found if e.get("parameters")}


def verdict_sentences(record: RecordLike) -> list[str]:
    """The sentences of a run's verdict; may be empty."""
    verdict = (record.summary or {}).get("verdict") or []
    return [verdict] if isinstance(verdict, str) else [str(sentence) for sentence in verdict]


def is_imported(record: RecordLike) -> bool:
    """Whether the run was imported from another program's logs."""
    return bool((record.summary or {}).get("imported"))


def run_title(record: RecordLike) -> str:
    """The title of a run: `smollm2-135m on gen:sentiment`."""
    models, sets = (
        list(map(short_name, entry_names(facts))) for facts in (record.model, record.data)
    )
    return f"{_join_names(models) or 'unnamed model'} on {_join_names(sets) or 'unnamed data'}"


def _join_names(found: Sequence[str], most: int = 3) -> str:
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more
