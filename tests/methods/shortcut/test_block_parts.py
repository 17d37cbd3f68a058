"""Parts of blocks: every family has them, each gets its map, each can be replaced by it."""

import numpy as np
import pytest
import torch

from cutaway.console import Console
from cutaway.extract.request import TokenRows
from cutaway.methods.shortcut.block_parts import (
    PART_GROUPS,
    available_parts,
    final_states,
    fit_parts,
    parts_replaced,
)
from cutaway.models.hooks import collect_states
from cutaway.models.sites import Site
from tests.tiny import FAMILIES


@pytest.mark.parametrize("family", ["albert", "bert", "gpt2", "gpt_neox", "llama", "opt", "gemma2"])
def test_a_part_is_replaced_behind_the_start_and_only_there(family, tiny_lm) -> None:
    lm = tiny_lm(family)
    ids = torch.randint(5, 50, (2, 7), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids, dtype=torch.bool)
    plain = collect_states(lm, ids, mask).layers[lm.layers]
    for part in available_parts(lm):
        with parts_replaced(lm, {(1, part): torch.zeros_like}, start=0):
            changed = collect_states(lm, ids, mask).layers
        with parts_replaced(lm, {(1, part): torch.zeros_like}, start=1):
            kept = collect_states(lm, ids, mask).layers[lm.layers]
        assert not torch.allclose(changed[1], collect_states(lm, ids, mask).layers[1]), part
        assert torch.equal(kept, plain)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_part_of_every_family_gets_its_map(family, tiny_lm) -> None:
    lm = tiny_lm(family)
    rng = np.random.default_rng(0)
    rows = [rng.integers(5, lm.vocab, 8).tolist() for _ in range(90)]
    marks, none = [np.array([3, 7])] * len(rows), np.zeros(len(rows), np.int64)
    fed = TokenRows(rows, np.arange(len(rows)), none, marks, none)
    found = fit_parts(lm, fed, range(len(rows)), Console(quiet=True))
    assert set(found) == {
        f"{b}.{part}" for b in range(1, lm.layers + 1) for part in available_parts(lm)
    }
    assert len(available_parts(lm)) >= 3
    ids = torch.tensor(rows[:20])
    sites = [Site(1, part, side) for part in available_parts(lm) for side in ("in", "out")]
    seen = collect_states(
        lm, ids, torch.ones_like(ids, dtype=torch.bool), layers=(), sites=sites
    ).sites
    for part in available_parts(lm):
        one, other = (seen[Site(1, part, side)][:, [3, 7]].flatten(0, 1) for side in ("in", "out"))
        missed = (found[f"1.{part}"](one) - other).square().sum()
        assert missed < other.square().sum(), part


@pytest.mark.parametrize("group", PART_GROUPS)
def test_without_blocks_to_replace_the_states_are_the_models(
    toy, maps, other_sample, group
) -> None:
    rows = [4, 0, 2]
    plain = torch.cat([s[toy.layers] for _, s in other_sample.states(np.array(rows), [toy.layers])])
    same = final_states(toy, other_sample.inputs, rows, maps, group, toy.layers)
    torch.testing.assert_close(same, plain, rtol=1e-3, atol=1e-3)
    changed = final_states(toy, other_sample.inputs, rows, maps, group, 0)
    assert not torch.allclose(changed, plain, rtol=1e-3, atol=1e-3)


def test_groups_are_made_of_known_parts(toy) -> None:
    parts = [part for group in PART_GROUPS.values() for part in group]
    assert sorted(parts) == sorted(available_parts(toy))
