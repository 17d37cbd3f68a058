"""The cell chosen on validation rows, and what is read at it."""

from dataclasses import replace

import numpy as np
import pytest

from cutaway.core.errors import BadData
from cutaway.core.textset import TextSet
from cutaway.measure.repeats import ResamplingInfo
from cutaway.methods.probe.evidence import (
    Evidence,
    ProbeScore,
    best_on_test_facts,
    chance_level,
    headline_facts,
)

DRAWN = ResamplingInfo(700, 200)
NAN = float("nan")


def cell(layers: str, test, validation, **kw) -> ProbeScore:
    where = {"pool": "mean", "classifier": "lda"} | kw
    return ProbeScore(
        tuple(test), DRAWN, layers, validation=tuple(validation), ties=(0.0,) * len(test), **where
    )


CELLS = (
    cell("0", [0.1, 0.2, 0.3], [0.9, 0.5, 0.9]),
    cell("1", [0.4, 0.5, 0.6], [0.8, 0.8, 0.1]),
    cell("2", [0.9, 0.9, 0.9], [0.0, 0.0, 0.0]),
)


def test_the_headline_is_the_test_score_of_what_each_repeat_chose():
    evidence = Evidence("accuracy", CELLS, repeats=(0, 1, 2))
    assert evidence.headline.values == (0.1, 0.5, 0.3)
    assert (evidence.headline.layers, evidence.agreeing) == ("0", 2)
    assert evidence.choices() == {("0", "mean", "lda"): (0, 2), ("1", "mean", "lda"): (1,)}
    facts = headline_facts(evidence)
    assert (facts["value"], facts["chosen_on"], facts["chosen_in"]) == (0.3, "validation", 2)
    assert Evidence("mse", CELLS).headline.layers == "2"


def test_test_scores_do_not_change_the_choice():
    other = tuple(replace(c, values=c.values[::-1]) for c in CELLS[::-1])
    names = Evidence("accuracy", CELLS).choice
    assert Evidence("accuracy", other).choice == names


def test_the_best_on_test_reaches_towards_chance_as_far_as_the_choice_may_have_added():
    evidence = Evidence("accuracy", CELLS)
    facts = best_on_test_facts(evidence)
    assert (facts["layers"], facts["chosen_on"], facts["cells"]) == ("2", "test", 3)
    own = evidence.interval(evidence.best_on_test)
    assert facts["low"] == pytest.approx(max(0.0, own.low - evidence.chance_gain))
    assert facts["high"] == own.high


def test_twins_are_read_at_the_cell_of_each_repeat():
    twins = (cell("0", [0.01, NAN, 0.03], []), cell("1", [NAN, 0.05, NAN], []))
    evidence = Evidence("accuracy", CELLS, twins=twins)
    assert evidence.at_choice(twins).values == (0.01, 0.05, 0.03)
    assert evidence.at_choice(twins[:1]).values[0] == 0.01
    assert evidence.at_choice((cell("9", [0.5] * 3, []),)) is None


def test_validation_rows_that_choose_nothing_leave_the_first_cell():
    blind = tuple(replace(c, validation=(NAN,) * 3, ties=(NAN,) * 3) for c in CELLS)
    assert Evidence("auc", blind).headline.layers == "0"
    with pytest.raises(BadData, match="nothing to compare"):
        Evidence("auc", (replace(CELLS[0], values=(NAN,) * 3),)).headline.mean  # noqa: B018


def noise(rng: np.random.Generator, layers: int, blocks: int = 20) -> Evidence:
    """Layers that are equally good on shared test rows, with errors in common."""
    common = rng.normal(0.7, 0.2, blocks)
    cells = []
    for layer in range(layers):
        own = tuple((common + rng.normal(0, 0.2, blocks)).tolist())
        drawn = ResamplingInfo(700, 200, 200, (own,))
        validation = (float(rng.normal(0.7, 0.05)),)
        cells.append(ProbeScore((float(np.mean(own)),), drawn, str(layer), "mean", "lda",
                                validation, (0.0,)))  # fmt: skip
    return Evidence("accuracy", tuple(cells))


def test_on_noise_a_layer_is_called_worse_in_at_most_5_percent_of_the_runs():
    rng = np.random.default_rng(0)
    found = [noise(rng, 15).other_layers.values() for _ in range(150)]
    false = [any(one.kind == "shown" for one in layers) for layers in found]
    assert np.mean(false) <= 0.07
    assert not any(one.kind == "absent" for layers in found for one in layers)


@pytest.mark.parametrize(
    ("task", "labels", "metric", "chance"),
    [
        ("binary", [0, 0, 0, 1], "accuracy", 0.75),
        ("binary", [0, 0, 0, 1], "accuracy_ref", 0.75),
        ("binary", [0, 0, 0, 1], "balanced_accuracy", 0.5),
        ("binary", [0, 0, 0, 1], "auc", 0.5),
        ("multiclass", [0, 1, 2, 2], "auc", 0.5),
        ("regression", [0.0, 1.0, 2.0, 3.0], "r2", 0.0),
        ("multilabel", [[0, 1], [0, 1], [1, 1], [0, 0]], "f1_macro", 3 / 7),
    ],
)
def test_chance_is_the_score_of_a_constant_answer(task, labels, metric, chance):
    names = {"binary": ("a", "b"), "multiclass": ("a", "b", "c"), "multilabel": ("a", "b")}
    texts = TextSet("set", ("t",) * 4, np.array(labels), task, names.get(task, ()))
    assert chance_level(texts, metric) == pytest.approx(chance)
