"""The frame of the benches: their arithmetic is held to the laws the figures rely on."""

import json
from pathlib import Path

import pytest
import torch
from bench.__main__ import benches, main, measure
from bench.extract_ways import Way, _plans, take_turns
from bench.report import merge, page, row, spread, table
from bench.rivals.environment import Unusable, need_same_torch
from bench.rivals.serve import pooled


def test_every_bench_of_the_folder_is_found_by_the_beginning_of_its_name() -> None:
    assert {"extract", "extract_memory", "extract_rivals"} <= set(benches(["extract"]))
    with pytest.raises(SystemExit, match="No bench called"):
        benches(["nothing-like-it"])


def test_a_broken_bench_is_reported_and_not_raised() -> None:
    def run(quick: bool) -> dict:
        raise ValueError("no luck")

    found = measure("x", run, {"quick": True, "rows": 3})
    assert found["error"] == "ValueError: no luck"
    assert "The bench broke" in page({"x": found})


def test_a_bench_that_lacks_something_leaves_its_figures_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUTAWAY_BENCH_MODEL", raising=False)
    file, shown = tmp_path / "results.json", tmp_path / "page.md"
    before = merge(file, "shortcut_generate_other", {"title": "of yesterday"})
    words = ["--only", "shortcut_generate_other", "--results", str(file), "--page", str(shown)]
    assert main(words) == 0
    assert json.loads(file.read_text()) == before


def test_a_bench_is_given_only_the_options_it_takes() -> None:
    found = measure("x", lambda quick, rows: {"saw": rows}, {"quick": True, "rows": 3, "rounds": 5})
    assert found["saw"] == 3


def test_merging_replaces_one_bench_and_keeps_the_others(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    merge(file, "a", {"n": 1})
    merge(file, "b", {"n": 2})
    merge(file, "a", {"n": 3})
    assert json.loads(file.read_text()) == {"a": {"n": 3}, "b": {"n": 2}}


def test_a_missed_bar_says_no_and_a_line_without_a_bar_says_nothing() -> None:
    lines = table([row("x", "1", bar="<= 0", met=False), row("y | z", "2")]).splitlines()
    assert lines[0] == "| what | ours | rival | ratio | bar | met? |"
    assert lines[2].endswith("| <= 0 | no |")
    assert lines[3] == "| y / z | 2 | - | - | - | - |"


def test_a_bench_without_a_table_still_shows_its_lists_and_numbers() -> None:
    shown = page({"other": {"cells": [{"size": 3, "seconds": 0.5}], "exponent": 1.25}})
    assert "| size | seconds |" in shown
    assert "| exponent | 1.25 |" in shown


def test_ways_take_turns_and_slow_ones_skip_every_second_round() -> None:
    calls: list[str] = []

    def way(name: str) -> dict[str, float]:
        calls.append(name)
        return {name: float(len(calls))}

    ways = {"a": Way(lambda: way("a")), "b": Way(lambda: way("b"), every=2)}
    seconds = take_turns(ways, 3)
    assert calls == ["a", "b", "a", "a", "b"]
    assert spread(seconds["a"])["median"] == 3.0


def test_every_plan_of_the_bare_model_reads_every_row_once() -> None:
    rows = [[1] * n for n in (3, 9, 3, 400, 7, 9, 9)]
    for name, plan in _plans(rows).items():
        assert sorted(i for batch in plan for i in batch) == list(range(len(rows)))
        widths = [{len(rows[i]) for i in batch} for batch in plan]
        assert "near" in name or all(len(width) == 1 for width in widths)


@pytest.mark.parametrize("side", ["left", "right"])
def test_rivals_are_pooled_over_real_tokens_on_either_side(side: str) -> None:
    words, pad = torch.tensor([[[1.0], [3.0]]]), torch.full((1, 1, 1), 99.0)
    parts = [pad, words] if side == "left" else [words, pad]
    found = pooled(torch.cat(parts, 1), [2], side)
    assert (found["last"].item(), found["mean"].item()) == (3.0, 2.0)


@pytest.mark.parametrize(
    ("said", "fits"),
    [
        ("Would install numpy-2.4 torch-2.13.0+cpu transformers-5.1", True),
        ("Would install torch-2.13.0 nvidia-cublas-13", False),
        ("Would install pytorch-torch-9 numpy-2.4", False),
    ],
)
def test_an_environment_with_another_torch_is_refused(said: str, fits: bool) -> None:
    if fits:
        need_same_torch(said, "2.13.0+cpu")
    else:
        with pytest.raises(Unusable, match="torch"):
            need_same_torch(said, "2.13.0+cpu")
