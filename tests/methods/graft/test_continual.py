"""`cutaway graft continual` on a toy model that learns two tasks in turn."""

from pathlib import Path

import polars as pl
import pytest
import torch
from torch import nn

import cutaway
from cutaway.catalog import VERBS
from cutaway.core.errors import BadSpec
from cutaway.core.spec import build_spec
from cutaway.methods.graft.continual import frozen_entries
from cutaway.methods.graft.maths.select import Mask, intersection_size
from cutaway.methods.graft.skill import load_skill
from cutaway.methods.graft.spec import ContinualSpec
from cutaway.models.load import open_model
from cutaway.recipe import life_cycle
from cutaway.training import loop as training
from cutaway.training.plan import TrainingPlan
from tests.tiny import BAD, DEEDS, GOOD, PEOPLE, THINGS, toy_model

TASK = """
name = "{name}"
description = "A toy."
kind = "binary"
classes = ["no", "yes"]
template = "{template}"
label_words = {words}
[columns]
text = ["text"]
label = ["label"]
[labels]
names = {{"0" = "no", "1" = "yes"}}
"""
QUICK = {"shots": 12, "steps": 40, "every": 40, "optimizer": "adamw", "lr": 5e-3, "dropout": False,
         "sparsity": 0.1, "mask_steps": 15}  # fmt: skip


def put(folder: Path, name: str, template: str, words: list[str], rows) -> None:
    text = TASK.format(name=name, template=template, words=words)
    (folder / f"{name}.toml").write_text(text)
    lines = [f"{said}\t{int(label)}" for said, label in rows]
    (folder / f"{name}.tsv").write_text("\n".join(["text\tlabel", *lines]) + "\n")


@pytest.fixture(scope="session")
def course(tmp_path_factory) -> Path:
    """A toy model, and two tasks that need different answers to different sentences."""
    folder = tmp_path_factory.mktemp("course")
    toy_model(folder / "toy", "bert")
    feelings = [
        (f" the {thing} is {word}", word in GOOD) for thing in THINGS for word in GOOD + BAD
    ]
    deeds = [
        (f" the {who}{'s' * many} {deed}{'s' * (not many)} the {PEOPLE[place - 1]}", many)
        for place, who in enumerate(PEOPLE)
        for deed in DEEDS
        for many in (False, True)
    ]
    put(folder, "feel", "{text} , so i {mask} it .", ["love", "hate"], feelings)
    put(folder, "many", "{text} , so i {mask} it .", ["film", "book"], deeds)
    return folder


def options(course: Path, **more) -> dict:
    names = ("feel", "many")
    return {
        "base": str(course / "toy"),
        "task": [str(course / f"{name}.toml") for name in names],
        "data": [str(course / f"{name}.tsv") for name in names],
        **QUICK,
        **more,
    }


@pytest.fixture(scope="session")
def done(course, tmp_path_factory):
    """The finished course, from Python."""
    runs = tmp_path_factory.mktemp("runs")
    return cutaway.graft.continual(**options(course), runs=str(runs), quiet=True)


def test_grafts_forget_less_than_sequential_training(done) -> None:
    lost = {(line["way"], line["task"]): line["forgotten"] for line in done.summary["forgetting"]}
    learned = {line["task"]: line["learned"] for line in done.summary["forgetting"]}
    assert min(learned.values()) > 0.9
    assert lost["sequential", "feel"] > 0.2
    assert lost["graft", "feel"] < 0.1
    assert done.summary["means"]["graft"]["end"] > done.summary["means"]["sequential"]["end"]
    assert len(done.summary["verdict"]) == 3


def test_every_task_is_tested_after_every_task_with_both_strategies(done) -> None:
    rows = done.rows.filter(pl.col("metric") == "accuracy")
    cells = set(rows.select("kind", "task", "step").rows())
    ways = {(k, t, s) for k in ("graft", "sequential") for t in ("feel", "many") for s in (1, 2)}
    assert ways | {("base", "feel", 0), ("base", "many", 0)} <= cells
    assert rows["low"].null_count() == 0


def test_skills_share_no_weight_and_have_the_exact_size(done) -> None:
    skills = [load_skill(path) for path in sorted(done.path.glob("*.safetensors"))]
    assert [skill.task for skill in skills] == ["feel", "many"]
    assert intersection_size(skills[0].patch.mask, skills[1].patch.mask) == 0
    assert {float(skill.size) for skill in skills} == set(done.summary["sizes"])


