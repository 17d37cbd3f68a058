"""Figures of inject: every one draws what its rows say, or says how to get rows."""

import json
from types import SimpleNamespace

import polars as pl
import pytest

from cutaway.core.errors import Missing
from cutaway.methods.inject.figure_styles import training_styles
from cutaway.methods.inject.figures import FIGURES
from cutaway.methods.inject.rows import DETAILS_FILE, InjectCoordinates, inject_frame
from cutaway.methods.inject.table import inject_table

NAMES = ("skill", "docs", "cola")


CELLS = [("none", 0.0), ("ewc", 0.1), ("ewc", 1.0), ("ewc+lora4", 1.0)]


def rows_of() -> pl.DataFrame:
    rows = []
    for number, (name, strength) in enumerate(CELLS):
        for seed in (0, 1):
            where = InjectCoordinates("m", "arithmetic", name, strength, seed)
            exact = 0.9 - 0.1 * number + 0.02 * seed
            rows += [
                where.row("after", "arithmetic test", "exact_match", exact, low=0.1, high=0.95),
                where.row("after", "arithmetic op +", "exact_match", exact, low=0.1, high=0.95),
                where.row("after", "arithmetic test", "log_rmse", 0.4),
                where.row("after", "arithmetic test", "undecodable", 0.0),
                where.row("after", "news", "forgetting", 1.0 - 0.2 * number),
                where.row("after", "news", "lm_loss", 3.0),
                where.row("after", "news", "probe_forgetting", 0.1),
                where.row("after", "cola", "finetune_forgetting", 0.05, low=0.0, high=0.1),
                where.row("drift", "1/attn", "drift", 0.3),
                where.row("drift", "2/mlp", "drift", 0.1),
            ]
            for step in (0, 10):
                rows += [
                    where.row("training", "curve", metric, 0.1 * step, step=step)
                    for metric in ("exact_match", "retained_loss", "skill")
                ]
    where = InjectCoordinates("m", "arithmetic", "fisher")
    rows += [where.row("fisher", f"{i}/attn", "mass of skill", 0.5) for i in (1, 2)]
    return inject_frame(rows)


@pytest.fixture
def record(tmp_path):
    points = {"base": [[0, 0], [1, 1]], "ewc-1-seed0": [[0, 0.1], [1, 1.1]]}
    found = {
        "tops": [
            {"where": where, "curves": {n: {"values": [3, 2, 1], "mean": [2, 2, 2]} for n in NAMES}}
            for where in ("all layers", "layer 1", "layer 2")
        ],
        "maps": [{"layer": i, "way": w, "points": points} for i in (1, 2) for w in ("pca", "tsne")],
    }
    (tmp_path / DETAILS_FILE).write_text(json.dumps(found))
    return SimpleNamespace(path=str(tmp_path))


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_data_a_title_and_a_caption(name: str, record) -> None:
    figure = FIGURES[name](rows_of(), record)
    assert figure.data
    assert figure.layout.title.text
    assert len(figure.layout.meta["caption"]) > 60
    json.loads(figure.to_json())


@pytest.mark.parametrize("name", FIGURES)
def test_a_run_without_such_rows_says_how_to_get_them(name: str, tmp_path) -> None:
    nothing = rows_of().filter(pl.col("metric") == "nothing")
    with pytest.raises(Missing, match="inject"):
        FIGURES[name](nothing, SimpleNamespace(path=str(tmp_path)))


def test_the_table_has_a_line_per_training_and_a_fisher_its_mass() -> None:
    assert inject_table(rows_of()).height == len(CELLS)
    where = InjectCoordinates("m", "docs", "fisher")
    masses = inject_frame([where.row("fisher", f"{i}/mlp", "mass", 0.1 * i) for i in (1, 2)])
    assert inject_table(masses)["probe"].to_list() == ["2/mlp", "1/mlp"]


def test_every_training_looks_different() -> None:
    found = training_styles(rows_of())
    assert set(found) == set(CELLS)
    assert len({(look.colour, look.dash, look.symbol) for look in found.values()}) == len(CELLS)
    assert len({look.name for look in found.values()}) == len(CELLS)
