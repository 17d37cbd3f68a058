import numpy as np
import pytest

from cutaway.core.errors import BadData
from cutaway.core.messages import (
    Message,
    conversation_from_lines,
    conversation_text,
    is_blank,
    parse_conversation,
    user_message,
)
from cutaway.core.textset import TextSet

ASKED, SAID = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}


@pytest.mark.parametrize(
    "given",
    [
        [ASKED, SAID],
        (Message("user", "Hi"), Message("assistant", "Yes?")),
        np.array([ASKED, SAID], dtype=object),
        {"role": ["user", "assistant"], "content": ["Hi", "Yes?"]},
        [{**ASKED, "id": 3, "tool_calls": None}, SAID],
    ],
    ids=["dicts", "messages", "array", "columns", "other keys"],
)
def test_every_layout_gives_the_same_messages(given):
    found = parse_conversation(given, "row 1")
    assert found == (Message("user", "Hi"), Message("assistant", "Yes?"))
    assert conversation_text(found) == "Hi\nYes?"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ([{"role": "wizard", "content": "Hi"}], "message 1: unknown role 'wizard'.*system, user"),
        ([ASKED, {"role": "assistant", "content": " "}], r"message 2 \(assistant\) has no content"),
        ([{"role": "user", "content": None}], "has no content"),
        ([{"role": "user", "content": [{"type": "text"}]}], "expected text"),
        ([{"from": "human", "value": "Hi"}], "has no role and content"),
        ([], "not a list of messages"),
        ("Hi", "not a list of messages"),
        ([{**ASKED, "tool_calls": [{"name": "search"}]}], "'tool_calls', which is not read"),
        ([{"role": "user", "content": "\ud800"}], "lone surrogate"),
    ],
)
def test_bad_messages_are_refused_with_their_row(given, reason):
    with pytest.raises(BadData, match=reason) as error:
        parse_conversation(given, "row 7 of chats.jsonl")
    assert "row 7 of chats.jsonl" in str(error.value)


def test_only_missing_messages_and_contents_are_blank():
    blank = ([], None, [{"role": "user", "content": ""}], [ASKED, {"role": "user"}])
    assert all(map(is_blank, blank)) and not is_blank([ASKED, SAID]) and not is_blank("text")


def test_lines_with_roles_make_a_conversation():
    typed = "user: Hi\nHow are you?\nAssistant: Fine.\n\nuser:  And you?"
    assert conversation_from_lines(typed) == (
        Message("user", "Hi\nHow are you?"), Message("assistant", "Fine."),
        Message("user", "And you?"),
    )  # fmt: skip
    assert conversation_from_lines("Hi\nuser: you") == user_message("Hi\nuser: you")
    with pytest.raises(BadData, match=r"Message 2 \(assistant\) is empty"):
        conversation_from_lines("user: Hi\nassistant:")


def test_a_text_set_keeps_and_counts_its_messages():
    rows = TextSet("chats", (), messages=([ASKED], None, [ASKED, SAID]))
    assert rows.texts == ("Hi", "", "Hi\nYes?") and len(rows) == 3
    assert rows.take([2]).messages == ((Message("user", "Hi"), Message("assistant", "Yes?")),)
    other = TextSet("chats", rows.texts, messages=([{**ASKED, "role": "system"}], None, [ASKED]))
    plain = TextSet("chats", rows.texts)
    assert len({one.digest for one in (rows, other, plain)}) == 3
    with pytest.raises(BadData, match="row 2 of 'chats'"):
        TextSet("chats", (), messages=([ASKED], [{"role": "elf", "content": "a"}]))
    with pytest.raises(BadData, match="1 texts but 2 messages"):
        TextSet("chats", ("a",), messages=([ASKED], None))
