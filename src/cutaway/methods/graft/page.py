"""The page of graft in the app."""

from typing import Any

from cutaway.report.method_page import MethodPage

PAGE = MethodPage(
    "graft",
    "Which few weights hold a fine-tuned skill, and do skills share weights?",
    ":material/content_cut:",
    {
        "Scores": ("sparsity", "gain", "agreement", "learning"),
        "Location": ("atlas", "heads", "overlap"),
        "Side effects": ("language", "calibration", "reliability", "ood"),
        "Continual learning": ("forgetting",),
    },
    ("base", "task", "kind"),
    side_by_side=True,
)


def supports(lm: Any) -> str:
    """What the method can do with a model: `yes`, or what is missing."""
    return "yes" if lm.has_head else "head mode only: the checkpoint has no language-model head"
