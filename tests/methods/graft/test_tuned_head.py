"""Mode head: the tuned head is kept, the trunk is masked."""

import pytest
import torch
from safetensors.torch import load_file

from cutaway.core.errors import BadModel
from cutaway.methods.graft import api as graft
from cutaway.methods.graft.skill import load_skill
from cutaway.methods.graft.tuned_head import copy_head, head_names
from cutaway.models.load import open_model
from tests.methods.graft.toy import value


def test_head_mode_keeps_the_tuned_head_and_masks_the_trunk(toy) -> None:
    base, _ = toy.pair("bert")
    tuned = toy.folder / "bert-head"
    shared = {"task": toy.task, "data": toy.data, "runs": toy.runs, "quiet": True}
    graft.finetune(model=base, mode="head", steps=40, lr=0.05, every=20, out=str(tuned), **shared)
    result = toy.learn(tuned=str(tuned), mode="head", text="none", baselines=("random",))
    skill = load_skill(result.path / "skill.safetensors")
    assert all(name in dict(open_model(base).params()) for name in skill.patch.mask.indices)
    assert value(result.rows, "tuned", "accuracy")[0] >= value(result.rows, "base", "accuracy")[0]


def test_a_language_model_has_no_new_head(request_of) -> None:
    model = request_of().pair.model
    assert head_names(model) == []
    assert copy_head(model) == {}


def test_a_checkpoint_without_a_head_is_refused(toy) -> None:
    with pytest.raises(BadModel, match="no classification head"):
        toy.learn(mode="head", text="none", baselines="none")


def test_the_copied_head_is_the_tuned_one_and_no_view(request_of, toy) -> None:
    tuned = toy.folder / "bert-head-copy"
    shared = {"task": toy.task, "data": toy.data, "runs": toy.runs, "quiet": True}
    base = toy.pair("bert")[0]
    graft.finetune(model=base, mode="head", steps=4, lr=0.05, every=4, out=str(tuned), **shared)
    model = request_of(tuned=str(tuned), mode="head").pair.model
    head, saved = copy_head(model), load_file(tuned / "model.safetensors")
    assert set(head) == set(head_names(model)) != set()
    for name, weight in head.items():
        assert torch.equal(weight, saved[name])
        assert weight.data_ptr() != model.params()[name].data_ptr()
