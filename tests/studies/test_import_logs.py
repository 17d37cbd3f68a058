import json
from pathlib import Path

import pytest
from bench.import_logs import compare

from cutaway.core.errors import BadData, CutawayError, Missing
from cutaway.methods.probe.figures import FIGURES
from cutaway.methods.probe.table import TABLE
from cutaway.store.results import results
from cutaway.studies.import_logs import import_experiments

LOG = {
    "experiment_0": {
        "metadata": {"name": "ETHICS", "size": 100, "task": "Classification"},
        "expdata": {"model": "gpt2", "classifier": "LDA", "layer": 3, "quantile": 1.0,
                    "layer_method": None, "quantile_method": None, "attention": False},
        "data": {"Accuracy": [0.6, 0.7], "F1": [0.5, 0.6], "train loss": [0.9, 0.8]},
    },
    "experiment_1": {
        "metadata": {"name": "SST", "size": 50, "task": "Classification"},
        "expdata": {"model": "gpt2", "classifier": "GLU", "layer": 4, "quantile": 0.4,
                    "layer_method": None, "quantile_method": None, "attention": False},
        "data": {"Accuracy": [0.8], "F1": [0.8]},
    },
}  # fmt: skip


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "logs.json"
    path.write_text(json.dumps(LOG))
    return path


def test_every_data_set_becomes_a_run_beside_own_runs(log, tmp_path):
    made = import_experiments(log, tmp_path / "runs")
    records = {r.data["logged_as"]: r for r in results(tmp_path / "runs")}
    assert (len(made.addresses), made.experiments) == (2, 2)
    assert set(records) == {"ETHICS", "SST"}
    rows = records["ETHICS"].rows
    assert rows.filter(rows["metric"] == "accuracy")["value"].to_list() == [0.6, 0.7]
    assert records["ETHICS"].summary["imported"] is True


def test_importing_twice_makes_no_second_run(log, tmp_path):
    assert import_experiments(log, tmp_path / "r") == import_experiments(log, tmp_path / "r")
    assert len(results(tmp_path / "r")) == 2


def test_a_folder_of_logs_is_read_whole(log, tmp_path):
    assert import_experiments(log.parent, tmp_path / "runs").experiments == 2


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"a": 1}', '{"a": {"data": {}}}'])
def test_a_log_that_is_none_is_refused(text, tmp_path):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises((BadData, CutawayError)):
        import_experiments(path, tmp_path / "runs")


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(Missing, match=r"No \.json file"):
        import_experiments(tmp_path, tmp_path / "runs")


def public_like_logs(folder: Path) -> int:
    """Logs like the public ones: full runs, the same again, curves with `extend`, other sets."""

    def entry(name, layer, scores, method=None, classifier="LDA", **more):
        settings = {
            "model": "gpt2",
            "classifier": classifier,
            "layer": layer,
            "quantile": 1.0,
            "layer_method": method,
            "quantile_method": None,
            "attention": False,
        }
        return {
            "metadata": {"name": name, "size": 200, "task": "Classification", **more},
            "expdata": settings,
            "data": {"Accuracy": [k / 40 for k in scores], "F1": [k / 50 for k in scores],
                     "train loss": [0]},
        }  # fmt: skip

    full = [entry("ETHICS Commonsense", layer, (27, 28, 29)) for layer in (-1, 3)]
    again = [entry("ETHICS Commonsense", 3, (30, 26)), entry("ETHICS Commonsense", 3, (25, 26))]
    curve = [
        entry("ETHICS Commonsense", layer, (20 + i, 21, 22 + i), "extend", **{"train len": n})
        for layer in ([10, 11], [9, 10, 11])
        for i, n in enumerate((7, 8, 50, 100))
    ]
    other = [
        entry("Stormfront hate speechwithout period", -1, (36, 35), classifier="GLU"),
        entry("A set of mine", -1, (36, 35), classifier="Perceptron"),
    ]
    files = {"experiments1.json": full, "experiments2.json": [*again, *other],
             "experiments10.json": [*full, *curve]}  # fmt: skip
    for file, entries in files.items():
        log = {f"experiment_{i}": e for i, e in enumerate(entries)}
        (folder / file).write_text(json.dumps(log))
    return sum(map(len, files.values()))


