"""Tables of nextword: the paper's layout and one line per feature kind."""

import polars as pl
import pytest

from cutaway.methods.nextword.spec import FEATURES, TEXT_BASELINES
from cutaway.methods.nextword.table import (
    FEATURE_LABELS,
    cell_means,
    feature_table,
    paper_table,
)
from cutaway.report.method_table import table_of
from cutaway.report.tables import TABLE_FORMATS
from cutaway.report.write import write_report
from tests.methods.nextword.run_rows import ALL, CURVES, a_row, frame
from tests.report.fake_runs import FakeRecord


def test_the_papers_table_has_a_line_per_task_and_prompt(record) -> None:
    table = paper_table(ALL)
    assert table["task"].to_list() == ["sst2", "sst2*"]
    assert table.columns[2:] == [
        "f", "Phi p", "subset", "p", "zero-shot", "calibrated", "majority", "TF-IDF",
    ]  # fmt: skip
    assert table["Phi p"].to_list() == ["0.800 [0.780, 0.820]", "0.840 [0.820, 0.860]"]
    numbers = paper_table(ALL, numbers=True)
    assert numbers["p low"].to_list() == pytest.approx([0.77, 0.81])
    for kind in TABLE_FORMATS:
        assert "sst2" in TABLE_FORMATS[kind](numbers if kind == "csv" else table)


def test_a_fine_tuned_column_comes_from_runs_of_finetune(record) -> None:
    tuned = pl.DataFrame(
        [{"base": "m", "task": "sst2", "kind": kind, "part": "test", "metric": "accuracy",
          "value": value, "low": None, "high": None}
         for kind, value in (("tuned", 0.91), ("base", 0.4))],
        schema_overrides={"low": pl.Float64, "high": pl.Float64},
    )  # fmt: skip
    beside = FakeRecord(tuned, method="finetune", address="f" * 16)
    assert paper_table(ALL, beside=[beside])["fine-tuned"].to_list() == ["0.910", "0.910"]
    apart = ALL.with_columns(pl.col("model") + " [ab12]")
    assert paper_table(apart, beside=[beside])["fine-tuned"].to_list() == ["0.910", "0.910"]


def test_a_template_is_not_mistaken_for_a_prompt_in_the_papers_table() -> None:
    asked = ALL.with_columns(
        pl.when(pl.col("prompt") == "").then(pl.lit("")).otherwise(pl.lit("{text} It was {mask}."))
        .alias("prompt")
    )  # fmt: skip
    assert paper_table(asked)["task"].to_list() == ["sst2", "sst2 [MASK]"]


def test_reports_lay_all_nextword_runs_out_in_one_table(record) -> None:
    lines = write_report([record], table="markdown")
    assert len(lines) == 1 and "layout of the paper" in lines[0]
    assert write_report([record], table="csv")[0].startswith("model,task,f,f low")
    only_curves = FakeRecord(frame(CURVES), method="nextword")
    assert "held_quad" in write_report([only_curves], table="csv")[0]


def test_for_reading_there_is_a_line_per_kind(record) -> None:
    table = table_of("nextword").read_first(ALL, record)
    assert table.columns == ["features", "no prompt", "with prompt", "baseline"]
    assert feature_table(ALL, record).row(0)[:1] == ("f",)


def test_the_table_shows_the_main_metric_of_the_run() -> None:
    rows = frame([a_row("f", 0.9), a_row("f", 0.6, metric="balanced_accuracy")])
    for chosen, shown in (("balanced_accuracy", "0.600"), ("auc", "0.900")):
        record = FakeRecord(rows, method="nextword", summary={"metric": chosen})
        assert feature_table(rows, record)["no prompt"][0].startswith(shown)


def test_failed_cells_have_no_mean() -> None:
    failed = a_row("p", None, status="failed")
    assert "p" not in set(cell_means(frame([a_row("f", 0.5), failed]))["features"])


def test_the_mean_is_over_the_repeats_of_a_cell() -> None:
    rows = frame([a_row("f", 0.5, repeat=0), a_row("f", 0.7, repeat=1)])
    assert cell_means(rows)["mean"].to_list() == pytest.approx([0.6])


def test_several_models_get_a_column_of_their_name() -> None:
    rows = frame([a_row("f", 0.5), a_row("f", 0.7, model="other")])
    table = feature_table(rows, FakeRecord(rows))
    assert table.columns == ["model", "features", "no prompt"]
    assert table["model"].to_list() == ["m", "other"]


def test_every_feature_kind_of_the_spec_has_a_label() -> None:
    assert set(FEATURES) | set(TEXT_BASELINES) <= set(FEATURE_LABELS)
