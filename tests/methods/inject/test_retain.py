"""Retained sets: their split, their losses and what counts as forgetting."""

import numpy as np
import pytest
import torch

from cutaway.core.errors import BadData
from cutaway.core.textset import TextSet
from cutaway.measure.intervals import Interval
from cutaway.methods.inject.retain import (
    RetainedScores,
    forgetting_metrics,
    loss_per_text,
    mean_over_texts,
    monitored_loss,
    read_retained_sets,
    score_retained,
)
from cutaway.methods.inject.spec import InjectSpec
from cutaway.models.load import open_model
from tests import tiny
from tests.methods.inject.toys import RETAIN


@pytest.fixture(scope="module")
def lm(toys):
    return open_model(toys["causal"], check=False)


def read(lm, *sets: TextSet, **options):
    names = [one.name for one in sets]
    spec = InjectSpec(model="m", retain=names, **options)
    return read_retained_sets(lm, spec, dict(zip(names, sets, strict=True)))


def feelings(count: int = 60) -> TextSet:
    texts, labels = tiny.toy_sentiment(count)
    return TextSet("feelings", tuple(texts), labels, "binary", ("bad", "good"))


def test_every_text_is_in_one_part_half_of_them_for_training(lm) -> None:
    (one,) = read(lm, RETAIN)
    parts = [one.train, one.dev, one.test]
    assert [len(part) for part in parts] == [30, 6, 24]
    assert (one.rows, one.dropped, one.labelled) == (60, 0, None)
    rows = [tuple(row) for part in parts for row in part.rows]
    expected = [tuple(lm.tokenizer(text)["input_ids"]) for text in RETAIN.texts]
    assert sorted(rows) == sorted(expected)


def test_the_split_depends_on_the_seed_alone(lm) -> None:
    first, again, other = (read(lm, RETAIN, seed=s)[0].train.rows for s in (0, 0, 1))
    assert first == again != other


def test_texts_that_are_too_short_are_counted(lm) -> None:
    texts = TextSet("short", (*RETAIN.texts[:20], *("the",) * 5))
    (one,) = read(lm, texts)
    total = sum(len(part) for part in (one.train, one.dev, one.test))
    assert total + one.dropped == 25


def test_the_loss_of_a_text_is_that_of_transformers_for_it_alone(lm) -> None:
    (one,) = read(lm, RETAIN)
    losses = loss_per_text(lm, one.test)
    for row, loss in zip(one.test.rows, losses, strict=True):
        ids = torch.tensor([row])
        with torch.no_grad():
            expected = lm.module(input_ids=ids, labels=ids).loss.item()
        assert loss == pytest.approx(expected, rel=1e-4)
    assert monitored_loss(lm, [one]) == pytest.approx(loss_per_text(lm, one.dev).mean())


def test_labelled_sets_have_a_probe_and_others_have_none(lm) -> None:
    sets = read(lm, RETAIN, feelings())
    scores = score_retained(lm, sets, seed=0)
    assert set(scores.losses) == {"toy", "feelings"}
    assert set(scores.probes) == {"feelings"}
    assert 0.0 <= scores.probes["feelings"].mean <= 1.0
    assert scores.probes["feelings"].n == 20
    assert set(scores.metrics("toy")) == {"lm_loss", "perplexity"}
    assert set(scores.metrics("feelings")) == {"lm_loss", "perplexity", "probe_accuracy"}


def scores(losses: list[float], probe: float | None = None) -> RetainedScores:
    probes = {} if probe is None else {"s": Interval(probe, 0.0, 1.0, 0.95, 10)}
    return RetainedScores({"s": np.array(losses)}, probes)


def test_perplexity_is_the_exponential_of_the_mean_loss_and_of_its_ends() -> None:
    metrics = scores([1.0, 2.0, 3.0]).metrics("s")
    loss, perplexity = metrics["lm_loss"], metrics["perplexity"]
    assert loss.mean == 2.0
    ends = (loss.mean, loss.low, loss.high)
    assert (perplexity.mean, perplexity.low, perplexity.high) == pytest.approx(np.exp(ends))


def test_forgetting_is_paired_by_text() -> None:
    # Every text loses exactly 0.5: the interval has no width, however different the texts are.
    before, after = scores([1.0, 5.0, 9.0], 0.9), scores([1.5, 5.5, 9.5], 0.7)
    lost = forgetting_metrics(before, after, "s")
    assert (lost["forgetting"].low, lost["forgetting"].high) == pytest.approx((0.5, 0.5))
    assert lost["probe_forgetting"] == pytest.approx(0.2)
    assert set(forgetting_metrics(scores([1.0, 2.0]), scores([1.0, 2.0]), "s")) == {"forgetting"}


def test_the_interval_of_a_mean_is_students() -> None:
    values = np.array([1.0, 2.0, 4.0, 7.0])
    found = mean_over_texts(values)
    # 3.18245 is Student's t with three degrees of freedom.
    reach = 3.18245 * values.std(ddof=1) / 2
    assert (found.low, found.high) == pytest.approx((3.5 - reach, 3.5 + reach), rel=1e-5)


def test_no_set_and_a_set_of_few_texts_are_refused(lm) -> None:
    with pytest.raises(BadData, match="--retain is empty"):
        read(lm)
    with pytest.raises(BadData, match="at least 10"):
        read(lm, TextSet("few", RETAIN.texts[:9]))
