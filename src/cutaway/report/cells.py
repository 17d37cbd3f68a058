"""Tidy probe rows become cells: one line per point of the grid, its repeats folded into a mean."""

import polars as pl

# Which metric to speak of when the run doesn't say: the first that was measured.
METRIC_ORDER = ("accuracy", "f1_macro", "f1", "auc", "r2", "spearman", "pearson", "mcc", "ap")
LOWER_IS_BETTER = frozenset({"mse", "rmse", "log_rmse", "mae", "ece", "mdl_bits", "loss", "brier"})
# The least and the most a metric can be; others have no such bounds.
METRIC_RANGES: dict[str, tuple[float | None, float | None]] = {
    **dict.fromkeys(("accuracy", "f1", "f1_macro", "f1_micro", "auc", "ap", "ece"), (0.0, 1.0)),
    **dict.fromkeys(("exact_match", "undecodable", "agreement"), (0.0, 1.0)),
    **dict.fromkeys(("mcc", "spearman", "pearson"), (-1.0, 1.0)),
    "r2": (None, 1.0),
    **dict.fromkeys(("mse", "log_rmse", "lm_loss", "perplexity"), (0.0, None)),
}
METRIC_LABELS = {
    "accuracy": "accuracy",
    "f1": "F1",
    "f1_macro": "F1 (macro)",
    "f1_micro": "F1 (micro)",
    "mcc": "Matthews correlation",
    "auc": "ROC AUC",
    "ap": "average precision",
    "r2": "R²",
    "mse": "mean squared error",
    "spearman": "Spearman correlation",
    "pearson": "Pearson correlation",
    "ece": "calibration error (ECE)",
    "mdl_bits": "code length (bits)",
    "exact_match": "exact match",
}


def metric_label(metric: str) -> str:
    """A metric's name inside a sentence."""
    return METRIC_LABELS.get(metric, metric.replace("_", " "))


def metric_axis_label(metric: str) -> str:
    """A metric's name on an axis or at the start of a title."""
    words = metric_label(metric)
    return words[:1].upper() + words[1:]


def measured_metrics(rows: pl.DataFrame) -> list[str]:
    """The metrics that were measured, best known first."""
    found = rows["metric"].drop_nulls().unique().to_list() if "metric" in rows.columns else []
    known = [m for m in METRIC_ORDER if m in found]
    return known + sorted(m for m in found if m not in known)
