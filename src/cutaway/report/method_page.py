"""What a method's page in the app shows; a method's `page` module has it as `PAGE`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class MethodPage:
    """The title, figures and filters of a method's page."""

    method: str
    question: str
    icon: str
    views: dict[str, tuple[str, ...]]
    """Heading -> the names of the figures below it."""
    filters: tuple[str, ...]
    """Columns of the rows to filter by."""
    one_metric: bool = False
    """Whether the figures show one metric, chosen by the reader."""
    side_by_side: bool = False
    """Whether several runs start side by side: most figures show one pair of models."""
    filter_kind: str = ""
    """Only rows of this `kind` provide the values to filter by; empty: all rows."""
    baselines_stay: tuple[str, ...] = ()
    """Filters that leave baselines in: a text baseline has no pooler and no classifier."""
