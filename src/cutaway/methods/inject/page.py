"""The page of inject in the app."""

from typing import Any

from cutaway.report.method_page import MethodPage

PAGE = MethodPage(
    "inject",
    "How can a model learn a new skill without forgetting others?",
    ":material/vaccines:",
    {
        "Gain and cost": ("pareto", "ledger", "kinds"),
        "Training": ("learning", "drift"),
        "Fisher information and weights": ("fisher", "top", "weights"),
    },
    ("model", "regulariser"),
)


def supports(lm: Any) -> str:
    """What the method can do with a model: `yes`, or what is missing."""
    return "yes" if lm.has_head else "no: the checkpoint has no language-model head"
