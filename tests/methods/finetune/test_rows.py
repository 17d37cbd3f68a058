"""The rows of a fine-tuning: the curve by split, every column of the schema."""

from cutaway.measure.intervals import Interval
from cutaway.methods.finetune.rows import FINETUNE_SCHEMA, FinetuneCoordinates, curve_rows
from cutaway.recipe.result import table

HERE = FinetuneCoordinates("m", "t", "prompt", 16, 13)


def test_a_row_per_metric_with_its_interval() -> None:
    scores = {"accuracy": Interval(0.5, 0.4, 0.6, 0.95, 10), "loss": 1.0}
    made = table(HERE.rows("tuned", 3, "test", scores), FINETUNE_SCHEMA)
    assert made.columns == list(FINETUNE_SCHEMA)
    assert made["low"].to_list() == [0.4, None]
    assert set(made["shots"]) == {16}


def test_the_curve_separates_train_from_dev_and_the_base_from_the_tuned_model() -> None:
    curve = [
        {"step": 0, "dev_loss": 2.0, "dev_accuracy": 0.5},
        {"step": 10, "loss": 1.0, "dev_loss": 1.5, "dev_accuracy": None},
    ]
    cells = [(r["kind"], r["step"], r["part"], r["metric"]) for r in curve_rows(HERE, curve)]
    assert cells == [
        ("base", 0, "dev", "loss"), ("base", 0, "dev", "accuracy"),
        ("tuned", 10, "train", "loss"), ("tuned", 10, "dev", "loss"),
    ]  # fmt: skip
