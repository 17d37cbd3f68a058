"""What a run will cost, estimated before it starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cutaway.catalog import methods, verbs_of
from cutaway.core.model_size import ModelSize
from cutaway.models.memory import Workload
from cutaway.models.placement import Placement

PREDICTION_BYTES = 24
"""Size of a prediction in samples.parquet: coordinates take almost nothing, the digest 16 bytes."""


@dataclass(frozen=True)
class SampleSize:
    """How many rows samples.parquet will have, and about how large each is on disk."""

    rows: int
    bytes_per_row: int = PREDICTION_BYTES

    @property
    def bytes(self) -> int:
        """The size of the file."""
        return self.rows * self.bytes_per_row

    def clause(self) -> str:
        """The size in words."""
        return f"samples: about {self.rows:,} rows, {self.bytes / 1e6:,.1f} MB"


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


def with_samples(estimates: Sequence[Estimate], size: SampleSize) -> list[Estimate]:
    """The estimates of a run that also keeps its samples: the last one has their size."""
    *others, last = estimates
    megabytes = round(size.bytes / 1e6, 1)
    counts = {"samples_rows": size.rows, "samples_mb": megabytes}
    return [
        *others,
        replace(
            last,
            disk_mb=round(last.disk_mb + megabytes, 1),
            counts={**last.counts, **counts},
            notes=(*last.notes, size.clause()),
        ),
    ]


def memory_by_method(size: ModelSize, placement: Placement) -> dict[str, int]:
    """Bytes that each method needs by default: weights, copies of them, activations, libraries.

    A run prints the figure for its own options before it loads the weights.
    """
    # Only options with defaults decide; names of models and data are not needed.
    specs = {n: [v.spec_class.model_construct(tuned="") for v in verbs_of(n)] for n in methods()}
    return {
        name: max(
            Workload(one.weight_copies, one.work_bytes).need(size, placement).total  # type: ignore[attr-defined]
            for one in some
        )
        for name, some in specs.items()
    }
