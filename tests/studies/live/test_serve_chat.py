"""The Live page's process reading conversations."""

import json

import pytest

from cutaway.catalog import VERBS
from cutaway.methods.probe.spec import ProbeSpec
from cutaway.models.load import open_model
from cutaway.recipe.life_cycle import run as run_verb
from cutaway.studies.live.layers import MAX_GRID_TOKENS
from cutaway.studies.live.probes import ProbeCache
from cutaway.studies.live.serve import LiveSession
from tests.chat_templates import labelled_chats, save_chat_model
from tests.studies.live.test_serve import ask
from tests.tiny import tiny

TALK = "user: Number 3 was\nassistant: Well, I see.\nuser: It was good."


@pytest.fixture(scope="module")
def session(place) -> LiveSession:
    lm = open_model(save_chat_model(place / "instruct"))
    return LiveSession(lm, ProbeCache(lm))


def test_the_grid_ends_where_the_reply_begins_and_every_token_was_read(session):
    lens = ask(session, text=TALK, chat=True, system="Be brief.")["lens"]["value"]
    said = ["Be brief.", "Number 3 was", "Well, I see.", "It was good."]
    roles = ["system", "user", "assistant", "user"]
    asked = [{"role": r, "content": c} for r, c in zip(roles, said, strict=True)]
    ids = session.lm.tokenizer.apply_chat_template(
        asked, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )["input_ids"]
    assert lens["total"] == ids.shape[1] > MAX_GRID_TOKENS == lens["shown"]
    assert "".join(lens["tokens"]).endswith("<|im_start|>assistant\n")
    best = session.lm.module(ids).logits[0, -MAX_GRID_TOKENS:].argmax(dim=-1)
    words = [cell[0] for cell in lens["words"]["id"][-1]]
    assert [w.strip() for w in words] == [session.lm.tokenizer.decode([t]).strip() for t in best]


def test_a_question_is_the_beginning_of_the_reply(session):
    found = ask(session, text="It was", chat=True, prompt=" All in all, it is", words=("a", "b"))
    assert found["words"]["value"]["asked"].endswith("<|im_start|>assistant\nAll in all, it is")


def test_a_probe_of_conversations_is_applied_to_one(session, place):
    path = place / "chats.jsonl"
    path.write_text("\n".join(map(json.dumps, labelled_chats())))
    spec = ProbeSpec(
        model=str(place / "instruct"), data=str(path), chat=True, pool="last@user", layers="1",
        repeats=1, baselines="none", runs=str(place / "chat-runs"),
    )  # fmt: skip
    run = run_verb(VERBS["probe"], spec)
    request = {"text": "user: Number 8 was good.", "chat": True, "run": str(run.path)}
    answer = ask(session, **request)["probe"]
    assert "error" not in answer, answer["error"]
    said = answer["value"]
    assert said["classes"][max(range(2), key=lambda i: said["said"][0][i])] == "good"
    spec = spec.model_copy(update={"pool": ("last@assistant",)})
    run = run_verb(VERBS["probe"], spec)
    answer = ask(session, text="user: Hi", chat=True, run=str(run.path))
    assert "no such message" in answer["probe"]["error"]


def test_a_model_without_a_template_says_so(place):
    lm = open_model(tiny("llama", place / "base"))
    told = ask(LiveSession(lm, ProbeCache(lm)), text=TALK, chat=True)
    assert "has no chat template" in told["lens"]["error"]
