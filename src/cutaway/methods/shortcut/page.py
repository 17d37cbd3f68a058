"""The page of shortcut in the app."""

from typing import Any

from cutaway.report.method_page import MethodPage

PAGE = MethodPage(
    "shortcut",
    "Is layer j a linear function of layer i, and can the model exit early?",
    ":material/alt_route:",
    {
        "Early exit": ("precision", "precision@5", "precision@10", "exits"),
        "Distance from the final prediction": ("surprisal", "kl", "perplexity"),
        "Maps": ("r2", "parts", "parts@5", "parts@10", "parts_surprisal"),
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