def test_base_and_skills_make_the_model_that_was_tested(done, course) -> None:
    lm = open_model(str(course / "toy"))
    for path in sorted(done.path.glob("*.safetensors")):
        load_skill(path).attach(lm, check="places")
    ids = lm.tokenizer(" the film is dull , so i [MASK] it .", return_tensors="pt")["input_ids"]
    place = int((ids[0] == lm.tokenizer.mask_token_id).nonzero()[0, 0])
    with torch.no_grad():
        said = lm.module(input_ids=ids).logits[0, place]
    love, hate = (lm.tokenizer.convert_tokens_to_ids(word) for word in ("love", "hate"))
    assert said[love] > said[hate]


def test_skills_of_a_sequence_have_full_metadata_and_work_with_eval(done, course) -> None:
    first, second = sorted(done.path.glob("*.safetensors"))
    for path in (first, second):
        meta = load_skill(path).meta
        task = meta["task"]
        assert (task["mode"], task["classes"], len(task["words"])) == ("prompt", ["no", "yes"], 2)
        assert meta["tuned"]["checksum"] != meta["base"]["checksum"]
        rows = done.rows.filter((pl.col("metric") == "accuracy") & (pl.col("task") == task["name"]))
        stage = 1 if path == first else 2
        for kind, said, step in (("base", "base", 0), ("graft", "learned", stage)):
            cell = rows.filter((pl.col("kind") == kind) & (pl.col("step") == step))["value"]
            assert [meta["metrics"][said]["accuracy"]["value"]] == cell.to_list()
    assert [load_skill(path).meta["after"] for path in (first, second)] == [[], ["feel"]]
    result = cutaway.graft.eval(
        skill=[str(first)], base=str(course / "toy"), data=[str(course / "feel.tsv")],
        text="none", runs=str(done.path.parent), quiet=True,
    )  # fmt: skip
    assert result.summary["matrix"]["learned"]["feel"]["feel"] > 0.9


def test_an_interrupted_run_continues_and_gives_the_same_rows(
    done, course, tmp_path, monkeypatch
) -> None:
    given = options(course, runs=str(tmp_path), quiet=True)
    take, steps = training.training_step, []

    def tired(*args):
        steps.append(args[-1])
        if len(steps) == 110:
            raise KeyboardInterrupt
        return take(*args)

    monkeypatch.setattr(training, "training_step", tired)
    with pytest.raises(KeyboardInterrupt):
        cutaway.graft.continual(**given)
    again = cutaway.graft.continual(**given)
    assert len(steps) == 110 + 40 + 40
    assert again.rows.equals(done.rows)


def test_frozen_entries_get_no_update_and_no_gradient(tmp_path) -> None:
    weight = nn.Parameter(torch.ones(2, 3))
    mask = Mask({"w": torch.tensor([1, 4])})
    plan = TrainingPlan(steps=3, lr=0.1, optimizer="sgd", weight_decay=0.1, clip=None)
    with frozen_entries({"w": weight}, mask) as project:
        training.train(
            {"w": weight},
            lambda step: {"loss": weight.square().sum()},
            plan,
            folder=tmp_path,
            identity={},
            project=project,
        )
    still = torch.zeros(6, dtype=torch.bool)
    still[[1, 4]] = True
    assert (weight.detach().view(-1) == 1).equal(still)
    assert not weight._backward_hooks


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"task": ["sst2"], "data": []}, "at least two tasks"),
        ({"data": ["a.tsv"]}, "1 entries for 2 tasks"),
        ({"sparsity": 1e-9}, "rounds to no weight"),
    ],
)
def test_wrong_requests_are_refused_with_the_value(course, tmp_path, change, said) -> None:
    with pytest.raises(BadSpec, match=said):
        cutaway.graft.continual(**options(course) | change, runs=str(tmp_path), quiet=True)


def test_tasks_of_one_name_are_refused(course, tmp_path) -> None:
    twice = {"task": [str(course / "feel.toml")] * 2, "data": [str(course / "feel.tsv")] * 2}
    with pytest.raises(BadSpec, match="different names"):
        cutaway.graft.continual(**options(course) | twice, runs=str(tmp_path), quiet=True)


def test_a_dry_run_counts_every_training(course) -> None:
    spec = build_spec(ContinualSpec, options(course))
    costs = life_cycle.estimate(VERBS["graft continual"], spec)
    assert [cost.plain()["steps"] for cost in costs] == [40] * 4
