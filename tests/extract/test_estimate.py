"""The estimate of a pass: its counts, its bytes, its sentence."""

import pytest

from cutaway.extract.activations import extract
from cutaway.extract.estimate import disk_bytes, estimate_pass, memory_bytes, reading_estimate
from cutaway.extract.request import ExtractionRequest, build_token_rows


def test_the_estimate_tells_rows_tokens_and_bytes(tiny_lm, texts):
    lm, ask = (
        tiny_lm("gpt2"),
        ExtractionRequest(layers=(0, 1), pools=("last", "mean"), prompt=" estimate"),
    )
    before = estimate_pass(lm, texts, ask)
    assert before.counts["rows"] == len(texts)
    assert before.counts["cached_rows"] == 0
    assert before.disk_mb * 2**20 == pytest.approx(len(texts) * 4 * lm.width * 4, abs=2**17)
    extract(lm, texts, ask)
    after = estimate_pass(lm, texts, ask)
    assert (after.counts["tokens"], after.counts["cached_rows"]) == (0, len(texts))


def test_stored_tokens_take_more_space_than_pooled_rows(tiny_lm, texts):
    lm = tiny_lm("gpt2")
    pooled, tokens = (ExtractionRequest((0, 1), (pool,)) for pool in ("last", "all"))
    rows = build_token_rows(lm, texts, pooled)
    assert disk_bytes(lm, pooled, len(texts), rows, 2) == 2 * len(texts) * lm.width * 4
    assert disk_bytes(lm, tokens, len(texts), rows, 2) == 2 * rows.tokens * lm.width * 4
    half = ExtractionRequest((0, 1), ("last",), stored_dtype="float16")
    assert disk_bytes(lm, half, len(texts), rows, 2) == len(texts) * lm.width * 4
    assert disk_bytes(lm, pooled, len(texts), rows, 0) == 0
    assert memory_bytes(lm, rows) > 128 * 2**20


def test_the_sentence_names_cached_and_truncated_texts_only_if_there_are_any():
    costs = {"rows": 1200, "tokens": 30_000, "seconds": 61.04, "disk_mb": 3, "memory_mb": 200}
    plain = reading_estimate(**costs, truncated=0)
    assert plain.plain() == {
        "rows": 1200, "tokens": 30_000, "shortened": 0, "cached_rows": 0, "seconds": 61.0,
        "memory_mb": 200, "disk_mb": 3,
    }  # fmt: skip
    assert "cache" not in plain.sentence() and "truncated" not in plain.sentence()
    more = reading_estimate(**costs, truncated=7, cached_rows=9).sentence()
    assert "1,200 texts, 30,000 tokens" in more
    assert "9 texts are already in the cache" in more and "7 texts are truncated" in more
