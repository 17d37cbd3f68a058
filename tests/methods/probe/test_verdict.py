"""Sentences that say what follows from the scores."""

import subprocess
import sys

import numpy as np
import pytest

from cutaway.core.errors import BadData
from cutaway.measure.repeats import ResamplingInfo
from cutaway.methods.probe.verdict import (
    Evidence,
    ProbeScore,
    _layer_list,
    best_score,
    explained_share,
    tied_scores,
    verdict_sentences,
)

NOISE = np.array([0.01, -0.012, 0.004, -0.006, 0.008, -0.004, 0.002, -0.002, 0.006, -0.006])


def score(mean: float, layers: str = "7", *, wobble: float = 0.0, **kw) -> ProbeScore:
    own = wobble * np.roll(NOISE, int(layers) if layers.isdigit() else 3)
    values = tuple((mean + NOISE + own).tolist())
    kw = {"pool": "mean", "classifier": "logistic"} | kw
    return ProbeScore(values, ResamplingInfo(1400, 400), layers, **kw)


CELLS = (score(0.60, "6", wobble=0.2), score(0.78), score(0.7795, "8", wobble=1.0))
BASES = {"majority": score(0.5, "-"), "bow": score(0.61, "-", wobble=0.3)}


def test_the_best_layer_its_ties_and_the_words_share_are_said():
    sentences = verdict_sentences(Evidence("accuracy", CELLS, BASES))
    assert sentences[0].startswith(
        "The best probe reads layer 7 (pooler mean, classifier logistic) and reaches accuracy 0.78"
    )
    assert sentences[0].endswith("over 10 repeats; the majority baseline reaches 0.500.")
    assert sentences[1] == "Layer 8 is statistically indistinguishable from layer 7."
    assert sentences[2] == (
        "A bag-of-words baseline reaches 0.610 (probe: 0.780), 39% of the gain over the majority "
        "baseline."
    )
    assert len(sentences) == 3


def test_a_clear_winner_is_called_one():
    sentences = verdict_sentences(Evidence("accuracy", CELLS[:2]))
    assert "Every other layer is significantly worse." in sentences


def test_many_equal_layers_are_not_listed():
    cells = tuple(score(0.7, str(k), wobble=1.0) for k in range(6))
    assert "All 5 other layers are statistically indistinguishable from it." in verdict_sentences(
        Evidence("auc", cells)
    )


def test_two_and_more_ties_read_as_a_list_in_the_order_of_layers():
    cells = (*CELLS, score(0.779, "10", wobble=1.0), score(0.779, "9", wobble=1.0))
    sentences = verdict_sentences(Evidence("accuracy", cells))
    assert "Layers 8-10 are statistically indistinguishable from layer 7." in sentences


def test_less_is_better_where_the_metric_says_so():
    evidence = Evidence("mse", CELLS)
    assert best_score(evidence).layers == "6"
    assert verdict_sentences(evidence)[0].startswith("The best probe reads layer 6")


def test_nothing_to_read_is_said_plainly():
    cells = (score(0.501, "3", wobble=1.0),)
    sentences = " ".join(
        verdict_sentences(Evidence("accuracy", cells, {"majority": score(0.5, "-")}))
    )
    assert "no evidence that these layers encode the property" in sentences


def test_words_that_do_as_well_are_said_to():
    sentences = verdict_sentences(Evidence("accuracy", CELLS, BASES | {"tfidf": score(0.8, "-")}))
    assert "A TF-IDF baseline reaches 0.800, at least as good as the probe (0.780)." in sentences
    near = {"majority": BASES["majority"], "bow": score(0.779, "-", wobble=1.0)}
    assert any(
        "the two are statistically indistinguishable" in s
        for s in verdict_sentences(Evidence("accuracy", CELLS, near))
    )


def test_twin_control_and_code_are_said_where_they_were_measured():
    sentences = verdict_sentences(
        Evidence(
            "accuracy",
            CELLS,
            twins=(score(0.64, wobble=0.2), score(0.9, "1")),
            controls=(score(0.55, wobble=0.2),),
            mdl=(812.4, 1221.0, 1400.0),
        )
    )
    text = " ".join(sentences)
    assert "random weights reaches 0.640: pretraining adds 0.140 [" in text
    assert "Selectivity: 0.230 [" in text
    code = "812 bits instead of the 1,221 bits of the class frequencies alone (uniform code: 1,400)"
    assert f"the training labels: {code}, 1.50x compression." in text
    equal = verdict_sentences(Evidence("accuracy", CELLS, twins=(score(0.779, wobble=1.0),)))
    assert any("does not need pretraining" in s for s in equal)


def one_split(*values: float, rows: int = 200) -> tuple[ProbeScore, ...]:
    """A cell per layer, each measured on one split."""
    return tuple(
        ProbeScore((v,), ResamplingInfo(700, rows), str(k), "mean", "lda")
        for k, v in enumerate(values)
    )


def test_one_split_of_right_answers_is_judged_by_its_rows():
    evidence = Evidence(
        "accuracy",
        one_split(0.6, 0.88, 0.9),
        {"majority": ProbeScore((0.5,), ResamplingInfo(700, 200))},
    )
    sentences = verdict_sentences(evidence)
    assert (
        "reads layer 2 (pooler mean, classifier lda) and reaches accuracy 0.900 [0.85"
        in sentences[0]
    )
    assert sentences[1] == "Layer 1 is statistically indistinguishable from layer 2."


def test_few_rows_tell_less_apart_than_many():
    few, many = (Evidence("accuracy", one_split(0.8, 0.9, rows=n)) for n in (40, 4000))
    assert [c.layers for c in tied_scores(few, best_score(few))] == ["0"]
    assert tied_scores(many, best_score(many)) == []


def test_one_split_of_another_metric_tells_nothing_apart():
    sentences = verdict_sentences(Evidence("auc", one_split(0.6, 0.9)))
    assert sentences[0].endswith("reaches ROC AUC 0.900 over 1 repeat.")
    assert "can't be tested with a single split" in sentences[1]


@pytest.mark.parametrize(("bow", "share"), [(0.5, 0.0), (0.64, 0.5), (0.78, 1.0), (0.4, 0.0)])
def test_what_words_explain_runs_from_nothing_to_all(bow, share):
    found = explained_share(score(0.78), score(bow, "-"), score(0.5, "-"))
    assert found == pytest.approx(share, abs=1e-6)


def test_ties_are_sought_among_layers_of_the_same_pooler_and_classifier():
    other = score(0.7795, "5", wobble=1.0, pool="last")
    evidence = Evidence("accuracy", (*CELLS, other))
    assert [cell.layers for cell in tied_scores(evidence, best_score(evidence))] == ["8"]


def test_no_value_is_no_verdict():
    with pytest.raises(BadData, match="nothing to compare"):
        verdict_sentences(Evidence("auc", (ProbeScore((float("nan"),), ResamplingInfo(10, 5)),)))


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
    sentences = verdict_sentences(Evidence("accuracy", CELLS, mdl=(215.0, 188.0, 400.0)))
    assert "215 bits, no shorter than the 188 bits of the class frequencies" in sentences[-1]
    assert "(uniform code: 400): these features do not compress the labels." in sentences[-1]


def test_learned_pooling_names_its_classifier():
    learned = score(0.7, "8", pool="learned", classifier="attention")
    sentence = verdict_sentences(Evidence("accuracy", (*CELLS, learned)))[-1]
    assert sentence.startswith("The pooler learned uses its own classifier, attention (one query")
    assert not any("pooler learned" in one for one in verdict_sentences(Evidence("auc", CELLS)))
