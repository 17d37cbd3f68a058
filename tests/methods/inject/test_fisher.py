"""`cutaway fisher` from end to end, against transformers and plain autograd."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import cutaway
from cutaway.console import Console
from cutaway.core.errors import BadSpec, Mismatch
from cutaway.core.textset import TextSet
from cutaway.methods.inject.examples import Examples, example_losses, lm_examples, sample_targets
from cutaway.methods.inject.fisher_file import load_fisher
from cutaway.methods.inject.fisher_sums import sum_squared_gradients
from cutaway.models.load import open_model
from tests.tiny import FAMILIES, tiny, toy_model

QUIET = Console(quiet=True)
# Adding to all keys changes no attention: these gradients are rounding and nothing else.
NOTHING = ("k_proj.bias", "key.bias", "k_lin.bias")


@pytest.mark.parametrize("family", FAMILIES)
def test_batches_change_nothing_in_any_family(family, tiny_lm, texts) -> None:
    lm = tiny_lm(family)
    examples = lm_examples(lm, texts)
    found = sum_squared_gradients(lm, examples, console=QUIET)
    expected = sum_squared_gradients(lm, examples, console=QUIET, batched=False)
    for name, value in expected.total.items():
        if not name.endswith(NOTHING):
            assert (found.total[name] - value).norm() <= 1e-5 * value.norm() + 1e-12, name


def test_most_families_go_batched_and_the_others_say_why(tiny_lm, texts) -> None:
    for family in ("gpt2", "llama", "gemma2", "bert", "albert", "opt", "falcon", "bloom"):
        assert (
            sum_squared_gradients(
                tiny_lm(family), lm_examples(tiny_lm(family), texts), console=QUIET
            ).method.way
            == "batched"
        )
    found = sum_squared_gradients(
        tiny_lm("mixtral"), lm_examples(tiny_lm("mixtral"), texts), console=QUIET
    )
    assert found.method.way == "loop"
    assert "Router" in found.method.reason


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


def test_short_texts_are_counted_and_left_out(tiny_lm) -> None:
    lm = tiny_lm("gpt2")
    texts = TextSet("t", ("The quick brown fox", "a", "", "No dog"))
    examples = lm_examples(lm, texts)
    assert examples.dropped + len(examples) == 4
    assert all(len(row) >= 2 for row in examples.rows)


def test_hidden_words_depend_on_the_text_and_the_seed_alone(tiny_lm, texts) -> None:
    lm = tiny_lm("bert")
    whole, turned = lm_examples(lm, texts), lm_examples(lm, texts.take(range(len(texts))[::-1]))
    assert whole.rows == turned.rows[::-1]
    assert whole.positions == turned.positions[::-1]
    assert lm_examples(lm, texts, seed=1).rows != whole.rows


def test_drawn_answers_follow_the_models_distribution() -> None:
    said = torch.log(torch.tensor([0.1, 0.6, 0.3]))[None, None].expand(1, 3000, 3)
    draws = [np.random.default_rng(0).random(3000)]
    counts = torch.bincount(sample_targets(said, draws)[0], minlength=3) / 3000
    torch.testing.assert_close(counts, torch.tensor([0.1, 0.6, 0.3]), atol=0.03, rtol=0)


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


def test_sums_that_were_kept_are_gone_on_from(toy, tmp_path, monkeypatch) -> None:
    lm = open_model(str(toy))
    texts = TextSet("t", tuple(f"the film is {w} , so i love it ." for w in ("good", "bad") * 40))
    examples = lm_examples(lm, texts)
    whole = sum_squared_gradients(lm, examples, console=QUIET)
    monkeypatch.setattr("cutaway.methods.inject.fisher_sums.SAVE_SECONDS", 0.0)
    monkeypatch.setattr("cutaway.methods.inject.fisher_sums.MAX_TOKENS", 64)
    straight = sum_squared_gradients(lm, examples, console=QUIET)
    keep, calls = tmp_path / "sums.safetensors", []

    def killed(*given):
        calls.append(1)
        if len(calls) > 4:
            raise KeyboardInterrupt
        return example_losses(*given)

    monkeypatch.setattr("cutaway.methods.inject.fisher_sums.example_losses", killed)
    with pytest.raises(KeyboardInterrupt):
        sum_squared_gradients(lm, examples, console=QUIET, checkpoint=keep)
    assert keep.is_file()
    monkeypatch.setattr("cutaway.methods.inject.fisher_sums.example_losses", example_losses)
    resumed = sum_squared_gradients(lm, examples, console=QUIET, checkpoint=keep)
    for name, value in straight.total.items():
        assert torch.equal(resumed.total[name], value)
        torch.testing.assert_close(value, whole.total[name], rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("family", ["llama", "bert"])
def test_answers_of_arithmetic_have_a_fisher(family, tmp_path) -> None:
    folder = tiny(family, tmp_path / family, texts=[f"{a} + {a} = {a}" for a in range(99)])
    result = cutaway.fisher(
        model=str(folder), data="gen:arithmetic?n=10", objective="task", runs=str(tmp_path / "runs")
    )
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


def test_examples_taken_are_the_examples(tiny_lm, texts) -> None:
    whole = lm_examples(tiny_lm("llama"), texts)
    part = whole.take([2, 0])
    assert isinstance(part, Examples)
    assert part.rows == [whole.rows[2], whole.rows[0]]
    assert part.targets == [whole.targets[2], whole.targets[0]]
