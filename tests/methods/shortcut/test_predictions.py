"""Predictions of all layers: they equal a direct computation, chunk by chunk or at once."""

import pytest
import torch

from cutaway.console import Console
from cutaway.methods.shortcut import predictions as module
from cutaway.methods.shortcut.predictions import (
    logits_fn,
    precision_by_layer,
    predict_all_layers,
    predictions_from_states,
    texts_not_fitted_on,
)
from cutaway.models.hooks import collect_states
from tests.methods.shortcut.toy import OTHER

KINDS = ("id", "mat")


@pytest.fixture(scope="module")
def rows(other_sample, maps):
    return texts_not_fitted_on(other_sample.texts, maps)


@pytest.fixture(scope="module")
def predicted(other_sample, maps, rows):
    return predict_all_layers(other_sample, rows, maps, KINDS, Console(quiet=True))


def final_states(sample, rows) -> torch.Tensor:
    return torch.cat([s[sample.lm.layers] for _, s in sample.states(rows, [sample.lm.layers])])


def test_logits_are_the_models_own(toy) -> None:
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.inference_mode():
        states = collect_states(toy, ids, torch.ones_like(ids, dtype=torch.bool)).layers
        own = toy.module(ids).logits[0].float()
        torch.testing.assert_close(logits_fn(toy)(states[toy.layers][0]), own, rtol=1e-4, atol=1e-4)


def test_each_layer_predicts_through_its_map(other_sample, maps, rows, predicted) -> None:
    lm = other_sample.lm
    head = logits_fn(lm)
    with torch.no_grad():
        for kind in KINDS:
            for layer in range(lm.layers):
                hidden = torch.cat([s[layer] for _, s in other_sample.states(rows, [layer])])
                logits = head(maps.jump(layer, lm.layers, kind)(hidden))
                assert torch.equal(predicted[kind, layer].guess, logits.argmax(-1))


def test_small_chunks_change_nothing(other_sample, maps, rows, predicted, monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_LOGITS", 3 * other_sample.lm.vocab)
    chunked = predict_all_layers(other_sample, rows, maps, KINDS, Console(quiet=True))
    for key, one in predicted.items():
        assert torch.equal(chunked[key].guess, one.guess)
        torch.testing.assert_close(chunked[key].kl, one.kl, rtol=1e-4, atol=1e-6)


def test_the_full_models_states_predict_what_the_full_model_predicts(
    other_sample, rows, predicted
) -> None:
    full = final_states(other_sample, rows)
    same = predictions_from_states(other_sample, rows, full, full)
    assert torch.equal(same.guess, predicted["id", other_sample.lm.layers].guess)
    assert float(same.kl.max()) < 1e-5
    other = predictions_from_states(other_sample, rows, torch.zeros_like(full), full)
    assert float(other.kl.mean()) > 0.01


def test_precision_is_the_share_of_equal_predictions(other_sample, predicted) -> None:
    last = other_sample.lm.layers
    precision = precision_by_layer(predicted, "mat")
    assert len(precision) == last + 1
    for layer, value in enumerate(precision):
        same = predicted["mat", layer].guess == predicted["mat", last].guess
        assert value == pytest.approx(float(same.float().mean()))


def test_other_texts_are_all_measured(other_sample, rows) -> None:
    assert len(rows) == len(OTHER)
