"""The page of nextword in the app."""

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
