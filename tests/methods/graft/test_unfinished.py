"""Unfinished work of graft comes back from disk as it was."""

import math

import pytest
import torch

from cutaway.console import Console
from cutaway.methods.graft.maths.masks import GradientSums
from cutaway.methods.graft.maths.select import Mask
from cutaway.methods.graft.maths.soft_mask import MaskState
from cutaway.methods.graft.unfinished import mask_keeper, saved_mask, saved_sums, sums_keeper
from cutaway.store import snapshots as module
from cutaway.store.snapshots import Snapshots

STATE = MaskState(
    4,
    {"a.w": torch.tensor([0.5, -2.0])},
    {"a.w": (torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))},
    (0.75, Mask({"a.w": torch.tensor([1])}), 2),
    [{"step": 0, "loss": math.nan, "score": 0.5, "ones": 1}],
)


@pytest.fixture
def always(monkeypatch, tmp_path) -> Snapshots:
    monkeypatch.setattr(module, "SAVE_SECONDS", 0.0)
    return Snapshots(tmp_path / "work", Console(quiet=True))


def test_a_mask_comes_back_as_it_was(always) -> None:
    assert saved_mask(always) is None
    mask_keeper(always, last=10)(STATE)
    back = saved_mask(always)
    assert back.step == 4 and torch.equal(back.logits["a.w"], STATE.logits["a.w"])
    assert all(
        torch.equal(one, other)
        for one, other in zip(back.moments["a.w"], STATE.moments["a.w"], strict=True)
    )
    score, mask, step = back.best
    assert (score, step) == (0.75, 2) and torch.equal(mask.indices["a.w"], torch.tensor([1]))
    assert str(back.curve) == str(list(STATE.curve)), "NaN included"


def test_names_come_back_in_their_order_which_is_that_of_a_skill_file(always) -> None:
    names = ["b.w", "a.w", "c.w"]
    logits = {name: torch.zeros(2) for name in names}
    moments = {name: (torch.ones(2), torch.ones(2)) for name in names}
    best = (0.5, Mask({name: torch.tensor([0]) for name in names[:2]}), 1)
    mask_keeper(always, last=10)(MaskState(1, logits, moments, best, []))
    back = saved_mask(always)
    assert list(back.logits) == list(back.moments) == names
    assert list(back.best[1].indices) == names[:2]


def test_gradient_sums_come_back_as_they_were(always) -> None:
    sums = GradientSums({"w": torch.tensor([1.5])}, {"w": torch.tensor([2.5])}, 7)
    assert saved_sums(always, sums.sum) is None
    sums_keeper(always, last=9)(sums)
    back = saved_sums(always, sums.sum)
    assert back.examples == 7 and back.sum == sums.sum and back.square == sums.square


def test_nothing_is_saved_before_it_is_due(tmp_path) -> None:
    patient = Snapshots(tmp_path / "work", Console(quiet=True))
    mask_keeper(patient, last=4)(STATE)
    sums_keeper(patient, last=7)(GradientSums({}, {}, 7))
    assert not (tmp_path / "work").exists()
