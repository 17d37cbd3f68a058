"""Rounding is told from faults by measured noise, in every precision."""

from dataclasses import replace

import pytest
import torch

from cutaway.models.rounding import (
    BLINDING_NOISE,
    FINE,
    WRONG,
    disturbed,
    judge,
    relative_error,
    rounding_noise,
    wider_precision,
    with_seed,
)


def test_verdicts_grow_with_the_error_in_units_of_the_noise() -> None:
    for noise in (1e-16, 1e-7, 1e-2):
        verdicts = [judge(times * noise, noise) for times in (0, FINE, 1.01 * FINE, WRONG, 11)]
        assert verdicts == ["fine", "fine", "noisy", "noisy", "wrong"]
    assert judge(0.0, 0.0) == "fine"
    assert judge(1e-30, 0.0) == "wrong"


def test_noise_that_could_hide_a_fault_is_never_fine() -> None:
    assert judge(0.0, BLINDING_NOISE) == "fine"
    assert judge(0.0, 1.1 * BLINDING_NOISE) == "noisy"


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_what_is_not_a_number_is_wrong(bad) -> None:
    assert judge(bad, 1.0) == judge(0.0, bad) == "wrong"


@pytest.mark.parametrize(("quantise", "dtype"), [("none", "float32"), ("int8", "float16")])
def test_the_last_place_of_quantised_layers_is_that_of_float16(quantise, dtype, lm_of) -> None:
    from cutaway.models.hooks import collect_states

    lm = replace(lm_of("gpt2"), quantise=quantise)
    ids = torch.arange(5, 15)[None]
    mask = torch.ones_like(ids, dtype=torch.bool)
    with torch.no_grad():
        plain = collect_states(lm, ids, mask).layers[0]
        with disturbed(lm, 0):
            got = collect_states(lm, ids, mask).layers[0]
    unit = torch.finfo(getattr(torch, dtype)).eps
    assert relative_error(got, plain) == pytest.approx(unit, rel=0.1)


def test_an_error_is_relative_per_vector() -> None:
    plain = torch.tensor([[1000.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    ours = plain.clone()
    ours[1, 1] = 0.1
    assert relative_error(ours, plain) == pytest.approx(0.05)
    assert relative_error(torch.zeros(2, 3), torch.zeros(2, 3)) == 0


def test_an_error_of_other_shapes_or_nan_is_infinite() -> None:
    plain = torch.ones(2, 3)
    assert relative_error(torch.ones(2, 4), plain) == float("inf")
    assert relative_error(plain * float("nan"), plain) == float("inf")


@pytest.mark.parametrize("family", ["gpt2", "albert", "mpnet", "modernbert"])
def test_a_disturbance_is_one_unit_in_the_last_place_of_each_block_input(family, lm_of) -> None:
    from cutaway.models.hooks import collect_states

    lm = lm_of(family)
    ids = torch.arange(5, 15)[None]
    read = lambda: collect_states(lm, ids, torch.ones_like(ids, dtype=torch.bool)).layers  # noqa: E731
    with torch.no_grad():
        plain = read()
        with disturbed(lm, 0):
            one, again = read(), read()
        assert all(torch.equal(plain[layer], state) for layer, state in read().items())
    changed = (one[0] / plain[0] - 1).abs()
    assert 0 < changed.max() <= 2 * torch.finfo(torch.float32).eps
    assert not torch.equal(one[0], again[0])
    assert not torch.equal(one[lm.layers], plain[lm.layers])


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_noise_is_that_of_the_precision(dtype, lm_of) -> None:
    lm = lm_of("llama", dtype=dtype)
    ids = torch.arange(5, 15)[None]
    read = lambda: {"logits": lm.module(input_ids=ids).logits}  # noqa: E731
    with torch.no_grad():
        noise = rounding_noise(lm, read, with_seed(lm, read))["logits"]
    # transformers computes norms in float32, also in a float64 model.
    unit = max(torch.finfo(one).eps for one in (getattr(torch, dtype), torch.float32))
    assert 0.3 < noise / unit < 30


def test_dropout_left_on_is_not_in_the_noise(folder_of) -> None:
    from cutaway.models.load import open_model

    lm = open_model(folder_of("gpt2"), check=False)
    lm.module.train()
    ids = torch.arange(5, 15)[None]
    read = lambda: {"logits": lm.module(input_ids=ids).logits}  # noqa: E731
    with torch.no_grad():
        assert rounding_noise(lm, read, with_seed(lm, read))["logits"] < 1e-5
        assert relative_error(read()["logits"], read()["logits"]) > 1e-2


@pytest.mark.parametrize(("dtype", "wider"), [("bfloat16", "float32"), ("float32", "float64")])
def test_weights_are_wider_within_and_the_same_afterwards(dtype, wider, lm_of) -> None:
    lm = lm_of("gpt2", dtype=dtype)
    before = {name: (p.data_ptr(), p.dtype) for name, p in lm.module.named_parameters()}
    with pytest.raises(ZeroDivisionError), wider_precision(lm) as possible:
        assert possible
        assert {str(p.dtype) for p in lm.module.parameters()} == {f"torch.{wider}"}
        assert lm.decoder.weight is lm.module.transformer.wte.weight
        raise ZeroDivisionError
    after = {name: (p.data_ptr(), p.dtype) for name, p in lm.module.named_parameters()}
    assert after == before


def test_nothing_is_widened_where_it_is_impossible(lm_of, monkeypatch) -> None:
    with wider_precision(lm_of("gpt2", dtype="float64")) as possible:
        assert not possible
    monkeypatch.setattr("cutaway.models.rounding.free_memory", lambda device: 1000)
    lm = lm_of("gpt2")
    with wider_precision(lm) as possible:
        assert not possible
        assert lm.module.dtype == torch.float32
