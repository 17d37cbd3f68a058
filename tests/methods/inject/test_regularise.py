"""The regularisers: their terms against a direct calculation, with weights and with adapters."""

import numpy as np
import pytest
import torch

from cutaway.methods.inject.examples import example_losses, target_logits
from cutaway.methods.inject.regularise import EXTRA_LOSSES, RegulariserInputs, make_extra_loss
from cutaway.methods.inject.retain import read_retained_sets
from cutaway.methods.inject.spec import REGULARISERS, InjectSpec
from cutaway.methods.inject.trainable import full_weights, lora_weights
from cutaway.models.load import open_model
from tests.methods.inject.toys import RETAIN

HELD = [name for name in REGULARISERS if name != "none"]


@pytest.fixture(scope="module")
def lm(toys):
    return open_model(toys["causal"], check=False)


@pytest.fixture(scope="module")
def retained(lm):
    return read_retained_sets(lm, InjectSpec(model="m", retain=["toy"]), {"toy": RETAIN})


def inputs(lm, trainable, retained, strength: float = 2.0) -> RegulariserInputs:
    rng = torch.Generator().manual_seed(0)
    fisher = {n: torch.rand(w.shape, generator=rng) for n, w in trainable.anchor.items()}
    return RegulariserInputs(lm, trainable, retained, fisher, 0.5, strength, 4, 0)


def move(trainable, size: float = 0.05) -> None:
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in trainable.params.values():
            value.add_(size * torch.randn(value.shape, generator=rng))


def test_every_regulariser_of_the_spec_has_a_term() -> None:
    assert set(EXTRA_LOSSES) == set(REGULARISERS)


def test_plain_training_and_strength_0_add_nothing(lm, retained) -> None:
    with full_weights(lm, "all") as trainable:
        assert make_extra_loss("none", inputs(lm, trainable, retained)) is None
        for name in HELD:
            assert make_extra_loss(name, inputs(lm, trainable, retained, 0.0)) is None


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("name", ["ewc", "l2sp"])
def test_weight_penalties_are_their_formula(name, rank, lm, retained) -> None:
    weights = lora_weights(lm, rank, seed=0) if rank else full_weights(lm, "all")
    with weights as trainable:
        move(trainable)
        given = inputs(lm, trainable, retained)
        value = make_extra_loss(name, given)(0)
        expected = sum(
            float(
                (
                    (given.fisher[n] / 0.5 if name == "ewc" else 1.0)
                    * (weight.detach() - trainable.anchor[n]).double().square()
                ).sum()
            )
            for n, weight in trainable.weights().items()
        )
        assert float(value) == pytest.approx(0.5 * 2.0 * expected, rel=1e-4)
        assert expected > 0


@pytest.mark.parametrize("rank", [0, 2])
def test_kl_is_0_at_the_start_and_compares_with_the_base_afterwards(rank, lm, retained) -> None:
    weights = lora_weights(lm, rank, seed=0) if rank else full_weights(lm, "all")
    batch = retained[0].train
    with torch.no_grad():
        base = target_logits(lm, batch)
    with weights as trainable:
        extra = make_extra_loss("kl", inputs(lm, trainable, retained))
        assert float(extra(0)) == pytest.approx(0.0, abs=1e-5)
        move(trainable)
        moved = [{n: p.detach().clone() for n, p in trainable.params.items()}]
        assert float(extra(0)) > 1e-3
        # Looking at the base leaves the trained weights alone.
        assert all(torch.equal(p, moved[0][n]) for n, p in trainable.params.items())
    with torch.no_grad():
        torch.testing.assert_close(target_logits(lm, batch), base)


def test_replay_is_the_language_loss_of_the_steps_texts(lm, retained) -> None:
    with full_weights(lm, "all") as trainable:
        extra = make_extra_loss("replay", inputs(lm, trainable, retained, 3.0))
        train = retained[0].train
        rows = np.sort(np.random.default_rng([0, 7, 1]).choice(len(train), 4, replace=False))
        with torch.no_grad():
            expected = 3.0 * example_losses(lm, train, rows.tolist()).mean()
            assert float(extra(7)) == pytest.approx(float(expected), rel=1e-5)
            assert float(extra(7)) == float(extra(7)) != float(extra(8))


@pytest.mark.parametrize("name", HELD)
def test_every_term_has_a_gradient_once_the_weights_moved(name, lm, retained) -> None:
    with full_weights(lm, "blocks") as trainable:
        move(trainable)
        for parameter in trainable.params.values():
            parameter.requires_grad_(True)
        make_extra_loss(name, inputs(lm, trainable, retained))(0).backward()
        assert all(bool(p.grad.abs().sum() > 0) for p in trainable.params.values())
        for parameter in trainable.params.values():
            parameter.grad = None
            parameter.requires_grad_(False)
