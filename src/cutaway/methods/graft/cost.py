"""What learning a mask will cost, from one step that changes nothing."""

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cutaway.methods.graft.maths.select import mask_size
from cutaway.methods.graft.maths.soft_mask import gradients_enabled

if TYPE_CHECKING:
    from cutaway.methods.graft.learn import LearnContext


@dataclass(frozen=True)
class MaskLearningCost:
    """Masks, steps, seconds and megabytes, told before it starts."""

    weights: int
    sizes: tuple[int, ...]
    masks: int
    seconds: float
    memory_mb: float

    def sentence(self) -> str:
        """The estimate for people."""
        sizes = ", ".join(f"{size:,}" for size in self.sizes)
        return (
            f"{self.weights:,} weights moved and may be chosen; masks of {sizes}, {self.masks} to "
            f"measure: about {self.seconds:,.0f} s, {self.memory_mb:,.0f} MB of memory besides the "
            "model."
        )

    def plain(self) -> dict[str, Any]:
        """The estimate as JSON-ready values."""
        return asdict(self)


def estimate_mask_learning(work: "LearnContext", drawn: frozenset[str]) -> MaskLearningCost:
    """The cost of a run, from one step's gradient and a few answers."""
    spec, pair = work.spec, work.pair
    sizes = tuple(mask_size(share, pair.total) for share in spec.sparsity)
    step = _step_seconds(work)
    look = _row_seconds(work)
    others = sum(len(work.seeds) if kind in drawn else 1 for kind in spec.baselines)
    learned = len(sizes) * len(work.seeds)
    judged = learned * (1 + spec.steps // spec.every) * len(work.trial.judges)
    tested = (3 + learned + len(sizes) * others) * len(work.trial.test)
    slopes = spec.slope_examples / spec.step_examples
    seconds = (learned * spec.steps + slopes) * step + (judged + tested) * look
    size = sum(value.nbytes for value in pair.base.values())
    return MaskLearningCost(
        weights=pair.total,
        sizes=sizes,
        masks=learned + len(sizes) * others,
        seconds=round(seconds, 1),
        memory_mb=round((5 if spec.optimizer == "adam" else 4) * size / 2**20, 1),
    )


def _step_seconds(work: "LearnContext") -> float:
    pair, losses = work.pair, work.search.losses(work.seeds[0])(1)
    with gradients_enabled(pair.live, pair.base):
        begin = time.perf_counter()
        losses[0]().backward()  # type: ignore[no-untyped-call]
        return (time.perf_counter() - begin) * len(losses)


def _row_seconds(work: "LearnContext") -> float:
    some = work.trial.test[:32]
    begin = time.perf_counter()
    work.pair.pupil.predict_proba(some)
    return (time.perf_counter() - begin) / len(some)
