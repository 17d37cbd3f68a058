import json

import pytest

from cutaway.core.errors import BadData, CutawayError, Missing
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
    records = {r.data["name"]: r for r in results(tmp_path / "runs")}
    assert len(made) == 2
    assert set(records) == {"ETHICS", "SST"}
    rows = records["ETHICS"].rows
    assert rows.filter(rows["metric"] == "accuracy")["value"].to_list() == [0.6, 0.7]
    assert records["ETHICS"].summary["imported"] is True


def test_importing_twice_makes_no_second_run(log, tmp_path):
    assert import_experiments(log, tmp_path / "r") == import_experiments(log, tmp_path / "r")
    assert len(results(tmp_path / "r")) == 2


def test_a_folder_of_logs_is_read_whole(log, tmp_path):
    assert len(import_experiments(log.parent, tmp_path / "runs")) == 2


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"a": 1}', '{"a": {"data": {}}}'])
def test_a_log_that_is_none_is_refused(text, tmp_path):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises((BadData, CutawayError)):
        import_experiments(path, tmp_path / "runs")


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(Missing, match=r"No \.json file"):
        import_experiments(tmp_path, tmp_path / "runs")
