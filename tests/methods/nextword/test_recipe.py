"""The recipe of nextword on toy models: numbers, files, refusals, from Python as a user would."""

import json

import numpy as np
import polars as pl
import pytest
import torch

from cutaway import nextword
from cutaway.console import Console
from cutaway.core.errors import BadData, BadSpec, Mismatch, UnknownName
from cutaway.core.textset import TextSet
from cutaway.extract.token_rows import build_token_rows
from cutaway.methods.nextword.features import features_for
from cutaway.methods.nextword.output_head import fill_task_template, make_output_head, token_text
from cutaway.methods.nextword.rows import NEXTWORD_SCHEMA
from cutaway.methods.nextword.spec import NextwordSpec
from cutaway.methods.nextword.task import nextword_tasks
from cutaway.models.load import open_model
from cutaway.models.read import collect_states
from cutaway.models.tokens import pad, tokenize
from tests.tiny import FAMILIES, toy_model, toy_sentiment

PROMPT = " , so i"
WORDS = {"class_words": ["hate", "love"], "subset_words": ["hate", "love", "film", "zzzz"]}
QUIET = Console(quiet=True)


def toy_set(n: int = 120, seed: int = 0) -> TextSet:
    """Sentences cut before the verb of feeling, and whether they are happy."""
    whole, labels = toy_sentiment(n, seed=seed)
    texts = tuple(text.split(" , so")[0] for text in whole)
    return TextSet("toy", texts, np.asarray(labels), "binary", ("sad", "happy"))


TEXTS = toy_set()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("nextword")


@pytest.fixture(scope="module")
def toy(folder):
    return open_model(str(toy_model(folder / "toy")))


@pytest.fixture(scope="module")
def result(folder, toy):
    return nextword(
        model=toy, data=TEXTS, prompt_text=PROMPT, features="all", repeats=2, quiet=True,
        runs=str(folder / "runs"), **WORDS,
    )  # fmt: skip


def score(rows: pl.DataFrame, features: str, prompt: str, metric: str = "accuracy") -> float:
    chosen = rows.filter(
        (pl.col("features") == features)
        & (pl.col("prompt") == prompt)
        & (pl.col("metric") == metric)
    )
    return float(chosen["value"].mean())


def test_the_rows_have_the_promised_columns_and_every_kind(result) -> None:
    assert result.rows.columns == list(NEXTWORD_SCHEMA)
    assert result.rows.columns[:5] == ["model", "task", "prompt", "features", "repeat"]
    kinds = set(result.rows["features"])
    assert {"f", "phi_p", "subset", "classwords", "p", "projection", "zeroshot"} <= kinds
    assert {"zeroshot_calibrated", "majority", "bow", "tfidf", "logz"} <= kinds
    assert set(result.rows["prompt"]) == {"", PROMPT}
    assert result.rows.filter(pl.col("status") == "failed").is_empty()


def test_asked_with_the_prompt_the_model_says_the_answer(result) -> None:
    assert score(result.rows, "zeroshot", PROMPT) > 0.9 > 0.7 > score(result.rows, "zeroshot", "")
    for kind in ("f", "phi_p", "p", "classwords"):
        assert score(result.rows, kind, PROMPT) > 0.9
    assert score(result.rows, "majority", "") < 0.65


def test_the_words_that_carry_it_are_the_feelings_and_lost_words_are_told(result) -> None:
    details = json.loads((result.path / "nextword.json").read_text())
    told = [d for d in details if d["figure"] == "tokens" and d["prompt"] == PROMPT]
    classwords = {d["label"]: d["token"].strip() for d in told if d["features"] == "classwords"}
    assert classwords == {"sad": "hate", "happy": "love"}
    assert all(d["examples"] for d in told)
    words = result.summary["findings"][0]["words"]
    assert words["subset"]["missing"] == ["zzzz"]
    assert any("'zzzz'" in line for line in result.summary["verdict"])


def test_diagnoses_are_shares_of_variance(result) -> None:
    assert 0.5 < score(result.rows, "phi_p", PROMPT, "r2_from_f") <= 1
    assert score(result.rows, "logz", PROMPT, "r2_quadratic") <= 1


