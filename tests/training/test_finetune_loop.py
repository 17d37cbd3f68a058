"""Fine-tuning: its loss, its dev scores, its result, and weights restored afterwards."""

import numpy as np
import pytest
import torch

from cutaway.console import Console
from cutaway.training.finetune_loop import (
    dev_scores,
    finetune_loss,
    restored,
    run_finetuning,
    training_plan,
)
from cutaway.training.options import TrainingSpec
from cutaway.training.task_model import make_task_model
from cutaway.training.trainable_params import trainable_params
from tests.training.tasks import task_split

SPEC = TrainingSpec(shots=3, steps=4, every=2, batch=3, lr=1e-2, dropout=False)


@pytest.fixture
def model(tiny_lm):
    return make_task_model(tiny_lm("gpt2"), task_split(), "head", at="last")


def test_the_plan_takes_its_fields_from_the_spec_and_no_clipping_for_zero() -> None:
    plan = training_plan(SPEC)
    assert (plan.steps, plan.every, plan.lr, plan.clip) == (4, 2, 1e-2, 1.0)
    assert training_plan(SPEC.model_copy(update={"clip": 0.0})).clip is None


def test_the_loss_of_a_step_is_the_mean_over_its_batch_plus_the_penalty(model) -> None:
    params = trainable_params(model, SPEC)
    plain = finetune_loss(model, task_split(), params, SPEC)
    losses = [float(plain(step)["loss"]) for step in range(2)]
    rows = model.losses(task_split().train)
    assert min(rows.tolist()) <= min(losses) <= max(losses) <= max(rows.tolist())
    assert losses[0] + losses[1] == pytest.approx(2 * float(rows.mean()), rel=1e-5)
    penal = finetune_loss(model, task_split(), params, SPEC.model_copy(update={"l1": 0.5}))
    parts = penal(0)
    assert float(parts["l1"]) == 0.0
    assert float(parts["loss"]) == pytest.approx(float(parts["fit"])) == pytest.approx(losses[0])


def test_dev_scores_are_those_of_the_predictions_on_the_dev_rows(model) -> None:
    split = task_split()
    scores = dev_scores(model, split)
    labels = split.texts.labels[split.dev]
    proba = model.predict_proba(split.dev)
    assert scores["dev_accuracy"] == np.mean(proba.argmax(1) == labels)
    expected = -np.log(proba[np.arange(len(labels)), labels]).mean()
    assert scores["dev_loss"] == pytest.approx(expected, rel=1e-6)


def test_training_lowers_the_loss_and_a_restored_model_is_unchanged(model, tmp_path) -> None:
    split, params = task_split(), trainable_params(model, SPEC)
    before = {name: p.detach().clone() for name, p in params.items()}
    loss = float(model.losses(split.train).mean())
    quiet = Console(quiet=True)
    with restored(params, when=True):
        result = run_finetuning(model, split, params, SPEC, tmp_path, quiet, identity="a")
        assert float(model.losses(split.train).mean()) < loss
        assert [row["step"] for row in result.curve] == [0, 2, 4]
        assert not model.module.training
    assert all(torch.equal(params[name], value) for name, value in before.items())
    with restored(params, when=False):
        next(iter(params.values())).data.add_(1.0)
    assert not all(torch.equal(params[name], value) for name, value in before.items())
    with torch.no_grad():
        for name, value in before.items():
            params[name].copy_(value)


def test_a_proximal_step_leaves_most_weights_exactly_at_their_start(model, tmp_path) -> None:
    spec = SPEC.model_copy(update={"l1": 0.05, "l1_way": "threshold", "weight_decay": 0.0})
    split, params = task_split(), trainable_params(model, spec)
    before = {name: p.detach().clone() for name, p in params.items()}
    with restored(params, when=True):
        run_finetuning(model, split, params, spec, tmp_path, Console(quiet=True), identity="b")
        same = sum(int((params[name] == value).sum()) for name, value in before.items())
    assert same > 0.5 * sum(value.numel() for value in before.values())
