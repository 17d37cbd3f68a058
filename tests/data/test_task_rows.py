import pytest

from cutaway.core.errors import BadData
from cutaway.data.load import load_task


def rows(task: str, **columns):
    return load_task(task, data=columns)


def test_stars_are_scaled_to_one() -> None:
    assert rows("app_reviews", review=list("abc"), star=[1, 3, 5]).labels.tolist() == [0, 0.5, 1]


def test_sentiment_is_moved_and_scaled() -> None:
    loaded = rows("dutch_social", text_translation=list("abc"), sentiment_pattern=[-1, 0, 0.5])
    assert loaded.labels.tolist() == [0, 0.5, 0.75]


def test_truth_is_ordered_by_meaning_not_by_number() -> None:
    names = ["pants-fire", "false", "barely-true", "half-true", "mostly-true", "true"]
    named = rows("liar", statement=list("abcdef"), label=names)
    numbered = rows("liar", statement=list("abcdef"), label=[5, 0, 4, 1, 2, 3])
    assert named.labels.tolist() == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert numbered.labels.tolist() == named.labels.tolist()


def test_the_marked_word_is_replaced_by_the_edit() -> None:
    loaded = rows(
        "humicroedit",
        original=["France hunts <citizens/> abroad", "no mark"],
        edit=["\\1 cats", "dogs"],
        meanGrade=[3.0, 1.5],
    )
    assert loaded.texts == ("France hunts \\1 cats abroad", "no mark")
    assert loaded.labels.tolist() == [1, 0.5]


def test_other_labels_are_left_out_and_counted() -> None:
    loaded = rows("hate_speech18", text=list("abcd"), label=[0, 1, 2, 3])
    assert (loaded.texts, loaded.labels.tolist()) == (("a", "b"), [0, 1])
    assert any("2 rows left out" in note for note in loaded.notes)


def test_only_short_items_of_ethics_are_kept() -> None:
    for short in ([True, False, True], ["True", "False", "True"]):
        loaded = rows("ethics", input=list("abc"), label=[0, 1, 1], is_short=short)
        assert loaded.texts == ("a", "c")


@pytest.mark.parametrize("humor", [[True, False], ["True", "False"], [1, 0]])
def test_a_joke_is_a_joke_however_it_is_written(humor) -> None:
    assert rows("colbert", text=["ha", "hm"], humor=humor).labels.tolist() == [1, 0]


def test_regression_read_as_classes_is_rounded_and_named() -> None:
    loaded = load_task(
        "sst", data={"sentence": list("abc"), "label": [0.1, 0.7, 1.0]}, as_task="classification"
    )
    assert (loaded.labels.tolist(), loaded.classes) == ([0, 1, 1], ("negative", "positive"))


def test_news_text_is_title_and_description() -> None:
    loaded = rows("agnews", label=[3], title=["A"], description=["b"])
    assert (loaded.texts, loaded.classes[loaded.labels[0]]) == (("A b",), "Sci/Tech")


def test_classes_stand_whether_they_occur_or_not() -> None:
    loaded = rows("sst-5", sentence=["a", "b"], label=[4, 0])
    assert (loaded.task, len(loaded.classes), loaded.labels.tolist()) == ("multiclass", 5, [4, 0])


def test_entailment_has_one_number_by_name_and_by_number() -> None:
    by_name = rows("rte", sentence1=["a"], sentence2=["b"], label=["not_entailment"])
    by_number = rows("rte", sentence1=["a"], sentence2=["b"], label=["1"])
    assert by_name.labels.tolist() == by_number.labels.tolist() == [0]


def test_rows_without_agreement_are_left_out() -> None:
    loaded = rows("snli", premise=list("abc"), hypothesis=list("abc"), label=["neutral", "-", None])
    assert loaded.texts == ("a",)


def test_a_published_file_with_empty_rows_loads_and_counts_them() -> None:
    loaded = rows("cr", sentence=["good", " ", "bad"], label=["1", "0", "0"])
    assert loaded.texts == ("good", "bad")
    assert any("1 rows dropped" in note for note in loaded.notes)


@pytest.mark.parametrize(
    ("task", "columns", "message"),
    [
        ("sst2", {"body": ["a"], "label": [1]}, "needs 'sentence' or 'text'; 'label'"),
        ("sst2", {"sentence": ["a", "b"], "label": ["1", "posi"]}, "unknown to the task.*'posi'"),
        ("sst2", {"sentence": ["a"], "label": ["positiv"]}, "Did you mean 'positive'"),
        ("sst2", {"sentence": ["a", ""], "label": [1, 0]}, "texts in 'sentence' are empty"),
        ("sst2", {"sentence": ["a", "b"], "label": [1, None]}, "1 of 2 labels .* are missing"),
        ("stsb", {"sentence1": ["a"], "sentence2": ["b"], "score": ["high"]}, "unknown to the"),
        ("stsb", {"sentence1": ["a"], "sentence2": ["b"], "score": [9]}, "outside 0 to 5"),
        ("app_reviews", {"review": ["a", "b"], "star": [0.25, 1]}, "already scaled"),
        ("sst", {"sentence": ["a"], "label": [float("inf")]}, "outside 0 to 1"),
        ("sst2", {"sentence": ["a"], "label": [float("inf")]}, "unknown to the task"),
        ("hate_speech18", {"text": ["a"], "label": [2]}, "another label"),
        ("ethics", {"input": ["a"], "label": [1]}, "no column 'is_short'"),
    ],
)
def test_rows_that_do_not_fit_the_task_are_refused(task, columns, message: str) -> None:
    with pytest.raises(BadData, match=message):
        load_task(task, data=columns)
