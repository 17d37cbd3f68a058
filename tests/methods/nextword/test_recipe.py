"""nextword from Python on toy models: rows, files, resuming, refusals."""

import json

import numpy as np
import polars as pl
import pytest

from cutaway import nextword
from cutaway.catalog import VERBS
from cutaway.core.errors import BadData, BadSpec, Mismatch, UnknownName
from cutaway.core.textset import TextSet
from cutaway.extract.estimate import estimate_pass
from cutaway.extract.request import ExtractionRequest
from cutaway.methods.nextword.rows import NEXTWORD_SCHEMA
from cutaway.methods.nextword.save_p import p_size_bytes
from cutaway.methods.nextword.spec import NextwordSpec
from cutaway.recipe.life_cycle import Context, estimate
from cutaway.store.samples import text_digests
from tests.methods.nextword.toys import PROMPT, TEXTS, WORDS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("nextword")


@pytest.fixture(scope="module")
def result(folder, toy):
    return nextword(
        model=toy, data=TEXTS, prompt_text=PROMPT, features="all", repeats=2, quiet=True,
        runs=str(folder / "runs"), samples=True, **WORDS,
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


def test_predictions_give_the_accuracy_of_every_cell_and_splits_their_rows(result) -> None:
    cell = ["model", "task", "prompt", "features", "repeat", "n_train"]
    rows = result.rows.filter(pl.col("metric") == "accuracy").sort(cell)
    correct = (pl.col("truth") == pl.col("answer")).mean().alias("value")
    again = result.samples.group_by(cell).agg(correct, pl.len().alias("count")).sort(cell)
    assert again.select(cell).equals(rows.select(cell))
    assert again["value"].to_list() == pytest.approx(rows["value"].to_list(), abs=1e-12)
    assert again["count"].to_list() == rows["n_test"].to_list()
    assert result.samples["score"].is_between(0, 1).all()
    digests = text_digests(TEXTS)
    for (repeat,), one in result.record.splits.group_by("repeat"):
        parts = {name: set(part["row"]) for (name,), part in one.group_by("part")}
        assert not parts["train"] & parts["test"]
        here = result.samples.filter(pl.col("repeat") == repeat)
        assert set(here["row"]) == parts["test"]
        assert set(here["n_train"]) == {len(parts["train"])}
    for row, digest, truth in result.samples.select("row", "text_digest", "truth").unique().rows():
        assert (digests[row], TEXTS.classes[TEXTS.labels[row]]) == (digest, truth)


def test_with_the_prompt_the_model_predicts_the_answer(result) -> None:
    assert score(result.rows, "zeroshot", PROMPT) > 0.9 > 0.7 > score(result.rows, "zeroshot", "")
    for kind in ("f", "phi_p", "p", "classwords"):
        assert score(result.rows, kind, PROMPT) > 0.9
    assert score(result.rows, "majority", "") < 0.65


def test_top_tokens_are_the_feelings_and_missing_words_are_reported(result) -> None:
    details = json.loads((result.path / "nextword.json").read_text())
    told = [d for d in details if d["figure"] == "tokens" and d["prompt"] == PROMPT]
    classwords = {d["label"]: d["token"].strip() for d in told if d["features"] == "classwords"}
    assert classwords == {"sad": "hate", "happy": "love"}
    assert all(d["examples"] for d in told)
    words = result.summary["results"][0]["words"]
    assert words["subset"]["missing"] == ["zzzz"]
    assert any("'zzzz'" in line for line in result.summary["verdict"])


def test_diagnoses_are_r2(result) -> None:
    assert 0.5 < score(result.rows, "phi_p", PROMPT, "r2_from_f") <= 1
    assert score(result.rows, "logz", PROMPT, "r2_quadratic") <= 1


def test_a_second_run_is_found_and_another_prompt_is_another_run(
    folder, toy, result, monkeypatch
) -> None:
    same = {"model": toy, "data": TEXTS, "features": "all", "repeats": 2, "quiet": True}
    same |= {"runs": str(folder / "runs"), **WORDS}
    monkeypatch.setattr("cutaway.methods.nextword.grid.NextwordGrid.measure_all", None)
    assert nextword(prompt_text=PROMPT, **same).record.address == result.record.address
    with pytest.raises(TypeError):
        nextword(prompt_text=PROMPT + " ", **same)


def test_an_interrupted_run_resumes_without_reading_texts_again(folder, toy, monkeypatch) -> None:
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
        {"task": "sst2", "text_column": "x"}, BadSpec, "defines its own columns"),
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
    with pytest.raises(
        BadSpec, match=r"lacks \{mask\}: expected exactly the fields \{text\}, \{mask\}"
    ):
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


def test_zero_shot_uses_the_first_word_list_of_single_tokens(toy, tmp_path) -> None:
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


@pytest.mark.parametrize("save_p", [False, True])
def test_the_estimate_has_an_entry_per_prompt_and_the_size_of_p(save_p, toy, tmp_path) -> None:
    spec = NextwordSpec(
        model=["m"], data=["d"], prompt_text=PROMPT, save_p=save_p, runs=str(tmp_path / "runs")
    )
    costs = estimate(VERBS["nextword"], spec, Context(objects={"m": toy, "d": TEXTS}))
    assert len(costs) == 2, "without and with the prompt"
    plain = estimate_pass(toy, TEXTS, ExtractionRequest(layers=(), heads=("final",)))
    size = p_size_bytes(toy, len(TEXTS)) / 2**20 if save_p else 0.0
    for cost in costs:
        assert cost.plain()["rows"] == len(TEXTS)
        assert cost.disk_mb <= round(plain.disk_mb + size, 1) + 0.11
        assert cost.disk_mb >= round(size, 1) - 0.11
    assert not (tmp_path / "runs").exists(), "nothing is measured"
