import csv
import io

import pytest

from cutaway.report.export import figure_csv
from cutaway.studies.live import figures as live

NASTY = "<b>=cmd</b>"
LENS = {
    "model": "m", "tokens": ["the", " film"], "layers": [0, 1], "kinds": ["id"],
    "words": {"id": [[["a", "b"], [NASTY, "b"]], [[" c", "b"], ["\n", "b"]]]},
    "probs": {"id": [[[0.5, 0.1], [0.4, 0.1]], [[0.9, 0.05], [0.7, 0.2]]]},
    "agree": {"id": [[False, True], [True, True]]},
}  # fmt: skip
EXIT = {
    "tokens": ["the", " film"], "lambdas": [0.5],
    "kinds": {"id": {"gap": [[0.1, 0.9], [0.5, 0.8]], "stops": {"0.50": [2, 1]},
                     "kept": {"0.50": [True, False]}}},
}  # fmt: skip
WORDS = {
    "layers": [0, 1], "classes": ["good", "bad"], "words": ["great", "bad"],
    "probs": {"id": [[0.3, 0.1], [0.0, 0.0]], "mat": [[0.3, 0.1], [0.2, 0.1]]},
}  # fmt: skip
PROBE = {
    "task": "binary", "classes": ["sad", NASTY], "layers": [0, 1], "metric": "accuracy",
    "said": [[0.4, 0.6], [0.1, 0.9]], "held_out": [0.5, 0.9], "classifier": "logistic",
    "n_train": 70, "n_val": 10, "n_test": 20, "data": "d", "pool": "last",
}  # fmt: skip
FIGURES = {
    "lens": lambda: live.lens_figure(LENS, "id"),
    "exits": lambda: live.exit_figure(EXIT, "id", 0.5),
    "share": lambda: live.class_words_figure(WORDS),
    "words": lambda: live.class_words_figure(WORDS, share=False),
    "probe": lambda: live.probe_figure(PROBE),
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_says_how_to_read_it_and_gives_its_data(name: str) -> None:
    figure = FIGURES[name]()
    assert figure.layout.meta["caption"] and figure.layout.title.text
    assert len(list(csv.DictReader(io.StringIO(figure_csv(figure))))) >= 4


@pytest.mark.parametrize("name", FIGURES)
def test_words_from_a_model_are_never_markup(name: str) -> None:
    assert "<b>" not in FIGURES[name]().to_json().replace("\\u003c", "<")


def test_each_cell_has_its_word_and_the_table_tells_token_and_agreement() -> None:
    rows = list(csv.DictReader(io.StringIO(figure_csv(live.lens_figure(LENS, "id")))))
    assert len(rows) == 4 and rows[1]["token"] == "·film" and rows[1]["agrees"] == "True"
    assert rows[1]["word"] == NASTY and rows[2]["word"] == "·c"


def test_an_exit_tells_layers_run_and_answers_kept() -> None:
    figure = live.exit_figure(EXIT, "id", 0.5)
    assert "1.5 of 2 layers" in figure.layout.meta["caption"]
    assert "50% of the tokens" in figure.layout.meta["caption"]
    assert {trace.name for trace in figure.data[1:]} == {
        "stop, same word as the full model", "stop, another word",
    }  # fmt: skip


def test_shares_add_up_and_nothing_is_divided_by_nothing() -> None:
    good, bad = live.class_words_figure(WORDS).data[:2]
    assert good.y[0] + bad.y[0] == pytest.approx(1) and good.y[1] == 0


def test_scores_that_are_no_probabilities_are_not_called_so() -> None:
    value = {**PROBE, "task": "regression", "classes": ["value"], "said": [[3.0], [4.0]]}
    assert live.probe_figure(value).layout.yaxis.title.text == "the probe's score"
