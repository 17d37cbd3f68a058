"""`cutaway fisher` from end to end, against transformers and plain autograd."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import cutaway
from cutaway.console import Console
from cutaway.core.errors import BadSpec, Mismatch
from cutaway.core.textset import TextSet
from cutaway.data.load import load_text_set
from cutaway.methods.inject.examples import lm_examples
from cutaway.methods.inject.fisher_file import load_fisher
from cutaway.methods.inject.fisher_sums import sum_squared_gradients
from cutaway.models.load import open_model
from tests.tiny import tiny, toy_model

QUIET = Console(quiet=True)


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return toy_model(tmp_path_factory.mktemp("toy") / "toy", steps=30)


def test_the_file_equals_a_loop_over_transformers(toy, tmp_path) -> None:
    lines = ["the film is good , so i love it .", "the dogs see the cat .", "the king"]
    (tmp_path / "t.txt").write_text("\n".join(lines))
    out = tmp_path / "f.safetensors"
    result = cutaway.fisher(
        model=str(toy), text=str(tmp_path / "t.txt"), out=str(out), runs=str(tmp_path), quiet=True
    )
    model, tokenizer = AutoModelForCausalLM.from_pretrained(toy), AutoTokenizer.from_pretrained(toy)
    total = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for line in lines:
        model.zero_grad()
        ids = tokenizer(line, return_tensors="pt")["input_ids"]
        model(input_ids=ids, labels=ids).loss.backward()
        for name, p in model.named_parameters():
            total[name] += p.grad.square() / len(lines)
    found = load_file(out)
    assert set(found) == set(total)
    for name, value in total.items():
        assert (found[name] - value).norm() <= 1e-5 * value.norm(), name
    assert result.summary["examples"] == 3
    assert load_fisher(out).meta["model"]["digest"] == open_model(str(toy)).digest


def test_a_sampled_fisher_is_seeded_and_not_the_empirical_one(toy, tmp_path) -> None:
    lm = open_model(str(toy))
    texts = TextSet("t", ("the film is good , so i love it .", "the dogs see the cat ."))
    examples = lm_examples(lm, texts)
    one, two, other = (examples.with_sampled_targets(seed) for seed in (0, 0, 1))
    first = sum_squared_gradients(lm, one, console=QUIET).total["model.norm.weight"]
    assert torch.equal(
        first, sum_squared_gradients(lm, two, console=QUIET).total["model.norm.weight"]
    )
    assert not torch.equal(
        first, sum_squared_gradients(lm, other, console=QUIET).total["model.norm.weight"]
    )
    assert not torch.equal(
        first, sum_squared_gradients(lm, examples, console=QUIET).total["model.norm.weight"]
    )


@pytest.mark.parametrize("family", ["llama", "bert"])
def test_answers_of_arithmetic_have_a_fisher(family, tmp_path) -> None:
    folder = tiny(family, tmp_path / family, texts=[f"{a} + {a} = {a}" for a in range(99)])
    result = cutaway.fisher(
        model=str(folder), data="gen:arithmetic?n=10", objective="task", runs=str(tmp_path / "runs")
    )
    texts = load_text_set("gen:arithmetic?n=10")
    asked = {"prompt": list(texts.texts), "answer": list(texts.answers)}
    file = cutaway.fisher(
        model=str(folder), data=asked, objective="task", runs=str(tmp_path / "runs")
    )
    same = ["probe", "metric", "value"]
    assert file.rows.select(same).equals(result.rows.select(same))
    assert result.rows.filter(result.rows["metric"] == "mass")["value"].sum() == pytest.approx(1)


def test_a_tasks_label_words_have_a_fisher(toy, tmp_path) -> None:
    task = tmp_path / "feeling.toml"
    task.write_text(
        'name = "feeling"\ndescription = "?"\nkind = "binary"\nclasses = ["no", "yes"]\n'
        'metric = "accuracy"\n[columns]\ntext = "text"\nlabel = "label"\n'
        '[autoregressive]\ntemplate = " {text} so i"\nwords = ["hate", "love"]\n'
    )
    (tmp_path / "d.tsv").write_text("text\tlabel\nthe film is good ,\tyes\nthe book is bad ,\tno\n")
    given = {"model": str(toy), "data": str(tmp_path / "d.tsv"), "task": str(task)}
    result = cutaway.fisher(**given, objective="task", runs=str(tmp_path / "runs"))
    assert result.summary["examples"] == 2
    # A task file that asks otherwise, under the same name, is another question.
    task.write_text(task.read_text().replace("so i", "and i"))
    other = cutaway.fisher(**given, objective="task", runs=str(tmp_path / "runs"))
    assert other.path != result.path


def test_fishers_are_compared_and_those_of_other_models_refused(toy, tmp_path) -> None:
    files = {name: str(tmp_path / f"{name}.safetensors") for name in ("a", "b", "c")}
    (tmp_path / "t.txt").write_text("the film is good .\nthe dogs see the cat .\n")
    given = {"text": str(tmp_path / "t.txt"), "runs": str(tmp_path / "runs")}
    cutaway.fisher(model=str(toy), **given, out=files["a"])
    found = cutaway.fisher(model=str(toy), **given, seed=1, out=files["b"], against=[files["a"]])
    (overlap,) = found.summary["overlap"].values()
    assert overlap["jaccard"] == pytest.approx(1)
    assert overlap["rank_correlation"] == pytest.approx(1)
    panels = json.loads((found.path / "inject.json").read_text())["tops"]
    mine, theirs = panels[0]["curves"].values()
    assert mine["values"] == theirs["values"]
    assert found.figure("top").data
    other = tiny("llama", tmp_path / "other")
    with pytest.raises(Mismatch, match="is the Fisher of"):
        cutaway.fisher(model=str(other), **given, out=files["c"], against=[files["a"]])


@pytest.mark.parametrize("given", [{}, {"text": "docs", "data": "gen:sentiment"}])
def test_one_source_is_needed(given, toy) -> None:
    with pytest.raises(BadSpec, match="--data or --text"):
        cutaway.fisher(model=str(toy), **given)


def test_the_objective_task_needs_a_task(toy, tmp_path) -> None:
    (tmp_path / "d.tsv").write_text("text\tlabel\ngood film\tyes\nbad book\tno\n")
    with pytest.raises(BadSpec, match="--task"):
        cutaway.fisher(model=str(toy), data=str(tmp_path / "d.tsv"), objective="task")


def test_a_file_of_another_kind_is_no_fisher_name(toy) -> None:
    with pytest.raises(BadSpec, match="safetensors"):
        cutaway.fisher(model=str(toy), text="docs", out="fisher.bin")


def test_the_description_says_what_was_done(toy, tmp_path) -> None:
    (tmp_path / "t.txt").write_text("the film is good .\nx\n")
    out = tmp_path / "f.safetensors"
    cutaway.fisher(model=str(toy), text=str(tmp_path / "t.txt"), out=str(out), runs=str(tmp_path))
    meta = json.loads(out.with_suffix(".json").read_text())["meta"]
    assert meta["objective"] == "lm"
    assert meta["labels"] == "empirical"
    assert meta["way"] == "batched"
    assert meta["examples"] + meta["left_out"] == 2


def test_without_a_file_only_the_shares_are_kept_and_a_file_can_be_made_later(
    toy, tmp_path
) -> None:
    (tmp_path / "t.txt").write_text("the film is good .\nthe dogs see the cat .")
    options = {
        "model": str(toy), "text": str(tmp_path / "t.txt"), "runs": str(tmp_path), "quiet": True,
    }  # fmt: skip
    bare = cutaway.fisher(**options, file=False)
    assert bare.summary["out"] is None
    assert not list(bare.path.glob("*.safetensors"))
    again = cutaway.fisher(**options, file=False)
    assert again.path == bare.path
    whole = cutaway.fisher(**options)
    assert whole.path == bare.path
    assert (whole.path / "fisher.safetensors").is_file()
    assert whole.rows.equals(bare.rows)


def test_an_output_without_a_file_is_refused(tmp_path) -> None:
    with pytest.raises(BadSpec, match="file=False"):
        cutaway.fisher(model="m", text="docs", file=False, out=str(tmp_path / "f.safetensors"))
