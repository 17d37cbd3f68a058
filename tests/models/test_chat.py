"""Chat templates: every message is found where the template puts it, and nothing else is."""

import datetime
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cutaway.core.errors import BadData, BadSpec
from cutaway.core.messages import Message
from cutaway.models.chat import message_of_tokens, render_chat, template_facts
from cutaway.models.tokens import tokenize
from tests.chat_templates import CHATML, GEMMA, LLAMA2, TEMPLATES, chat_model

# Words of the templates themselves, special tokens, white space at the ends, letters of two bytes.
CONTENTS = st.lists(
    st.sampled_from(
        ["user", "assistant", "\n", " ", "<|im_end|>", "[/INST]", "The dog", "é", "12", "<s>"]
    ),
    min_size=1, max_size=5,
).map("".join).filter(str.strip)  # fmt: skip
TURNS = st.lists(CONTENTS, min_size=1, max_size=4)


def conversation(turns: list[str], system: str | None = None) -> tuple[Message, ...]:
    """Turns of user and assistant in alternation, after a system message if there is one."""
    roles = ("user", "assistant")
    said = tuple(Message(roles[i % 2], text) for i, text in enumerate(turns))
    return said if system is None else (Message("system", system), *said)


@pytest.mark.parametrize("name", TEMPLATES)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(turns=TURNS, system=st.none() | CONTENTS, reply=st.booleans())
def test_messages_are_found_where_the_template_puts_them(tiny_lm, name, turns, system, reply):
    shape = TEMPLATES[name]
    messages = conversation(turns, system if shape.system else None)
    expected = shape.pieces(list(messages), reply and messages[-1].role != "assistant")
    if reply and messages[-1].role == "assistant":
        last = max(i for i, (_, number) in enumerate(expected) if number is not None)
        expected = expected[: last + 1]
    found = render_chat(chat_model(tiny_lm("llama"), shape.jinja, reply=reply), messages)
    assert found.text == "".join(text for text, _ in expected)
    at, spans = 0, {}
    for text, number in expected:
        if number is not None:
            spans[number] = (at, at + len(text))
        at += len(text)
    assert found.spans == tuple(spans[i] for i in range(len(messages)))


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_tokens_are_those_of_transformers_and_places_those_of_the_contents(tiny_lm, name, family):
    lm = chat_model(tiny_lm(family), TEMPLATES[name].jinja, context=500)
    messages = conversation(["  The dog.\n\nÉ? ", "A fox", "user\nuser"])
    got = tokenize(lm, [""], messages=[messages])
    plain = [m._asdict() for m in messages]
    ids = lm.tokenizer.apply_chat_template(
        plain, chat_template=lm.chat.template, return_dict=True, truncation=False
    )["input_ids"]
    assert got.rows == [ids]
    start, end = lm.tokenizer.bos_token, lm.tokenizer.eos_token
    pieces = [
        (text.replace("<s>", start).replace("</s>", end) if number is None else text, number)
        for text, number in TEMPLATES[name].pieces(list(messages), False)
    ]
    owners = [n for text, n in pieces for _ in text]
    offsets = lm.tokenizer(
        "".join(text for text, _ in pieces), add_special_tokens=False, return_offsets_mapping=True
    )["offset_mapping"]
    codes = {None: 0, 0: 2, 1: 3, 2: 2}
    for code, (start, end) in zip(got.places[0], offsets, strict=True):
        allowed = {codes[n] for n in owners[start:end]}
        assert code in allowed and (code or allowed == {0})


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma2"])
def test_every_layer_is_that_of_the_plain_model(tiny_lm, family):
    lm = chat_model(tiny_lm(family), CHATML, context=500)
    rows = [conversation(["The quick fox", "A lazy dog.", "Why?"]), conversation(["It rained"])]
    pools = ["last", "mean", "last@user", "mean@user", "first@content"]
    ours = lm.read([[m._asdict() for m in row] for row in rows], pool=pools)
    for number, row in enumerate(rows):
        ids = lm.tokenizer.apply_chat_template(
            [m._asdict() for m in row], return_tensors="pt", return_dict=True
        )["input_ids"]
        with torch.no_grad():
            states = lm.module(ids, output_hidden_states=True).hidden_states
        text = lm.tokenizer.apply_chat_template([m._asdict() for m in row], tokenize=False)
        encoded = lm.tokenizer(text, add_special_tokens=False)
        users = [m.content for m in row if m.role == "user"]
        first = encoded.char_to_token(text.index(users[0]))
        last_end = text.rindex(users[-1]) + len(users[-1])
        last = encoded.char_to_token(last_end - 1)
        at = [
            t
            for user in users
            for t in range(
                encoded.char_to_token(text.index(user)),
                encoded.char_to_token(text.index(user) + len(user) - 1) + 1,
            )
        ]
        for layer in range(lm.layers):  # the last one is normed in transformers' list
            plain = states[layer][0]
            for pool, expected in {
                "last": plain[-1], "mean": plain.mean(0), "last@user": plain[last],
                "mean@user": plain[at].mean(0), "first@content": plain[first],
            }.items():  # fmt: skip
                difference = (ours[pool][layer][number] - expected).norm() / expected.norm()
                assert difference < 1e-5, (pool, layer)


