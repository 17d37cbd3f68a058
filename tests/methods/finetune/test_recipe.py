"""`cutaway finetune` on toy models: scores, checkpoints, restarts, refusals."""

import os
import signal
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

import cutaway
from cutaway.catalog import VERBS
from cutaway.core.errors import BadData, BadSpec
from cutaway.core.spec import build_spec
from cutaway.core.textset import TextSet
from cutaway.methods.finetune.spec import FinetuneSpec
from cutaway.models.load import open_model
from cutaway.recipe import life_cycle
from cutaway.store.results import results
from cutaway.training import loop as training
from tests.tiny import BAD, GOOD, THINGS, toy_model

TASK = """
name = "toy"
description = "Is the thing good?"
kind = "binary"
classes = ["bad", "good"]
template = "{text} , so i {mask} it ."
label_words = ["love", "hate"]
[columns]
text = ["text"]
label = ["label"]
[labels]
names = {"0" = "bad", "1" = "good"}
[autoregressive]
template = "{text} , so i"
words = ["love", "hate"]
"""
# The words are the wrong way round, so that there is something to learn.
QUICK = {"shots": 12, "steps": 30, "every": 10, "optimizer": "adamw", "lr": 5e-3, "quiet": True}
WAYS = {"prompt": "bert", "autoregressive": "llama"}


@pytest.fixture(scope="session")
def toy(tmp_path_factory) -> Path:
    """A folder with toy models, rows and their task."""
    folder = tmp_path_factory.mktemp("toy")
    for family in ("bert", "llama"):
        toy_model(folder / family, family)
    rows = [(f" the {thing} is {word}", word in GOOD) for thing in THINGS for word in GOOD + BAD]
    lines = [f"{text}\t{int(label)}" for text, label in rows]
    (folder / "rows.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")
    (folder / "toy.toml").write_text(TASK)
    return folder


def options(toy: Path, family: str, **more) -> dict:
    given = {
        "model": str(toy / family),
        "task": str(toy / "toy.toml"),
        "data": str(toy / "rows.tsv"),
    }
    return {**given, **QUICK, **more}


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize("mode", WAYS)
def test_a_skill_is_learned_and_the_checkpoint_is_a_plain_one(toy, tmp_path, mode) -> None:
    family, out = WAYS[mode], tmp_path / "out"
    result = cutaway.graft.finetune(
        **options(toy, family), mode=mode, out=str(out), runs=str(tmp_path / "runs")
    )
    test = result.summary["test"]
    assert test["base"]["accuracy"] < 0.2
    assert test["tuned"]["accuracy"] > 0.9
    assert test["majority"]["accuracy"] == 0.5
    auto = AutoModelForMaskedLM if mode == "prompt" else AutoModelForCausalLM
    model, words = auto.from_pretrained(out).eval(), AutoTokenizer.from_pretrained(out)
    text = " the film is dull , so i" + (f" {words.mask_token} it ." if mode == "prompt" else "")
    ids = words(text, return_tensors="pt")["input_ids"]
    place = (ids[0] == words.mask_token_id).nonzero()[0, 0] if mode == "prompt" else -1
    with torch.no_grad():
        said = model(input_ids=ids).logits[0, place].softmax(0)
    love, hate = (
        words(f" {w}", add_special_tokens=False)["input_ids"][-1] for w in ("love", "hate")
    )
    assert said[love] > said[hate]
    assert open_model(out).has_head
    before, after = tensors(toy / family), tensors(out)
    assert set(before) == set(after)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved
    assert all(".layer" in name or ".norm." in name for name in moved)


SPARSE = {"optimizer": "sgd", "lr": 0.5, "l1": 2e-3, "l1_way": "threshold", "weight_decay": 0.0}


@pytest.mark.parametrize("more", [{}, SPARSE | {"schedule": "linear"}], ids=["adamw", "threshold"])
def test_a_killed_run_ends_in_the_same_weights(toy, tmp_path, monkeypatch, more) -> None:
    given = options(toy, "bert", **more)
    cutaway.graft.finetune(**given, out=str(tmp_path / "whole"), runs=str(tmp_path / "a"))
    again = given | {"out": str(tmp_path / "killed"), "runs": str(tmp_path / "b")}
    child = os.fork()
    if child == 0:
        take = training.training_step

        def die(*args):
            if args[-1] == 17:
                os.kill(os.getpid(), signal.SIGKILL)
            return take(*args)

        training.training_step = die
        cutaway.graft.finetune(**again)
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert not (tmp_path / "killed").exists()
    steps = []
    take = training.training_step
    monkeypatch.setattr(
        training, "training_step", lambda *args: steps.append(args[-1]) or take(*args)
    )
    cutaway.graft.finetune(**again)
    assert steps == list(range(10, 30))
    one, other = tensors(tmp_path / "whole"), tensors(tmp_path / "killed")
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not list((tmp_path / "b" / "finetune").glob("*.partial"))


