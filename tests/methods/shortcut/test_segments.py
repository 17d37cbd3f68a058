"""Segmented models: tokens that wait between segments get the plain model's states."""

import pytest
import torch

from cutaway.core.errors import BadSpec
from cutaway.methods.shortcut.segments import segmented
from cutaway.models.hooks import collect_states
from tests.methods.shortcut.test_decode import CAUSAL, ids_of


@pytest.mark.slow
@pytest.mark.parametrize("family", CAUSAL)
@pytest.mark.parametrize("border", [0, 1])
@torch.inference_mode()
def test_tokens_that_wait_between_segments_get_the_plain_models_states(
    family, border: int, tiny_lm
) -> None:
    lm = tiny_lm(family)
    ids = ids_of(lm, 9)
    plain = collect_states(lm, ids, torch.ones_like(ids, dtype=torch.bool)).layers
    with segmented(lm, [border]) as cut:
        front = torch.cat(
            [cut.run(0, ids[:, :4]), *(cut.run(0, ids[:, i : i + 1]) for i in range(4, 9))], 1
        )
        rear = torch.cat(
            [cut.run(1, ids[:, :6], front[:, :6]), cut.run(1, ids[:, 6:], front[:, 6:])], 1
        )
    torch.testing.assert_close(front, plain[border], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(rear, plain[lm.layers], rtol=1e-4, atol=1e-4)
    again = collect_states(lm, ids, torch.ones_like(ids, dtype=torch.bool)).layers
    assert torch.equal(again[lm.layers], plain[lm.layers])


@torch.inference_mode()
def test_dropped_tokens_leave_no_trace(toy) -> None:
    ids, others = ids_of(toy, 8), ids_of(toy, 3, seed=5)
    with segmented(toy, [1]) as cut:
        expected = cut.run(1, ids, cut.run(0, ids))
        cut.reset()
        cut.run(1, ids[:, :5], cut.run(0, ids[:, :5]))
        cut.run(1, others, cut.run(0, others))
        for segment in (0, 1):
            cut.drop_last(segment, 3)
        rest = cut.run(1, ids[:, 5:], cut.run(0, ids[:, 5:]))
    torch.testing.assert_close(rest, expected[:, 5:], rtol=1e-4, atol=1e-5)


def test_blocks_are_restored_also_after_an_error(toy) -> None:
    with pytest.raises(KeyError), segmented(toy, [1]):
        raise KeyError("stop")
    assert not any("forward" in block.__dict__ for block in toy.blocks)


def test_what_cannot_be_cut_is_refused(toy, tiny_lm) -> None:
    with pytest.raises(BadSpec, match=r"out of range.*0\.\.2"), segmented(toy, [3]):
        pass
    masked = tiny_lm("bert")
    with pytest.raises(BadSpec, match="only causal models"), segmented(masked, [1]):
        pass


@pytest.mark.parametrize("ends", [[], [0], [2], [0, 1], [0, 1, 2]])
@torch.inference_mode()
def test_any_cut_gives_the_states_of_its_layers(toy, ends) -> None:
    ids = ids_of(toy, 6)
    plain = collect_states(toy, ids, torch.ones_like(ids, dtype=torch.bool)).layers
    with segmented(toy, ends) as cut:
        hidden = None
        for segment, layer in enumerate(cut.ends):
            hidden = cut.run(segment, ids, hidden)
            torch.testing.assert_close(hidden, plain[layer], rtol=1e-4, atol=1e-5)
    assert cut.ends == (*ends, toy.layers)


@torch.inference_mode()
def test_a_reset_model_has_no_memory(toy) -> None:
    ids = ids_of(toy, 5)
    with segmented(toy, []) as cut:
        first = cut.run(0, ids)
        again = cut.run(0, ids)
        cut.reset()
        fresh = cut.run(0, ids)
    assert torch.equal(first, fresh)
    assert not torch.allclose(first, again)
