"""The page of finetune in the app."""

from typing import Any

from cutaway.report.method_page import MethodPage

PAGE = MethodPage(
    "finetune",
    "Can the model be taught the task, and what did it know before?",
    ":material/school:",
    {"Scores": ("scores",), "Training": ("curve",)},
    ("base", "task", "mode"),
)


def supports(lm: Any) -> str:
    """What the method can do with a model: `yes`, or what is missing."""
    return "yes" if lm.has_head else "head mode only: the checkpoint has no language-model head"