def test_the_same_command_gives_the_same_rows_tomorrow(tiny_lm, monkeypatch):
    from transformers.utils import chat_template_utils

    lm = chat_model(tiny_lm("llama"), TEMPLATES["dated"].jinja, context=500)
    before = tokenize(lm, ["The dog"]).rows

    class Tomorrow(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2031, 1, 2)

    monkeypatch.setattr(chat_template_utils, "datetime", Tomorrow)
    assert tokenize(lm, ["The dog"]).rows == before
    assert lm.chat.identity["date"] == "2024-07-26"
    assert "date" not in chat_model(tiny_lm("llama"), CHATML).chat.identity


@pytest.mark.parametrize(
    "change",
    [{"system": "Be brief."}, {"reply": True}, {"template": CHATML + "{{ 'x' }}"}],
    ids=["system", "reply", "template"],
)
def test_what_changes_the_tokens_changes_the_identity(tiny_lm, change):
    plain, base = tiny_lm("llama"), chat_model(tiny_lm("llama"), CHATML)
    template = change.pop("template", CHATML) if "template" in change else CHATML
    other = chat_model(tiny_lm("llama"), template, **change)
    assert len({lm.short_id for lm in (plain, base, other)}) == 3
    assert tokenize(base, ["The dog"]).rows != tokenize(other, ["The dog"]).rows
    assert "chat" not in plain.identity


def test_a_system_message_goes_before_conversations_without_one(tiny_lm):
    lm = chat_model(tiny_lm("llama"), CHATML, system="Be brief.")
    assert render_chat(lm, conversation(["Hi"])).roles == ("system", "user")
    own = render_chat(lm, conversation(["Hi"], "Be long."))
    assert "Be long." in own.text and "Be brief." not in own.text


def test_a_prompt_begins_the_reply_and_continues_a_last_message(tiny_lm):
    lm = chat_model(tiny_lm("llama"), LLAMA2, reply=True)
    begun = render_chat(lm, conversation(["Hi"]), " All in all, it was")
    assert begun.text == "<s>[INST] Hi [/INST] All in all, it was" and begun.roles == ("user",)
    going_on = render_chat(lm, conversation(["Hi", "Well"]), ", it was")
    assert going_on.text == "<s>[INST] Hi [/INST] Well, it was"
    start, end = going_on.spans[1]
    assert going_on.text[start:end] == "Well"


@pytest.mark.parametrize("name", ["chatml", "llama3"])
def test_the_start_token_comes_once_with_bos_add(tiny_lm, name):
    plain = chat_model(tiny_lm("llama"), TEMPLATES[name].jinja, context=500)
    added = replace(plain, bos="add")
    messages = conversation(["The dog", "Yes"])
    found = render_chat(added, messages)
    assert found.text.startswith("<s><") and found.text.count("<s>") == 1
    assert [found.text[a:b] for a, b in found.spans] == ["The dog", "Yes"]
    (row,) = tokenize(added, [""], messages=[messages]).rows
    assert row.count(added.tokenizer.bos_token_id) == 1
    assert (row == tokenize(plain, [""], messages=[messages]).rows[0]) == (name == "llama3")


def refused(lm, messages, where="row 1") -> str:
    with pytest.raises(BadData) as error:
        render_chat(lm, messages, where=where)
    assert where in str(error.value)
    return str(error.value)


def test_a_template_that_raises_is_quoted_with_the_row(tiny_lm):
    lm = chat_model(tiny_lm("llama"), GEMMA)
    assert "System role not supported" in refused(lm, conversation(["Hi"], "Be brief."))
    twice = (Message("user", "a"), Message("user", "b"))
    assert "must alternate" in refused(lm, twice) and "user, user" in refused(lm, twice, "row 7")
    with pytest.raises(BadData, match="row 2"):
        tokenize(lm, ["a", ""], messages=[None, twice])


