"""The page of shortcut in the app."""

from cutaway.report.method_page import MethodPage

PAGE = MethodPage(
    "shortcut",
    "How linear is the way from one layer to another, and what if the model stopped here?",
    ":material/alt_route:",
    {
        "Stopping early": ("precision", "precision@5", "precision@10", "exits"),
        "Distance from the answer": ("surprisal", "kl", "perplexity"),
        "The maps": ("r2", "parts"),
    },
    ("model", "text", "kind"),
)
