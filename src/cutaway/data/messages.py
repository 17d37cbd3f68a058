"""Columns of messages: rows that are conversations, beside rows of plain text."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cutaway.core.errors import BadData
from cutaway.core.messages import Conversation, is_blank, parse_conversation
from cutaway.core.textset import TextSet
from cutaway.data.columns import usual_text_column
from cutaway.data.table import Table

MESSAGE_NAMES = ("messages", "conversation", "conversations")


def with_messages(
    table: Table, text_column: str | None, *, chat: bool, drop_empty: bool
) -> tuple[Table, str | None]:
    """The table with its messages parsed, and their column; None if plain text is read.

    Without `chat`, a column of messages beside a text column is not read, and a note says so;
    BadData when there is nothing else to read.
    """
    column = _message_column(table, text_column)
    if column is None:
        return table, None
    if chat:
        return _parse(table, column, drop_empty), column
    if text_column is None and usual_text_column(table):
        note = f"{column!r} holds messages, which are not read without --chat (chat=True)"
        return replace(table, notes=(*table.notes, note)), None
    raise needs_chat(f"{table.origin}: {column!r}")


def need_plain_text(texts: TextSet, *, chat: bool) -> TextSet:
    """The text set; BadData if it has messages and no chat template is applied."""
    if texts.messages is not None and not chat:
        raise needs_chat(repr(texts.name))
    return texts


def needs_chat(what: str) -> BadData:
    """The error for messages that would be read without a template."""
    return BadData(
        f"{what} holds messages with roles. Read them with the model's chat template: --chat "
        "(chat=True). Commands without that option read plain text only, from a text column."
    )


def _message_column(table: Table, text_column: str | None) -> str | None:
    """The named column, or the first with a usual name, if it holds messages."""
    usual = [name for name in table.columns if name.strip().lower() in MESSAGE_NAMES]
    names = usual if text_column is None else [text_column]
    return next((n for n in names if any(map(_is_messages, table.columns.get(n, [])))), None)


def _is_messages(value: Any) -> bool:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {"role", "content"} <= set(value)
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _parse(table: Table, column: str, drop_empty: bool) -> Table:
    """The column with parsed conversations; a row without messages has its plain text there."""
    plain = usual_text_column(table)
    texts = table.columns[plain] if plain and plain != column else [None] * len(table)
    rows = [
        text if given is None else _parse_row(table, row, given, drop_empty)
        for row, (given, text) in enumerate(zip(table.columns[column], texts, strict=True))
    ]
    return replace(table, columns={**table.columns, column: rows})


def _parse_row(table: Table, row: int, given: Any, drop_empty: bool) -> Conversation | None:
    if drop_empty and is_blank(given):
        return None
    return parse_conversation(given, table.locate(row))