def test_every_experiment_keeps_its_cell_and_equals_its_json(tmp_path) -> None:
    (tmp_path / "logs").mkdir()
    expected = public_like_logs(tmp_path / "logs")
    found = compare(tmp_path / "logs", tmp_path / "runs")
    assert found["experiments"] == found["cells"] == expected == 16
    assert found["with train len"] == 8


def test_learning_curves_are_curves(tmp_path) -> None:
    (tmp_path / "logs").mkdir()
    public_like_logs(tmp_path / "logs")
    import_experiments(tmp_path / "logs", tmp_path / "runs")
    record = next(r for r in results(tmp_path / "runs") if "learning curves" in str(r.summary))
    assert "8 of them are points of learning curves, with 7 to 100" in str(record.summary)
    drawn = FIGURES["curve"](record.rows, record)
    (line,) = [trace for trace in drawn.data if trace.name]
    assert list(line.x) == [7, 8, 50, 100]
    table = TABLE.summary(record.rows)
    lda = table.filter((table["layers"] == "extend:10,11") & (table["metric"] == "accuracy"))
    assert lda["n_train"].to_list() == [7, 8, 50, 100]
    assert lda["repeats"].to_list() == [3] * 4


def test_names_meet_ours_and_the_users_table_comes_first(tmp_path) -> None:
    (tmp_path / "logs").mkdir()
    public_like_logs(tmp_path / "logs")
    made = import_experiments(tmp_path / "logs", tmp_path / "a")
    assert made.unmatched == ('classifier "Perceptron"', 'data "A set of mine"')
    names = results(tmp_path / "a").query("select distinct data, classifier from scores order by 1")
    assert names.rows() == [
        ("A set of mine", "Perceptron"), ("ethics", "lda"),
        ("hate_speech18 without period", "glu_linear"),
    ]  # fmt: skip
    own = tmp_path / "names.toml"
    own.write_text('[data]\n"A set of mine" = "mine"\n[classifier]\nPerceptron = "linear"\n'
                   'LDA = "lda_shrink"\n')  # fmt: skip
    made = import_experiments(tmp_path / "logs", tmp_path / "b", own)
    names = results(tmp_path / "b").query("select distinct data, classifier from scores order by 1")
    assert made.unmatched == ()
    assert names.rows()[:2] == [("ethics", "lda_shrink"), ("hate_speech18 without period",
                                                            "glu_linear")]  # fmt: skip
    assert ("mine", "linear") in names.rows()


def test_the_verdict_says_what_the_log_has_and_lacks(tmp_path) -> None:
    (tmp_path / "logs").mkdir()
    public_like_logs(tmp_path / "logs")
    import_experiments(tmp_path / "logs", tmp_path / "runs")
    said = " ".join(s for r in results(tmp_path / "runs") for s in r.summary["verdict"])
    for expected in ("ethics (in the log: ETHICS Commonsense)", "picked by the test scores",
                     "does not concatenate", "no baselines and no predictions"):  # fmt: skip
        assert expected in said


def test_the_best_of_a_regression_has_the_highest_r2(tmp_path) -> None:
    log = {f"experiment_{i}": json.loads(json.dumps(LOG["experiment_0"])) for i in (0, 1)}
    for i, (mse, r2) in enumerate(((0.9, 0.1), (0.3, 0.6))):
        log[f"experiment_{i}"]["data"] = {"MSE": [mse], "R2": [r2]}
        log[f"experiment_{i}"]["expdata"]["layer"] = i
    (tmp_path / "log.json").write_text(json.dumps(log))
    import_experiments(tmp_path / "log.json", tmp_path / "runs")
    (record,) = results(tmp_path / "runs")
    assert (record.summary["metric"], record.summary["best"]["value"]) == ("r2", 0.6)
    assert "accuracy_ref" not in str(record.summary["verdict"])
