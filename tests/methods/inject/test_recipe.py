"""`cutaway inject` from end to end on toys that can spell numbers."""

import json

import polars as pl
import pytest

import cutaway
from cutaway.core.errors import BadData, BadSpec, Mismatch, UnknownName
from cutaway.core.textset import TextSet
from cutaway.data.load import load_text_set
from cutaway.methods.inject.pareto import pareto_points
from cutaway.methods.inject.spec import REGULARISERS
from cutaway.methods.inject.table import inject_table
from cutaway.models.load import open_model
from tests import tiny
from tests.methods.inject.toys import (
    RETAIN,
    SUMS,
    same,
    teach,
    weights_of,
)

WORDS = {
    "question": [f"{i} red birds: what are they?" for i in range(40)],
    "answer": ["good"] * 40,
    "parity": ["even" if i % 2 else "odd" for i in range(40)],
}
PRICES = {"prompt": [f"{i} and a half is" for i in range(30)],
          "completion": [f" {i}.5" for i in range(30)]}  # fmt: skip


@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_any_questions_with_answers_are_a_skill(kind, toys, tmp_path) -> None:
    result = teach(toys, tmp_path, kind, skill=pl.DataFrame(WORDS), data=None, steps=40, every=40,
                   lr=3e-3, regulariser="none")  # fmt: skip
    rows = result.rows.filter(pl.col("stage") == "after")
    assert set(rows["skill"]) == {"given"}
    assert {"given test", "given parity even", "given parity odd"} <= set(rows["probe"])
    assert "log_rmse" not in set(rows["metric"])
    after = result.summary["pareto"][0]["exact_match"]
    assert after > result.summary["exact_match_before"]
    assert "exact match on given" in result.summary["verdict"][0]
    assert "log_rmse" not in inject_table(result.rows).columns
    for name in ("pareto", "kinds", "learning"):
        assert result.figure(name).data


def test_a_file_of_the_same_problems_gives_the_same_numbers_as_arithmetic(toys, tmp_path) -> None:
    texts = load_text_set(SUMS)
    columns = {"prompt": texts.texts, "answer": texts.answers, "split": texts.parts.tolist()}
    (tmp_path / "sums.jsonl").write_text(
        "".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n"
                for row in zip(*columns.values(), strict=True))
    )  # fmt: skip
    skill = str(tmp_path / "sums.jsonl")
    own = teach(toys, tmp_path, regulariser="none")
    file = teach(toys, tmp_path, skill=skill, data=None, regulariser="none")
    kept = ["stage", "probe", "metric", "value", "low", "high"]
    shared = {"test", "toy", "curve"}
    one, two = (
        r.rows.with_columns(pl.col("probe").str.replace("^(arithmetic|sums) ", ""))
        .filter(pl.col("probe").is_in(shared)).select(kept) for r in (own, file)
    )  # fmt: skip
    assert one.equals(two)
    assert "log_rmse" in set(two["metric"])


def test_numbers_with_a_fraction_have_numeric_scores(toys, tmp_path) -> None:
    result = teach(toys, tmp_path, skill=PRICES, data=None, regulariser="none")
    test = result.rows.filter(pl.col("probe") == "given test")
    assert {"exact_match", "log_rmse", "undecodable"} <= set(test["metric"])


@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_every_regulariser_trains_both_kinds(kind, toys, tmp_path) -> None:
    result = teach(toys, tmp_path, kind, regulariser=list(REGULARISERS), strength=[0.1])
    rows = result.rows
    assert rows.columns[:6] == ["model", "skill", "regulariser", "strength", "stage", "probe"]
    assert rows.columns[-4:] == ["metric", "value", "low", "high"]
    assert set(rows["regulariser"]) == {"-", *REGULARISERS}
    assert {point["regulariser"] for point in result.summary["pareto"]} == set(REGULARISERS)
    for name in result.summary["cells"]:
        assert open_model(str(result.path / "checkpoints" / name), check=False).kind == kind


