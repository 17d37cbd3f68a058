"""The forgetting figure and table."""

import json

import polars as pl
import pytest

from cutaway.core.errors import Missing
from cutaway.methods.graft.figures_continual import forgetting_figure, forgetting_table
from cutaway.methods.graft.table import graft_results_table
from cutaway.report.figures import figures_of

SCORES = {
    ("base", 0): (0.5, 0.5),
    ("graft", 1): (0.9, 0.5),
    ("graft", 2): (0.88, 0.8),
    ("sequential", 1): (0.95, 0.5),
    ("sequential", 2): (0.6, 0.9),
}
BLANK = dict.fromkeys(("layer", "part", "head", "bin", "data"))
ROWS = pl.DataFrame(
    [
        {"base": "m", "tuned": None, "task": task, "kind": kind, "sparsity": 1e-3, "seed": 0,
         "step": stage, "metric": metric, "value": value, "low": value - 0.1, "high": value + 0.1}
        | BLANK
        for (kind, stage), values in SCORES.items()
        for task, value in zip(("first", "second"), values, strict=True)
        for metric in ("accuracy", "ece")
    ]
)  # fmt: skip


def test_the_figure_has_a_line_per_task_and_way_from_the_base_on() -> None:
    figure = forgetting_figure(ROWS, None)
    assert len(figure.data) == 4
    assert list(figure.data[1].y) == [0.5, 0.95, 0.6]
    assert figure.layout.title.text
    assert len(figure.layout.meta["caption"]) > 60
    json.loads(figure.to_json())
    assert figures_of("graft")["forgetting"] is forgetting_figure


def test_other_runs_say_how_to_get_one() -> None:
    with pytest.raises(Missing, match="cutaway graft continual"):
        forgetting_figure(ROWS.filter(pl.col("kind") == "graft"), None)


def test_the_table_has_the_forgotten_score() -> None:
    table = forgetting_table(ROWS)
    lost = {(line["task"], line["way"]): line["forgotten"] for line in table.iter_rows(named=True)}
    assert lost["first", "with grafts"] == pytest.approx(0.02)
    assert lost["first", "sequential training"] == pytest.approx(0.35)
    assert lost["second", "sequential training"] == 0
    assert graft_results_table(ROWS).equals(table)
