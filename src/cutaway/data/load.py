"""Load a TextSet from any data source: a name, file, folder, hub id, generator or Python object.

sst2                       a known task (its rows come from the hub), or a task's .toml
docs                       English text from the Python documentation on this machine
reviews.tsv  mydata/       a file, or a folder with train, dev and test files
hf:ID[/CONFIG][:SPLIT]     a dataset on the hub
gen:sentiment?n=500        generated text
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.core.errors import BadData, BadSpec, Missing, UnknownName
from cutaway.core.lookup import suggestion
from cutaway.core.textset import TextSet
from cutaway.data.arithmetic_read import is_arithmetic, read_arithmetic
from cutaway.data.build_text_set import make_text_set, subsample_rows
from cutaway.data.columns import choose_columns
from cutaway.data.docs_text import load_docs
from cutaway.data.files import READERS, path_kind, read_table
from cutaway.data.folder import TableTransform, read_folder
from cutaway.data.generate import GENERATORS, generate
from cutaway.data.generator_options import check_seed
from cutaway.data.header import first_line_is_header
from cutaway.data.hub import HubId, parse_hub_id, read_hub
from cutaway.data.json_layouts import table_from_json
from cutaway.data.labels import cast_labels, check_as_task
from cutaway.data.messages import need_plain_text, with_messages
from cutaway.data.part_names import PART_BY_SPELLING, part_from_name
from cutaway.data.questions import QuestionOptions, has_questions, read_questions
from cutaway.data.table import Table
from cutaway.data.task_rows import (
    apply_task,
    find_task_columns,
    headerless_error,
    required_columns,
    with_header,
)
from cutaway.data.tasks import TaskFile, find_task, known_tasks, tasks_by_alias
from cutaway.home import expand_path

DataSource = str | Path | TextSet | Mapping[str, Any] | Sequence[Any]
SourceTable = tuple[Table, NDArray[np.str_] | None, str]


def load_text_set(
    source: DataSource,
    *,
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | None = None,
    as_task: str | None = None,
    limit: int | None = None,
    least: int = 0,
    seed: int = 0,
    offline: bool = False,
    revision: str | None = None,
    drop_empty: bool = False,
    chat: bool = False,
) -> TextSet:
    """Load the text set that `source` names.

    `as_task` overrides the task inferred from the labels ('classification' rounds numbers, 'text'
    ignores labels). `limit` keeps that many random rows, chosen by `seed`, in proportion to the
    classes and at least `least` of each. `drop_empty` drops rows with an empty text or no label and
    counts them in the notes, instead of raising BadData.
    With `chat` rows may hold messages with roles; without it they are refused.
    """
    check_as_task(as_task)
    check_seed(seed)
    columns = {"text_column": text_column, "pair_column": pair_column, "label_column": label_column}
    text_set = _ready_made(source, seed)
    if text_set is None and isinstance(source, str | Path) and _is_task(str(source)):
        _refuse_column_options(source, columns)
        text_set = load_task(
            str(source), as_task=as_task, offline=offline, revision=revision,
            drop_empty=drop_empty, chat=chat,
        )  # fmt: skip
    elif text_set is not None:
        _refuse_column_options(source, columns)
        text_set = cast_labels(need_plain_text(text_set, chat=chat), as_task)
    else:
        read = _read_source(source, offline=offline, revision=revision)
        text_set = _from_undescribed_table(*read, columns, as_task, drop_empty, chat)
    return subsample_rows(text_set, limit, seed, least)


def load_task(
    task: str | Path | TaskFile,
    *,
    data: DataSource | None = None,
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | None = None,
    as_task: str | None = None,
    limit: int | None = None,
    least: int = 0,
    seed: int = 0,
    offline: bool = False,
    revision: str | None = None,
    drop_empty: bool = False,
    chat: bool = False,
) -> TextSet:
    """Load the rows of a task: from the hub, or from `data` with the same columns.

    `text_column`, `pair_column` and `label_column` are used instead of the task's columns.
    """
    check_as_task(as_task)
    task = find_task(task)
    named = {"text_column": text_column, "pair_column": pair_column, "label_column": label_column}
    if isinstance(data, TextSet):
        _refuse_column_options(data, named)
        text_set = cast_labels(need_plain_text(data, chat=chat), as_task)
        return subsample_rows(text_set, limit, seed, least)
    if data is not None:
        sources = {p: part_from_name(names[0]) or p for p, names in task.parts.items()}
        table, parts, _ = _read_source(
            data,
            offline=offline,
            revision=revision,
            part_sources=sources,
            transform=partial(with_header, task),
        )
    elif task.source is not None:
        table, parts = read_hub(
            HubId(task.source.hub, task.source.config),
            revision=revision or task.source.revision,
            offline=offline,
            parts=task.parts,
            instead=f"a file or folder with the columns {required_columns(task)} as data (--data)",
        )
    else:
        raise Missing(f"The task {task.name!r} names no source. Give its rows as a file: data.")
    if chat or not find_task_columns(task, table, named):
        drop = drop_empty or task.drop_empty
        table, column = with_messages(table, text_column, chat=chat, drop_empty=drop)
        named["text_column"] = column or text_column
    text_set = apply_task(task, table, parts, named=named, as_task=as_task, drop_empty=drop_empty)
    return subsample_rows(text_set, limit, seed, least)


def load_questions(
    source: DataSource,
    options: QuestionOptions = QuestionOptions(),  # noqa: B008  frozen
    *,
    seed: int = 0,
    offline: bool = False,
) -> TextSet:
    """Load questions with their answers: arithmetic, or columns found by name or named.

    A labelled set without answers has the columns `text`, `pair` and `label`, the class's name.
    """
    check_seed(seed)
    known = _ready_made(source, seed)
    if known is None and isinstance(source, str | Path) and _is_task(str(source)):
        known = load_text_set(source, seed=seed, offline=offline)
    if known is not None and known.answers is not None:
        _refuse_column_options(known, options.given)
        return known
    if known is None:
        table, parts, name = _read_source(source, offline=offline, revision=None)
        if not options.given and is_arithmetic(table):
            return read_arithmetic(table, name, parts)
    else:
        table, parts, name = Table(known.name, _labelled_columns(known)), known.parts, known.name
    return read_questions(table, name, parts, options)


def load_if_questions(source: DataSource, *, offline: bool = False) -> TextSet | None:
    """The questions of a table that has question and answer columns by usual names, else None."""
    if defines_columns(source):
        return None
    table, parts, name = _read_source(source, offline=offline, revision=None)
    return read_questions(table, name, parts, QuestionOptions()) if has_questions(table) else None


def defines_columns(source: DataSource) -> bool:
    """Whether a source has its own columns, so that none can be named."""
    if not isinstance(source, str | Path):
        return isinstance(source, TextSet)
    return str(source) == "docs" or str(source).startswith("gen:") or _is_task(str(source))


def _labelled_columns(texts: TextSet) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {"text": list(texts.texts)}
    columns |= {} if texts.pairs is None else {"pair": list(texts.pairs)}
    if texts.task in ("binary", "multiclass"):
        columns["label"] = [texts.classes[int(i)] for i in np.asarray(texts.labels)]
    return columns


def _ready_made(source: DataSource, seed: int) -> TextSet | None:
    """A source that is not read from a file: a TextSet, generated text, or `docs`."""
    if isinstance(source, TextSet):
        return source
    if isinstance(source, str) and source.startswith("gen:"):
        return generate(source, seed=seed)
    return load_docs() if isinstance(source, str) and source == "docs" else None


def _is_task(source: str) -> bool:
    return source.lower() in tasks_by_alias() or source.endswith(".toml")


def _refuse_column_options(source: DataSource, columns: Mapping[str, str | None]) -> None:
    """Raise BadSpec if columns are named for a source that defines its own."""
    for option, value in columns.items():
        if value is not None:
            name = source.name if isinstance(source, TextSet) else str(source)
            raise BadSpec(
                f"{option} is {value!r}, but {name!r} defines its own columns. "
                "Leave the option out, or give a file."
            )


def _from_undescribed_table(
    table: Table,
    parts: NDArray[np.str_] | None,
    name: str,
    columns: Mapping[str, str | None],
    as_task: str | None,
    drop_empty: bool,
    chat: bool,
) -> TextSet:
    """The text set of a table whose columns are named by options or guessed."""
    if not any(columns.values()) and is_arithmetic(table):
        return cast_labels(read_arithmetic(table, name, parts), as_task)
    table, messages = with_messages(table, columns["text_column"], chat=chat, drop_empty=drop_empty)
    columns = {**columns, "text_column": messages} if messages else columns
    as_task = as_task or _claimed_task(table)
    try:
        chosen = choose_columns(table, *columns.values(), labelled=as_task != "text")
    except BadData as error:
        raise error if first_line_is_header(table) else headerless_error(table) from None
    return make_text_set(
        table, chosen, name=name, as_task=as_task, parts=parts, drop_empty=drop_empty
    )


def _read_source(
    source: DataSource,
    *,
    offline: bool,
    revision: str | None,
    part_sources: Mapping[str, str] | None = None,
    transform: TableTransform = lambda table: table,
) -> SourceTable:
    """The table of a source, its parts if they are fixed, and its name."""
    if not isinstance(source, str | Path):
        table = table_from_json("the given data", _frame_to_columns(source))
        return table, None, _own_name(table) or "given"
    if str(source).startswith("hf:"):
        address = parse_hub_id(str(source))
        table, parts = read_hub(address, revision=revision, offline=offline)
        return table, parts, str(source)
    path = expand_path(source)
    kind = path_kind(path)
    if kind == "folder":
        return (*read_folder(path, part_sources, transform), path.resolve().name)
    if kind == "file":
        table = transform(read_table(path))
        return table, None, _own_name(table) or _name_from_path(path)
    raise _not_found_error(str(source), path)


def _frame_to_columns(source: Any) -> Any:
    """A data frame as a dict of columns; other values unchanged."""
    if hasattr(source, "columns") and hasattr(source, "to_dict"):
        return {str(name): source[name].to_list() for name in source.columns}
    return source


def _name_from_path(path: Path) -> str:
    """The file's name without its suffix; with its folder if the name is generic."""
    generic = path.stem.lower() in {*PART_BY_SPELLING, "all", "data"}
    return f"{path.resolve().parent.name}/{path.stem}" if generic else path.stem


def _own_name(table: Table) -> str:
    """The name in the metadata of the probing reference's files; empty without one."""
    return " ".join(str(table.metadata.get("name") or "").split())


def _claimed_task(table: Table) -> str | None:
    """The task in the metadata of the probing reference's files."""
    task = str(table.metadata.get("task", "")).lower()
    return task if task in ("classification", "regression") else None


def _not_found_error(source: str, path: Path) -> Missing | UnknownName:
    if path.suffix.lower() in READERS or "/" in source or "\\" in source:
        return Missing(f"No file or folder at {source!r}. Check the path.")
    known = ["docs", *(f"gen:{name}" for name in GENERATORS), *known_tasks()]
    return UnknownName(
        f"Unknown data {source!r}. {suggestion(source, [*known, *tasks_by_alias()])}"
        f"Known: {', '.join(known)}; or a file, a folder, hf:ID."
    )
