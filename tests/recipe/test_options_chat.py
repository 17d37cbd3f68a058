"""`--chat` in every verb that has it, as a user types it."""

import json

import polars as pl
import pytest
import torch

import cutaway
from cutaway.cli.main import run as command
from cutaway.console import Console
from cutaway.core.errors import BadSpec
from cutaway.methods.nextword.features import features_for
from cutaway.methods.nextword.spec import NextwordSpec
from cutaway.methods.nextword.task import nextword_tasks
from cutaway.models.load import open_model
from cutaway.recipe.open_for_spec import open_for_spec
from tests.chat_templates import GEMMA, labelled_chats, save_chat_model
from tests.tiny import tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(save_chat_model(tmp_path_factory.mktemp("chat") / "instruct"))


@pytest.fixture(scope="module")
def chats(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("chats") / "chats.jsonl"
    path.write_text("\n".join(map(json.dumps, labelled_chats())))
    return str(path)


PROBE = ("--layers", "2", "--repeats", "2", "--baselines", "majority,bow", "--quiet")


def test_probe_reads_the_messages_that_a_pooler_names(model, chats, tmp_path, capsys):
    pools = "last@user,mean@assistant,last@content,last"
    words = ["probe", "--chat", "--model", model, "--data", chats, "--pool", pools, *PROBE]
    assert command([*words, "--runs", str(tmp_path)]) == 0
    (run,) = cutaway.results(str(tmp_path))
    rows = run.rows.filter((pl.col("metric") == "accuracy") & (pl.col("classifier") == "logistic"))
    mean = {pool: rows.filter(pl.col("pool") == pool)["value"].mean() for pool in pools.split(",")}
    # The reply is the same in every row: only the number before it can be read from its tokens.
    assert mean["last@user"] == 1.0 and run.model["chat"]["template"]
    other = ["--system", "Be brief.", "--runs", str(tmp_path)]
    assert command([*words, *other]) == 0
    assert len({one.address for one in cutaway.results(str(tmp_path))}) == 2


def test_named_positions_are_the_same_states_in_verbs_and_in_python(model):
    lm = open_model(model, chat=True)
    messages = labelled_chats(3)[2]["messages"]
    states = lm.read([messages], layers=[1], pool=["last@user", "last@assistant", "last@content"])
    assert torch.equal(states["last@assistant"][1], states["last@content"][1])
    assert not torch.equal(states["last@user"][1], states["last@content"][1])
    plain = lm.read([messages[0]["content"]], layers=[1], pool="last@user")
    # The user's words come before the reply, which can't change them.
    torch.testing.assert_close(plain[1], states["last@user"][1], rtol=1e-5, atol=1e-6)


def test_nextword_asks_where_the_reply_begins(model, chats, tmp_path):
    words = {"class_words": "bad,good", "features": "f", "diagnostics": False, "repeats": 1}
    found = cutaway.nextword(
        model=model, data=chats, chat=True, prompt_text=" It was", runs=str(tmp_path), quiet=True,
        **words,
    )  # fmt: skip
    assert set(found.rows["prompt"]) == {"", " It was"}
    spec = NextwordSpec(model=model, data="plain", chat=True, system="Be brief.", **words)
    plain = {"text": ["a good one", "a bad one"] * 10, "label": ["good", "bad"] * 10}
    (task,) = nextword_tasks(spec, {"plain": plain})
    lm = open_for_spec(model, spec)
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a good one"}]
    for prompt in ("", " It was"):
        f = features_for(spec, lm, task, prompt, Console(quiet=True)).f[0]
        text = lm.tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
        ids = lm.tokenizer(text + prompt.strip(), add_special_tokens=False, return_tensors="pt")
        expected = lm.body(input_ids=ids["input_ids"]).last_hidden_state[0, -1]
        torch.testing.assert_close(f, expected, rtol=1e-5, atol=1e-5)


def test_shortcut_fits_reads_and_generates_conversations(model, chats, tmp_path, capsys):
    maps = str(tmp_path / "maps.safetensors")
    shared = ["--model", model, "--runs", str(tmp_path), "--quiet", "--chat"]
    texts = ["--text", chats, "--positions-per-text", "3"]
    assert command(["shortcut", "fit", *shared, *texts, "--out", maps]) == 0
    meta = json.loads((tmp_path / "maps.json").read_text())["meta"]
    assert meta["model"]["chat"]["reply"] is False
    assert command(["shortcut", "eval", *shared, *texts, "--shortcut", maps]) == 0
    assert command(["shortcut", "exit", *shared, *texts, "--shortcut", maps]) == 0
    capsys.readouterr()
    talk = "user: Number 1 was\nassistant: Well,"
    assert command(["shortcut", "lens", *shared, "--text", talk, "--json"]) == 0
    tokens = "".join(json.loads(capsys.readouterr().out)["tokens"])
    assert tokens.endswith("<|im_start|>assistant\nWell,") and tokens.count("<|im_start|>") == 3
    generate = ["shortcut", "generate", *shared, "--shortcut", maps, "--max-new-tokens", "4"]
    assert command([*generate, "--prompt", "Number 1 was", "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    lm = open_model(model)
    asked = lm.tokenizer.apply_chat_template(
        [{"role": "user", "content": "Number 1 was"}], add_generation_prompt=True,
        return_tensors="pt", return_dict=True,
    )  # fmt: skip
    plain = lm.module.generate(
        **asked, max_new_tokens=4, do_sample=False, pad_token_id=lm.tokenizer.eos_token_id
    )
    assert answer["tokens"] == plain[0, asked["input_ids"].shape[1] :].tolist()


def test_fisher_reads_conversations_as_language(model, chats, tmp_path, capsys):
    words = ["fisher", "--chat", "--model", model, "--runs", str(tmp_path), "--quiet"]
    assert command([*words, "--text", chats, "--limit", "4"]) == 0
    assert command([*words, "--data", chats, "--objective", "task", "--task", "sst2"]) == 2
    assert "--objective lm" in capsys.readouterr().err


REFUSED = {
    "no --chat": (["probe"], "--chat"),
    "no such message": (["probe", "--chat", "--pool", "last@system"], "row 1 has no such message"),
    "no such place": (["probe", "--chat", "--pool", "last@wizard"], "last@user"),
    "place without --chat": (["probe", "--pool", "last@user", "--text-column", "x"], "--chat"),
    "system without --chat": (["probe", "--system", "Be brief."], "--chat"),
    "too few tokens": (["probe", "--chat", "--max-tokens", "20"], "too small for row"),
    "sentences": (["finetune", "--task", "sst2"], "--chat"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_with_one_message(name, model, chats, tmp_path, capsys):
    (verb, *options), reason = REFUSED[name]
    if name == "place without --chat":
        rows = [{"x": f"{i} was {'good' if i % 2 else 'bad'}", "label": i % 2} for i in range(40)]
        path = tmp_path / "plain.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        chats = str(path)
    quick = PROBE if verb == "probe" else ("--quiet",)
    words = [verb, "--model", model, "--data", chats, "--runs", str(tmp_path), *quick, *options]
    assert command(words) == 2
    message = capsys.readouterr().err.strip()
    assert reason in message and len(message.splitlines()) <= 4 and "Traceback" not in message


def test_a_model_without_a_template_and_one_that_refuses_are_named(chats, tmp_path, capsys):
    plain = str(tiny("llama", tmp_path / "base"))
    words = ["--data", chats, "--runs", str(tmp_path), *PROBE, "--chat"]
    assert command(["probe", "--model", plain, *words]) == 2
    assert "has no chat template" in capsys.readouterr().err
    strict = str(save_chat_model(tmp_path / "strict", GEMMA))
    assert command(["probe", "--model", strict, *words, "--system", "Be brief."]) == 2
    message = capsys.readouterr().err
    assert "row 1" in message and "System role not supported" in message


def test_a_model_opened_for_chat_is_not_read_otherwise_in_silence(model, chats, tmp_path):
    lm = open_model(model, chat=True, system="Be brief.")
    texts = {"text": ["a good one", "a bad one"] * 20, "label": [1, 0] * 20}
    options = {"layers": "1", "repeats": 1, "baselines": "none", "runs": str(tmp_path)}
    with pytest.raises(BadSpec, match="opened with chat=True"):
        cutaway.probe(model=lm, data=texts, quiet=True, **options)
    run = cutaway.probe(model=lm, data=texts, chat=True, quiet=True, **options)
    assert run.record.model["chat"]["system"] == "Be brief."
    with pytest.raises(BadSpec, match="add chat=True"):
        open_model(model, system="Be brief.")
