"""The page of shortcut in the app."""

from typing import Any

from cutaway.report.method_page import MethodPage

PAGE = MethodPage(
    "shortcut",
    "How linear is the way from one layer to another, and what if the model stopped here?",
    ":material/alt_route:",
    {
        "Stopping early": ("precision", "precision@5", "precision@10", "exits"),
        "Distance from the answer": ("surprisal", "kl", "perplexity"),
        "The maps": ("r2", "parts"),
    },
    ("model", "text", "kind"),
)


def supports(lm: Any) -> str:
    """What the method can do with a model: `yes`, or what is missing."""
    if not lm.has_head:
        return "layers only: the checkpoint has no language-model head"
    if lm.anatomy.mlp is None:
        return "yes, without sub-modules: the parts of its blocks aren't known"
    return "yes"