def test_a_second_run_is_found_and_one_more_character_in_the_prompt_is_another(
    folder, toy, result, monkeypatch
) -> None:
    same = {"model": toy, "data": TEXTS, "features": "all", "repeats": 2, "quiet": True}
    same |= {"runs": str(folder / "runs"), **WORDS}
    monkeypatch.setattr("cutaway.methods.nextword.grid.NextwordGrid.measure_all", None)
    assert nextword(prompt_text=PROMPT, **same).record.address == result.record.address
    with pytest.raises(TypeError):
        nextword(prompt_text=PROMPT + " ", **same)


def test_features_come_from_the_cache_and_a_killed_run_goes_on(folder, toy, monkeypatch) -> None:
    options = {"model": toy, "data": TEXTS, "prompt_text": PROMPT, "features": "f,phi_p"}
    options |= {"quiet": True, "repeats": 3, "prompt": True, "runs": str(folder / "killed")}
    from cutaway.methods.nextword import grid as nextword_work

    real, seen = nextword_work.score_rows, []

    def killed(cell, measured):
        seen.append(cell.features)
        if cell.features == "phi_p" and seen.count("phi_p") == 1:
            raise KeyboardInterrupt
        return real(cell, measured)

    monkeypatch.setattr(nextword_work, "score_rows", killed)
    with pytest.raises(KeyboardInterrupt):
        nextword(**options)
    monkeypatch.setattr("cutaway.extract.forward_pass._forward_batch", None)
    assert nextword(**options).rows["value"].is_not_null().any()
    assert seen.count("f") == 1, "finished pieces are not done again"


@pytest.mark.parametrize("family", FAMILIES)
def test_f_meets_the_output_embedding_as_in_the_model_itself(family: str, tiny_lm) -> None:
    """Output(f) are the model's own logits, for every family: tied or not, bias or not, capped."""
    lm = tiny_lm(family)
    texts = TextSet(
        "t", ("A small town.", "It rained all day"), np.array([0, 1]), "binary", ("a", "b")
    )
    spec = NextwordSpec(model=["m"], data=["d"])
    question = nextword_tasks(spec.model_copy(update={"prompt": False}), {"d": _many(texts)})[0]
    page = features_for(spec, lm, question, "", QUIET)
    ids, mask = pad(tokenize(lm, page.prompted.texts.texts).rows, lm.pad_id)
    with torch.inference_mode():
        last = collect_states(lm, ids, mask, {lm.layers}).layers[lm.layers]
        own = lm.unembed(lm.final_norm(last)).float()
    at = mask.sum(1) - 1 if lm.kind == "causal" else torch.zeros(len(ids), dtype=torch.long)
    expected = own[torch.arange(len(ids)), at]
    torch.testing.assert_close(page.head(page.f), expected, rtol=1e-3, atol=1e-3)


def _many(texts: TextSet) -> TextSet:
    return texts.take([0, 1] * 10)


def test_the_prompt_is_the_last_thing_a_long_text_shows(toy) -> None:
    long = TEXTS.take([0] * 20)
    rows = TextSet(
        "long", tuple("the film is good " * 400 for _ in long.texts), np.arange(20) % 2,
        "binary", ("a", "b"),
    )  # fmt: skip
    spec = NextwordSpec(model=["m"], data=["d"], prompt_text=" , so i")
    question = nextword_tasks(spec, {"d": rows})[0]
    read = features_for(spec, toy, question, PROMPT, QUIET).prompted
    fed = build_token_rows(toy, read.texts, read.request)
    tail = toy.tokenizer(PROMPT, add_special_tokens=False)["input_ids"]
    assert all(row[-len(tail) :] == tail and len(row) <= toy.context for row in fed.rows)
    assert (fed.truncated > 0).all()


@pytest.fixture(scope="module")
def toy_bert(folder):
    return open_model(str(toy_model(folder / "bert", "bert")))