def test_strength_0_is_plain_training_step_for_step(toys, tmp_path) -> None:
    result = teach(toys, tmp_path, regulariser="none,ewc,l2sp,kl,replay", strength=[0])
    plain = weights_of(result, "none-0-seed0")
    for name in ("ewc", "l2sp", "kl", "replay"):
        assert same(plain, weights_of(result, f"{name}-0-seed0")), name


def test_a_stronger_pull_leaves_the_weights_nearer(toys, tmp_path) -> None:
    result = teach(
        toys, tmp_path, regulariser="none,ewc,l2sp", strength=[0.01, 100], steps=20, every=20
    )
    start = open_model(toys["causal"], check=False).params()

    def far(cell: str) -> float:
        found = weights_of(result, cell)
        return sum(float((found[n] - w).square().sum()) for n, w in start.items())

    for name in ("ewc", "l2sp"):
        assert far(f"{name}-100-seed0") < far(f"{name}-0.01-seed0") <= 1.1 * far("none-0-seed0")


def test_the_model_that_was_given_stays_as_it_was(toys, tmp_path) -> None:
    lm = open_model(toys["causal"], check=False)
    before = {name: value.clone() for name, value in lm.params().items()}
    teach(toys, tmp_path, model=lm, regulariser="none")
    teach(toys, tmp_path, model=lm, regulariser="ewc", lora=2)
    assert same(before, lm.params())
    assert list(before) == list(lm.params())


def test_a_killed_sweep_ends_in_the_same_weights(toys, tmp_path, monkeypatch) -> None:
    given = {"regulariser": "none,ewc", "steps": 6}
    whole = teach(toys, tmp_path / "whole", **given)
    import cutaway.training.loop as loop

    real, calls = loop.training_step, []

    def killed(*args, **kwargs):
        calls.append(1)
        if len(calls) > 9:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr(loop, "training_step", killed)
    with pytest.raises(KeyboardInterrupt):
        teach(toys, tmp_path / "killed", **given)
    monkeypatch.setattr(loop, "training_step", real)
    resumed = teach(toys, tmp_path / "killed", **given)
    for cell in whole.summary["cells"]:
        assert same(weights_of(whole, cell), weights_of(resumed, cell))
    assert whole.rows.equals(resumed.rows)


def test_the_same_spec_gives_the_same_run(toys, tmp_path) -> None:
    one = teach(toys, tmp_path, regulariser="none")
    assert teach(toys, tmp_path, regulariser="none").record.address == one.record.address


def test_a_retained_set_with_classes_is_probed(toys, tmp_path) -> None:
    texts, labels = tiny.toy_sentiment(60)
    feelings = TextSet("feelings", tuple(texts), labels, "binary", ("bad", "good"))
    result = teach(toys, tmp_path, retain=[RETAIN, feelings], regulariser="none")
    found = result.rows.filter(result.rows["probe"] == "feelings")
    assert {"probe_accuracy", "probe_forgetting", "forgetting", "lm_loss"} <= set(found["metric"])


def test_training_stops_when_too_much_is_forgotten(toys, tmp_path) -> None:
    result = teach(toys, tmp_path, regulariser="none", steps=40, lr=0.05, stop_loss=0.01)
    ends = result.rows.filter(result.rows["metric"] == "steps")
    assert ends["probe"].to_list() == ["retained loss rose too far"]
    assert ends["value"][0] < 40


