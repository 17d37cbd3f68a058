"""The page of finetune in the app."""

from cutaway.report.method_page import MethodPage

PAGE = MethodPage(
    "finetune",
    "Can the model be taught the task, and what did it know before?",
    ":material/school:",
    {"Scores": ("scores",), "Training": ("curve",)},
    ("base", "task", "mode"),
)
