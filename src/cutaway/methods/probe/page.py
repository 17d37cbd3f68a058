"""The page of probe in the app."""

from typing import Any

from cutaway.report.method_page import MethodPage

PAGE = MethodPage(
    "probe",
    "What information do the hidden states encode, beyond the words of the text?",
    ":material/layers:",
    {
        "Layers": ("layers", "heatmap"),
        "Comparison": ("classifiers", "curve", "sizes"),
        "Inside the chosen probe": ("confusion", "roc", "scores", "projection", "losses"),
    },
    ("model", "data", "pool", "classifier"),
    one_metric=True,
    filter_kind="probe",
    baselines_stay=("pool", "classifier"),
)


def supports(lm: Any) -> str:
    """What the method can do with a model: `yes`, or what is missing."""
    return "yes"