def test_a_finished_run_is_found_and_not_done_again(toy, tmp_path, monkeypatch) -> None:
    given = options(toy, "bert", runs=str(tmp_path))
    first = cutaway.graft.finetune(**given)
    checkpoint = Path(first.summary["checkpoint"])
    assert checkpoint == first.path / "checkpoint"
    assert open_model(checkpoint).kind == "masked"
    monkeypatch.setattr(training, "training_step", None)
    assert cutaway.graft.finetune(**given).record.created == first.record.created
    elsewhere = cutaway.graft.finetune(**given, out=str(tmp_path / "copy"))
    assert elsewhere.summary["checkpoint"] == str(tmp_path / "copy")
    one, other = tensors(checkpoint), tensors(tmp_path / "copy")
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_rows_tell_base_tuned_and_majority_with_intervals(toy, tmp_path) -> None:
    result = cutaway.graft.finetune(**options(toy, "bert"), runs=str(tmp_path))
    rows = results(tmp_path).get(result.record.address).rows
    test = rows.filter((pl.col("part") == "test") & (pl.col("metric") == "accuracy"))
    assert set(test["kind"]) == {"base", "tuned", "majority"}
    for low, value, high in test.select("low", "value", "high").rows():
        assert low <= value <= high
    dev = rows.filter((pl.col("part") == "dev") & (pl.col("metric") == "accuracy"))
    assert dev["step"].to_list() == [0, 10, 20, 30]
    assert {"base", "task", "mode", "seed", "step", "part", "metric"} <= set(rows.columns)
    assert "ece" in set(rows["metric"])
    assert "the majority baseline scores 0.500" in result.summary["verdict"][0]


def test_predictions_give_the_reported_scores(toy, tmp_path) -> None:
    given = options(toy, "llama", steps=4, runs=str(tmp_path))
    result = cutaway.graft.finetune(**given, samples=True)
    assert set(result.samples["kind"]) == {"base", "tuned"}
    for kind, scores in result.summary["test"].items():
        found = result.samples.filter(kind=kind)
        assert kind == "majority" or (
            (found["truth"] == found["answer"]).mean() == scores["accuracy"]
        )
    splits = pl.read_parquet(result.path / "splits.parquet")
    counts = dict(splits.group_by("part").len().iter_rows())
    assert counts == result.summary["rows"]
    tested = splits.filter(part="test")["row"].to_list()
    assert tested == result.samples.filter(kind="base")["row"].to_list()
    # A run that has them answers a request without them.
    assert cutaway.graft.finetune(**given).path == result.path


def test_a_head_keeps_the_names_of_its_base(toy, tmp_path) -> None:
    out = tmp_path / "out"
    result = cutaway.graft.finetune(
        **options(toy, "bert"), mode="head", out=str(out), runs=str(tmp_path / "runs")
    )
    assert result.summary["test"]["tuned"]["accuracy"] > 0.9
    trunk = {name for name in tensors(toy / "bert") if name.startswith("bert.")}
    assert trunk <= set(tensors(out))
    assert open_model(out).layers == 3


def test_a_model_given_as_an_object_stays_as_it_was(toy, tmp_path) -> None:
    lm = open_model(str(toy / "bert"))
    before = {name: value.clone() for name, value in lm.params().items()}
    cutaway.graft.finetune(**options(toy, "bert") | {"model": lm}, runs=str(tmp_path))
    assert all(torch.equal(value, before[name]) for name, value in lm.params().items())
    assert not any(value.requires_grad for value in lm.params().values())
    assert not lm.module.training


def test_l1_keeps_weights_near_their_start(toy, tmp_path) -> None:
    far = {}
    for l1 in (0.0, 0.05):
        out = str(tmp_path / str(l1))
        cutaway.graft.finetune(**options(toy, "bert"), l1=l1, out=out, runs=str(tmp_path / "runs"))
        tuned, base = tensors(tmp_path / str(l1)), tensors(toy / "bert")
        far[l1] = float(sum((tuned[name] - base[name]).abs().sum() for name in base))
    assert far[0.05] < 0.5 * far[0.0]


def test_an_l1_threshold_leaves_most_weights_exactly_where_they_were(toy, tmp_path) -> None:
    given = options(toy, "bert", **SPARSE)
    result = cutaway.graft.finetune(**given, out=str(tmp_path / "out"), runs=str(tmp_path / "runs"))
    assert result.summary["test"]["tuned"]["accuracy"] > 0.9
    tuned, base = tensors(tmp_path / "out"), tensors(toy / "bert")
    moved = sum(int((tuned[name] != base[name]).sum()) for name in base)
    assert 0 < moved < 0.5 * result.summary["trained_weights"]