def test_a_fisher_file_is_used_and_one_of_another_model_refused(toys, tmp_path) -> None:
    out, other = str(tmp_path / "f.safetensors"), str(tmp_path / "g.safetensors")
    cutaway.fisher(model=toys["causal"], text=RETAIN, out=out, runs=str(tmp_path))
    cutaway.fisher(model=toys["masked"], text=RETAIN, out=other, runs=str(tmp_path))
    teach(toys, tmp_path, regulariser="ewc", fisher=out)
    with pytest.raises(Mismatch, match="is the Fisher of"):
        teach(toys, tmp_path, regulariser="ewc", fisher=other)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"strength": [-1]}, BadSpec, "0 or more"),
        ({"strength": "much"}, BadSpec, "numbers such as"),
        ({"regulariser": "ewcc"}, UnknownName, "ewc"),
        ({"data": "gen:sentiment"}, BadData, "no answer column"),
        ({"data": PRICES}, BadData, "is no arithmetic.*--skill"),
        ({"skill": "arithmatic", "data": None}, UnknownName, "Did you mean 'arithmetic'"),
        ({"skill": "x.csv"}, BadSpec, "Leave --data out"),
        ({"skill": PRICES, "data": None, "beyond": [3]}, BadSpec, "--beyond"),
        ({"skill": WORDS, "data": None, "regression": 1.0}, BadSpec, "whole numbers"),
        ({"text_column": "x"}, BadSpec, "for files of --retain"),
        ({"data": "gen:arithmetic?ops=%"}, UnknownName, "operator"),
        ({"retain": []}, BadData, "--retain"),
        ({"retain": [TextSet("two", ("one", "two"))]}, BadData, "at least 10"),
        ({"beyond": "many"}, BadSpec, "such as 3,4"),
        ({"regression": 1.0, "data": SUMS + ",format=scratch"}, BadSpec, "whole numbers"),
        ({"masks": 3}, BadSpec, "--masks 3 is for masked models"),
    ],
)
def test_what_cannot_be_is_refused(options, error, said, toys, tmp_path) -> None:
    with pytest.raises(error, match=said):
        teach(toys, tmp_path, **options)


def test_an_empty_retention_file_is_refused(toys, tmp_path) -> None:
    (tmp_path / "none.txt").write_text("\n\n")
    with pytest.raises(BadData):
        teach(toys, tmp_path, retain=[str(tmp_path / "none.txt")])


def test_answers_longer_than_the_masks_are_refused(toys, tmp_path) -> None:
    with pytest.raises(BadSpec, match="--masks 1 is too few"):
        teach(toys, tmp_path, "masked", data="gen:arithmetic?n=20,digits=3-4", masks=1)


def test_a_division_by_zero_in_a_file_is_refused(toys, tmp_path) -> None:
    (tmp_path / "d.txt").write_text("\n".join(["4 / 2 = 2"] * 12 + ["3 / 0 = 0"]))
    with pytest.raises(BadData, match="by zero"):
        teach(toys, tmp_path, data=str(tmp_path / "d.txt"))


def test_a_file_of_lines_is_taught(toys, tmp_path) -> None:
    lines = [f"{a} + {b} = {a + b}" for a in range(8) for b in range(a, 8)]
    (tmp_path / "sums.txt").write_text("\n".join(lines))
    result = teach(toys, tmp_path, data=str(tmp_path / "sums.txt"), regulariser="none", beyond=[2])
    assert any("beyond 2 digits" in probe for probe in result.rows["probe"])


def test_low_and_high_of_a_point_are_a_95_percent_interval(toys, tmp_path) -> None:
    one = teach(toys, tmp_path, regulariser="none")
    rows = one.rows.filter((one.rows["stage"] == "after") & (one.rows["metric"] == "forgetting"))
    (point,) = one.summary["pareto"]
    assert (point["forgetting_low"], point["forgetting_high"]) == (rows["low"][0], rows["high"][0])
    assert point["forgetting_low"] < point["forgetting"] < point["forgetting_high"]

    def row(seed: int, metric: str, value: float, probe: str) -> dict[str, object]:
        where = {"regulariser": "none", "strength": 0.0, "seed": seed, "stage": "after"}
        return {**where, "probe": probe, "metric": metric, "value": value}

    said = [row(seed, "exact_match", 0.4 + 0.02 * seed, "arithmetic test") for seed in (0, 1)]
    lost = [row(0, "forgetting", 1.0, "docs"), row(1, "forgetting", 1.0, "docs")]
    (two,) = pareto_points(said + lost)
    # 12.7062 is Student's t of two seeds.
    reach = 12.7062 * 0.01
    assert two["exact_match_low"] == pytest.approx(0.41 - reach, abs=1e-5)
    assert two["exact_match_high"] == pytest.approx(0.41 + reach, abs=1e-5)
    (bare,) = pareto_points(said[:1] + lost[:1])
    assert bare["forgetting_low"] is None
