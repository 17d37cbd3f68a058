"""Sites: named places in the blocks, the same for every family."""

import pytest
import torch

from cutaway.core.errors import BadSpec
from cutaway.models.hooks import collect_states
from cutaway.models.sites import (
    Site,
    input_state,
    output_state,
    replace_input_state,
    replace_output_state,
    unflatten_batch,
)
from cutaway.models.tokens import pad, tokenize
from tests.tiny import SENTENCES


def batch(lm):
    return pad(tokenize(lm, SENTENCES[:3], limit=30).rows, lm.pad_id)


def test_sites_meet_the_layers(lm) -> None:
    ids, mask = batch(lm)
    sites = [Site(2, "block", "in"), Site(2, "block", "out")]
    got = collect_states(lm, ids, mask, sites=sites)
    assert torch.equal(got.sites[sites[0]], got.layers[1])
    assert torch.equal(got.sites[sites[1]], got.layers[2])


@pytest.mark.parametrize("site", [Site(0), Site(4), Site(1, "nose"), Site(1, "mlp", "up")])
def test_a_site_that_is_not_there_is_refused(site, lm) -> None:
    with pytest.raises(BadSpec):
        collect_states(lm, *batch(lm), sites=[site])


def test_a_part_that_a_family_has_not_is_refused(lm_of) -> None:
    lm = lm_of("phi")
    with pytest.raises(BadSpec, match="norm2"):
        collect_states(lm, *batch(lm), sites=[Site(1, "norm2")])


def test_states_are_found_and_put_back_wherever_a_family_passes_them() -> None:
    old, new = torch.zeros(2, 3), torch.ones(2, 3)
    for args, kwargs in (((old, "mask"), {}), ((), {"hidden_states": old, "mask": 1})):
        assert input_state(args, kwargs) is old
        assert input_state(*replace_input_state(args, kwargs, new)) is new
    for output in (old, (old, "weights")):
        assert output_state(output) is old
        assert output_state(replace_output_state(output, new)) is new


def test_flattened_rows_get_their_batch_back() -> None:
    like = torch.zeros(2, 3, 4)
    assert unflatten_batch(torch.zeros(6, 8), like).shape == (2, 3, 8)
    assert unflatten_batch(like, like) is like
