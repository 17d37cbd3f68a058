import polars as pl
import pytest

from cutaway.core.errors import Corrupt
from cutaway.report import sections
from tests.report.fake_runs import FakeRecord, failed_rows, probe_rows, save_run

NASTY = "<script>alert(1)</script>"


def keep(figure) -> str:
    return "p0"


def test_a_run_has_key_numbers_figures_tables_and_provenance(tmp_path) -> None:
    text = sections.run_section(save_run(tmp_path), "run-0", keep)
    for part in ('class="tiles"', 'data-picture="p0"', "Best cells and baselines", "Provenance"):
        assert part in text
    assert text.count("<section") == text.count("</section>") == 1


def test_failed_cells_are_listed_with_their_reason(tmp_path) -> None:
    text = sections.run_section(save_run(tmp_path, failed_rows()), "run-0", keep)
    assert "Failed cells" in text and "singular matrix" in text


def test_rows_that_can_not_be_read_are_replaced_by_the_reason() -> None:
    class Broken(FakeRecord):
        @property
        def rows(self):
            raise Corrupt(f"rows.parquet is damaged {NASTY}")

        @rows.setter
        def rows(self, value):
            pass

    record = object.__new__(Broken)
    for name, value in vars(FakeRecord(probe_rows())).items():
        if name != "rows":
            object.__setattr__(record, name, value)
    text = sections.run_section(record, "run-0", keep)
    assert "rows.parquet is damaged" in text and NASTY not in text


def test_a_story_has_questions_and_answers_and_is_escaped() -> None:
    text = sections.story_section(f"Why?\n  - Because {NASTY}.\n")
    assert "<h4>Why?</h4>" in text and "&lt;script&gt;" in text and NASTY not in text
    assert sections.story_section("") == ""


@pytest.mark.parametrize("count", [1, 2])
def test_several_runs_are_listed_in_a_table(count: int) -> None:
    records = [FakeRecord(probe_rows(), address=f"a{i}") for i in range(count)]
    text = sections.overview_section(records)
    assert text.count("<tr>") == (count + 1 if count > 1 else 0)


def test_a_table_shows_the_last_part_of_a_path() -> None:
    made = sections.html_table(pl.DataFrame({"model": ["/models/tiny"] * 2, "value": [0.1, 0.2]}))
    assert "<td>tiny</td>" in made and "/models" not in made


def test_a_table_joins_the_interval_and_escapes_every_cell() -> None:
    interval = {"mean": [0.5], "low": [0.4], "high": [0.6]}
    frame = pl.DataFrame({"kind": ["baseline"], "name": [NASTY], **interval})
    text = sections.html_table(frame)
    assert "0.500 [0.400, 0.600]" in text and "class=baseline" in text and NASTY not in text
    assert text.count("<th") == 4, "thead, kind, name, score"
