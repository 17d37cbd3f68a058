import json
import math

import pytest

from cutaway.core.errors import BadData, CutawayError, Missing
from cutaway.studies.reference_logs import parse_experiments, read_experiments

COLUMNS = (
    *("model", "data", "kind", "layers", "pool", "classifier", "repeat", "n_train", "n_val"),
    *("n_test", "metric", "value", "low", "high", "status", "reason", "experiment"),
)


def experiment(**changes):
    settings = {
        "model": "gpt2",
        "classifier": "LDA",
        "layer": 6,
        "quantile": 1.0,
        "layer_method": None,
    }
    data = {"Accuracy": [0.6, 0.7, 0.8], "F1": [0.5, 0.6, 0.7], "train loss": [0]}
    made = {"metadata": {"name": "Toy", "size": 50}, "expdata": settings, "data": data}
    for path, value in changes.items():
        table, _, key = path.partition("__")
        made[table] = {**made[table], key.replace("_", " ") if table == "data" else key: value}
    return made


def rows(**changes):
    return parse_experiments("log", {"experiment_0": experiment(**changes)})[0].rows()


def test_there_is_a_row_for_each_repeat_and_metric() -> None:
    found = rows()
    assert all(tuple(row) == COLUMNS for row in found)
    assert [(r["metric"], r["repeat"], r["value"]) for r in found[:3]] == [
        ("accuracy", 0, 0.6),
        ("accuracy", 1, 0.7),
        ("accuracy", 2, 0.8),
    ]
    assert {r["metric"] for r in found} == {"accuracy", "f1"}
    assert found[0]["low"] < 0.7 < found[0]["high"]
    assert {(r["n_train"], r["n_val"], r["n_test"]) for r in found} == {(35, 5, 10)}
    assert {r["classifier"] for r in found} == {"lda"}


def test_a_point_of_a_learning_curve_has_its_training_size() -> None:
    (sizes,) = {(r["n_train"], r["n_val"], r["n_test"]) for r in rows(**{"metadata__train len": 7})}
    assert sizes == (7, 5, 10)


def test_the_interval_of_a_curve_is_that_of_its_own_repeats() -> None:
    scores = [0.5, 0.6, 0.6, 0.7, 0.8, 0.4, 0.5, 0.6]
    for more in ({}, {"metadata__train len": 7}):
        first = rows(data__Accuracy=scores, **more)[0]
        assert first["low"] < sum(scores) / len(scores) < first["high"]


def test_a_size_that_the_scores_contradict_is_not_believed() -> None:
    tested = [k / 1355 for k in (987, 1028, 1001, 993, 1010, 1004)]
    first = rows(data__Accuracy=tested, metadata__size=8770)[0]
    assert (first["n_train"], first["n_val"], first["n_test"]) == (4743, 677, 1355)
    assert "shares of 1,355 test rows" in first["reason"]
    few = rows(data__Accuracy=tested[:2], metadata__size=8770)[0]
    assert (few["n_train"], few["n_test"]) == (None, None)
    true = rows(data__Accuracy=[k / 1754 for k in (1257, 1251, 1215)], metadata__size=8770)[0]
    assert (true["n_train"], true["n_test"], true["reason"]) == (6139, 1754, "")


@pytest.mark.parametrize(
    ("layer", "method", "expected"),
    [
        (6, None, "6"),
        (-1, None, "-1"),
        ("all", "mean", "mean:1-11"),
        ([8, 9], "extend", "extend:8,9"),
        ([8, 9], "max", "max:8,9"),
    ],
)
def test_layers_are_spelled_as_ours(layer, method, expected: str) -> None:
    assert rows(expdata__layer=layer, expdata__layer_method=method)[0]["layers"] == expected


