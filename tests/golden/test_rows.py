"""Every command's table on a model and data made on the spot, held against values kept here.

The other tests say what must be true of a number; this one says that it is still the same number.
After a change that is meant to change them: python -m tests.golden.test_rows
"""

import json
import math
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cutaway
from cutaway.run import graft_verbs as graft
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
    keep = {"runs": runs, "quiet": True}
    read = {"model": model, "text": "docs", "limit": 80, **keep}
    return {
        "probe": lambda: cutaway.probe(
            model=model, data="gen:tense?n=120", layers="0,2", classifier="logistic,lda",
            repeats=2, **keep,
        ),
        "nextword": lambda: cutaway.nextword(
            model=model, data="gen:sentiment?n=120", class_words=["bad", "good"],
            prompt_text=" It was", features="f,phi_p,classwords", **keep,
        ),
        "shortcut fit": lambda: cutaway.shortcut.fit(**read, out=maps),
        "shortcut eval": lambda: cutaway.shortcut.eval(**read, shortcut=maps),
        "shortcut exit": lambda: cutaway.shortcut.exit(**read, shortcut=maps),
        "finetune": lambda: graft.finetune(
            model=model, **TASK, **SHORT, lr=0.05, out=tuned, runs=runs
        ),
        "graft learn": lambda: graft.learn(
            base=model, tuned=tuned, **TASK, sparsity=1e-2, steps=3,
            baselines="random,movement", **keep,
        ),
        "fisher": lambda: cutaway.fisher(model=model, text="docs", limit=20, **keep),
        "inject": lambda: cutaway.inject(
            model=model, data=SUMS, retain=["docs"], retain_limit=20, regulariser="none,ewc",
            strength=[1.0], fisher_examples=8, beyond=[], **SHORT, runs=runs,
        ),
    }  # fmt: skip


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
def found(tmp_path_factory) -> dict[str, list[list[Any]]]:
    before = os.environ.get("CUTAWAY_HOME")
    try:
        return json.loads(json.dumps(measured(tmp_path_factory.mktemp("golden"))))
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


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as work:
        KEPT.write_text(json.dumps(measured(Path(work)), indent=0) + "\n")
    sys.stdout.write(f"written: {KEPT}\n")
