"""The trainings of a sweep."""

import json

import polars as pl
import pytest

from cutaway.methods.inject.cells import InjectCell, sweep_cells, sweep_training_plan
from cutaway.methods.inject.spec import InjectSpec
from cutaway.models.load import open_model
from tests.methods.inject.toys import teach


def test_plain_training_comes_once_for_all_strengths() -> None:
    spec = InjectSpec(model="m", regulariser="none,ewc", strength="0.1,1", repeats=2)
    assert sweep_cells(spec) == [
        InjectCell("none", 0.0, 0),
        InjectCell("none", 0.0, 1),
        InjectCell("ewc", 0.1, 0),
        InjectCell("ewc", 0.1, 1),
        InjectCell("ewc", 1.0, 0),
        InjectCell("ewc", 1.0, 1),
    ]


@pytest.mark.parametrize("rank", [0, 8])
def test_a_cell_is_named_by_all_that_distinguishes_it(rank) -> None:
    cell = InjectCell("ewc", 0.5, 3, rank)
    assert cell.name == ("ewc-0.5-lora8-seed3" if rank else "ewc-0.5-seed3")
    assert cell.label == ("ewc+lora8" if rank else "ewc")


def test_every_cell_of_a_sweep_has_another_name() -> None:
    spec = InjectSpec(
        model="m", regulariser="none,ewc=0.1:1,kl", strength="1,2", lora="0,2,4", repeats=2
    )
    names = [cell.name for cell in sweep_cells(spec)]
    assert len(names) == len(set(names)) == 3 * (1 + 2 + 2) * 2


def test_the_warm_up_is_at_most_half_of_the_training() -> None:
    plan = sweep_training_plan(InjectSpec(model="m", steps=10, warmup=20), seed=4)
    assert (plan.steps, plan.warmup, plan.seed) == (10, 5, 4)


def test_a_checkpoint_says_where_it_comes_from(toys, tmp_path) -> None:
    result = teach(toys, tmp_path, regulariser="l2sp", strength=[0.5])
    folder = result.path / "checkpoints" / "l2sp-0.5-seed0"
    metadata = json.loads((folder / "cutaway.json").read_text())
    assert metadata["inject"] == result.record.address
    assert (metadata["regulariser"], metadata["strength"], metadata["lora"]) == ("l2sp", 0.5, 0)
    assert metadata["base"]["digest"] == open_model(toys["causal"], check=False).digest
    after = result.rows.filter(
        (pl.col("stage") == "after") & pl.col("metric").is_in(["exact_match", "lm_loss"])
    )
    assert metadata["found"] == {
        f"{row['probe']}: {row['metric']}": row["value"] for row in after.iter_rows(named=True)
    }
