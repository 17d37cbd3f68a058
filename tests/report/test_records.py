import pytest

from cutaway.report import overview, provenance, records
from tests.report.fake_runs import FakeRecord, failed_rows, probe_rows, save_run


def test_a_single_model_and_a_list_of_models_answer_the_same_questions() -> None:
    one = {"name": "a", "parameters": 5}
    for told, expected in ((one, ["a"]), ([one, {"name": "b"}], ["a", "b"]), (None, []), ("x", [])):
        record = FakeRecord(probe_rows(layers=("1",)), model=told)
        assert records.entry_names(record.model) == expected
        assert records.parameter_counts(record) == ({"a": 5} if expected else {})


def test_headlines_name_models_and_data_and_stay_short() -> None:
    many = [{"name": f"m{i}"} for i in range(5)]
    record = FakeRecord(probe_rows(layers=("1",)), model=many, data={"name": "cola"})
    assert records.run_title(record) == "m0, m1, m2 and 2 more on cola"


@pytest.mark.parametrize(
    ("said", "sentences"), [("one", ["one"]), (["a", "b"], ["a", "b"]), (None, []), ([], [])]
)
def test_verdicts_are_a_list_however_they_were_written(said, sentences) -> None:
    assert (
        records.verdict_sentences(FakeRecord(probe_rows(layers=("1",)), summary={"verdict": said}))
        == sentences
    )


def test_the_overview_reads_summaries_only(tmp_path) -> None:
    record = save_run(tmp_path)
    (record.path / "rows.parquet").unlink()
    line = overview.overview_table([record]).row(0, named=True)
    assert line["score"] == pytest.approx(record.summary["headline"]["value"])
    assert line["metric"] == "accuracy" and line["where"].startswith("layer ")


def test_the_overview_takes_runs_without_a_best_cell() -> None:
    rows = failed_rows()
    for summary in ({}, {"best": []}, {"best": "?"}, {"imported": True}, {"best": {"value": "x"}}):
        line = overview.overview_table([FakeRecord(rows, summary=summary)]).row(0, named=True)
        assert line["score"] is None
        assert line["origin"] == ("imported" if summary.get("imported") else "run")


def test_a_time_that_can_not_be_read_is_shown_as_it_stands() -> None:
    assert overview.local_time("yesterday") == "yesterday"
    assert overview.local_time("2026-01-02T03:04:05+00:00").startswith("2026-01-0")


def test_provenance_names_digests_seed_versions_and_cost(tmp_path) -> None:
    facts = dict(provenance.provenance(save_run(tmp_path)))
    assert "digest a0a0a0a0a0a0a0a0" in facts["model"] and "135 M parameters" in facts["model"]
    assert "2,000 rows" in facts["data"] and facts["seed"] == "0"
    assert "torch 2.13.0" in facts["versions"] and facts["time"] == "1 min 23 s"


def test_provenance_of_imported_logs_says_so() -> None:
    record = FakeRecord(probe_rows(layers=("1",)), summary={"imported": True}, model={}, seed=None)
    assert "imported" in dict(provenance.provenance(record))["origin"]
