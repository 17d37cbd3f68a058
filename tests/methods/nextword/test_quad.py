"""The training recipe of Quad: it learns, it goes on, it leaves a checkpoint others can open."""

import polars as pl
import pytest
import torch

from cutaway import quad
from cutaway.core.errors import BadData, BadSpec
from cutaway.core.textset import TextSet
from cutaway.methods.nextword.quad import held_out_losses
from cutaway.models.load import open_model
from tests.methods.nextword.toys import toy_set
from tests.tiny import tiny, toy_language, toy_model

TEXTS = TextSet("toy", tuple(toy_language(160)))
SHORT = {"text": TEXTS, "steps": 40, "every": 20, "warmup": 4, "batch": 8, "lr": 1e-2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("quad")


@pytest.fixture(scope="module")
def toy(folder):
    return open_model(str(toy_model(folder / "toy", steps=20)))


def held(result, metric: str) -> list[float]:
    return result.rows.filter(pl.col("metric") == metric).sort("step")["value"].to_list()


@pytest.mark.parametrize("objective", ["quad", "ce"])
@pytest.mark.parametrize("start", ["model", "fresh", "small"])
def test_both_objectives_learn_from_every_start(objective, start, toy, folder) -> None:
    before = {name: p.clone() for name, p in toy.params().items()}
    result = quad(
        model=toy, objective=objective, start=start, width=64, depth=1, quiet=True,
        runs=str(folder / "runs"), **SHORT,
    )  # fmt: skip
    curve = held(result, f"held_{objective}")
    assert len(curve) == 3 and min(curve[1:]) < curve[0]
    assert all(torch.equal(before[n], p) for n, p in toy.params().items()), "a model is copied"


@pytest.mark.parametrize("untie", [False, True])
def test_the_checkpoint_opens_with_its_embeddings_tied_or_not(untie, toy, folder) -> None:
    out = folder / f"out-{untie}"
    tied = open_model(str(tiny("gpt2", folder / f"gpt2-{untie}")))
    assert tied.tied
    result = quad(
        model=tied, untie=untie, out=str(out), quiet=True, runs=str(folder / "runs"), **SHORT
    )
    assert result.summary["checkpoint"] == str(out)
    again = open_model(str(out))
    assert again.tied is not untie
    moved = (again.output_embedding[0] - tied.output_embedding[0]).abs().max()
    assert moved > 0
    with pytest.raises(BadSpec, match="the checkpoint of another run"):
        quad(model=tied, untie=untie, out=str(out), seed=1, quiet=True,
             runs=str(folder / "runs"), **SHORT)  # fmt: skip


def test_features_are_measured_before_and_after(toy, folder) -> None:
    result = quad(
        model=toy, data=toy_set(60), quiet=True, runs=str(folder / "runs-features"), **SHORT
    )
    asked = "R2 of Phi p from f without a prompt"
    assert asked in result.summary["before"] and asked in result.summary["after"]
    assert any(line.startswith("accuracy of f") for line in result.summary["verdict"])
    # Other rows are another question, under whatever name.
    other = quad(
        model=toy, data=toy_set(48), quiet=True, runs=str(folder / "runs-features"), **SHORT
    )
    assert other.path != result.path


def test_an_interrupted_training_ends_in_the_same_weights(toy, folder, monkeypatch) -> None:
    from cutaway.training import loop as training

    options = {"model": toy, "quiet": True, **SHORT}
    whole = quad(runs=str(folder / "whole"), **options)
    real, steps = training.training_step, []

    def killed(*given):
        steps.append(given[-1])
        if len(steps) == 30:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(training, "training_step", killed)
    with pytest.raises(KeyboardInterrupt):
        quad(runs=str(folder / "killed"), **options)
    again = quad(runs=str(folder / "killed"), **options)
    assert steps[30] == 20, "taken up at the last checkpoint"
    assert held(again, "held_quad") == held(whole, "held_quad")


def test_masked_models_are_refused(folder) -> None:
    bert = open_model(str(tiny("bert", folder / "bert")), check=False)
    with pytest.raises(BadSpec, match="causal models"):
        quad(model=bert, quiet=True, runs=str(folder / "runs"), **SHORT)


def test_too_few_texts_are_refused(toy, folder) -> None:
    few = TextSet("few", ("one two three", "four five six"))
    with pytest.raises(BadData, match="'few' has 2 texts of two tokens or more"):
        quad(model=toy, quiet=True, runs=str(folder / "runs"), **{**SHORT, "text": few})


def test_held_out_losses_are_means_over_predicted_tokens(toy) -> None:
    rows = [[5, 6, 7], [8, 9], [5, 6, 7, 8, 9]]
    losses = held_out_losses(toy, rows, "ce")
    total, count = 0.0, 0
    with torch.no_grad():
        for row in rows:
            ids = torch.tensor([row])
            total += float(toy.module(ids, labels=ids).loss) * (len(row) - 1)
            count += len(row) - 1
    assert losses["held_ce"] == pytest.approx(total / count, rel=1e-4)
    assert losses["score"] == -losses["held_ce"]
