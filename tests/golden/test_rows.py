"""Every command's table on a model and data made on the spot, held against values kept here.

The other tests say what must be true of a number; this one says that it is still the same number.
After a change that is meant to change them: python -m tests.golden.test_rows
"""

import json
import math
import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import cutaway
from tests.tiny import SENTENCES, tiny

KEPT = Path(__file__).with_name("rows.json")
# Another processor rounds otherwise; a text on the border may then change sides.
CLOSE, COUNTED = 2e-3, 0.051
# Times, and shares of so few rows that one text on the border moves them far.
CLOCK = ("second", "time", "memory", "bytes", "_ms", "per_s", "speed", "bin_")
TEXTS = (*SENTENCES, *["It was good and it was bad, red and great."] * 9)
TASK = {
    "task": "sst2", "data": "gen:sentiment?n=120", "template": "{text} It was",
    "words": ["bad", "good"], "shots": 8,
}  # fmt: skip
SHORT = {"steps": 4, "every": 2, "batch": 4, "quiet": True}
SUMS = "gen:arithmetic?n=40,ops=+,digits=1,dev=10,test=20"


def commands(model: str, at: Path) -> dict[str, Callable[[], Any]]:
    """Every verb that measures, small; later ones use what earlier ones wrote."""
    runs, maps, tuned = str(at / "runs"), str(at / "maps.safetensors"), str(at / "tuned")
    skill, other = str(at / "skill.safetensors"), str(at / "other.safetensors")
    keep = {"runs": runs, "quiet": True}
    read = {"model": model, "text": "docs", "limit": 80, **keep}
    return {
        "probe": lambda: cutaway.probe(
            model=model, data="gen:tense?n=120", layers="0,2", classifier="logistic,lda",
            repeats=2, samples=True, **keep,
        ),
        "nextword": lambda: cutaway.nextword(
            model=model, data="gen:sentiment?n=120", class_words=["bad", "good"],
            prompt_text=" It was", features="f,phi_p,classwords", **keep,
        ),
        "shortcut fit": lambda: cutaway.shortcut.fit(**read, out=maps),
        "shortcut eval": lambda: cutaway.shortcut.eval(**read, shortcut=maps, samples=True),
        "shortcut exit": lambda: cutaway.shortcut.exit(**read, shortcut=maps, samples=True),
        "finetune": lambda: cutaway.graft.finetune(
            model=model, **TASK, **SHORT, lr=0.05, out=tuned, runs=runs, samples=True
        ),
        "graft learn": lambda: cutaway.graft.learn(
            base=model, tuned=tuned, **TASK, sparsity=1e-2, steps=3, out=skill,
            baselines="random,movement", **keep,
        ),
        "graft learn, another seed": lambda: cutaway.graft.learn(
            base=model, tuned=tuned, **TASK, sparsity=1e-2, steps=0, out=other, start="random",
            baselines="none", seed=1, **keep,
        ),
        "graft eval": lambda: cutaway.graft.eval(
            skill=[skill], base=model, tuned=tuned, data=["gen:sentiment?n=120"],
            text_limit=8, **keep,
        ),
        "graft overlap": lambda: cutaway.graft.overlap([skill, other], **keep),
        "graft continual": lambda: cutaway.graft.continual(
            base=model, task=[task_file(at, "tone"), task_file(at, "time")],
            data=["gen:sentiment?n=120", "gen:tense?n=120"], shots=8, sparsity=1e-2, mask_steps=2,
            step_examples=8, lr=0.05, runs=runs, **SHORT,
        ),
        "fisher": lambda: cutaway.fisher(model=model, text="docs", limit=20, **keep),
        "inject": lambda: cutaway.inject(
            model=model, data=SUMS, retain=["docs"], retain_limit=20, regulariser="none,ewc",
            strength=[1.0], fisher_examples=8, beyond=[], **SHORT, runs=runs, samples=True,
        ),
        "quad": lambda: cutaway.quad(
            model=model, text="docs", limit=60, max_tokens=16, runs=runs, **SHORT
        ),
        "probe, other protocols": lambda: cutaway.probe(
            model=model, data="gen:tense?n=120", layers=["1", "mean:all"], pool="mean,learned",
            classifier="ridge,centroid,linear", protocol="curve", train_sizes=[20, 0.5],
            repeats=2, **keep,
        ),
        "shortcut fit, every kind": lambda: cutaway.shortcut.fit(
            **read, intercept=True, ridge=0.1, rank=2, tuned=2, parts=True
        ),
    }  # fmt: skip


