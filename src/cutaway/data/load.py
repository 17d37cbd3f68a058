"""Any DATA form becomes a TextSet: a name, a file, a folder, a hub id, a generator, an object.

sst2                       a known task (its rows come from the hub)
docs                       text that is on every machine
reviews.tsv  mydata/       a file, or a folder with train, dev and test files
hf:ID[/CONFIG][:SPLIT]     a set on the hub
gen:sentiment?n=500        generated text
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cutaway.core.errors import BadData, Missing, UnknownName
from cutaway.core.lookup import suggestion
from cutaway.core.textset import TextSet
from cutaway.data.arithmetic_read import is_arithmetic, read_arithmetic
from cutaway.data.assemble import assemble, limited
from cutaway.data.columns import choose
from cutaway.data.files import READERS, read_table
from cutaway.data.folder import read_folder
from cutaway.data.generate import GENERATORS, generate
from cutaway.data.labels import check_as_task
from cutaway.data.layouts import table_of
from cutaway.data.partnames import PART_OF
from cutaway.data.table import Table

KNOWN = ("docs", *(f"gen:{name}" for name in GENERATORS))

Source = str | Path | TextSet | Mapping[str, Any] | Sequence[Any]


def load(
    source: Source,
    *,
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | None = None,
    as_task: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    offline: bool = False,
    revision: str | None = None,
    drop_empty: bool = False,
) -> TextSet:
    """The text set that `source` names; one of our errors says what is wrong otherwise.

    `as_task` overrides what the labels look like ('classification' rounds numbers, 'text'
    ignores labels). `limit` keeps that many random rows, chosen by `seed`.
    """
    if isinstance(source, TextSet):
        return limited(source, limit, seed)
    check_as_task(as_task)
    if isinstance(source, str) and source.startswith("gen:"):
        return limited(generate(source, seed=seed), limit, seed)
    table, parts, name = _read(source)
    if text_column is None and label_column is None and is_arithmetic(table):
        return limited(read_arithmetic(table, name, parts), limit, seed)
    as_task = as_task or _claimed_task(table)
    chosen = choose(table, text_column, pair_column, label_column, labelled=as_task != "text")
    whole = assemble(table, chosen, name=name, as_task=as_task, parts=parts, drop_empty=drop_empty)
    return limited(whole, limit, seed)


def _read(source: Source) -> tuple[Table, Any, str]:
    """The table that a source holds, its parts where they are fixed, and its name."""
    if not isinstance(source, str | Path):
        return table_of("the given data", _plain(source)), None, "given"
    path = Path(source).expanduser()
    if path.is_dir():
        return (*read_folder(path), path.resolve().name)
    if path.is_file():
        return read_table(path), None, _name(path)
    raise _nothing_there(str(source), path)


def _plain(source: Any) -> Any:
    """A data frame as columns; anything else as it is."""
    if hasattr(source, "columns") and hasattr(source, "to_dict"):
        return {str(name): list(source[name]) for name in source.columns}
    return source


def _name(path: Path) -> str:
    """The file's name without its ending; with its folder where the name alone says nothing."""
    generic = path.stem.lower() in {*PART_OF, "all", "data"}
    return f"{path.resolve().parent.name}/{path.stem}" if generic else path.stem


def _claimed_task(table: Table) -> str | None:
    """The task that the probing reference's file says it is."""
    said = str(table.facts.get("task", "")).lower()
    return said if said in ("classification", "regression") else None


def _nothing_there(source: str, path: Path) -> BadData | Missing | UnknownName:
    if path.suffix.lower() in READERS or "/" in source or "\\" in source:
        return Missing(f"No file or folder at {source!r}. Check the path.")
    return UnknownName(
        f"Unknown data {source!r}. {suggestion(source, KNOWN)}Known: {', '.join(KNOWN)}; "
        "or a file, a folder, hf:ID, gen:NAME."
    )
