"""What a run will cost, estimated before it starts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Estimate:
    """Seconds, memory and disk of a run, and what they are spent on."""

    work: str
    """What will be done, in words: "1,200 texts, 30,000 tokens to read"."""
    seconds: float
    memory_mb: float
    """Memory in addition to the model."""
    disk_mb: float = 0.0
    counts: Mapping[str, Any] = field(default_factory=dict)
    """The figures in `work`, by name."""
    notes: tuple[str, ...] = ()
    """Anything else worth knowing, each a clause."""

    def sentence(self) -> str:
        """The estimate as one sentence."""
        parts = [
            f"{self.work}: about {self.seconds:,.0f} s",
            f"about {self.memory_mb:,.0f} MB of memory in addition to the model",
            f"{self.disk_mb:,.0f} MB on disk",
        ]
        return "; ".join([", ".join(parts), *self.notes]) + "."

    def plain(self) -> dict[str, Any]:
        """The estimate as JSON-ready values."""
        cost = {"seconds": self.seconds, "memory_mb": self.memory_mb, "disk_mb": self.disk_mb}
        return {**self.counts, **cost}
