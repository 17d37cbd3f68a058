"""Other weights and replaced parts take effect, and the model is restored afterwards."""

from copy import deepcopy

import pytest
import torch

from cutaway.core.errors import BadSpec, Mismatch
from cutaway.models.anatomy import ANATOMIES
from cutaway.models.hooks import collect_states
from cutaway.models.sites import Site
from cutaway.models.swap import swapped_parts, with_params
from cutaway.models.tokens import pad, tokenize
from tests.tiny import SENTENCES


def logits(lm, side="right"):
    ids, mask = pad(tokenize(lm, SENTENCES[:2], limit=20).rows, lm.pad_id, side)
    with torch.no_grad():
        return collect_states(lm, ids, mask, [], logits=True).logits[mask]


def moved(lm, by: float = 0.1) -> dict[str, torch.Tensor]:
    return {name: value + by for name, value in lm.params().items()}


def test_unknown_weights_and_other_shapes_are_refused(lm) -> None:
    name, value = next(iter(lm.params().items()))
    with pytest.raises(Mismatch, match="Did you mean"):
        with_params(lm.module, {name + "x": value}, lambda module: None)
    with pytest.raises(Mismatch, match="shape"):
        with_params(lm.module, {name: value[:1]}, lambda module: None)


def test_without_weights_the_module_is_used_as_it_is(lm) -> None:
    assert with_params(lm.module, None, lambda module: module) is lm.module


def test_given_weights_are_used_with_gradients_and_the_module_is_unchanged(lm) -> None:
    params = {name: value.requires_grad_(True) for name, value in moved(lm).items()}
    ids, _ = pad(tokenize(lm, SENTENCES[:1], limit=20).rows, lm.pad_id)
    before = lm.module(ids).logits
    ours = with_params(lm.module, params, lambda module: module(ids).logits)
    other = deepcopy(lm.module)
    with torch.no_grad():
        for name, parameter in other.named_parameters():
            parameter.copy_(params[name])
    torch.testing.assert_close(ours, other(ids).logits)
    assert torch.equal(lm.module(ids).logits, before)
    ours.square().sum().backward()
    assert all(value.grad is not None for value in params.values())
    assert all(p.grad is None for p in lm.module.parameters())


def test_a_tied_weight_is_replaced_at_both_places(lm_of) -> None:
    lm = lm_of("gpt2")
    assert lm.tied
    table = torch.randn_like(lm.params()["transformer.wte.weight"])
    used = with_params(
        lm.module, {"transformer.wte.weight": table}, lambda module: module.lm_head.weight
    )
    assert torch.equal(used, table)


def test_parts_are_restored_after_an_error(lm_of) -> None:
    lm = lm_of("llama")
    before = logits(lm)
    with pytest.raises(KeyError), swapped_parts(lm, {Site(1, "mlp"): torch.zeros_like}):
        raise KeyError
    assert torch.equal(logits(lm), before)


PARTS = ("norm1", "attn", "norm2", "mlp")


@pytest.mark.parametrize("family", ANATOMIES)
def test_a_part_replaced_by_what_it_does_changes_nothing(family, lm_of) -> None:
    """The recorded output of each part, put in its place, gives the same logits."""
    lm = lm_of(family)
    sites = [Site(layer, part) for layer in (1, lm.layers) for part in ("block", *PARTS)
             if part == "block" or getattr(lm.anatomy, part)]  # fmt: skip
    ids, mask = pad(tokenize(lm, SENTENCES[:2], limit=20).rows, lm.pad_id)
    with torch.no_grad():
        plain = collect_states(lm, ids, mask, [], sites, logits=True)
    recorded = {site: lambda _, out=plain.sites[site]: out for site in sites}
    with swapped_parts(lm, recorded):
        torch.testing.assert_close(logits(lm), plain.logits[mask])


@pytest.mark.parametrize(
    ("family", "part"),
    [(name, part) for name, row in ANATOMIES.items() for part in PARTS if getattr(row, part)],
)
def test_a_replaced_part_matters_and_comes_back(family, part, lm_of) -> None:
    lm = lm_of(family)
    before, shapes = logits(lm), []

    def off(state: torch.Tensor) -> torch.Tensor:
        shapes.append(state.shape)
        return torch.zeros_like(state)

    with swapped_parts(lm, {Site(2, part): off}):
        assert not torch.allclose(logits(lm), before, rtol=1e-3, atol=1e-3)
    assert torch.equal(logits(lm), before)
    assert len(shapes) == 1
    assert shapes[0][0] == 2
    assert shapes[0][2] == lm.width


def test_only_the_named_block_is_changed_even_when_blocks_share_weights(lm_of) -> None:
    lm = lm_of("albert")
    ids, mask = pad(tokenize(lm, SENTENCES[:1]).rows, lm.pad_id)
    plain = collect_states(lm, ids, mask).layers
    with swapped_parts(lm, {Site(2, "mlp"): torch.zeros_like}):
        other = collect_states(lm, ids, mask).layers
    assert torch.equal(other[1], plain[1])
    assert not torch.allclose(other[2], plain[2])


def test_a_part_that_is_not_there_is_refused(lm_of) -> None:
    with (
        pytest.raises(BadSpec, match="no separate part 'norm2'"),
        swapped_parts(lm_of("phi"), {Site(1, "norm2"): lambda x: x}),
    ):
        pass
