"""The methods' pages as data: which figures stand together, what can be filtered.

A method gets its page by a row here. The first page reads this table, so nothing heavy is
loaded for it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class MethodPage:
    """What a method's page shows."""

    method: str
    question: str
    icon: str
    views: dict[str, tuple[str, ...]]
    """Heading -> the figures that stand under it."""
    filters: tuple[str, ...]
    """Columns of the rows that can be narrowed."""
    one_metric: bool = False
    """Whether the figures speak of one metric, chosen by the reader."""
    apart: bool = False
    """Whether several runs begin side by side: most figures show one pair of models."""


PAGES: dict[str, MethodPage] = {
    "probe": MethodPage(
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
    ),
    "nextword": MethodPage(
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
    ),
    "shortcut": MethodPage(
        "shortcut",
        "How linear is the way from one layer to another, and what if the model stopped here?",
        ":material/alt_route:",
        {
            "Stopping early": ("precision", "precision@5", "precision@10", "exits"),
            "Distance from the answer": ("surprisal", "kl", "perplexity"),
            "The maps": ("r2", "parts"),
        },
        ("model", "text", "kind"),
    ),
    "finetune": MethodPage(
        "finetune",
        "Can the model be taught the task, and what did it know before?",
        ":material/school:",
        {"Scores": ("scores",), "Training": ("curve",)},
        ("base", "task", "mode"),
    ),
    "graft": MethodPage(
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
        apart=True,
    ),
    "inject": MethodPage(
        "inject",
        "How is a skill trained in, and what does it cost the skills that were there?",
        ":material/vaccines:",
        {
            "Gain and cost": ("pareto", "ledger", "digits"),
            "Training": ("learning", "drift"),
            "Where it clashes": ("fisher", "top", "weights"),
        },
        ("model", "regulariser"),
    ),
}