def test_a_masked_model_answers_at_the_mask_of_its_template(folder, toy_bert) -> None:
    result = nextword(
        model=toy_bert, data=TEXTS, position="mask", template="{text} , so i {mask} it .",
        features="zeroshot,f,classwords", quiet=True, runs=str(folder / "runs"), **WORDS,
    )  # fmt: skip
    prompt = "{text} , so i {mask} it ."
    assert set(result.rows.filter(pl.col("features") == "f")["prompt"]) == {prompt}
    assert score(result.rows, "zeroshot", prompt) > 0.9


def test_a_masked_model_is_read_at_cls_by_default(folder, toy_bert) -> None:
    result = nextword(
        model=toy_bert, data=TEXTS, features="f", prompt=False, quiet=True, diagnostics=False,
        runs=str(folder / "runs"),
    )  # fmt: skip
    assert score(result.rows, "f", "") > 0.5


def test_a_template_keeps_its_mask_behind_a_text_of_any_length() -> None:
    texts, tail = fill_task_template(TEXTS.take([0]), "{text} It was {mask}.", "[MASK]", {})
    assert tail == " It was [MASK]." and texts.texts[0] == TEXTS.texts[0]
    front, nothing = fill_task_template(TEXTS.take([0]), "{mask}: {text}", "[MASK]", {})
    assert nothing == "" and front.texts[0].startswith("[MASK]: ")


def test_the_whole_p_can_be_written_as_shards(folder, toy) -> None:
    from safetensors.torch import load_file

    result = nextword(
        model=toy, data=TEXTS, features="f", prompt=False, quiet=True, save_p=True,
        runs=str(folder / "runs"),
    )  # fmt: skip
    shards = sorted((result.path / "p").glob("*.safetensors"))
    p = torch.cat([load_file(shard)["p"] for shard in shards])
    assert p.dtype == torch.float16 and p.shape == (len(TEXTS), make_output_head(toy).vocab)
    torch.testing.assert_close(p.float().sum(1), torch.ones(len(TEXTS)), atol=2e-3, rtol=0)


def test_the_size_of_p_is_told_before_anything_is_computed(toy, tmp_path, monkeypatch) -> None:
    said: list[str] = []

    def stop(console: Console, text: str) -> None:
        said.append(text)
        raise KeyboardInterrupt

    monkeypatch.setattr(Console, "print", stop)
    with pytest.raises(KeyboardInterrupt):
        nextword(model=toy, data=TEXTS, prompt_text=PROMPT, save_p=True, runs=str(tmp_path / "r"))
    assert said == ["--save-p writes p of 120 texts, 2 times: 0.00 GB in half precision."]
    assert not (tmp_path / "r").exists()


