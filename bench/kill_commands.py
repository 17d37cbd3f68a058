"""Every long command on a small model, and what it found, to compare a killed run with."""

import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.tiny import tiny, toy_language

import cutaway
from bench.forked import Start, in_child
from cutaway.methods.graft import api as graft
from cutaway.store.files import sha256_file
from cutaway.store.results import results

# What differs from run to run and is no finding: the clock, and what is chosen by it.
CLOCK = frozenset({
    "seconds", "tokens_per_second", "steps_per_second", "timing", "verdict", "setup_seconds",
    "setup_processor_seconds", "processor_seconds", "path", "checkpoint", "out", "checkpoints",
})  # fmt: skip
FOUND = "found.json"
FEELING = {
    "task": "sst2", "data": "gen:sentiment?n=120", "template": "{text} All in all, it was",
    "words": ["bad", "good"], "shots": 8,
}  # fmt: skip
SUMS = "gen:arithmetic?n=60,ops=+,digits=1-2,dev=10,test=20"
SHORT = {"steps": 6, "every": 2, "batch": 8, "quiet": True}
# Single tokens of the small model.
WORDS = ("it was good bad then now negative positive",) * 20
TENSE = """
name = "tense"
description = "Past or present."
kind = "binary"
classes = ["past", "present"]
template = "{text} That was {mask}."
label_words = ["then", "now"]
[columns]
text = ["text"]
label = ["label"]
[labels]
names = {"past" = "past", "present" = "present"}
[autoregressive]
template = "{text} That was"
words = ["then", "now"]
"""


@dataclass(frozen=True)
class Prepared:
    """A small model and what other commands start from."""

    folder: Path

    @property
    def model(self) -> str:
        """The small model."""
        return str(self.folder / "model")

    @property
    def tuned(self) -> str:
        """The model fine-tuned on feelings."""
        return str(self.folder / "tuned" / "out")

    @property
    def maps(self) -> str:
        """Its shortcuts."""
        return str(self.folder / "maps" / "maps.safetensors")

    @property
    def skill(self) -> str:
        """A skill learned from the fine-tuned model."""
        return str(self.folder / "skill" / "skill.safetensors")

    @property
    def text(self) -> str:
        """Sentences, one per line."""
        return str(self.folder / "text.txt")

    @property
    def tense(self) -> str:
        """A second task."""
        return str(self.folder / "tense.toml")


def prepare(folder: Path) -> Prepared:
    """Make the model, and the files that some commands start from."""
    ready = Prepared(folder)
    tiny("llama", folder / "model", texts=WORDS, max_position_embeddings=128)
    (folder / "tense.toml").write_text(TENSE)
    (folder / "text.txt").write_text("\n".join(dict.fromkeys(toy_language(300))))
    commands = all_commands(ready)
    steps: dict[str, Start] = {
        "tuned": commands["finetune"],
        "maps": commands["shortcut fit"],
        "skill": commands["graft learn"],
    }
    for name, start in steps.items():
        run_whole(folder / name, start)
    return ready


