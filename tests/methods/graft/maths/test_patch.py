"""Patches: applied, undone, rescaled, stacked, refused."""

import pytest
import torch

from cutaway.core.errors import Mismatch
from cutaway.methods.graft.maths.masks import MASKS, MaskInputs
from cutaway.methods.graft.maths.patch import (
    CONFLICT_RULES,
    count_mismatches,
    graft_weights,
    make_patch,
    need_matching_shapes,
    patched_weights,
    stack_patches,
    values_at,
)
from cutaway.methods.graft.maths.select import Mask
from tests.methods.graft.maths.toy import every, generator


def test_nothing_chosen_is_the_base_and_all_chosen_is_the_tuned_model(pair) -> None:
    _, base, tuned, *_ = pair
    for mask, expected in ((every(base, 0), base), (every(base, 1), tuned)):
        made = graft_weights(base, tuned, mask)
        assert all(torch.equal(made[n], expected[n]) for n in base)


def test_a_patch_is_on_inside_and_gone_outside_bit_for_bit(pair) -> None:
    module, base, tuned, *_ = pair
    params = dict(module.named_parameters())
    patch = make_patch(base, tuned, MASKS["random"](MaskInputs(base, tuned), 11, generator()))
    with patched_weights(params, patch):
        assert count_mismatches(params, patch.mask, patch.after) == 0
        assert sum(int((params[n] != base[n]).sum()) for n in base) == 11
    assert all(torch.equal(params[n].data, base[n]) for n in base)
    assert count_mismatches(params, patch.mask, patch.after) == 11
    assert count_mismatches(params, patch.mask, patch.before) == 0


def test_a_rescaled_patch_multiplies_the_change(pair) -> None:
    _, base, tuned, *_ = pair
    mask = every(base, 1)
    patch = make_patch(base, tuned, mask, scale=3.0)
    for name, after in patch.after.items():
        moved = values_at(tuned, mask)[name] - patch.before[name]
        torch.testing.assert_close(after - patch.before[name], 3 * moved)


@pytest.mark.parametrize(("rule", "expected"), [("sum", 13.0), ("mean", 7.0), ("first", 11.0)])
def test_where_skills_disagree_the_rule_decides(rule: str, expected: float) -> None:
    base = {"w": torch.tensor([1.0, 1.0, 1.0])}
    one = make_patch(base, {"w": torch.tensor([11.0, 5.0, 1.0])}, Mask({"w": torch.tensor([0, 1])}))
    two = make_patch(base, {"w": torch.tensor([3.0, 1.0, 9.0])}, Mask({"w": torch.tensor([0, 2])}))
    made = stack_patches([one, two], rule)
    assert made.patch.after["w"].tolist() == [expected, 5.0, 9.0]
    assert made.patch.before["w"].tolist() == [1.0, 1.0, 1.0]
    assert made.conflicts == 1
    assert set(CONFLICT_RULES) == {"sum", "mean", "first"}


def test_a_skill_stacked_alone_or_on_itself_has_no_conflict(pair) -> None:
    _, base, tuned, *_ = pair
    patch = make_patch(base, tuned, MASKS["movement"](MaskInputs(base, tuned), 9, generator()))
    for rule in ("mean", "first"):
        assert stack_patches([patch, patch], rule).conflicts == 0
    alone = stack_patches([patch])
    assert all(torch.equal(alone.patch.after[n], patch.after[n]) for n in patch.after)


def test_skills_of_different_bases_are_not_stacked() -> None:
    mask = Mask({"w": torch.tensor([0])})
    made = [
        make_patch({"w": torch.tensor([b])}, {"w": torch.tensor([5.0])}, mask) for b in (0.0, 1.0)
    ]
    with pytest.raises(Mismatch, match="different bases"):
        stack_patches(made)


def test_a_patch_of_another_architecture_is_refused(pair) -> None:
    _, base, *_ = pair
    mask = Mask({"0.weight": torch.tensor([1])})
    need_matching_shapes(base, mask, {"0.weight": (12, 6)})
    with pytest.raises(Mismatch, match=r"\(12, 6\).*\(6, 12\)"):
        need_matching_shapes(base, mask, {"0.weight": (6, 12)})
    with pytest.raises(Mismatch, match="no weight 'x'"):
        need_matching_shapes(base, Mask({"x": torch.tensor([1])}), {"x": (2,)})