REFUSED = {
    "a task without prompt asked with one": (
        {"prompt": True}, BadSpec, "no prompt: give one with --prompt-text"),
    "class words that are one token": (
        {"class_words": ["love", "love"]}, BadSpec, "is given for two classes"),
    "a masked place in a causal model": ({"position": "mask"}, BadSpec, "is causal"),
    "words that nobody gave": ({"features": "subset"}, BadSpec, "--subset-words"),
    "no word that is a single token": (
        {"features": "zeroshot", "class_words": ["xyzzyq", "love"]}, BadSpec, "'xyzzyq' is not"),
    "no subset word that is a single token": (
        {"features": "subset", "subset_words": ["xyzzyq"]}, BadSpec, "none of the words 'xyzzyq'"),
    "no room beside the prompt": (
        {"prompt_text": PROMPT, "prompt": True, "max_tokens": 2}, BadSpec, "leaves no room"),
    "an unknown feature": ({"features": "phip"}, BadSpec, "Did you mean 'phi_p'"),
    "an unknown task": ({"task": "sst22", "data": None}, UnknownName, "sst2"),
    "a column beside a task": (
        {"task": "sst2", "text_column": "x"}, BadSpec, "names its columns"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_request_is_refused_before_anything_is_computed(case, toy, tmp_path) -> None:
    options, error, said = REFUSED[case]
    given = {"model": toy, "data": TEXTS, "quiet": True, "runs": str(tmp_path)} | options
    with pytest.raises(error, match=said):
        nextword(**{name: value for name, value in given.items() if value is not None})
    assert not list(tmp_path.rglob("result.json"))


def test_a_template_without_a_mask_is_refused_before_anything_is_computed(
    toy_bert, tmp_path
) -> None:
    with pytest.raises(BadSpec, match=r"expected exactly the fields \{mask\}, \{text\}"):
        nextword(
            model=toy_bert, data=TEXTS, position="mask", template="{text} is", quiet=True,
            runs=str(tmp_path),
        )  # fmt: skip
    assert not list(tmp_path.rglob("*"))


def test_labels_outside_the_tasks_classes_are_refused(toy, tmp_path) -> None:
    three = TextSet("three", TEXTS.texts, np.arange(120) % 3, "multiclass", ("a", "b", "c"))
    refused = {"model": toy, "task": "sst2", "quiet": True, "runs": str(tmp_path)}
    with pytest.raises(Mismatch, match="classes a, b, c, task 'sst2' has negative, positive"):
        nextword(data=three, **refused)
    with pytest.raises(BadData, match="3 classes"):
        nextword(data=three, class_words=["a", "b", "c"], **refused)
    numbers = TextSet("numbers", TEXTS.texts, np.linspace(0, 1, 120), "regression")
    with pytest.raises(BadData, match="needs class labels"):
        nextword(model=toy, data=numbers, quiet=True, runs=str(tmp_path))


def test_a_file_with_a_label_unknown_to_the_task_is_refused(toy, tmp_path) -> None:
    file = tmp_path / "odd.tsv"
    file.write_text("sentence\tlabel\n" + "".join(f"text {i}\t{i % 3}\n" for i in range(30)))
    with pytest.raises(BadData, match="unknown to the task 'sst2'"):
        nextword(model=toy, task="sst2", data=str(file), quiet=True, runs=str(tmp_path))


def test_a_task_of_ones_own_is_a_file(toy, tmp_path, folder) -> None:
    rows = "".join(f"{t}\t{y}\n" for t, y in zip(TEXTS.texts, TEXTS.labels, strict=True))
    (tmp_path / "rows.tsv").write_text("sentence\tlabel\n" + rows)
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\ndescription = "Happy?"\nkind = "binary"\nclasses = ["sad", "happy"]\n'
        f'prompt = "{PROMPT}"\nclass_words = ["hate", "love"]\n'
        '[columns]\ntext = "sentence"\nlabel = "label"\n'
    )
    result = nextword(
        model=toy, task=str(tmp_path / "mine.toml"), data=str(tmp_path / "rows.tsv"),
        prompt=True, features="zeroshot,classwords", quiet=True, runs=str(tmp_path / "runs"),
    )  # fmt: skip
    assert set(result.rows["task"]) == {"mine"}
    assert score(result.rows, "zeroshot", PROMPT) > 0.9


def test_tokens_are_shown_with_their_space(toy) -> None:
    ids = toy.tokenizer(" love", add_special_tokens=False)["input_ids"]
    assert token_text(toy, ids[-1]).endswith("love")


def test_zero_shot_takes_the_first_words_that_the_model_knows(toy, tmp_path) -> None:
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\ndescription = "Happy?"\nkind = "binary"\nclasses = ["sad", "happy"]\n'
        'class_words = ["zzzz", "qqqq"]\nlabel_words = ["hate", "love"]\n'
        '[columns]\ntext = "sentence"\nlabel = "label"\n'
    )
    result = nextword(
        model=toy, task=str(tmp_path / "mine.toml"), data=TEXTS, prompt_text=PROMPT, prompt=True,
        features="zeroshot,classwords", quiet=True, runs=str(tmp_path / "runs"),
    )  # fmt: skip
    assert score(result.rows, "zeroshot", PROMPT) > 0.9
    lost = result.rows.filter(pl.col("status") == "failed")
    assert lost["features"].to_list() == ["classwords"]
    assert "'zzzz'" in lost["reason"][0]
