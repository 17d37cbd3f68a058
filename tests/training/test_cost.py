"""The estimate of a fine-tuning changes no weight and grows with the work."""

import torch

from cutaway.training.cost import estimate_training, training_estimate
from cutaway.training.options import TrainingSpec
from cutaway.training.task_model import make_task_model
from tests.training.tasks import task_split


def test_an_estimate_has_its_counts_and_changes_no_weight(tiny_lm) -> None:
    model = make_task_model(tiny_lm("gpt2"), task_split(), "head", at="last")
    before = {name: value.clone() for name, value in model.params().items()}
    estimate = estimate_training(model, task_split(), TrainingSpec(steps=50, every=10))
    assert all(torch.equal(value, before[name]) for name, value in model.params().items())
    assert all(p.grad is None for p in model.params().values())
    plain = estimate.plain()
    assert set(plain) == {"steps", "rows", "weights", "seconds", "memory_mb", "disk_mb"}
    assert (plain["steps"], plain["rows"]) == (50, len(task_split().train))
    more = estimate_training(model, task_split(), TrainingSpec(steps=50, optimizer="adamw"))
    assert more.memory_mb > estimate.memory_mb
    assert more.disk_mb > estimate.disk_mb


def test_the_sentence_names_steps_rows_and_weights() -> None:
    costs = {"seconds": 12.34, "memory_mb": 5, "disk_mb": 6}
    sentence = training_estimate(steps=1000, rows=32, weights=1_234_567, **costs).sentence()
    assert "1,000 steps on 32 rows, 1,234,567 trainable weights" in sentence
    assert "about 12 s" in sentence