def task_file(at: Path, name: str) -> str:
    """A task asked in words that are single tokens of the tiny model."""
    classes = {"tone": ["negative", "positive"], "time": ["past", "present"]}[name]
    lines = [
        f'name = "{name}"', 'description = "A task."', 'kind = "binary"', f"classes = {classes}",
        'label_words = ["bad", "good"]', "[autoregressive]", 'template = "{text} It was"',
        'words = ["bad", "good"]', "[columns]", 'text = ["text"]', 'label = ["label"]',
        "[labels]", f'names = {{ "0" = "{classes[0]}", "1" = "{classes[1]}" }}',
    ]  # fmt: skip
    (at / f"{name}.toml").write_text("\n".join(lines) + "\n")
    return str(at / f"{name}.toml")


def measured(folder: Path) -> dict[str, list[list[Any]]]:
    """The rows of every command: what names a row, then its metric's value."""
    os.environ["CUTAWAY_HOME"] = str(folder / "home")
    model = str(tiny("llama", folder / "model", texts=TEXTS))
    return {name: plain(start().rows) for name, start in commands(model, folder).items()}


def plain(table: Any) -> list[list[Any]]:
    """A table as a sorted list: names of a row in one text, and its value; no times."""
    found = []
    for line in table.iter_rows(named=True):
        value = line.get("value")
        words = {
            k: v for k, v in line.items()
            if k not in ("value", "model", "data", "low", "high", "se")
            and not isinstance(v, float) and v is not None and "/" not in str(v)
        }  # fmt: skip
        name = " ".join(f"{k}={v}" for k, v in words.items())
        if not any(word in str(line.get("metric")) for word in CLOCK):
            known = isinstance(value, float) and math.isfinite(value)
            found.append([name, float(f"{value:.6g}") if known else None])
    return sorted(found, key=str)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("golden")


@pytest.fixture(scope="module")
def found(folder) -> dict[str, list[list[Any]]]:
    before = os.environ.get("CUTAWAY_HOME")
    try:
        return json.loads(json.dumps(measured(folder)))
    finally:
        os.environ.pop("CUTAWAY_HOME", None)
        os.environ.update({} if before is None else {"CUTAWAY_HOME": before})


def close(metric: str, one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    slack = COUNTED if any(word in metric for word in COUNTS) else CLOSE
    return abs(one - other) <= slack * max(1.0, abs(one))


COUNTS = ("accuracy", "f1", "precision", "recall", "match", "gain", "layers", "auc", "mcc")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", list(commands("", Path())))
def test_a_commands_rows_are_the_ones_kept(name, found) -> None:
    right = json.loads(KEPT.read_text())[name]
    assert [row[0] for row in found[name]] == [row[0] for row in right]
    other = [(a, b) for a, b in zip(right, found[name], strict=True) if not close(a[0], a[1], b[1])]
    assert other == []


def queries() -> dict[str, list[str]]:
    """The SQL of README and docs, by page."""
    asked = re.compile(r'(?:cutaway query |\.query\()"((?:[^"\\]|\\.)*)"')
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    by_page = {page.name: asked.findall(page.read_text("utf-8")) for page in pages}
    return {name: [one.replace('\\"', '"') for one in sql] for name, sql in by_page.items() if sql}


ROOT = Path(__file__).parents[2]
# Their answer is empty here: no cell failed, and the model has no layer 15.
EMPTY = ("status = 'failed'", "layer = 15")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", list(queries()))
def test_every_query_of_the_docs_answers(page, found, folder) -> None:
    runs = cutaway.results(folder / "runs")
    for sql in queries()[page]:
        answer = runs.query(sql)
        assert answer.is_empty() == any(words in sql for words in EMPTY), sql
        if "from scores" in sql and "metric" not in sql:
            # Scores of probes on balanced classes; a count of parameters or bits would show.
            for column in answer.select(pl.col("^value|low|high$")).iter_columns():
                assert column.is_between(0, 1).all(), sql


@pytest.mark.timeout(600)
def test_scores_are_the_means_of_each_cells_main_metric(found, folder) -> None:
    runs = cutaway.results(folder / "runs")
    mine = runs.query(queries()["README.md"][0])
    expected = []
    for record in (r for r in runs if r.method == "probe"):
        chosen = (pl.col("metric") == record.summary["metric"]) & (pl.col("kind") == "probe")
        cells = record.rows.filter(chosen).group_by("layers", "pool", "classifier", "n_train")
        expected += cells.agg(pl.col("value").mean()).select("layers", "pool", "value").rows()
    assert [row[:2] for row in sorted(mine.rows())] == [row[:2] for row in sorted(expected)]
    assert sorted(mine["value"]) == pytest.approx(sorted(value for *_, value in expected))


def test_a_split_by_words_is_not_lost_in_silence(found, folder) -> None:
    probes = [r for r in cutaway.results(folder / "runs") if r.method == "probe"]
    assert len(probes) == 2
    assert all("test words occur in training" in str(r.summary["verdict"]) for r in probes)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        KEPT.write_text(json.dumps(measured(Path(work)), indent=0) + "\n")
    sys.stdout.write(f"written: {KEPT}\n")
