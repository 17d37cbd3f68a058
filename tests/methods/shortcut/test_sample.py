"""Samples: seeded positions, the tokens that follow, and the states of all layers there."""

import numpy as np
import pytest
import torch

from cutaway.core.errors import BadData
from cutaway.core.textset import TextSet
from cutaway.methods.shortcut.sample import SampleRequest, load_sample_texts, take_sample
from cutaway.methods.shortcut.spec import EvalSpec
from cutaway.models.hooks import collect_states
from cutaway.recipe.life_cycle import Context
from tests.methods.shortcut.toy import OTHER


def spec_of(**options) -> EvalSpec:
    return EvalSpec(model="-", text="texts", shortcut="-", **options)


def test_states_are_the_models_at_the_marked_positions(other_sample) -> None:
    lm, rows = other_sample.lm, np.arange(3)
    [(_, states)] = other_sample.states(rows, range(lm.layers + 1))
    start = 0
    for row in rows:
        ids = torch.tensor([other_sample.full.rows[row]])
        plain = collect_states(lm, ids, torch.ones_like(ids, dtype=torch.bool)).layers
        marks = other_sample.full.marks[row]
        for layer, values in states.items():
            own = values[start : start + len(marks)]
            torch.testing.assert_close(own, plain[layer][0, marks], rtol=1e-3, atol=1e-3)
        start += len(marks)
    assert start == len(states[0])


def test_chunks_cover_all_texts_once(other_sample) -> None:
    rows = np.arange(len(OTHER))
    parts = list(other_sample.states(rows, [0], at_once=7))
    assert np.concatenate([part for part, _ in parts]).tolist() == rows.tolist()
    assert max(len(part) for part, _ in parts) == 7


def test_the_next_token_follows_the_position(other_sample) -> None:
    rows = np.arange(len(OTHER))
    tokens, at = other_sample.next_tokens(rows).tolist(), 0
    assert len(tokens) == len(other_sample.positions(rows))
    for row in rows:
        complete = [*other_sample.full.rows[row], -1]
        for position in other_sample.full.marks[row]:
            assert tokens[at] == complete[position + 1]
            at += 1


def test_causal_models_read_up_to_the_last_position(other_sample) -> None:
    for row, marks in zip(other_sample.inputs.rows, other_sample.inputs.marks, strict=True):
        assert len(row) == marks[-1] + 1
    assert other_sample.mean_length == np.mean([len(row) for row in other_sample.inputs.rows])


def test_masked_models_predict_the_masked_token(tiny_lm) -> None:
    lm = tiny_lm("bert")
    sample = take_sample(SampleRequest(spec_of(), lm, OTHER, 0), Context())
    rows = np.arange(len(OTHER))
    expected = [sample.full.rows[i][sample.full.marks[i][0]] for i in rows]
    assert sample.next_tokens(rows).tolist() == expected
    for i in rows:
        assert sample.inputs.rows[i][sample.inputs.marks[i][0]] == lm.tokenizer.mask_token_id


def test_training_and_held_out_texts_are_disjoint(other_sample) -> None:
    assert len(other_sample.held_out) == len(OTHER) // 4
    together = np.concatenate([other_sample.train, other_sample.held_out])
    assert sorted(together.tolist()) == list(range(len(OTHER)))


def test_texts_that_are_too_short_are_skipped_and_counted(toy) -> None:
    texts = TextSet("mixed", ("a", *OTHER.texts[:3]))
    kept, skipped = load_sample_texts(toy, spec_of(), {"texts": texts})
    assert kept.texts == OTHER.texts[:3]
    assert skipped == 1
    with pytest.raises(BadData, match="1 texts of two tokens or more, at least 2"):
        load_sample_texts(toy, spec_of(), {"texts": TextSet("few", ("a", OTHER.texts[0]))})


def test_the_identity_changes_with_the_texts(toy) -> None:
    one, other = (SampleRequest(spec_of(), toy, OTHER.take(range(n)), 0) for n in (3, 4))
    assert one.identity["model"] == other.identity["model"]
    assert one.identity["data"] != other.identity["data"]
