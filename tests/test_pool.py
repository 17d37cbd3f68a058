"""Every pooler of the table and every parsed name: padding, batches, order, precision, facts."""

import inspect
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cutaway.core.errors import BadData, BadSpec, Mismatch, UnknownName
from cutaway.pool import ALL_CONTENT, PLACE_CODES, POOLERS, Pooler, needs_attention, pooler

NAMES = [*POOLERS, "q0", "q0.4", "q0.5", "q1", "attn:3"]
every_pooler = pytest.mark.parametrize("name", NAMES)
JUNK = [0.0, 1e30, float("nan"), float("inf"), float("-inf")]


def rows(lengths, seed=0, d=5):
    """One (hidden, extra) pair per length; the last token is always marked."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for length in lengths:
        hidden = torch.randn(length, d, generator=generator)
        extra = torch.rand(length, generator=generator) + 0.1
        made.append((hidden, extra))
    return made


def batch(made, *, side="right", junk=0.0, spare=0):
    """The rows padded with junk to one length, their mask and their extra."""
    width = max(len(h) for h, _ in made) + spare
    hidden = torch.full((len(made), width, made[0][0].shape[1]), junk)
    extra = torch.full((len(made), width), junk)
    mask = torch.zeros(len(made), width, dtype=torch.bool)
    for i, (h, e) in enumerate(made):
        where = slice(0, len(h)) if side == "right" else slice(width - len(h), width)
        hidden[i, where], extra[i, where], mask[i, where] = h, e, True
    return hidden, mask, extra


def slowly(name, hidden, extra):
    """The pooled vector of one unpadded row, by the plainest code."""
    if name.startswith("q"):
        return hidden[round(float(name[1:]) * (len(hidden) - 1))]
    plain = {
        "first": lambda: hidden[0],
        "cls": lambda: hidden[0],
        "last": lambda: hidden[-1],
        "mean": lambda: hidden.mean(0),
        "max": lambda: hidden.max(0).values,
        "min": lambda: hidden.min(0).values,
        "mask": lambda: hidden[extra > 0].mean(0),
        "attn": lambda: (hidden * (extra / extra.sum())[:, None]).sum(0),
    }
    return plain[name.split(":")[0]]()


@every_pooler
@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    side=st.sampled_from(["left", "right"]),
    junk=st.sampled_from(JUNK),
    spare=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_padding_of_any_side_size_and_content_changes_nothing(
    name, lengths, side, junk, spare, seed
):
    made = rows(lengths, seed)
    expected = torch.stack([slowly(name, h, e) for h, e in made])
    pooled = pooler(name)(*batch(made, side=side, junk=junk, spare=spare))
    torch.testing.assert_close(pooled, expected, rtol=1e-5, atol=1e-5)


@every_pooler
def test_a_batch_of_one_and_any_order_give_the_same_vectors(name):
    made = rows([3, 7, 1, 4])
    together = pooler(name)(*batch(made))
    alone = torch.cat([pooler(name)(*batch([row])) for row in made])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(pooler(name)(*batch(made[::-1])), together.flip(0))


@every_pooler
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_result_keeps_the_type_of_the_hidden_states(name, dtype):
    hidden, mask, extra = batch(rows([4, 2]))
    pooled = pooler(name)(hidden.to(dtype), mask, extra)
    assert pooled.dtype == dtype
    torch.testing.assert_close(
        pooled.float(), pooler(name)(hidden, mask, extra), rtol=0.02, atol=0.02
    )


def test_a_long_mean_in_half_precision_does_not_overflow():
    hidden = torch.full((1, 100, 2), 6e4, dtype=torch.float16)
    pooled = POOLERS["mean"](hidden, torch.ones(1, 100, dtype=torch.bool))
    assert torch.equal(pooled, hidden[:, 0])


@every_pooler
def test_a_mask_of_whole_numbers_means_the_same_as_one_of_booleans(name):
    hidden, mask, extra = batch(rows([4, 2]))
    assert torch.equal(pooler(name)(hidden, mask.long(), extra), pooler(name)(hidden, mask, extra))


@every_pooler
def test_a_row_without_real_tokens_is_refused_with_its_number(name):
    hidden, mask, extra = batch(rows([4, 2]))
    mask[1] = False
    with pytest.raises(BadData, match=r"1 of 2 rows \(first: row 1\) have no real token"):
        pooler(name)(hidden, mask, extra)


@every_pooler
def test_nan_in_a_real_token_is_not_hidden(name):
    hidden, mask, extra = batch(rows([3, 3]))
    hidden[0] = torch.nan
    pooled = pooler(name)(hidden, mask, extra)
    assert pooled[0].isnan().all()
    assert pooled[1].isfinite().all()


@given(length=st.integers(1, 40), q=st.floats(0, 1), seed=st.integers(0, 9))
@settings(max_examples=50, deadline=None)
def test_a_quantile_is_the_rounded_share_of_the_way_through_the_row(length, q, seed):
    hidden, mask, _ = batch(rows([length, 40], seed), side="left")
    expected = hidden[0, 40 - length + round(q * (length - 1))]
    assert torch.equal(pooler(f"q{q!r}")(hidden, mask)[0], expected)


def test_quantile_0_is_the_first_token_and_1_the_last():
    hidden, mask, _ = batch(rows([1, 2, 5, 9]))
    assert torch.equal(pooler("q0")(hidden, mask), POOLERS["first"](hidden, mask))
    assert torch.equal(pooler("q1.0")(hidden, mask), POOLERS["last"](hidden, mask))


def test_holes_in_the_mask_are_not_counted_as_tokens():
    hidden = torch.arange(5.0).reshape(1, 5, 1)
    mask = torch.tensor([[False, True, False, True, True]])
    found = {n: pooler(n)(hidden, mask).item() for n in ("first", "q0.5", "last", "min", "max")}
    assert found == {"first": 1, "q0.5": 3, "last": 4, "min": 1, "max": 4}


def test_marks_on_padding_do_not_count_and_a_row_without_marks_is_refused():
    hidden, mask, _ = batch(rows([2, 3]))
    marks = torch.tensor([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]])
    pooled = POOLERS["mask"](hidden, mask, marks)
    torch.testing.assert_close(pooled[0], hidden[0, 1])
    torch.testing.assert_close(pooled[1], hidden[1, [0, 2]].mean(0))
    marks[0, 1] = 0.0
    with pytest.raises(BadData, match=r"1 of 2 rows \(first: row 0\) have no marked token"):
        POOLERS["mask"](hidden, mask, marks)


def test_equal_attention_is_the_mean_and_no_attention_is_refused():
    hidden, mask, extra = batch(rows([2, 3]))
    even = POOLERS["attn"](hidden, mask, torch.full_like(extra, 0.2))
    torch.testing.assert_close(even, POOLERS["mean"](hidden, mask))
    with pytest.raises(BadData, match="positive attention weight"):
        POOLERS["attn"](hidden, mask, torch.zeros_like(extra))


@pytest.mark.parametrize("name", [n for n in NAMES if pooler(n).needs])
def test_a_pooler_that_needs_weights_says_so(name):
    hidden, mask, _ = batch(rows([2]))
    with pytest.raises(BadSpec, match=f"{name!r} needs {pooler(name).needs}"):
        pooler(name)(hidden, mask)


def test_a_mask_of_another_batch_is_refused_in_production_too():
    hidden, mask, _ = batch(rows([2, 3]))
    # Without the shape checker of the test runs, as users have it.
    call = inspect.unwrap(Pooler.__call__)
    with pytest.raises(Mismatch, match=r"mask has shape \(1, 3\).*expected \(2, 3\)"):
        call(POOLERS["last"], hidden, mask[:1])


@every_pooler
def test_a_pooler_goes_by_the_name_it_was_asked_by(name):
    asked = pooler(name)
    assert asked.name == name
    assert pooler(asked) is asked


def test_a_head_is_read_off_the_name():
    assert pooler("attn").head is None
    assert pooler("attn:12").head == 12


def test_an_object_is_taken_as_it_is():
    own = Pooler("twice", lambda hidden, mask, extra: 2 * hidden[:, 0])
    assert pooler(own) is own
    assert pooler(replace(own, name="again")).name == "again"


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("maen", UnknownName, "Did you mean 'mean'"),
        ("quantile", UnknownName, "q0.4"),
        ("q", UnknownName, "Known: attn, cls"),
        ("", UnknownName, "Unknown pooler ''"),
        ("q1.5", BadSpec, "from 0"),
        ("q-0.1", BadSpec, "from 0"),
        ("qnan", BadSpec, "from 0"),
        ("attn:", BadSpec, "a number from 0"),
        ("attn:-1", BadSpec, "a number from 0"),
        ("attn:mean", BadSpec, "'mean'"),
    ],
)
def test_a_wrong_name_is_refused_with_what_is_allowed(name, error, words):
    with pytest.raises(error, match=words):
        pooler(name)


@every_pooler
def test_a_single_token_pooler_returns_the_vector_of_one_token(name):
    hidden, mask, extra = batch(rows([5, 3, 1]))
    row = pooler(name)
    if row.needs == "marks":
        extra = torch.zeros_like(extra)
        extra[:, 0] = 1.0
    pooled = row(hidden, mask, extra)
    one_token = [bool((hidden[i] == vector).all(dim=1).any()) for i, vector in enumerate(pooled)]
    # The last text has one token, which every pooler but a mean of weights returns exactly.
    assert all(one_token[:2]) == row.single_token


def test_attention_is_needed_by_the_row_and_not_by_the_name():
    assert needs_attention(["mean", "attn"])
    assert needs_attention(["attn:3"])
    assert not needs_attention(["mean", "q0.4", "mask", "learned", "all", "attention"])
    assert not needs_attention([])
    assert needs_attention([Pooler("mine", POOLERS["attn"].function, needs="attention")])
    assert not needs_attention([Pooler("attn-like", POOLERS["mean"].function)])


PLACES = torch.tensor([[0, 1, 0, 2, 2, 0, 3, 0, 2, 0]])


@pytest.mark.parametrize("place", [*PLACE_CODES, ALL_CONTENT])
@pytest.mark.parametrize("base", [name for name in NAMES if name != "mask"])
def test_a_place_pools_the_tokens_of_its_messages_and_no_others(base, place):
    chosen, plain = pooler(f"{base}@{place}"), pooler(base)
    codes = list(PLACE_CODES.values()) if place == ALL_CONTENT else [PLACE_CODES[place]]
    at = torch.isin(PLACES[0], torch.tensor(codes))
    ((hidden, extra),) = rows([10])
    mask = torch.ones(1, 10, dtype=torch.bool)
    expected = plain(hidden[None, at], mask[:, at], extra[None, at])
    spoiled = hidden.clone()
    spoiled[~at] = float("nan")
    found = chosen(spoiled[None], chosen.tokens(mask, PLACES), extra[None])
    torch.testing.assert_close(found, expected)
    facts = (chosen.name, chosen.place, chosen.needs, chosen.head, chosen.single_token)
    assert facts == (f"{base}@{place}", place, plain.needs, plain.head, plain.single_token)
    assert chosen.window_rule is None and plain.tokens(mask, PLACES) is mask


def test_a_place_that_plain_text_has_not_or_that_is_unknown_is_refused():
    with pytest.raises(BadSpec, match="--chat"):
        pooler("last@user").tokens(torch.ones(1, 2, dtype=torch.bool), None)
    for name, words in {
        "last@bot": "last@user",
        "mask@user": "'mask'",
        "lost@user": "last",
        "last@": "last@content",
    }.items():
        with pytest.raises((UnknownName, BadSpec), match=words):
            pooler(name)
