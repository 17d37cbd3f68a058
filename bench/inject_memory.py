"""Memory of a Fisher: the weights, one Fisher, one chunk, however many texts there are."""

from typing import Any

from bench._inject_memory import elsewhere
from bench.report import row

MODEL = "smollm2-135m"
# Sentences of one run and of a longer one.
FEW, MANY = 8, 24


def run(quick: bool) -> dict[str, Any]:
    """Peak memory above the open model, for few and for three times as many sentences."""
    few, many = (elsewhere(MODEL, n) for n in ((2, 4) if quick else (FEW, MANY)))
    growth = many["extra_mb"] - few["extra_mb"]
    chunk = many["extra_mb"] - many["fisher_mb"]
    return {
        "title": "Memory of a Fisher",
        "text": "SmolLM2-135M on sentences of the bundled docs, each run in a process of its own: "
        f"peak memory above the open model, whose weights are {many['weights_mb']:,.0f} MB.",
        "table": [
            row(f"{many['rows']:.0f} sentences: peak above the open model",
                f"{many['extra_mb']:,.0f} MB = one Fisher ({many['fisher_mb']:,.0f} MB) and one "
                f"chunk ({chunk:,.0f} MB)"),
            row(f"growth from {few['rows']:.0f} to {many['rows']:.0f} sentences",
                f"{growth:,.0f} MB", bar="<= 30 MB", met=growth <= 30),
        ],
        "measured": {"few": few, "many": many},
    }  # fmt: skip