def test_rows_say_what_the_code_of_the_reference_did() -> None:
    extended = rows(expdata__layer=[8, 9], expdata__layer_method="extend")[0]["reason"]
    assert "does not concatenate" in extended
    assert "only the last of these layers" in extended
    inner = rows(expdata__layer="all", expdata__layer_method="max")[0]
    assert (inner["layers"], "leaves out the embeddings" in inner["reason"]) == ("max:1-11", True)
    other = rows(expdata__layer="all", expdata__layer_method="mean", expdata__model="mine")[0]
    assert other["layers"] == "mean:all"


def test_the_last_layer_is_not_guessed() -> None:
    assert "README says the last layer but one" in rows(expdata__layer=-1)[0]["reason"]
    assert rows()[0]["reason"] == ""


@pytest.mark.parametrize(
    ("quantile", "expected"), [(1.0, "last"), (-1, "last"), (0.0, "first"), (0.4, "q0.4")]
)
def test_tokens_are_spelled_as_ours(quantile, expected: str) -> None:
    assert rows(expdata__quantile=quantile)[0]["pool"] == expected


def test_losses_are_kept_where_there_was_training() -> None:
    (plain,) = parse_experiments("log", {"experiment_0": experiment()})
    (trained,) = parse_experiments("log", {"experiment_0": experiment(data__train_loss=[0.9, 0.5])})
    assert (plain.losses, trained.losses) == ({}, {"train loss": (0.9, 0.5)})


def test_experiments_come_in_the_order_of_their_numbers(tmp_path) -> None:
    log = {f"experiment_{i}": experiment() for i in (10, 2, 0)}
    (tmp_path / "log.json").write_text(json.dumps(log))
    names = [e.name for e in read_experiments(tmp_path / "log.json")]
    assert names == ["experiment_0", "experiment_2", "experiment_10"]
    (tmp_path / "more.json").write_text(json.dumps({"experiment_0": experiment()}))
    assert sum(len(one.rows()) for one in read_experiments(tmp_path)) == 4 * 6


def test_files_of_one_experiment_each_are_read_in_the_order_of_their_numbers(tmp_path) -> None:
    for i in (10, 2):
        (tmp_path / f"experiment_{i}.json").write_text(json.dumps(experiment(expdata__layer=i)))
    found = read_experiments(tmp_path)
    assert [e.name for e in found] == ["experiment_2", "experiment_10"]
    assert [e.rows()[0]["layers"] for e in found] == ["2", "10"]


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ([], "has no experiments"),
        ({}, "has no experiments"),
        ({"experiment_3": {}}, "experiment_3 has no table 'metadata'"),
        ({"experiment_3": 7}, "experiment_3 has no table 'metadata'"),
        ({"e": {**experiment(), "expdata": {"model": "gpt2"}}}, "expdata has no 'classifier'"),
        ({"e": {**experiment(), "data": {"train loss": [0]}}}, "no scores"),
        ({"e": experiment(data__Accuracy=[0.5, math.nan])}, "'Accuracy' has nan at position 2"),
        ({"e": experiment(data__Accuracy=[math.inf])}, "finite number"),
        ({"e": experiment(data__Accuracy=["high"])}, "finite number"),
        ({"e": experiment(data__Accuracy=[])}, "expected a list of numbers"),
        ({"e": experiment(data__Accuracy=0.5)}, "expected a list of numbers"),
    ],
)
def test_a_log_that_is_not_whole_is_refused(log, message: str) -> None:
    with pytest.raises(BadData, match=message):
        parse_experiments("log.json", log)


def test_a_log_that_is_cut_short_is_refused(tmp_path) -> None:
    whole = json.dumps({"experiment_0": experiment()})
    for size in range(0, len(whole) - 1, 37):
        (tmp_path / "log.json").write_text(whole[:size])
        with pytest.raises(CutawayError, match="truncated"):
            read_experiments(tmp_path / "log.json")


def test_a_log_that_is_not_there_is_missing(tmp_path) -> None:
    with pytest.raises(Missing, match="No log at"):
        read_experiments(tmp_path / "gone.json")
    with pytest.raises(Missing, match=r"No \.json file"):
        read_experiments(tmp_path)
