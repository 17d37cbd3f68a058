"""The page of nextword in the app."""

from typing import Any

from cutaway.report.method_page import MethodPage

PAGE = MethodPage(
    "nextword",
    "Does predicting the next word already solve the task, and through which words?",
    ":material/text_select_move_forward_word:",
    {
        "Accuracy": ("features", "prompts"),
        "Words": ("tokens",),
        "Answers": ("calibration", "confusion"),
        "Training": ("losses",),
    },
    ("model", "task", "features"),
)


def supports(lm: Any) -> str:
    """What the method can do with a model: `yes`, or what is missing."""
    return "yes" if lm.has_head else "no: the checkpoint has no language-model head"
