"""What a method's page in the app shows, as data."""

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
