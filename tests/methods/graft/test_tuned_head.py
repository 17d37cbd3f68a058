"""Mode head: the tuned head is kept, the trunk is masked."""

from cutaway.methods.graft import api as graft
from cutaway.methods.graft.skill import load_skill
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
