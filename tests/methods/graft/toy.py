"""A toy task with a base and a tuned model for the tests of graft."""

from pathlib import Path

import polars as pl

from cutaway.methods.graft import api as graft
from tests.tiny import toy_model, toy_sentiment

TASK = """
name = "toyfeel"
description = "Is it happy?"
kind = "binary"
classes = ["neg", "pos"]
template = "{text} and {mask} ."
label_words = ["dog", "cat"]
[columns]
text = "text"
label = "label"
[labels]
names = { "0" = "neg", "1" = "pos" }
[autoregressive]
template = " {text} , and the"
words = ["dog", "cat"]
"""


def table_of(path: Path, n: int, seed: int = 0) -> Path:
    texts, labels = toy_sentiment(n, seed=seed)
    lines = [f"{t.split(' , so')[0].strip()}\t{y}" for t, y in zip(texts, labels, strict=True)]
    path.write_text("\n".join(["text\tlabel", *lines]) + "\n")
    return path


class ToyGraft:
    """A folder with a task, its rows, a base, and a tuned model for each kind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = str(table_of(folder / "toy.tsv", 240))
        self.other = str(table_of(folder / "other.tsv", 60, seed=5))
        (folder / "toyfeel.toml").write_text(TASK)
        self.task = str(folder / "toyfeel.toml")
        self.runs = str(folder / "runs")

    def pair(self, family: str) -> tuple[str, str]:
        base, tuned = self.folder / family, self.folder / f"{family}-tuned"
        if not tuned.exists():
            toy_model(base, family)
            graft.finetune(
                model=str(base), task=self.task, data=self.data, steps=40, lr=0.05, every=20,
                out=str(tuned), runs=self.runs, quiet=True,
            )  # fmt: skip
        return str(base), str(tuned)

    def learn(self, family: str = "bert", **options):
        base, tuned = self.pair(family)
        given = {
            "base": base, "tuned": tuned, "task": self.task, "data": self.data, "steps": 10,
            "sparsity": 0.02, "runs": self.runs, "text_limit": 6, "slope_examples": 8,
        }  # fmt: skip
        return graft.learn(quiet=True, **(given | options))

    def skill(self) -> str:
        """The file of a skill that was quickly learned."""
        result = self.learn(sparsity=0.2, steps=2, baselines="none", text="none")
        return str(result.path / "skill.safetensors")


def value(rows: pl.DataFrame, kind: str, metric: str, **where) -> list[float]:
    chosen = rows.filter((pl.col("kind") == kind) & (pl.col("metric") == metric))
    for name, wanted in where.items():
        chosen = chosen.filter(pl.col(name) == wanted)
    return chosen["value"].to_list()
