"""The page of finetune in the app."""

from typing import Any

from cutaway.report.method_page import MethodPage

PAGE = MethodPage(
    "finetune",
    "How much does fine-tuning improve the task, and how good was the model before?",
    ":material/school:",
    {"Scores": ("scores",), "Training": ("curve",)},
    ("base", "task", "mode"),
)


def supports(lm: Any) -> str:
    """What the method can do with a model: `yes`, or what is missing."""
    return "yes" if lm.has_head else "head mode only: the checkpoint has no language-model head"
