"""Conversations in files, on the hub and in Python objects."""

import json

import pandas as pd
import polars as pl
import pytest

from cutaway.core.errors import BadData
from cutaway.core.messages import Message
from cutaway.core.textset import TextSet
from cutaway.data import load as loading
from cutaway.data.load import load_task, load_text_set
from tests.data.test_hub import Split

CHATS = [
    [{"role": "user", "content": "It was fun."}],
    [{"role": "user", "content": "It was bad."}, {"role": "assistant", "content": "Oh."}],
]
ROWS = [
    {"messages": chat, "label": label} for chat, label in zip(CHATS, ("yes", "no"), strict=True)
]
COLUMNS = {"messages": CHATS, "label": ["yes", "no"]}


def write(folder, name, rows=None):
    path = folder / name
    if path.suffix == ".parquet":
        pl.DataFrame(rows or ROWS).write_parquet(path)
    elif path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, rows or ROWS)))
    else:
        path.write_text(json.dumps(rows or ROWS))
    return str(path)


def sources(folder, monkeypatch):
    """Every source of the same two conversations."""
    for name in ("chats.json", "chats.jsonl", "chats.parquet"):
        yield write(folder, name)
    rows = {"train": Split(COLUMNS)}
    monkeypatch.setattr(loading, "read_hub", lambda address, **_: (hub_table(rows), None))
    yield "hf:someone/chats"
    yield COLUMNS
    yield pd.DataFrame(COLUMNS)
    yield pl.DataFrame(COLUMNS)
    yield TextSet("chats", (), messages=CHATS, labels=[1, 0], task="binary", classes=("no", "yes"))


def hub_table(splits):
    from cutaway.data.hub import HubId, read_hub

    return read_hub(HubId("someone/chats"), open_set=lambda **_: splits)[0]


def test_every_source_gives_the_same_conversations(tmp_path, monkeypatch):
    for source in sources(tmp_path, monkeypatch):
        found = load_text_set(source, chat=True)
        assert found.messages == (
            (Message("user", "It was fun."),),
            (Message("user", "It was bad."), Message("assistant", "Oh.")),
        )
        assert found.texts == ("It was fun.", "It was bad.\nOh.")
        assert [found.classes[i] for i in found.labels] == ["yes", "no"]


def test_no_source_is_read_without_the_template(tmp_path, monkeypatch):
    for source in sources(tmp_path, monkeypatch):
        with pytest.raises(BadData, match="--chat"):
            load_text_set(source)


def test_plain_rows_stand_beside_conversations(tmp_path):
    rows = [*ROWS, {"text": "A plain one.", "label": "yes"}]
    found = load_text_set(write(tmp_path, "mixed.jsonl", rows), chat=True)
    assert found.messages[2] is None and found.texts[2] == "A plain one."
    assert [m is None for m in found.messages] == [False, False, True]


def test_a_text_column_beside_messages_is_read_without_chat_and_that_is_noted(tmp_path):
    rows = [{**row, "text": "plain"} for row in ROWS]
    path = write(tmp_path, "both.json", rows)
    plain = load_text_set(path)
    assert plain.messages is None and any("without --chat" in note for note in plain.notes)
    assert load_text_set(path, chat=True).messages is not None


def test_a_named_column_may_hold_messages(tmp_path):
    path = write(tmp_path, "x.json", [{"turns": chat, "label": 0} for chat in CHATS])
    found = load_text_set(path, text_column="turns", chat=True, as_task="text")
    assert found.messages is not None
    with pytest.raises(BadData, match="'turns' holds messages"):
        load_text_set(path, text_column="turns")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ([{"role": "elf", "content": "a"}], "unknown role 'elf'"),
        ([{"role": "user", "content": ""}], "has no content"),
        ([], "not a list of messages"),
    ],
)
def test_bad_rows_are_refused_by_number_and_empty_ones_dropped_on_request(tmp_path, bad, reason):
    path = write(tmp_path, "bad.jsonl", [*ROWS, {"messages": bad, "label": "no"}])
    with pytest.raises(BadData, match=f"row 3 of bad.jsonl.*{reason}"):
        load_text_set(path, chat=True)
    if "role" not in reason:
        kept = load_text_set(path, chat=True, drop_empty=True)
        assert len(kept) == 2 and any("row 3" in note for note in kept.notes)
    else:
        with pytest.raises(BadData, match=reason):
            load_text_set(path, chat=True, drop_empty=True)


def test_a_column_of_text_called_messages_is_text(tmp_path):
    path = write(tmp_path, "sms.json", [{"messages": "hello", "label": 0}] * 2)
    with pytest.raises(BadData, match="text_column"):
        load_text_set(path)
    assert load_text_set(path, text_column="messages", as_task="text").texts == ("hello",) * 2


def test_a_task_takes_its_texts_from_messages(tmp_path):
    rows = [{"messages": chat, "label": label} for chat, label in zip(CHATS, (1, 0), strict=True)]
    path = write(tmp_path, "reviews.jsonl", rows)
    found = load_task("sst2", data=path, chat=True)
    assert found.messages is not None and found.labels.tolist() == [1, 0]
    with pytest.raises(BadData, match="--chat"):
        load_task("sst2", data=path)
    with pytest.raises(BadData, match="--chat"):
        load_task("sst2", data=found)
