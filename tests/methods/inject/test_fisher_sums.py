"""Sums of squared gradients: batches, families, and continuing after a kill."""

from dataclasses import replace

import pytest
import torch

from cutaway.console import Console
from cutaway.core.textset import TextSet
from cutaway.extract.model_handle import make_model_handle
from cutaway.methods.inject.examples import example_losses, lm_examples
from cutaway.methods.inject.fisher_sums import (
    FisherWorker,
    fisher_batches,
    split_batches,
    sum_squared_gradients,
)
from cutaway.methods.inject.maths.loop import FisherSample
from cutaway.methods.inject.spec import FisherSpec
from cutaway.models.load import open_model
from tests.tiny import FAMILIES, toy_model

QUIET = Console(quiet=True)


# Adding to all keys changes no attention: these gradients are rounding and nothing else.
NOTHING = ("k_proj.bias", "key.bias", "k_lin.bias")


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return toy_model(tmp_path_factory.mktemp("toy") / "toy", steps=30)


@pytest.mark.parametrize("family", FAMILIES)
def test_batches_change_nothing_in_any_family(family, tiny_lm, texts) -> None:
    lm = tiny_lm(family)
    examples = lm_examples(lm, texts)
    found = sum_squared_gradients(lm, examples, console=QUIET)
    expected = sum_squared_gradients(lm, examples, console=QUIET, batched=False)
    for name, value in expected.total.items():
        if not name.endswith(NOTHING):
            assert (found.total[name] - value).norm() <= 1e-5 * value.norm() + 1e-12, name


def test_a_padding_token_within_a_text_changes_nothing(tiny_lm, texts) -> None:
    """Random tokens of a masked model may be it; its row of the table has no gradient."""
    lm = tiny_lm("ernie")
    assert lm.module.get_input_embeddings().padding_idx == lm.pad_id
    examples = lm_examples(lm, texts)
    rows = [[*row[:2], lm.pad_id, *row[3:]] for row in examples.rows]
    padded = replace(examples, rows=rows)
    found = sum_squared_gradients(lm, padded, console=QUIET)
    expected = sum_squared_gradients(lm, padded, console=QUIET, batched=False)
    assert found.method.way == "batched"
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


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rounding_is_no_reason_for_the_slow_way(dtype, tiny_lm, texts) -> None:
    lm = tiny_lm("llama", dtype=dtype)
    found = sum_squared_gradients(lm, lm_examples(lm, texts), console=QUIET).method
    assert found.way == "batched"
    assert found.difference <= 3 * found.noise
    assert (found.noise > 1e-3) == (dtype == "bfloat16")


def test_a_wrong_rule_is_a_reason(tiny_lm, texts, monkeypatch) -> None:
    lm, right = tiny_lm("llama"), FisherSample.take
    name = "model.layers.1.mlp.up_proj.weight"
    monkeypatch.setattr(
        FisherSample, "take", lambda *given: (got := right(*given)) | {name: 1.001 * got[name]}
    )
    found = sum_squared_gradients(lm, lm_examples(lm, texts), console=QUIET).method
    assert found.way == "loop"
    assert name in found.reason and "rounding noise" in found.reason


def test_sums_that_were_kept_are_gone_on_from(toy, tmp_path, monkeypatch) -> None:
    lm = open_model(str(toy))
    texts = TextSet("t", tuple(f"the film is {w} , so i love it ." for w in ("good", "bad") * 40))
    examples = lm_examples(lm, texts)
    whole = sum_squared_gradients(lm, examples, console=QUIET)
    monkeypatch.setattr("cutaway.store.snapshots.SAVE_SECONDS", 0.0)
    monkeypatch.setattr("cutaway.methods.inject.fisher_sums.MAX_TOKENS", 64)
    straight = sum_squared_gradients(lm, examples, console=QUIET)
    keep, calls = tmp_path / "sums", []

    def killed(*given):
        calls.append(1)
        # Seven calls choose the method, the eighth is the first batch.
        if len(calls) > 8:
            raise KeyboardInterrupt
        return example_losses(*given)

    monkeypatch.setattr("cutaway.methods.inject.fisher_sums.example_losses", killed)
    with pytest.raises(KeyboardInterrupt):
        sum_squared_gradients(lm, examples, console=QUIET, checkpoint=keep)
    assert [path.name for path in keep.iterdir()] == ["step-00000001"]
    monkeypatch.setattr("cutaway.methods.inject.fisher_sums.example_losses", example_losses)
    resumed = sum_squared_gradients(lm, examples, console=QUIET, checkpoint=keep)
    for name, value in straight.total.items():
        assert torch.equal(resumed.total[name], value)
        torch.testing.assert_close(value, whole.total[name], rtol=1e-4, atol=1e-8)


def test_a_killed_worker_goes_on_from_its_own_sums(toy, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("cutaway.store.snapshots.SAVE_SECONDS", 0.0)
    monkeypatch.setattr("cutaway.methods.inject.fisher_sums.MAX_TOKENS", 64)
    lm = open_model(str(toy))
    handle = make_model_handle(lm, FisherSpec(model=str(toy), text="docs"), {})
    texts = TextSet("t", tuple(f"the film is {w} , so i love it ." for w in ("good", "bad") * 40))
    examples = lm_examples(lm, texts)
    first, second = split_batches(examples, fisher_batches(lm, examples, "batched"), 2)
    assert (first.folder, second.folder) == ("part-0-of-2", "part-1-of-2")
    straight = FisherWorker(handle, "batched", None, None)(second)
    worker, calls = FisherWorker(handle, "batched", None, tmp_path), []

    def killed(*given):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return example_losses(*given)

    monkeypatch.setattr("cutaway.methods.inject.fisher_sums.example_losses", killed)
    with pytest.raises(KeyboardInterrupt):
        worker(second)
    assert [path.name for path in tmp_path.iterdir()] == [second.folder]
    resumed = worker(second)
    assert len(calls) == 2 + len(second.batches) - 1, "the first batch is not summed again"
    assert all((resumed[name] == value).all() for name, value in straight.items())
