"""The page of inject in the app."""

from cutaway.report.method_page import MethodPage

PAGE = MethodPage(
    "inject",
    "How is a skill trained in, and what does it cost the skills that were there?",
    ":material/vaccines:",
    {
        "Gain and cost": ("pareto", "ledger", "digits"),
        "Training": ("learning", "drift"),
        "Where it clashes": ("fisher", "top", "weights"),
    },
    ("model", "regulariser"),
)
