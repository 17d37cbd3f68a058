import json
import re
import time

import pytest

from cutaway.app import library
from cutaway.app.escape import WORD_JOINER, escape_markdown
from cutaway.app.widgets import repeat_commands
from tests.report.fake_runs import probe_rows, save_run


def test_a_new_run_is_seen_and_an_unchanged_folder_is_not_read_again(runs) -> None:
    save_run(runs, address="a1")
    first = library.current_library()
    assert library.current_library() is first
    save_run(runs, address="a2")
    assert {r.address for r in library.current_library().records} == {"a1", "a2"}


def test_jobs_and_temporary_folders_are_no_runs(runs) -> None:
    save_run(runs, address="a1")
    (runs / ".jobs" / "00000000-aaaaaa").mkdir(parents=True)
    (runs / "probe" / "a2.partial").mkdir()
    shelf = library.current_library()
    assert [r.address for r in shelf.records] == ["a1"] and not shelf.broken


def test_a_link_that_leads_out_of_the_runs_folder_is_told_and_not_followed(runs, tmp_path) -> None:
    save_run(runs, address="a1")
    other = save_run(tmp_path / "elsewhere", address="a2")
    (runs / "probe" / "a2").symlink_to(other.path)
    shelf = library.current_library()
    assert [r.address for r in shelf.records] == ["a1"]
    assert [name for name, _ in shelf.broken] == ["a2"] and "leads out" in shelf.broken[0][1]


@pytest.mark.parametrize("address", ["", "a", "../a1", "probe/a1", "A1"])
def test_a_record_is_found_by_its_exact_address_only(runs, address: str) -> None:
    record = save_run(runs, address="a1")
    assert library.current_library().find("a1") == record
    assert library.current_library().find(address) is None
    assert library.current_library().find("a1", "graft") is None


def test_two_thousand_runs_are_listed_within_three_seconds(runs) -> None:
    record = save_run(runs, probe_rows(layers=("1",), baselines=False, repeats=1), address="a0")
    text = (record.path / "result.json").read_text()
    told = {k: v for k, v in json.loads(text).items() if k != "seal"}
    for i in range(2000):
        folder = runs / "probe" / f"b{i}"
        folder.mkdir()
        (folder / "result.json").write_text(json.dumps({**told, "address": f"b{i}"}))
    # Processor time: the wall clock also measures who else is using the machine.
    start = time.process_time()
    assert len(library.current_library().records) == 2001
    first, start = time.process_time() - start, time.process_time()
    library.current_library()
    assert first < 3
    assert time.process_time() - start < 0.5


def test_the_commands_of_a_figure_measure_and_draw_again(runs) -> None:
    record = save_run(runs)
    text = repeat_commands([record])
    assert record.command in text and f"cutaway report {record.address} --runs" in text


@pytest.mark.parametrize("address", ["http://e.org/x", "HTTPS://e.org", "www.e.org", "me@e.org"])
def test_an_address_in_quiet_text_is_no_link(address: str) -> None:
    said = escape_markdown(address)
    assert said.replace("\\", "").replace(WORD_JOINER, "") == address
    assert not re.search(r"https?\\:|www\\\.|\w\\@", said, re.IGNORECASE)


def test_quiet_text_shows_every_letter_and_means_nothing() -> None:
    assert escape_markdown("a *b* [c](d)\n# e") == r"a \*b\* \[c\]\(d\) \# e"
