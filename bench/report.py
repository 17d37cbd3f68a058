"""Figures become bench/results.json and docs/benchmarks.md."""

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "transformers", "scikit-learn", "numpy", "safetensors")
HEADS = ("what", "ours", "rival", "ratio", "bar", "met")
INTRODUCTION = """\
<!-- Written by python -m bench; change the code, then run: make bench -->

# Benchmarks

`make bench` compares Cutaway with alternatives in one run and writes the figures here and to
`bench/results.json`. Figures are medians over rounds, with minimum and maximum in parentheses; the
alternatives are interleaved within a round, so that background load affects all of them. The column
`bar` is the target, `met?` whether it was reached. Everything takes about two hours on two cores;
`python -m bench --only NAME` repeats one part and keeps the others.

`CUTAWAY_BENCH_DATA` is a folder with real sentences (default: the bundled docs or generated sets);
`CUTAWAY_BENCH_MODEL` is the folder of a small causal model for the last part, which is skipped
without it.
"""


class Lacking(Exception):
    """What a bench needs and this machine doesn't give; what it found elsewhere stays."""


def row(
    what: str, ours: str, rival: str = "-", ratio: float | None = None, bar: str = "-",
    met: bool | None = None,
) -> dict[str, Any]:  # fmt: skip
    """One line of a bench's table; `met` is None where nothing was promised."""
    shown = None if ratio is None else float(f"{ratio:.4g}")
    return {"what": what, "ours": ours, "rival": rival, "ratio": shown, "bar": bar, "met": met}


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Median, smallest, largest, and all of the values."""
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "all": [round(v, 5) for v in values],
    }


def told(values: Mapping[str, Any], unit: str) -> str:
    """A spread for people: median (smallest..largest) unit."""
    return f"{values['median']:,.4g} ({values['min']:,.4g}..{values['max']:,.4g}) {unit}"


def circumstances() -> dict[str, Any]:
    """Date, commit, machine and versions."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": machine(),
        "versions": {"python": platform.python_version(), **_versions()},
    }


def machine() -> dict[str, Any]:
    """What it ran on; nothing that names the machine or its owner."""
    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _commit() -> str:
    here = Path(__file__).parent
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=here, capture_output=True, text=True
    )
    return asked.stdout.strip() or "unknown"


def merge(file: Path, name: str, entry: dict[str, Any]) -> dict[str, Any]:
    """The file's results with this bench's entry replaced, written back; the others stay."""
    results = json.loads(file.read_text()) if file.is_file() else {}
    results = {**results, name: entry}
    file.write_text(json.dumps(results, indent=1, sort_keys=True, default=str) + "\n")
    return results


def page(results: Mapping[str, Any]) -> str:
    """The whole page: a section per bench."""
    return "\n".join([INTRODUCTION, *(section(n, results[n]) for n in sorted(results))])


def section(name: str, entry: Mapping[str, Any]) -> str:
    """A bench: what was run, its table, when and where."""
    parts = [f"## {entry.get('title', name)}\n"]
    if "error" in entry:
        parts.append(f"The bench broke: `{_cell(entry['error'])}`\n")
    said = entry.get("text", [])
    parts += [sentence + "\n" for sentence in ([said] if isinstance(said, str) else said)]
    for rows in _tables(entry):
        parts.append(table(rows))
    return "\n".join([*parts, _where(entry)])


def _tables(entry: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    """The bench's own `table`; for a bench without one, every list of rows it has."""
    if entry.get("table"):
        return [entry["table"]]
    lists = [v for v in entry.values() if isinstance(v, list) and v and isinstance(v[0], dict)]
    skip = {"machine", "versions", "error", "title", "text", "date", "commit", "seconds", "quick"}
    plain = [{"what": k, "value": v} for k, v in entry.items() if _scalar(v) and k not in skip]
    return [*lists, *([plain] if plain else [])]


def _scalar(value: object) -> bool:
    return isinstance(value, (str, int, float, bool))


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table; the usual columns first, others as they come."""
    names = list(dict.fromkeys(key for r in rows for key in r))
    heads = [h for h in HEADS if h in names] + [n for n in names if n not in HEADS]
    shown = [["met?" if h == "met" else h for h in heads], ["---"] * len(heads)]
    shown += [[_cell(r.get(h)) for h in heads] for r in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in shown) + "\n"


def _cell(value: object) -> str:
    words = {None: "-", True: "yes", False: "no"}
    if value is None or isinstance(value, bool):
        return words[value]
    text = f"{value:,.4g}" if isinstance(value, float) else str(value)
    return text.replace("|", "/").replace("\n", " ")


def _where(entry: Mapping[str, Any]) -> str:
    """When, on what, with which versions."""
    on, versions = entry.get("machine", {}), entry.get("versions", {})
    listed = ", ".join(f"{k} {v}" for k, v in versions.items())
    quick = " Quick run: sizes too small to judge by." if entry.get("quick") else ""
    return (
        f"Measured {entry.get('date', '?')} at commit `{entry.get('commit', '?')}` in "
        f"{entry.get('seconds', '?')} s on {on.get('cpu', '?')}, {on.get('cores', '?')} cores, "
        f"{on.get('memory_gb', '?')} GB; {listed}.{quick}\n"
    )
