"""The key of stored activations changes with everything that can change a number."""

from dataclasses import replace

import numpy as np
import pytest

from cutaway.core.textset import TextSet
from cutaway.extract.request import ExtractionRequest
from cutaway.pool import POOLERS, Pooler


@pytest.mark.parametrize(
    "change",
    [{"prompt": " So?"}, {"max_tokens": 5}, {"truncation": "left", "max_tokens": 5},
     {"stored_dtype": "float16"},
     {"window": 6}, {"input_mode": "cut"}, {"input_mode": "cut", "seed": 1},
     {"input_mode": "cut", "positions": 2}],
    ids=str,
)  # fmt: skip
def test_whatever_can_change_a_number_changes_the_key(change, tiny_lm, texts):
    lm = tiny_lm("gpt2")
    plain = ExtractionRequest(layers=(1,)).key(lm, texts)
    assert ExtractionRequest(layers=(1,), **change).key(lm, texts) != plain


def test_other_texts_weights_and_kernels_have_other_keys(tiny_lm, texts):
    ask, lm = ExtractionRequest(layers=(1,)), tiny_lm("gpt2")
    keys = [
        ask.key(lm, texts),
        ask.key(lm, texts.take(range(3))),
        ask.key(tiny_lm("llama"), texts),
        ask.key(tiny_lm("gpt2", attention="eager"), texts),
        ask.key(replace(lm, quantise="int8"), texts),
        ask.key(replace(lm, quantise="int4"), texts),
        ask.key(lm, TextSet("pairs", texts.texts, pairs=texts.texts)),
    ]
    assert len({str(key) for key in keys}) == len(keys)


def test_labels_are_no_part_of_the_key(tiny_lm, texts):
    lm = tiny_lm("gpt2")
    labelled = TextSet("x", texts.texts, labels=np.arange(len(texts)) % 2, task="binary")
    assert ExtractionRequest(layers=(1,)).key(lm, texts) == ExtractionRequest(layers=(1,)).key(
        lm, labelled
    )


def test_layers_heads_and_poolers_are_columns_and_no_part_of_the_key(tiny_lm, texts):
    lm = tiny_lm("gpt2")
    one = ExtractionRequest(layers=(1,), pools=("last",))
    two = ExtractionRequest(layers=(0, 2), pools=("mean", "q0.4"), heads=("logz",))
    assert one.key(lm, texts) == two.key(lm, texts)
    assert list(two.columns().items())[:2] == [("0/mean", ("0", "mean")), ("0/q0.4", ("0", "q0.4"))]
    assert len(two.columns()) == 6


@pytest.mark.parametrize("pools", [("attn",), ("mean", "attn:1"), ("mine", "last")])
def test_a_pooler_that_needs_attention_weights_is_stored_under_the_eager_kernel(
    pools, tiny_lm, texts, monkeypatch
):
    monkeypatch.setitem(POOLERS, "mine", Pooler("mine", POOLERS["attn"].function, "attention"))
    sdpa, eager = tiny_lm("gpt2"), tiny_lm("gpt2", attention="eager")
    request = ExtractionRequest(layers=(1,), pools=pools)
    assert request.key(sdpa, texts)["attention"] == "eager"
    assert request.key(eager, texts)["attention"] == "eager"


def test_other_poolers_are_stored_under_the_models_own_kernel(tiny_lm, texts):
    request = ExtractionRequest(layers=(1,), pools=("mean", "all", "marks", "q0.5"))
    for kernel in ("sdpa", "eager"):
        assert request.key(tiny_lm("gpt2", attention=kernel), texts)["attention"] == kernel
