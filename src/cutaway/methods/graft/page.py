"""The page of graft in the app."""

from cutaway.report.method_page import MethodPage

PAGE = MethodPage(
    "graft",
    "Which few weights hold a fine-tuned skill, and what do they share with others?",
    ":material/content_cut:",
    {
        "What is kept": ("sparsity", "gain", "agreement", "learning"),
        "Where it lives": ("atlas", "heads", "overlap"),
        "What it costs": ("language", "calibration", "reliability", "ood"),
        "One after the other": ("forgetting",),
    },
    ("base", "task", "kind"),
    side_by_side=True,
)
