"""What the report reads from a run: the same questions for one run and for several at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import Any, Protocol

import polars as pl


class RecordLike(Protocol):
    """A finished run as the store gives it.

    The report looks at these keys of `summary`, all of them optional: `verdict` (list of
    sentences), `metric` (the metric the verdict speaks of), `best` (the best cell: model, data,
    layers, pool, classifier, metric, value, low, high), `imported` (true for foreign logs).
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
    """Several runs of one method, looked at as one: the rows of all, the models of all.

    Where two runs measured the same model on the same data (another seed, another prompt), the
    run's address is added to the model's name, so that their cells stay apart.
    """

    records: tuple[RecordLike, ...]

    @property
    def summary(self) -> dict[str, Any]:
        """The shared metric, when the runs agree on one."""
        metrics = {(r.summary or {}).get("metric") for r in self.records}
        return {"metric": metrics.pop()} if len(metrics) == 1 else {}

    @cached_property
    def rows(self) -> pl.DataFrame:
        """The rows of all runs, columns matched by name."""
        renamed = [_with_model_suffix(one.rows, self.suffixes[one.address]) for one in self.records]
        return pl.concat(renamed, how="diagonal_relaxed")

    @cached_property
    def suffixes(self) -> dict[str, str]:
        """Address -> what is added to the run's model names; nothing where none is needed."""
        pairs = {r.address: _model_data_pairs(r) for r in self.records}
        all_pairs = [pair for found in pairs.values() for pair in found]
        return {
            address: f" [{address[:4]}]" if any(all_pairs.count(p) > 1 for p in found) else ""
            for address, found in pairs.items()
        }


RunOrRuns = RecordLike | CombinedRuns


def single_runs(record: RunOrRuns) -> tuple[RecordLike, ...]:
    """The single runs behind a record."""
    return record.records if isinstance(record, CombinedRuns) else (record,)


def model_suffix(record: RunOrRuns, part: RecordLike) -> str:
    """What is added to a part's model names in the rows of the whole."""
    return record.suffixes[part.address] if isinstance(record, CombinedRuns) else ""


# The columns that name a model and what it was measured on, by method.
MODEL_COLUMNS, DATA_COLUMNS = ("model", "base"), ("data", "text", "task", "skill")


def _with_model_suffix(rows: pl.DataFrame, more: str) -> pl.DataFrame:
    found = [c for c in MODEL_COLUMNS if c in rows.columns][:1]
    return rows.with_columns(pl.col(found) + pl.lit(more)) if more else rows


def _model_data_pairs(record: RecordLike) -> set[tuple[Any, ...]]:
    columns = [c for c in (*MODEL_COLUMNS, *DATA_COLUMNS) if c in record.rows.columns]
    return set(record.rows.select(columns).unique().rows())


def fact_entries(value: Any) -> list[Mapping[str, Any]]:
    """A record's `model` or `data` as a list: one entry for a single one, several for a grid."""
    if isinstance(value, Mapping):
        return [value]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [v for v in value if isinstance(v, Mapping)]
    return []


def entry_names(value: Any) -> list[str]:
    """The names in a record's `model` or `data`, each once."""
    return list(dict.fromkeys(str(e["name"]) for e in fact_entries(value) if e.get("name")))


def short_name(name: str) -> str:
    """A name for a heading: of a folder given by its path, the last part."""
    is_path = name.startswith(("/", "./", "../", "~")) or "\\" in name
    return PurePath(name.replace("\\", "/")).name or name if is_path else name


def parameter_counts(record: RunOrRuns) -> dict[str, int]:
    """Model name -> how many weights it has, for every model that says so."""
    found = [
        (e, model_suffix(record, part))
        for part in single_runs(record)
        for e in fact_entries(part.model)
    ]
    return {f"{e['name']}{more}": int(e["parameters"]) for e, more in found if e.get("parameters")}


def verdict_sentences(record: RecordLike) -> list[str]:
    """The sentences that say what follows from the numbers; none for imported logs."""
    said = (record.summary or {}).get("verdict") or []
    return [said] if isinstance(said, str) else [str(sentence) for sentence in said]


def is_imported(record: RecordLike) -> bool:
    """Whether the run was brought in from another program's logs."""
    return bool((record.summary or {}).get("imported"))


def run_title(record: RecordLike) -> str:
    """`smollm2-135m on gen:sentiment`, in the run's own words."""
    models, sets = (
        list(map(short_name, entry_names(told))) for told in (record.model, record.data)
    )
    return f"{_join_names(models) or 'unnamed model'} on {_join_names(sets) or 'unnamed data'}"


def _join_names(found: Sequence[str], most: int = 3) -> str:
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more
