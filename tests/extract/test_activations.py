import numpy as np
import pytest
import torch

from cutaway.core.errors import BadSpec, NoRoom
from cutaway.core.textset import TextSet
from cutaway.extract import activations as extract_room
from cutaway.extract import extract_workers as reading
from cutaway.extract.activations import extract
from cutaway.extract.estimate import estimate_pass
from cutaway.extract.request import ExtractionRequest
from cutaway.extract.visitors import HEAD_OUTPUTS
from cutaway.models.batches import TokenBudget
from cutaway.models.read import collect_states
from cutaway.models.tokens import pad, tokenize
from tests.tiny import SENTENCES

FAMILIES = ("gpt2", "llama", "bert", "roberta")
POOLS = ("first", "last", "mean", "max", "min", "q0.4", "cls")


def one_by_one(lm, texts, layer):
    """Every text alone through the plain model: its states at one layer."""
    for row in tokenize(lm, texts.texts, pairs=texts.pairs).rows:
        ids, mask = pad([row], lm.pad_id)
        with torch.inference_mode():
            yield collect_states(lm, ids, mask, [layer]).layers[layer], mask


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pool", POOLS)
def test_a_batch_gives_what_every_text_alone_gives(family, pool, tiny_lm, texts):
    from cutaway.pool import pooler

    lm = tiny_lm(family)
    got = extract(lm, texts, ExtractionRequest(layers=(0, 1, lm.layers), pools=(pool,)))
    for layer in (0, 1, lm.layers):
        alone = torch.cat([pooler(pool)(h, m) for h, m in one_by_one(lm, texts, layer)])
        torch.testing.assert_close(got.column(layer, pool), alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_order_and_budget_change_nothing(family, tiny_lm, texts, monkeypatch, tmp_path):
    lm, order = tiny_lm(family), np.random.default_rng(0).permutation(len(texts))
    ask = ExtractionRequest(layers=(lm.layers,), pools=("last", "mean"))
    plain = extract(lm, texts, ask)
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path))
    for budget in (16, 4096):
        other = extract(lm, texts.take(order), ask, budget=TokenBudget(fixed=budget))
        for pool in ask.pools:
            torch.testing.assert_close(
                other.column(lm.layers, pool), plain.column(lm.layers, pool)[order],
                atol=1e-5, rtol=1e-5,
            )  # fmt: skip


def test_a_second_request_needs_no_forward(tiny_lm, texts, monkeypatch):
    lm, ask = tiny_lm("gpt2"), ExtractionRequest(layers=(0, 1), pools=("last",))
    first = extract(lm, texts, ask)
    monkeypatch.setattr(reading, "run_pass", None)
    again = extract(lm, texts, ask)
    assert again.stats is None
    assert torch.equal(first.column(1), again.column(1))


def test_a_request_for_more_computes_only_what_is_missing(tiny_lm, texts, monkeypatch):
    lm, asked = tiny_lm("gpt2"), []
    extract(lm, texts, ExtractionRequest(layers=(0, 1), pools=("last",)))
    real = reading.PoolingVisitor

    def spy(lm, ask, columns, *rest):
        asked.extend(columns)
        return real(lm, ask, columns, *rest)

    monkeypatch.setattr(reading, "PoolingVisitor", spy)
    extract(lm, texts, ExtractionRequest(layers=(0, 1, 2), pools=("last",)))
    assert asked == ["2/last"]


@pytest.mark.parametrize(
    "change",
    [{"prompt": " So?"}, {"max_tokens": 5}, {"cut": "left", "max_tokens": 5}, {"keep": "float16"},
     {"window": 6}, {"feed": "cut"}, {"feed": "cut", "seed": 1}, {"feed": "cut", "positions": 2}],
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
        ask.key(lm, TextSet("pairs", texts.texts, pairs=texts.texts)),
    ]
    assert len({str(key) for key in keys}) == len(keys)


