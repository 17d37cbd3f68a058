import numpy as np
import pytest

from cutaway.core.errors import BadData, BadSpec
from cutaway.core.textset import TextSet
from cutaway.data.build_text_set import make_text_set, subsample_rows
from cutaway.data.columns import choose_columns
from cutaway.data.load import load_text_set
from cutaway.data.table import Table

ROWS = {"text": ["a", "b", "c", "d"], "label": [0, 1, 1, 0]}


def changed(**columns):
    return {**ROWS, **columns}


@pytest.mark.parametrize("empty", ["", "   ", "\n", None])
def test_empty_texts_are_refused_with_their_rows_or_dropped_and_counted(empty) -> None:
    rows = changed(text=["a", empty, "c", empty])
    with pytest.raises(BadData, match=r"2 of 4 texts in 'text' are empty: row 2 .*, row 4 "):
        load_text_set(rows)
    kept = load_text_set(rows, drop_empty=True)
    assert (kept.texts, kept.labels.tolist()) == (("a", "c"), [0, 1])
    assert any("2 rows dropped" in note for note in kept.notes)


def test_rows_without_a_label_are_dropped_when_asked() -> None:
    assert load_text_set(changed(label=[0, None, 1, ""]), drop_empty=True).texts == ("a", "c")


def test_a_set_where_every_row_would_be_dropped_is_refused() -> None:
    with pytest.raises(BadData, match="all 4 rows"):
        load_text_set(changed(text=[""] * 4), drop_empty=True)


def test_unlabelled_rows_can_be_read_as_plain_text() -> None:
    loaded = load_text_set(changed(label=[None] * 4), as_task="text")
    assert (loaded.labels, loaded.task) == (None, "text")


@pytest.mark.parametrize("value", [7, 1.5, True, ["x"], {"a": 1}, "half \ud83d"])
def test_what_is_not_text_is_refused(value) -> None:
    with pytest.raises(BadData, match=r"where text is expected: row 2"):
        load_text_set(changed(text=["a", value, "c", "d"]))


def test_no_rows_are_refused() -> None:
    with pytest.raises(BadData, match="no rows"):
        load_text_set({"text": [], "label": []})


def test_one_row_is_a_set() -> None:
    assert len(load_text_set({"text": ["only"], "label": [1]})) == 1


def test_long_texts_and_emoji_stay_whole() -> None:
    long = "word 🎬 " * 10_000
    assert load_text_set([long, "b"]).texts == (long, "b")


def test_joined_texts_have_a_space_between() -> None:
    loaded = load_text_set({"title": ["A"], "description": ["b"], "label": [0]})
    assert loaded.texts == ("A b",)


def test_a_split_column_becomes_parts() -> None:
    assert load_text_set(changed(split=["tr", "va", "te", "tr"])).parts.tolist() == [
        *("train", "dev", "test", "train")
    ]


def test_a_split_column_with_other_values_is_noted_and_left() -> None:
    loaded = load_text_set(changed(fold=["1", "2", "1", "2"]))
    assert loaded.parts is None
    assert any("not read as parts" in note for note in loaded.notes)


def test_class_names_come_from_a_column_beside_the_label() -> None:
    named = load_text_set(changed(label_text=["bad", "good", "good", "bad"]))
    assert named.classes == ("bad", "good")
    muddled = load_text_set(changed(label_text=["bad", "good", "other", "bad"]))
    assert muddled.classes == ("0", "1")


def test_what_was_guessed_is_noted() -> None:
    assert "text from 'text', label from 'label'" in load_text_set(ROWS).notes


def big() -> TextSet:
    parts = np.repeat(["train", "dev", "test"], [70, 10, 20])
    texts = tuple(map(str, range(100)))
    return TextSet(
        "big", texts, np.arange(100), "regression", parts=parts, meta={"x": np.arange(100)}
    )


def test_a_limit_takes_random_rows_in_order_and_keeps_the_shares_of_the_parts() -> None:
    some = subsample_rows(big(), 10, seed=1)
    assert [int((some.parts == p).sum()) for p in ("train", "dev", "test")] == [7, 1, 2]
    assert some.labels.tolist() == sorted(some.labels.tolist())
    assert some.texts == subsample_rows(big(), 10, seed=1).texts
    assert some.texts != subsample_rows(big(), 10, seed=2).texts


@pytest.mark.parametrize("limit", range(1, 101, 9))
def test_a_limit_is_exact(limit: int) -> None:
    assert len(subsample_rows(big(), limit, seed=0)) == limit


def classes(*sizes: int, parts=None) -> TextSet:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    names = tuple("abcdef"[: len(sizes)])
    return TextSet("few", tuple(map(str, labels)), labels, "multiclass", names, parts=parts)


def test_a_limit_keeps_the_shares_of_the_classes() -> None:
    for seed in range(5):
        assert np.bincount(subsample_rows(classes(60, 30, 10), 20, seed).labels).tolist() == [
            12,
            6,
            2,
        ]


def test_a_rare_class_keeps_the_rows_that_are_needed() -> None:
    for seed in range(5):
        some = subsample_rows(classes(900, 97, 3), 50, seed, least=3)
        assert len(some) == 50 and np.bincount(some.labels).tolist() == [42, 5, 3]
        # A class that has fewer keeps all of them.
        assert np.bincount(subsample_rows(classes(900, 97, 3), 50, seed, least=5).labels)[2] == 3
    parts = np.array(["train", "test"] * 60)
    some = subsample_rows(classes(100, 20, parts=parts), 14, 0, least=4)
    kept = {(p, k): int(((some.parts == p) & (some.labels == k)).sum())
            for p in ("train", "test") for k in (0, 1)}  # fmt: skip
    assert sum(kept.values()) == 14 and kept["train", 1] == 4 and kept["test", 1] >= 1


def test_a_limit_that_cannot_keep_every_class_is_refused_by_name_and_count() -> None:
    with pytest.raises(BadSpec, match=r"--limit 20 is too small: 10 rows of each of the 3 classes"
                       r".*'c', has 3.*Use --limit 23"):  # fmt: skip
        subsample_rows(classes(900, 97, 3), 20, 0, least=10)


def test_a_limit_above_the_size_changes_nothing_and_one_below_1_is_refused() -> None:
    whole = big()
    assert subsample_rows(whole, 1000, seed=0) is whole
    with pytest.raises(BadSpec, match="limit must be at least 1"):
        subsample_rows(whole, 0, seed=0)


def test_columns_by_row_in_meta_go_with_their_rows() -> None:
    assert big().take([5, 3]).meta["x"].tolist() == [5, 3]


def test_a_text_that_is_too_long_is_named(monkeypatch) -> None:
    monkeypatch.setattr("cutaway.data.build_text_set.MAX_CHARACTERS", 20)
    table = Table("data.json", {"text": ["a", "b" * 21], "label": [0, 1]})
    with pytest.raises(BadData, match=r"'text' has a text of 21 characters, at most 20.*row 2"):
        make_text_set(table, choose_columns(table), name="data")
