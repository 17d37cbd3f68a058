"""Reading all layers with other tools: each in its own environment, all taking turns with ours."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any

from bench.extract_setup import bundled_folder, sentences
from bench.report import row, spread, told
from bench.rivals.environment import Unusable, environment
from bench.rivals.serve import MARK
from cutaway.core.textset import TextSet

SCRIPTS = Path(__file__).parent / "rivals"
# Package names as pip knows them; the script is rivals/with_<name>.py.
RIVALS = ("nnsight", "transformer_lens", "lmprobe")
OURS = "cutaway"
# The rivals are slow and the bars far away: fewer rows and rounds tell enough.
MOST_ROWS = 100
MOST_ROUNDS = 3
MOST_SECONDS = 300


@dataclass(frozen=True)
class Server:
    """A tool with its model open, waiting to be told to extract."""

    process: "subprocess.Popen[str]"
    version: str
    check: Path
    log: Path

    def go(self) -> dict[str, Any]:
        """One extraction of all texts."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return answer(self.process, self.log)


def run(
    quick: bool, rows: int | None = None, rounds: int = 5, keep_envs: bool = False
) -> dict[str, Any]:
    """Tokens per second of every tool that runs here; the reason for each that doesn't."""
    texts = sentences(12 if quick else min(rows or MOST_ROWS, MOST_ROWS))
    rounds = 1 if quick else min(rounds, MOST_ROUNDS)
    tokens = _tokens(texts)
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cutaway-rivals-")))
        (work / "texts.json").write_text(json.dumps(texts.texts))
        servers, missing = _all_servers(stack, work, keep_envs)
        seconds, broken = _take_turns(servers, rounds)
        gaps = {name: _gap(servers[OURS], servers[name]) for name in seconds if name != OURS}
        versions = {name: server.version for name, server in servers.items()}
    figures = {name: spread([tokens / s for s in values]) for name, values in seconds.items()}
    return {
        "title": "Reading all layers with other tools",
        "text": _said(texts, tokens, rounds),
        "table": _lines(figures, seconds, versions, gaps, {**missing, **broken}),
        "measured": {
            "rows": len(texts), "tokens": tokens, "rounds": rounds, "versions": versions,
            "tokens_per_second": figures, "differences": gaps, "missing": {**missing, **broken},
        },
    }  # fmt: skip


def _tokens(texts: TextSet) -> int:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(bundled_folder())
    return sum(map(len, tokenizer(list(texts.texts))["input_ids"]))


def _all_servers(
    stack: ExitStack, work: Path, keep: bool
) -> tuple[dict[str, Server], dict[str, str]]:
    """Every tool that could be started, and why the others couldn't."""
    servers = {OURS: _server(stack, OURS, Path(sys.executable), work)}
    missing = {}
    for name in RIVALS:
        print(f"   {name}", file=sys.stderr)
        try:
            python = stack.enter_context(environment(name, keep=keep))
            servers[name] = _server(stack, name, python, work)
        except Unusable as error:
            missing[name] = str(error)
    return servers, missing


def _server(stack: ExitStack, name: str, python: Path, work: Path) -> Server:
    """The tool with its model open."""
    check, log = work / f"{name}.json", work / f"{name}.log"
    command = [python, SCRIPTS / f"with_{name}.py", bundled_folder(), work / "texts.json", check]
    # No rival may look for the model, or for anything else, on the hub.
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(work / "hub")}
    process = subprocess.Popen(
        list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
        stderr=stack.enter_context(log.open("w")),
    )  # fmt: skip
    stack.callback(_end, process)
    ready = answer(process, log)
    return Server(process, ready["version"], check, log)


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()


def answer(process: "subprocess.Popen[str]", log: Path) -> dict[str, Any]:
    """The next answer of a server; Unusable with its last words when it died."""
    assert process.stdout is not None
    # A rival that hangs is ended, so that the others' figures are still written.
    guard = Timer(MOST_SECONDS, process.kill)
    guard.start()
    try:
        for line in process.stdout:
            if line.startswith(MARK):
                return json.loads(line.removeprefix(MARK))
    finally:
        guard.cancel()
    said = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    raise Unusable(f"it failed or hung: {said[-1][:200] if said else 'without a word'}")


def _take_turns(
    servers: dict[str, Server], rounds: int
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Seconds of each tool in each round; who fails drops out."""
    seconds: dict[str, list[float]] = {name: [] for name in servers}
    broken: dict[str, str] = {}
    for number in range(rounds):
        print(f"   round {number + 1} of {rounds}", file=sys.stderr)
        for name in [n for n in servers if n not in broken]:
            try:
                seconds[name].append(servers[name].go()["seconds"])
            except (Unusable, OSError) as error:
                broken[name] = str(error)
    return {n: s for n, s in seconds.items() if n not in broken}, broken


def _gap(ours: Server, theirs: Server) -> dict[str, Any]:
    """How far the rival's vectors of a middle layer are from ours, relative to the largest."""
    import numpy as np

    one, other = (json.loads(s.check.read_text()) for s in (ours, theirs))
    gaps: dict[str, Any] = {"layer": other["layer"]}
    for pool in ("last", "mean"):
        a, b = np.array(one[pool]), np.array(other[pool])
        gaps[pool] = float(np.abs(a - b).max() / np.abs(a).max())
    return gaps


def _lines(
    figures: dict[str, Any], seconds: dict[str, list[float]], versions: dict[str, str],
    gaps: dict[str, Any], missing: dict[str, str],
) -> list[dict[str, Any]]:  # fmt: skip
    """A row per rival."""
    lines = []
    for name, gap in gaps.items():
        ratio = statistics.median(seconds[name]) / statistics.median(seconds[OURS])
        what = f"{name} {versions[name]} (vectors differ by {max(gap['last'], gap['mean']):.0e})"
        ours, theirs = (told(figures[n], "tokens/s") for n in (OURS, name))
        lines.append(row(what, ours, theirs, ratio, "> 1x", ratio > 1))
    return lines + [row(name, "-", f"not run: {why}") for name, why in missing.items()]


def _said(texts: TextSet, tokens: int, rounds: int) -> list[str]:
    """What was run, in words."""
    return [
        f"{len(texts):,} sentences of `{texts.name}`, {tokens:,} tokens, smollm2-135m from a local "
        f"folder, all layers, last and mean pooling, float32, {rounds} rounds. Every tool has a "
        "process of its own with the model open and warm; they take turns, ours among them.",
        "Ours writes to an empty cache and reads every column back. nnsight: a trace per batch of "
        "32 in file order. TransformerLens: `run_with_cache` on the residual stream, batches of "
        "32 in file order, no start token. lmprobe: `UnifiedCache` with its batch of 8, unpooled "
        "because two poolers are wanted, perplexity off, into an empty cache. None of them "
        "computes gradients. The difference is the largest of a middle layer's pooled vectors "
        "from ours, relative to the largest value.",
    ]
