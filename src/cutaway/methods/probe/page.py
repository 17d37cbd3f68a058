"""The page of probe in the app."""

from typing import Any

from cutaway.report.method_page import MethodPage

PAGE = MethodPage(
    "probe",
    "What can be read off the hidden layers, and is it more than the words give away?",
    ":material/layers:",
    {
        "Layers": ("layers", "heatmap"),
        "Comparison": ("classifiers", "curve", "sizes"),
        "Inside the best probe": ("confusion", "roc", "scores", "projection", "losses"),
    },
    ("model", "data", "pool", "classifier"),
    one_metric=True,
    filter_kind="probe",
    baselines_stay=("pool", "classifier"),
)


def supports(lm: Any) -> str:
    """What the method can do with a model: `yes`, or what is missing."""
    return "yes"