def test_a_message_that_the_template_leaves_out_is_refused(tiny_lm):
    skips = (
        "{% for m in messages if m.role != 'system' %}{{ m.role + ': ' + m.content }}{% endfor %}"
    )
    lm = chat_model(tiny_lm("llama"), skips)
    assert "leaves out message 1" in refused(lm, conversation(["Hi"], "Be brief."))
    assert render_chat(lm, conversation(["Hi"])).spans == ((6, 8),)


CHANGING = {
    "lower case": "{% for m in messages %}{{ m.role + ': ' + m.content | lower }}{% endfor %}",
    "twice": "{% for m in messages %}{{ m.content + ' / ' + m.content }}{% endfor %}",
    "looks inside": "{% for m in messages %}{% if 'Dog' in m.content %}{{ '[a dog]' }}{% endif %}"
    "{{ m.content }}{% endfor %}",
}


@pytest.mark.parametrize("name", CHANGING)
def test_where_a_place_is_not_certain_only_plain_poolers_read(tiny_lm, name):
    lm = chat_model(tiny_lm("llama"), CHANGING[name])
    assert set(lm.read(["The Dog"], pool="last")) == set(range(lm.layers + 1))
    with pytest.raises(BadData, match=r"row 1.*can't be distinguished"):
        lm.read(["The Dog"], pool="last@user")


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (None, "has no chat template"),
        ("{{ strftime_now(messages[0].content) }}", "changes from one time"),
        ("{{ ['a', 'b'] | random }}", "changes from one time"),
    ],
)
def test_a_model_without_a_usable_template_is_refused(tiny_lm, template, reason):
    with pytest.raises(BadSpec, match=reason):
        chat_model(tiny_lm("llama"), template)


def test_a_masked_model_reads_no_conversations(tiny_lm):
    with pytest.raises(BadSpec, match="masked model"):
        chat_model(tiny_lm("bert"), CHATML)


@pytest.mark.parametrize("side", ["right", "left"])
def test_long_conversations_lose_content_and_never_the_template(tiny_lm, side):
    lm = chat_model(tiny_lm("llama"), CHATML, context=500)
    messages = conversation(["The quick brown fox " * 6, "yes", "It rained all day " * 4])
    whole = tokenize(lm, [""], messages=[messages])
    limit = len(whole.rows[0]) - 12
    cut = tokenize(lm, [""], messages=[messages], limit=limit, truncation=side)
    assert len(cut.rows[0]) == limit and cut.truncated.tolist() == [12]
    for one in (whole, cut):
        template = [t for t, c in zip(one.rows[0], one.places[0], strict=True) if c == 0]
        assert template == [
            t for t, c in zip(whole.rows[0], whole.places[0], strict=True) if c == 0
        ]
    assert (cut.places[0] == 3).sum() == (whole.places[0] == 3).sum()
    contents = int((whole.places[0] == 0).sum()) + 3
    least = tokenize(lm, [""], messages=[messages], limit=contents, truncation=side)
    assert len(least.rows[0]) == contents and set(least.places[0].tolist()) == {0, 2, 3}
    with pytest.raises(BadSpec, match="too small for row 1"):
        tokenize(lm, [""], messages=[messages], limit=contents - 1, truncation=side)


def test_tokens_without_characters_belong_to_the_gap_between_their_neighbours():
    owner = message_of_tokens([(0, 2), (3, 3), (3, 5), (5, 5)], [(2, 5)])
    assert owner.tolist() == [-1, 0, 0, -1]
    assert message_of_tokens([(0, 2), (2, 4)], [None, (1, 3)]).tolist() == [1, 1]
    assert message_of_tokens([], []).dtype == np.int64


def test_facts_name_the_special_tokens_roles_and_date(tiny_lm):
    facts = template_facts(chat_model(tiny_lm("llama"), TEMPLATES["llama2"].jinja))
    assert facts["special_tokens"] == ["<s>"] and facts["roles"] == ["system", "user", "assistant"]
    assert template_facts(chat_model(tiny_lm("llama"), GEMMA))["roles"] == ["user", "assistant"]
    dated = template_facts(chat_model(tiny_lm("llama"), TEMPLATES["dated"].jinja))
    assert dated["date"] == "2024-07-26" and "26 Jul 2024" in dated["example"]
    assert template_facts(tiny_lm("llama")) is None
    broken = template_facts(chat_model(tiny_lm("llama"), "{{ raise_exception('no') }}"))
    assert "no" in broken["error"]
