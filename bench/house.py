"""The house itself: the command line's start, the second opening, and the laws at the door."""

import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.tiny import FAMILIES, tiny

from bench.extract_setup import BUNDLED, bundled_folder
from bench.process import CUTAWAY, OPEN, took
from bench.report import row, spread, told
from cutaway.models import consistency
from cutaway.models.load import open_model

MOST = 1e-5


def run(quick: bool, rounds: int = 5) -> dict[str, Any]:
    """Seconds from the start of a process to its end, and the worst difference of all families."""
    rounds = 1 if quick else rounds
    bundled_folder()  # so that every opening that is timed is a second one
    helped, started, opened = [], [], []
    for _ in range(rounds):
        helped.append(took([CUTAWAY, "--help"]).seconds)
        whole = took([sys.executable, "-c", OPEN])
        started.append(whole.seconds)
        opened.append(whole.json()["seconds"])
    found = parity(list(FAMILIES)[:2] if quick else list(FAMILIES))
    worst = {law: max(found, key=lambda f: found[f][law]) for law in next(iter(found.values()))}
    return {
        "title": "The house",
        "text": "Each command in a process of its own, imports included; the bundled model is in "
        f"the cache and is checked as at every opening. Differences are the largest over "
        f"{len(found)} families of tiny random models, against plain transformers, in float32, "
        "relative to the largest norm of the stream.",
        "table": [
            timed("`cutaway --help`", helped, 0.5),
            timed(f"a process that opens {BUNDLED} a second time and ends", started, 5),
            timed("of that, the opening itself", opened, 5),
            *(
                row(
                    f"{law}, the worst of the families ({family})", f"{found[family][law]:.1e}",
                    bar=f"<= {MOST:.0e}", met=found[family][law] <= MOST,
                )
                for law, family in worst.items()
            ),
        ],
        "measured": {
            "help": spread(helped), "process": spread(started), "open": spread(opened),
            "families": found,
        },
    }  # fmt: skip


def timed(what: str, values: list[float], limit: float) -> dict[str, Any]:
    """A line of seconds against a bar."""
    found = spread(values)
    return row(what, told(found, "s"), bar=f"< {limit} s", met=found["median"] < limit)


def parity(families: list[str]) -> dict[str, dict[str, float]]:
    """What each consistency check measures, by family."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="cutaway-house-") as work:
        for family in families:
            lm = open_model(str(tiny(family, Path(work) / family)), check=False)
            sample = consistency.check_sample(lm)
            measured = (
                consistency.check_hidden_states(lm, sample),
                consistency.check_logits(lm, sample),
                consistency.check_padding(lm, sample, "left"),
                consistency.check_padding(lm, sample, "right"),
                consistency.check_batching(lm, sample),
            )
            found[family] = {one.name: one.measured for one in measured}
    return found
