"""The samples of a run in the app: filters, pages, wrong rows, and the lens grid of one text."""

import io

import polars as pl
import pytest
from streamlit.testing.v1 import AppTest

from cutaway.app import samples
from tests.app.conftest import texts
from tests.report.fake_runs import save_run

LENS = """
from pathlib import Path
import polars as pl
from cutaway.app import samples
from cutaway.app.library import current_library
[record] = current_library().records
table = pl.scan_parquet(record.path / "samples.parquet")
samples.show(record)
samples.show_sample(record, table, table.collect().row(1, named=True))
"""


def parquet(frame: pl.DataFrame) -> dict[str, bytes]:
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    return {"samples.parquet": buffer.getvalue()}


def predictions(count: int = 120) -> pl.DataFrame:
    """Two layers of predictions; every tenth is wrong."""
    rows = range(count)
    return pl.DataFrame(
        {
            "model": "tiny-lm", "layers": [str(i % 2) for i in rows], "row": rows,
            "text_digest": [f"{i:016x}" for i in rows], "truth": "yes",
            "answer": ["no" if i % 10 == 0 else "yes" for i in rows], "score": 0.5,
        }
    )  # fmt: skip


def cells() -> pl.DataFrame:
    """Two marked tokens of one text, two kinds, three layers."""
    return pl.DataFrame(
        [
            {
                "row": 4, "position": position, "text": "The cat sat.", "text_digest": "d" * 16,
                "token": token, "kind": kind, "layer": layer,
                "tokens": [f"{kind}{layer}{token}", "x"], "scores": [0.5, 0.25],
                "token_ids": [1, 2], "agree": layer == 2, "rank": 0, "surprisal": 0.5,
            }
            for position, token in ((1, " cat"), (2, " sat"))
            for kind in ("id", "mat")
            for layer in (0, 1, 2)
        ]
    )  # fmt: skip


@pytest.fixture
def sampled(runs):
    return save_run(runs, address="a1", files=parquet(predictions()))


def shown(app: AppTest) -> pl.DataFrame:
    return app.dataframe[0].value


def test_only_a_run_with_samples_offers_them(runs, page, sampled) -> None:
    assert "Samples" in page("probe").get("button_group")[0].proto.options.__str__()
    save_run(runs, address="b2")
    assert "Samples" not in page("probe").get("button_group")[0].proto.options.__str__()


def test_a_page_of_the_samples_is_shown_and_the_others_are_turned_to(page, sampled) -> None:
    app = page("probe", view="Samples")
    assert not app.exception
    assert "Samples 1 to 50 of 120" in texts(app)
    app.number_input(key="samples-page-a1").set_value(3).run()
    assert "Samples 101 to 120 of 120" in texts(app)
    assert list(shown(app)["row"]) == list(range(100, 120))


def test_the_wrong_rows_are_those_whose_answer_is_not_the_truth(page, sampled) -> None:
    app = page("probe", view="Samples")
    app.toggle(key="samples-wrong-a1").set_value(True).run()
    assert list(shown(app)["row"]) == list(range(0, 120, 10))
    assert set(shown(app)["answer"]) == {"no"}
    app.multiselect(key="samples-layers-a1").set_value(["1"]).run()
    assert not app.exception and "No sample matches" in texts(app)


def test_filters_are_offered_for_columns_with_a_few_values(page, sampled) -> None:
    app = page("probe", view="Samples")
    keys = {box.key for box in app.multiselect if str(box.key).startswith("samples-")}
    assert keys == {"samples-layers-a1", "samples-answer-a1"}
    app.multiselect(key="samples-layers-a1").set_value(["1"]).run()
    assert set(shown(app)["layers"]) == {"1"}


def test_lens_samples_are_filtered_by_layer_kind_agreement_and_text(runs, page) -> None:
    save_run(runs, address="a1", files=parquet(cells()))
    app = page("probe", view="Samples")
    assert not app.exception and len(shown(app)) == 12
    assert "token_ids" not in shown(app).columns
    app.multiselect(key="samples-layer-a1").set_value([1, 2])
    app.multiselect(key="samples-kind-a1").set_value(["mat"]).run()
    assert len(shown(app)) == 4
    app.segmented_control(key="samples-agree-a1").set_value("differs").run()
    assert set(shown(app)["layer"]) == {1}
    app.text_input(key="samples-text-a1").set_value("dog").run()
    assert "No sample matches" in texts(app)


def test_a_selected_sample_shows_its_lens_grid(runs) -> None:
    save_run(runs, address="a1", files=parquet(cells()))
    app = AppTest.from_string(LENS, default_timeout=60).run()
    assert not app.exception
    assert "The cat sat." in texts(app)
    assert len(app.get("plotly_chart")) == 1
    grid = app.get("plotly_chart")[0].proto.spec
    assert "id2" in grid and "mat2" not in grid


def test_the_lens_grid_has_a_row_per_layer_and_a_column_per_marked_token() -> None:
    values = samples.lens_values(cells().filter(pl.col("kind") == "mat"), "mat")
    assert values["layers"] == [0, 1, 2] and values["tokens"] == [" cat", " sat"]
    assert values["words"]["mat"][1] == [["mat1 cat", "x"], ["mat1 sat", "x"]]
    assert values["agree"]["mat"] == [[False, False], [False, False], [True, True]]


def test_changed_samples_are_a_message_on_the_page(page, sampled) -> None:
    path = sampled.path / "samples.parquet"
    path.write_bytes(path.read_bytes() + b"?")
    app = page("probe", view="Samples")
    assert not app.exception and "checksum" in texts(app)
