"""Figures and tables of nextword: every one draws what its rows say, or says how to get rows."""

import json

import polars as pl
import pytest

from cutaway.core.errors import Corrupt, Missing
from cutaway.methods.nextword.details import DETAILS_FILE, read_details
from cutaway.methods.nextword.figures import FIGURES
from cutaway.methods.nextword.table import feature_table, paper_table
from cutaway.report.method_table import table_of
from cutaway.report.records import CombinedRuns
from cutaway.report.tables import TABLE_FORMATS
from cutaway.report.write import write_report
from tests.report.fake_runs import FakeRecord

PROMPT = " This movie is "
SCORES = {"f": (0.85, 0.86), "phi_p": (0.8, 0.84), "p": (0.79, 0.83), "subset": (0.7, 0.78)}
SCORES |= {"zeroshot": (0.5, 0.7), "zeroshot_calibrated": (0.55, 0.72)}


def a_row(features: str, value: float | None, prompt: str = "", **place) -> dict:
    ends = {"low": value - 0.02, "high": value + 0.02} if value is not None else {}
    return {
        "model": "m", "task": "sst2", "prompt": prompt, "features": features, "repeat": 0,
        "n_train": 100, "n_test": 50, "step": None, "metric": "accuracy", "value": value,
        "low": None, "high": None, "status": "done", "reason": "", **ends, **place,
    }  # fmt: skip


def frame(rows: list[dict]) -> pl.DataFrame:
    kinds = dict.fromkeys(("value", "low", "high"), pl.Float64) | {"step": pl.Int64}
    return pl.DataFrame(rows, schema_overrides=kinds, infer_schema_length=None)


MEASURED = [
    a_row(kind, value, prompt)
    for kind, values in SCORES.items()
    for value, prompt in zip(values, ("", PROMPT), strict=True)
] + [a_row("majority", 0.5), a_row("tfidf", 0.79)]
CURVES = [
    a_row("quad", 3.0 - step / 100, step=step, metric=metric)
    for step in (0, 50, 100)
    for metric in ("held_quad", "held_ce")
]
ALL = frame(MEASURED + CURVES)
CELL = {"model": "m", "task": "sst2", "prompt": PROMPT, "features": "p"}
DETAILS = [
    {**CELL, "figure": "tokens", "label": label, "token": token, "id": i, "weight": 2.0,
     "effect": effect, "examples": ["a <b>good</b> film"]}
    for i, (label, token, effect) in enumerate(
        [("negative", " bad", 3.0), ("positive", " good", 2.0), ("positive", " the", 1e-9)]
    )
] + [
    {**CELL, "figure": "confusion", "classes": ["negative", "positive"],
     "counts": [[9, 1], [2, 8]]},
    {**CELL, "features": "zeroshot", "figure": "calibration", "confidence": [0.6, 0.9],
     "accuracy": [0.5, 0.8], "count": [10, 40], "ece": 0.1},
]  # fmt: skip


@pytest.fixture
def record(tmp_path) -> FakeRecord:
    (tmp_path / DETAILS_FILE).write_text(json.dumps(DETAILS))
    return FakeRecord(ALL, method="nextword", path=tmp_path)


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_data_a_title_and_a_caption(name: str, record) -> None:
    figure = FIGURES[name](ALL, record)
    assert figure.data and figure.layout.title.text
    assert len(figure.layout.meta["caption"]) > 60
    assert "<b>good" not in figure.to_json()
    json.loads(figure.to_json())


@pytest.mark.parametrize("name", FIGURES)
def test_a_run_without_such_rows_says_how_to_get_them(name: str, tmp_path) -> None:
    empty = FakeRecord(ALL.clear(), method="nextword", path=tmp_path)
    with pytest.raises(Missing, match=r"cutaway (nextword|quad)"):
        FIGURES[name](ALL.clear(), empty)


def test_bars_stand_beside_each_other_for_each_prompt_with_whiskers(record) -> None:
    bars = [t for t in FIGURES["features"](ALL, record).data if t.type == "bar"]
    assert [list(b.y) for b in bars] == [
        [0.85, 0.8, 0.7, 0.79, 0.5, 0.55], [0.86, 0.84, 0.78, 0.83, 0.7, 0.72]
    ]  # fmt: skip
    assert bars[0].error_y.array[0] == pytest.approx(0.02)


def test_tokens_without_effect_are_not_drawn(record) -> None:
    drawn = FIGURES["tokens"](ALL, record)
    assert [list(t.y) for t in drawn.data] == [["␣bad #0"], ["␣good #1"]]


def test_the_squares_of_the_confusion_say_how_many_texts(record) -> None:
    (squares,) = FIGURES["confusion"](ALL, record).data
    assert squares.texttemplate == "%{text:,}"
    assert [list(map(int, line)) for line in squares.text] == [
        [int(n) for (n,) in line] for line in squares.customdata
    ]


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
    assert feature_table(ALL).row(0)[:1] == ("f",)


def test_details_of_several_runs_keep_their_models_apart(record, tmp_path) -> None:
    other = FakeRecord(ALL, method="nextword", path=tmp_path, address="f" * 16)
    models = {d["model"] for d in read_details(CombinedRuns((record, other)), "tokens")}
    assert models == {"m [0123]", "m [ffff]"}


def test_damaged_details_are_told(record, tmp_path) -> None:
    (tmp_path / DETAILS_FILE).write_text('[{"figure": "tokens"}]')
    with pytest.raises(Corrupt, match="can't be read"):
        read_details(record, "tokens")