def test_biases_only_moves_nothing_else(toy, tmp_path) -> None:
    cutaway.graft.finetune(
        **options(toy, "bert"), biases_only=True, out=str(tmp_path / "out"), runs=str(tmp_path)
    )
    before, after = tensors(toy / "bert"), tensors(tmp_path / "out")
    assert all(
        name.endswith("bias") for name in before if not torch.equal(before[name], after[name])
    )


def test_a_regression_learns_a_point_between_two_words(toy, tmp_path) -> None:
    texts = [f" the {thing} is {word}" for thing in THINGS for word in GOOD + BAD]
    values = np.array([5.0 if any(w in t.split() for w in GOOD) else 1.0 for t in texts])
    rows = TextSet("scores", tuple(texts), values, "regression")
    given = options(toy, "bert") | {"data": rows, "task": None}
    result = cutaway.graft.finetune(
        **given, template="{text} , so i {mask} it .", words="love,hate", runs=str(tmp_path)
    )
    assert result.summary["metric"] == "pearson"
    test = result.summary["test"]
    assert test["tuned"]["pearson"] > 0.9 > test["base"]["pearson"]


def test_long_texts_are_cut_and_counted_but_never_the_question(toy, tmp_path) -> None:
    texts = tuple(
        f" the {thing} is {word}" + " the film" * 60 * (number % 2)
        for number, thing in enumerate(THINGS)
        for word in GOOD + BAD
    )
    rows = TextSet(
        "long", texts, np.tile([1] * 6 + [0] * 6, len(THINGS)), "binary", ("bad", "good")
    )
    given = options(toy, "bert") | {"data": rows}
    result = cutaway.graft.finetune(**given, runs=str(tmp_path))
    assert result.summary["cut_texts"] == 48
    assert result.summary["test"]["tuned"]["accuracy"] > 0.9


def test_a_dry_run_costs_little_and_changes_nothing(toy, tmp_path) -> None:
    given = {k: v for k, v in options(toy, "bert").items() if k != "quiet"}
    spec = build_spec(FinetuneSpec, {**given, "steps": 5000, "runs": str(tmp_path / "runs")})
    (cost,) = life_cycle.estimate(VERBS["finetune"], spec)
    assert cost.plain()["steps"] == 5000
    assert cost.seconds > 1
    assert "5,000 steps on 24 rows" in cost.sentence()
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"mode": "autoregressive"}, BadSpec, "'autoregressive' needs a causal model"),
        ({"words": "love"}, BadSpec, "1 words, expected 2"),
        ({"words": "love,incomprehensible"}, BadSpec, "'incomprehensible'"),
        ({"words": "love,love"}, BadSpec, "not different tokens"),
        ({"template": "{text} , so i love it ."}, BadSpec, r"\{mask\}"),
        ({"shots": 40}, BadData, "'bad' has 48 rows, and shots=40 takes 81"),
        ({"task": None}, BadSpec, "no template and label words for a masked model"),
        ({"at": "last"}, BadSpec, "at is for --mode head"),
        ({"dtype": "float16"}, BadSpec, "float16"),
        ({"optimizer": "adam"}, BadSpec, "optimizer"),
        ({"params": "*.nowhere.*"}, BadSpec, "nowhere"),
        ({"l1": 1e-3, "l1_way": "threshold"}, BadSpec, "for --optimizer sgd, got 'adamw'"),
    ],
)
def test_wrong_requests_are_refused_with_the_value(toy, tmp_path, change, error, said) -> None:
    with pytest.raises(error, match=said):
        cutaway.graft.finetune(**options(toy, "bert") | change, runs=str(tmp_path))


def test_rows_without_text_are_refused_or_dropped_on_request(toy, tmp_path) -> None:
    rows = tmp_path / "holes.tsv"
    rows.write_text((toy / "rows.tsv").read_text() + "\t1\n")
    given = options(toy, "bert", data=str(rows), steps=1, every=1, runs=str(tmp_path / "runs"))
    with pytest.raises(BadData, match="--drop-empty"):
        cutaway.graft.finetune(**given)
    result = cutaway.graft.finetune(**given, drop_empty=True)
    assert any("1 " in note for note in result.summary["notes"])


def test_a_folder_of_something_else_is_never_replaced(toy, tmp_path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    given = options(toy, "bert", steps=10, runs=str(tmp_path / "runs"))
    with pytest.raises(BadSpec, match=r"mine' holds other files"):
        cutaway.graft.finetune(**given, out=str(tmp_path / "mine"))
    assert (tmp_path / "mine" / "thesis.txt").exists()
    first = cutaway.graft.finetune(**given, out=str(tmp_path / "first"))
    with pytest.raises(BadSpec, match=f"another run, {first.record.address}"):
        cutaway.graft.finetune(**given, out=str(tmp_path / "first"), seed=1)
