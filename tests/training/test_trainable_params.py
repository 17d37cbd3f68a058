"""Which weights are trained: groups, patterns, biases, a new head."""

import pytest

from cutaway.core.errors import BadSpec
from cutaway.training.options import TrainingSpec
from cutaway.training.task_model import make_task_model
from cutaway.training.trainable_params import (
    parameter_groups,
    select_trainable_params,
    trainable_params,
)
from tests.tiny import FAMILIES
from tests.training.tasks import task_split


@pytest.mark.parametrize("family", FAMILIES)
def test_embeddings_and_language_model_head_are_frozen_by_default(family, tiny_lm) -> None:
    lm = tiny_lm(family)
    task_model = make_task_model(lm, task_split(), "head", at="last")
    names = set(lm.params())
    where = parameter_groups(lm, sorted(names))
    learning = set(select_trainable_params(task_model))
    assert learning - names == {"head.weight", "head.bias"}
    assert {where[n] for n in learning & names} <= {"blocks", "final"}
    assert {n for n in names if where[n] == "blocks"} <= learning
    assert f"{lm.anatomy.embeddings}.weight" not in learning
    assert f"{lm.anatomy.decoder}.weight" not in learning
    every = select_trainable_params(task_model, fixed_embeddings=False, fixed_head=False)
    assert set(every) == set(task_model.params())


def test_biases_and_patterns_narrow_the_choice_but_never_a_new_head(tiny_lm) -> None:
    task_model = make_task_model(tiny_lm("bert"), task_split(), "head")
    new = {
        name
        for name, place in parameter_groups(task_model.lm, list(task_model.params())).items()
        if place == "new"
    }
    assert all(
        name.endswith("bias") or name in new
        for name in select_trainable_params(task_model, biases_only=True)
    )
    last = select_trainable_params(task_model, patterns=("*.layer.2.*",))
    assert set(last) - new == {n for n in task_model.lm.params() if ".layer.2." in n}
    assert new <= set(last)
    assert not new & set(select_trainable_params(task_model, fixed_head=True))


def test_an_empty_choice_is_refused_with_an_example_of_a_name(tiny_lm) -> None:
    task_model = make_task_model(tiny_lm("bert"), task_split(), "head")
    with pytest.raises(BadSpec, match=r"matches '\*\.layers\.\*'.*bert\."):
        select_trainable_params(task_model, patterns=("*.layers.*",))
    bare = make_task_model(tiny_lm("llama"), task_split(), "head", at="last")
    with pytest.raises(BadSpec, match="no biases"):
        select_trainable_params(bare, biases_only=True, fixed_head=True)


def test_a_spec_selects_the_same_weights_as_its_options(tiny_lm) -> None:
    model = make_task_model(tiny_lm("bert"), task_split(), "head")
    spec = TrainingSpec(params=("*.layer.2.*",), biases_only=True)
    by_spec = trainable_params(model, spec)
    by_options = select_trainable_params(model, patterns=("*.layer.2.*",), biases_only=True)
    assert set(by_spec) == set(by_options)
    assert set(trainable_params(model, TrainingSpec())) > set(by_spec)
