"""Sentences that say what follows from the scores."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from cutaway.core.errors import BadData
from cutaway.measure.repeats import ResamplingInfo
from cutaway.methods.probe.evidence import Evidence, ProbeScore
from cutaway.methods.probe.verdict import _layer_list, explained_share, verdict_sentences

NOISE = np.array([0.01, -0.012, 0.004, -0.006, 0.008, -0.004, 0.002, -0.002, 0.006, -0.006])


def score(
    mean: float, layers: str = "7", *, wobble: float = 0.0, validation: float = 0.5, **kw
) -> ProbeScore:
    own = wobble * np.roll(NOISE, int(layers) if layers.isdigit() else 3)
    values = tuple((mean + NOISE + own).tolist())
    kw = {"pool": "mean", "classifier": "logistic"} | kw
    seen = {"validation": (validation,) * 10, "ties": (0.0,) * 10}
    return ProbeScore(values, ResamplingInfo(1400, 400), layers, **seen, **kw)


CELLS = (
    score(0.60, "6", wobble=0.2),
    score(0.78, validation=0.8),
    score(0.7795, "8", wobble=0.1),
    score(0.79, "9", wobble=9.0),
)
BASES = {"majority": score(0.5, "-"), "bow": score(0.61, "-", wobble=0.3)}


def sentences(*cells: ProbeScore, metric: str = "accuracy", **given) -> list[str]:
    return verdict_sentences(Evidence(metric, cells or CELLS, **given))


def test_the_headline_is_the_cell_that_validation_rows_choose():
    found = sentences(baselines=BASES)
    assert found[0].startswith(
        "The probe chosen on validation rows reads layer 7 (pooler mean, classifier logistic) and "
        "reaches accuracy 0.780 ["
    )
    assert found[0].endswith(
        "] on 400 test rows in each of 10 repeats; the majority baseline reaches 0.500."
    )
    assert found[1].startswith(
        "The best of the 4 cells on the test rows is layer 9 (pooler mean, classifier logistic) "
        "with 0.790; choosing the best of them adds about 0.0"
    )
    assert found[1].endswith(" by chance.")
    assert sentences(CELLS[1])[0].startswith("The probe reads layer 7")
    alone = sentences(*CELLS[:2])
    assert alone[1].startswith("It is also the best of the 2 cells on the test rows; choosing")


def test_a_choice_that_differs_between_repeats_says_how_often_it_was_made():
    first = score(0.7, "1", validation=0.5)
    second = ProbeScore(
        first.values,
        first.resampling,
        "2",
        "mean",
        "logistic",
        (0.6,) * 3 + (0.4,) * 7,
        (0.0,) * 10,
    )
    (found, *_) = sentences(first, second)
    assert "logistic; best on average, chosen in 7 of 10 repeats) and, with each repeat's" in found


def test_layers_are_worse_as_good_or_not_told_apart():
    found = sentences()
    assert "Layer 6 is worse (Holm's test, 5% over 3 comparisons)." in found
    assert "Layer 8 is as good, within 0.02 (equivalence tests, 5% over 3 comparisons)." in found
    (unknown,) = [one for one in found if one.startswith("Layer 9")]
    assert unknown.startswith(
        "Layer 9 is neither shown to be worse nor as good: 400 test rows in each of 10 repeats "
        "can't tell; about "
    )
    better = sentences(*CELLS[:3], score(0.9, "10", wobble=0.1))
    assert "Layer 10 is better (Holm's test, 5% over 3 comparisons)." in better
    many = [score(0.6, str(k), wobble=0.1) for k in range(5)]
    assert any(s.startswith("All 5 other layers are worse (") for s in sentences(CELLS[1], *many))


def test_layers_that_differ_by_chance_were_tested_all_the_same():
    found = " ".join(sentences(score(0.78, validation=0.8), score(0.79, "9", wobble=9.0)))
    assert "can't be tested" not in found and "repeats can't tell" in found


def test_layers_are_compared_with_the_same_pooler_and_classifier():
    other = score(0.2, "5", pool="last")
    assert not any("Layer 5" in one for one in sentences(*CELLS, other))


def test_less_is_better_where_the_metric_says_so():
    found = sentences(score(0.6, "6"), score(0.78, validation=0.8), metric="mse")
    assert found[0].startswith("The probe chosen on validation rows reads layer 6")


@pytest.mark.parametrize(
    ("mean", "wobble", "part"),
    [
        (0.501, 0.1, "), no difference larger than 0.02, +0.001 ["),
        (0.51, 9.0, "), 400 test rows in each of 10 repeats can't tell, +0.010 ["),
        (0.40, 0.1, "), worse, -0.100 ["),
    ],
)
def test_what_is_not_above_the_majority_is_not_shown_to_be_encoded(mean, wobble, part):
    found = " ".join(
        sentences(score(mean, "3", wobble=wobble), baselines={"majority": score(0.5, "-")})
    )
    assert "It is not shown that these layers encode the property: against the majority" in found
    assert part in found


def test_the_comparison_with_the_majority_is_printed_when_the_probe_is_better_too():
    found = sentences(score(0.7, "3", wobble=0.1), baselines={"majority": score(0.5, "-")})
    (said,) = [one for one in found if "against the majority baseline (0.500)" in one]
    assert said.startswith("The probe against the majority baseline (0.500): better, +0.200 [")


def test_words_are_better_worse_equal_or_not_told_apart():
    def said(base: ProbeScore) -> str:
        found = sentences(baselines=BASES | {"bow": base})
        return next(one for one in found if one.startswith("A bag-of-words baseline"))

    assert said(BASES["bow"]).startswith(
        "A bag-of-words baseline reaches 0.610, 39% of the gain over the majority baseline; the "
        "probe (0.780) against it: better, +0.170 ["
    )
    assert "against it: worse, -0.120 [" in said(score(0.9, "-"))
    assert "against it: no difference larger than 0.02" in said(score(0.779, "-", wobble=0.1))
    assert "against it: 400 test rows in each of 10 repeats can't tell" in said(
        score(0.77, "-", wobble=9.0)
    )


def test_twin_control_and_code_are_described_where_they_were_measured():
    given = {
        "twins": (score(0.64, wobble=0.2), score(0.9, "1")),
        "controls": (score(0.55, wobble=0.2),),
        "mdl": (812.4, 1400.0, 1500.0),
    }
    text = " ".join(sentences(**given, control_seen=0.934))
    assert "random weights reaches 0.640; the pretrained one against it: better, +0.140 [" in text
    assert (
        "Selectivity, against the control task (0.550; 93% of its test rows have a control word "
        "seen in training): better, +0.230 ["
    ) in text
    assert "812 bits instead of the 1,400 bits of the class frequencies alone (uniform" in text
    assert "code: 1,500), 1.72x compression." in text
    unknown = " ".join(sentences(twins=(score(0.77, wobble=9.0),)))
    assert "against it: 400 test rows in each of 10 repeats can't tell" in unknown


def test_a_control_without_a_value_in_some_repeats_says_in_how_many_it_has_one():
    control = score(0.55, wobble=0.2)
    some = replace(control, values=(float("nan"),) * 3 + control.values[3:])
    text = " ".join(sentences(controls=(some,), control_seen=0.5))
    assert "against the control task (0.550 in 7 of 10 repeats; 50% of" in text


def one_split(*values: float, rows: int = 200) -> tuple[ProbeScore, ...]:
    """A cell per layer, each measured on one split; the last has the best validation score."""
    return tuple(
        ProbeScore((v,), ResamplingInfo(700, rows), str(k), "mean", "lda", (k / 10,), (0.0,))
        for k, v in enumerate(values)
    )


def test_few_rows_tell_less_apart_than_many():
    few, many = (Evidence("accuracy", one_split(0.8, 0.9, rows=n)) for n in (40, 4000))
    assert [one.kind for one in few.other_layers.values()] == ["unknown"]
    assert [one.kind for one in many.other_layers.values()] == ["shown"]


def test_one_split_of_another_metric_tells_nothing_apart():
    found = sentences(*one_split(0.6, 0.9), metric="auc")
    assert found[0].endswith("reaches ROC AUC 0.900 on 200 test rows.")
    assert any("can't be tested with a single split" in one for one in found)


def test_repeats_whose_differences_have_no_error_are_no_single_split():
    blocks = tuple((np.nan,) * 4 for _ in range(10))
    cells = [
        replace(one, resampling=ResamplingInfo(7, 2, blocks=blocks))
        for one in (score(0.6, "6"), score(0.78, validation=0.8))
    ]
    found = " ".join(sentences(*cells, metric="ap"))
    assert "Differences between layers can't be tested with so few test rows." in found
    assert "single split" not in found


def test_folds_are_called_folds_and_a_curve_names_its_training_size():
    first, *_ = sentences(repeat_name="fold")
    assert "on 400 test rows in each of 10 folds" in first
    first, *_ = sentences(curve_rows=1400)
    assert "in each of 10 repeats, with 1,400 training rows." in first


def test_a_code_that_is_no_shorter_says_nothing_about_other_codes():
    found = sentences(mdl=(187.2, 182.0, 182.0))[-1]
    assert found.endswith(
        "187 bits, no shorter than the 182 bits of the class frequencies alone (uniform code: "
        "182): no compression."
    )


@pytest.mark.parametrize(("bow", "share"), [(0.64, 0.5), (0.78, 1.0), (0.5, None), (0.4, None)])
def test_what_words_explain_is_a_share_of_a_gain(bow, share):
    found = explained_share(score(0.78), score(bow, "-"), score(0.5, "-"))
    assert np.isnan(found) if share is None else found == pytest.approx(share, abs=1e-6)


def test_a_baseline_below_the_majority_explains_no_share_of_the_gain():
    given = {"majority": score(0.66, "-"), "bow": score(0.6, "-", wobble=0.3)}
    text = " ".join(sentences(baselines=given))
    assert "A bag-of-words baseline reaches 0.600, not better than the majority baseline" in text
    assert "0% of the gain" not in text and "of the gain" not in text


@pytest.mark.parametrize(
    ("task", "metric", "name"),
    [("regression", "r2", "mean"), ("multilabel", "f1_macro", "constant"),
     ("multiclass", "balanced_accuracy", "majority")],
)  # fmt: skip
def test_verdicts_speak_of_the_baseline_that_their_task_has(task, metric, name):
    for low in (0.4, 0.7799):
        bases = {"majority": score(low, "-", wobble=9.0), "bow": score(0.3, "-", wobble=0.3)}
        text = " ".join(sentences(metric=metric, task=task, baselines=bases))
        assert f"the {name} baseline reaches" in text
        assert f"not better than the {name} baseline (" in text
        assert ("majority" not in text) or task == "multiclass"
    zero = {"majority": ProbeScore((-1e-9,) * 10, ResamplingInfo(1400, 400))}
    assert "baseline reaches 0.000" in sentences(metric=metric, task=task, baselines=zero)[0]


def test_a_warning_about_the_accuracy_follows_the_headline():
    assert sentences(warning="Its accuracy is low.")[1] == "Its accuracy is low."


def test_no_value_is_no_verdict():
    with pytest.raises(BadData, match="nothing to compare"):
        sentences(ProbeScore((float("nan"),), ResamplingInfo(10, 5)), metric="auc")


def test_sentences_need_no_torch():
    code = "import cutaway.methods.probe.verdict, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("names", "listed"),
    [
        (["4"], "Layer 4"),
        (["4", "5"], "Layers 4 and 5"),
        (["30", "13", *(str(k) for k in range(15, 30))], "Layers 13 and 15-30"),
        (["0", "2", "3", "4", "mean:all"], "Layers 0, 2-4 and mean:all"),
        (["mean:all"], "Mean:all"),
    ],
)
def test_layers_are_listed_as_ranges(names, listed):
    assert _layer_list(names) == listed


def test_features_that_do_not_compress_the_labels_are_reported():
    assert (
        "700 bits, no shorter than the 600 bits of the class frequencies alone"
        in sentences(mdl=(700.0, 600.0, 650.0))[-1]
    )


def test_learned_pooling_names_its_classifier():
    learned = score(0.7, "8", pool="learned", classifier="attention")
    assert sentences(*CELLS, learned)[-1].startswith(
        "The pooler learned uses its own classifier, attention (one query"
    )
    assert not any("pooler learned" in one for one in sentences(metric="auc"))