def all_commands(ready: Prepared) -> dict[str, Start]:
    """Every long command by name; each takes the folder that it writes to."""
    model = ready.model
    return {
        "probe": lambda at: cutaway.probe(
            model=model, data="gen:tense?n=60", classifier="logistic", repeats=2,
            baselines="majority,twin", **_runs(at), quiet=True,
        ),
        "nextword": lambda at: cutaway.nextword(
            model=model, data="gen:sentiment?n=60", class_words=["bad", "good"],
            prompt_text=" It was", features="f,phi_p,p", repeats=2, **_runs(at), quiet=True,
        ),
        "nextword quad": lambda at: cutaway.quad(
            model=model, text=ready.text, limit=200, **SHORT, out=str(at / "out"), **_runs(at),
        ),
        "shortcut fit": lambda at: cutaway.shortcut.fit(
            model=model, text=ready.text, limit=60, parts=True, tuned=4, drafts=8,
            out=str(at / "maps.safetensors"), **_runs(at), quiet=True,
        ),
        "shortcut eval": lambda at: cutaway.shortcut.eval(
            model=model, shortcut=ready.maps, text=ready.text, parts=True, schedules=True,
            **_runs(at), quiet=True,
        ),
        "shortcut exit": lambda at: cutaway.shortcut.exit(
            model=model, shortcut=ready.maps, text=ready.text, **_runs(at), quiet=True,
        ),
        "shortcut generate": lambda at: cutaway.shortcut.generate(
            model=model, shortcut=ready.maps, prompt=["One", "Two is", "In three", "And the four"],
            mode="exit", max_new_tokens=24, **_runs(at), quiet=True,
        ),
        "finetune": lambda at: graft.finetune(
            model=model, **FEELING, **SHORT, lr=0.05, out=str(at / "out"), **_runs(at),
        ),
        "graft learn": lambda at: graft.learn(
            base=model, tuned=ready.tuned, **FEELING, sparsity=1e-3, steps=4,
            baselines="random,movement", text=ready.text, text_limit=16,
            out=str(at / "skill.safetensors"), **_runs(at), quiet=True,
        ),
        "graft eval": lambda at: graft.eval(
            skill=ready.skill, base=model, tuned=ready.tuned, text=ready.text, text_limit=16,
            data=["gen:sentiment?n=200", "gen:sentiment?n=150,seed=4"], **_runs(at), quiet=True,
        ),
        "graft continual": lambda at: graft.continual(
            base=model, task=["sst2", ready.tense], data=["gen:sentiment?n=60", "gen:tense?n=60"],
            shots=4, **SHORT, lr=0.05, mask_steps=2, sparsity=0.01, **_runs(at),
        ),
        "fisher": lambda at: cutaway.fisher(
            model=model, text=ready.text, limit=200, out=str(at / "fisher.safetensors"),
            **_runs(at), quiet=True,
        ),
        "inject": lambda at: cutaway.inject(
            model=model, data=SUMS, retain=[ready.text], retain_limit=30, regulariser="ewc",
            strength=[1.0], fisher_examples=16, **SHORT, **_runs(at),
        ),
    }  # fmt: skip


def _runs(at: Path) -> dict[str, str]:
    return {"runs": str(at / "runs")}


@dataclass(frozen=True)
class Whole:
    """A run that came to its end: what it found, and its processor time."""

    lines: list[str]
    """All rows, summaries and files of tensors of the runs in a place."""
    seconds: float


def run_whole(place: Path, start: Start) -> Whole:
    """Run to the end and read what was found; RuntimeError with the last words of a failed run.

    Read by the child: a process that has used polars can't be forked any more, its threads hang.
    """

    whole = run_unless_killed(place, start)
    assert whole is not None, "nothing kills it"
    return whole


def run_unless_killed(place: Path, start: Start, after: float | None = None) -> Whole | None:
    """As `run_whole`; None when it was killed `after` so much processor time."""

    def start_and_read(at: Path) -> None:
        start(at)
        (at / FOUND).write_text(json.dumps([sum(os.times()[:2]), lines_found(at)]))

    ended = in_child(place, start_and_read, after=after)
    if ended.error or (ended.killed and after is None):
        raise RuntimeError(f"{place.name} failed: {(place / 'log').read_text()[-2000:]}")
    if ended.killed:
        return None
    seconds, lines = json.loads((place / FOUND).read_text())
    return Whole(lines, seconds)


def lines_found(place: Path) -> list[str]:
    """The lines of a place."""
    lines = []
    for record in results(place / "runs"):
        rows = record.rows.iter_rows(named=True)
        lines += [f"row {_without_clock(row)}" for row in rows if row.get("metric") not in CLOCK]
        summary = json.dumps(_without_clock(record.summary), sort_keys=True)
        lines.append(f"summary of {record.method}: {summary}")
    tensors = [p for p in place.rglob("*.safetensors") if "home" not in p.parts]
    names = (p.relative_to(place) for p in tensors)
    lines += [f"file {name} {sha256_file(place / name)}" for name in names]
    return sorted(lines)


def _without_clock(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_clock(item) for key, item in value.items() if key not in CLOCK}
    return [_without_clock(item) for item in value] if isinstance(value, list) else value


def differences(right: list[str], found: list[str]) -> list[str]:
    """Lines that only one of the two has; doubled ones count."""
    lost, more = Counter(right) - Counter(found), Counter(found) - Counter(right)
    return [f"lost {line}" for line in lost.elements()] + [
        f"more {line}" for line in more.elements()
    ]