def test_labels_are_no_part_of_the_key(tiny_lm, texts):
    lm = tiny_lm("gpt2")
    labelled = TextSet("x", texts.texts, labels=np.arange(len(texts)) % 2, task="binary")
    assert ExtractionRequest(layers=(1,)).key(lm, texts) == ExtractionRequest(layers=(1,)).key(
        lm, labelled
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_final_features_and_next_token_agree_with_the_plain_logits(family, tiny_lm, texts):
    lm = tiny_lm(family)
    got = extract(
        lm, texts, ExtractionRequest(layers=(), pools=("last",), heads=tuple(HEAD_OUTPUTS))
    )
    weight, bias = lm.output_embedding
    rows = tokenize(lm, texts.texts).rows
    for i, row in enumerate(rows):
        ids, mask = pad([row], lm.pad_id)
        with torch.inference_mode():
            logits = lm.module(input_ids=ids, attention_mask=mask.long()).logits[0, -1].float()
        made = got.column("final")[i] @ weight.T + (0 if bias is None else bias)
        torch.testing.assert_close(made, logits, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(got.column("logz")[i, 0], logits.logsumexp(0), atol=1e-4, rtol=0)
        token, chance, _ = got.column("next")[i].tolist()
        assert int(token) == int(logits.argmax())
        assert chance == pytest.approx(float(logits.softmax(0).max()), abs=1e-4)


def test_a_prefix_cut_is_the_state_at_the_marked_position(tiny_lm, texts):
    lm, ask = (
        tiny_lm("llama"),
        ExtractionRequest(layers=(1,), pools=("marks",), input_mode="cut", seed=3),
    )
    values, offsets = extract(lm, texts, ask).tokens(1, "marks")
    assert offsets.tolist() == list(range(len(texts) + 1))
    for i, row in enumerate(tokenize(lm, texts.texts).rows):
        prefixes = [row[: end + 1] for end in range(len(row))]
        cut = [collect_states(lm, *pad([p], lm.pad_id), [1]).layers[1][0, -1] for p in prefixes]
        gaps = [float((values[i] - state).abs().max()) for state in cut]
        assert min(gaps) < 1e-5


def test_a_masked_position_holds_the_mask_token(tiny_lm, texts):
    lm, ask = (
        tiny_lm("bert"),
        ExtractionRequest(layers=(1,), pools=("marks", "mask"), input_mode="mask"),
    )
    fed = extract_room.build_token_rows(lm, texts, ask)
    for row, marks in zip(fed.rows, fed.marks, strict=True):
        assert [row[i] for i in marks] == [lm.tokenizer.mask_token_id] * len(marks)
    got = extract(lm, texts, ask)
    torch.testing.assert_close(got.tokens(1, "marks")[0], got.column(1, "mask"))


def test_masking_needs_a_masked_model(tiny_lm, texts):
    with pytest.raises(BadSpec, match="no mask token"):
        extract(
            tiny_lm("llama"),
            texts,
            ExtractionRequest(layers=(1,), pools=("last",), input_mode="mask"),
        )


def test_all_tokens_come_ragged_and_in_order(tiny_lm, texts):
    lm = tiny_lm("gpt2")
    values, offsets = extract(lm, texts, ExtractionRequest(layers=(1,), pools=("all",))).tokens(1)
    alone = list(one_by_one(lm, texts, 1))
    assert offsets.diff().tolist() == [h.shape[1] for h, _ in alone]
    expected = torch.cat([h[0] for h, _ in alone])
    torch.testing.assert_close(values, expected, atol=1e-5, rtol=1e-5)


def test_cut_texts_are_counted(tiny_lm):
    lm = tiny_lm("gpt2")
    long = TextSet("long", ("word " * 10_000, "short"))
    got = extract(lm, long, ExtractionRequest(layers=(1,)))
    assert got.num_truncated == 1
    assert got.truncated[0] > 9_000
    assert got.truncated[1] == 0


def test_windows_lose_nothing_and_a_short_text_is_itself(tiny_lm, texts):
    lm = tiny_lm("gpt2")
    long = TextSet("long", (" ".join(SENTENCES * 4), SENTENCES[0]))
    ask = ExtractionRequest(layers=(1,), pools=("mean", "last", "first", "max"), window=16)
    fed = extract_room.build_token_rows(lm, long, ask)
    whole = tokenize(lm, long.texts, limit=10**6).rows
    for owner, row in enumerate(whole):
        mine = [i for i in range(len(fed.rows)) if fed.text_index[i] == owner]
        assert [t for i in mine for t in fed.rows[i][fed.first_counted[i] :]] == row
    got = extract(lm, long, ask)
    plain = extract(
        lm, TextSet("s", (SENTENCES[0],)), ExtractionRequest(layers=(1,), pools=("mean", "last"))
    )
    if len(whole[1]) <= 16:
        torch.testing.assert_close(got.column(1, "mean")[1], plain.column(1, "mean")[0])
    assert got.num_truncated == 0


def test_windowed_mean_weighs_every_token_once(tiny_lm):
    lm, long = tiny_lm("gpt2"), TextSet("long", (" ".join(SENTENCES * 2),))
    ask = ExtractionRequest(layers=(0,), pools=("mean", "max", "last"), window=16)
    got = extract(lm, long, ask)
    fed = extract_room.build_token_rows(lm, long, ask)
    pieces = []
    for row, fresh in zip(fed.rows, fed.first_counted, strict=True):
        hidden = collect_states(lm, *pad([row], lm.pad_id), [0]).layers[0][0]
        pieces.append(hidden[fresh:])
    tokens = torch.cat(pieces)
    torch.testing.assert_close(got.column(0, "mean")[0], tokens.mean(0), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(got.column(0, "max")[0], tokens.amax(0), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(got.column(0, "last")[0], tokens[-1], atol=1e-5, rtol=1e-5)


def test_a_pooler_without_meaning_over_windows_is_refused(tiny_lm, texts):
    with pytest.raises(BadSpec, match="sliding windows"):
        extract(tiny_lm("gpt2"), texts, ExtractionRequest(layers=(1,), pools=("q0.4",), window=16))


def test_attention_pooling_weighs_by_the_models_own_attention(tiny_lm, texts):
    lm = tiny_lm("gpt2", attention="eager")
    got = extract(lm, texts, ExtractionRequest(layers=(0, 1), pools=("attn", "attn:1", "mean")))
    torch.testing.assert_close(got.column(0, "attn"), got.column(0, "mean"))
    for i, row in enumerate(tokenize(lm, texts.texts).rows):
        seen = collect_states(lm, *pad([row], lm.pad_id), [1], attention=True)
        weights = seen.attention[1][0, 1, -1]
        expected = (weights[:, None] * seen.layers[1][0]).sum(0) / weights.sum()
        torch.testing.assert_close(got.column(1, "attn:1")[i], expected, atol=1e-5, rtol=1e-4)


def test_a_killed_pass_is_taken_up_where_it_stopped(tiny_lm, texts, monkeypatch):
    lm, ask = tiny_lm("gpt2"), ExtractionRequest(layers=(1,), seed=99, prompt=" resumed")
    real, calls = reading.PoolingVisitor.end, []

    def dies(self, seen):
        calls.append(len(seen.rows))
        if len(calls) == 3:
            raise KeyboardInterrupt
        real(self, seen)

    monkeypatch.setattr(reading.PoolingVisitor, "end", dies)
    with pytest.raises(KeyboardInterrupt):
        extract(lm, texts, ask, budget=TokenBudget(fixed=32))
    monkeypatch.setattr(reading.PoolingVisitor, "end", real)
    rest = extract(lm, texts, ask)
    assert rest.stats.rows == len(texts) - sum(calls[:2])
    torch.testing.assert_close(
        rest.column(1),
        extract(lm, texts, ExtractionRequest(layers=(1,), prompt=" resumed")).column(1),
    )


def test_the_estimate_tells_rows_tokens_and_bytes(tiny_lm, texts):
    lm, ask = (
        tiny_lm("gpt2"),
        ExtractionRequest(layers=(0, 1), pools=("last", "mean"), prompt=" estimate"),
    )
    before = estimate_pass(lm, texts, ask)
    assert before.rows == len(texts)
    assert before.cached_rows == 0
    assert before.disk_mb * 2**20 == pytest.approx(len(texts) * 4 * lm.width * 4, abs=2**17)
    extract(lm, texts, ask)
    after = estimate_pass(lm, texts, ask)
    assert (after.tokens, after.cached_rows) == (0, len(texts))


def test_a_disk_that_cannot_hold_it_is_refused_before_the_work(tiny_lm, texts, monkeypatch):
    def full(folder, needed):
        raise NoRoom(f"{needed} bytes are needed in {folder}.")

    monkeypatch.setattr("cutaway.extract.estimate.check_free_space", full)
    monkeypatch.setattr(reading, "run_pass", None)
    with pytest.raises(NoRoom):
        extract(tiny_lm("gpt2"), texts, ExtractionRequest(layers=(1,), prompt=" full"))
