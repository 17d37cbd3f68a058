"""Finding masks for a pair: the learned one, the smallest that keeps enough, the others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from cutaway.console import Console
from cutaway.core.errors import BadSpec
from cutaway.core.lookup import lookup
from cutaway.methods.graft.evaluation import TaskEvaluator
from cutaway.methods.graft.maths.gain import SizeSearchResult, find_smallest_size, relative_gain
from cutaway.methods.graft.maths.masks import (
    MASKS,
    NEED_GRADIENTS,
    RESCALED,
    MaskInputs,
    task_gradients,
)
from cutaway.methods.graft.maths.patch import Patch, make_patch, patched_weights
from cutaway.methods.graft.maths.select import Mask, top_mask
from cutaway.methods.graft.maths.soft_mask import (
    LearnedMask,
    Loss,
    MaskPlan,
    gradients_enabled,
    learn_mask,
)
from cutaway.methods.graft.model_pair import ModelPair
from cutaway.methods.graft.skill import load_skill
from cutaway.methods.graft.spec import LearnSpec
from cutaway.models.batches import TokenBudget, batches_by_length
from cutaway.training.batch_order import make_batch_order

DEFAULT_LR = {"mirror": 30.0, "sgd": 1e7, "adam": 0.5}
START_CANDIDATES = ("movement", "grad_movement")
# Tokens that go forward and back together: a graphics card wants many, a processor loses little
# with few and then holds less.
BACKWARD_TOKENS = {"cpu": 256, "cuda": 2048}
RESCALE_FACTORS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


@dataclass(frozen=True, eq=False)
class MaskSearch:
    """A pair, the rows it learns from and is judged on; masks of slopes are kept by size."""

    spec: LearnSpec
    pair: ModelPair
    trial: TaskEvaluator
    train: NDArray[np.int64]
    console: Console
    ranked: dict[tuple[str, int], Mask] = field(default_factory=dict)
    units: dict[int, float] = field(default_factory=dict)

    def rank(self, sizes: Sequence[int]) -> None:
        """Take the task's gradients at the base once, keep what they choose, let them go."""
        starts = set(START_CANDIDATES) if self.spec.start == "best" else {self.spec.start}
        wanted = {*self.spec.baselines, *starts} & NEED_GRADIENTS
        todo = [n for n in sizes if n not in self.units]
        if not todo or not (wanted or self.spec.optimizer == "mirror"):
            return
        material = self._with_slopes()
        for size in todo:
            for kind in sorted({*wanted, "grad_movement"}):
                self.ranked[kind, size] = MASKS[kind](material, size, torch.Generator())
            self.units[size] = _mean_saliency(material, self.ranked["grad_movement", size])

    def learned(self, size: int, seed: int, start: Mask | None = None) -> LearnedMask:
        """A mask of exactly this size, learned from its start on."""
        spec, pair = self.spec, self.pair
        rng = torch.Generator().manual_seed(seed)
        begin = start or self.start(size, seed)
        rate = spec.lr or DEFAULT_LR[spec.optimizer]
        if spec.optimizer == "mirror":
            rate /= self.units[size]
        plan = MaskPlan(spec.steps, rate, spec.optimizer, spec.every, spec.optimizer != "sgd")
        with self.console.progress(f"mask of {size:,}, seed {seed}", spec.steps) as advance:
            return learn_mask(
                pair.live, pair.base, pair.tuned, begin, self.losses(seed), self.trial.judge,
                plan, rng=rng, told=_step_reporter(advance),
            )  # fmt: skip

    def smallest(self, most: int, seed: int) -> tuple[Mask, SizeSearchResult]:
        """The smallest mask that keeps the wished gain on the judging rows, by bisection."""
        base = self.trial.metric()
        with self.pair.as_tuned():
            tuned = self.trial.metric()
        if not tuned > base:
            raise BadSpec(
                f"keep_gain needs a gain: the base has {base:.3f} on train and dev rows, the "
                f"tuned model {tuned:.3f}. Give --sparsity instead."
            )
        learned = self.learned(most, seed)

        def gain(size: int) -> float:
            with patched_weights(self.pair.live, self.patch(self._top(learned, size))):
                return relative_gain(self.trial.metric(), base, tuned)

        with self.console.progress("smallest mask", 1) as advance:
            found = find_smallest_size(most, gain, float(self.spec.keep_gain or 1.0))
            advance(note=f"{found.size:,} weights")
        return self._top(learned, found.size), found

    def baseline(self, kind: str, size: int, seed: int) -> Patch:
        """The change that another way of choosing gives, at the same size."""
        rng = torch.Generator().manual_seed(seed)
        mask = self._mask(kind, size, rng)
        if kind not in RESCALED:
            return self.patch(mask)
        stretches = (
            {*RESCALE_FACTORS, self._moved() / size} if kind == "dare" else {*RESCALE_FACTORS}
        )
        patches = [make_patch(self.pair.base, self.pair.tuned, mask, scale=s) for s in stretches]
        return max(patches, key=self._judged)

    def patch(self, mask: Mask) -> Patch:
        """The tuned weights at these places."""
        return make_patch(self.pair.base, self.pair.tuned, mask)

    def start(self, size: int, seed: int) -> Mask:
        """The mask to start from: a row of MASKS, or a skill filled up or cut to size."""
        chosen = self.spec.start
        if chosen == "best":
            masks = [self._mask(kind, size, torch.Generator()) for kind in START_CANDIDATES]
            return max(masks, key=lambda mask: self._judged(self.patch(mask)))
        if not chosen.endswith(".safetensors"):
            lookup({**MASKS, "best": None}, chosen, kind="starting mask")
            return self._mask(chosen, size, torch.Generator().manual_seed(seed))
        known = load_skill(Path(chosen)).patch.mask
        material = MaskInputs(self.pair.base, self.pair.tuned)

        def score(name: str) -> torch.Tensor:
            moved = material.movement(name).reshape(-1)
            if name in known.places:
                moved[known.places[name]] += 1e6
            return moved

        return top_mask(list(self.pair.base), score, size)

    def losses(self, seed: int) -> Callable[[int], list[Loss]]:
        """The pieces of each step's loss: the examples of that step, in batches."""
        pupil = self.pair.pupil
        rows = [pupil.examples.rows[i] for i in self.train]
        # A step in pieces pads little as it is; rows of one length alone would lead it astray.
        order = make_batch_order(rows, min(self.spec.step_examples, len(rows)), seed, window=1)
        tokens = BACKWARD_TOKENS.get(str(pupil.lm.device).split(":")[0], BACKWARD_TOKENS["cpu"])

        def of_step(step: int) -> list[Loss]:
            chosen = order(step - 1)
            lengths = [len(rows[i]) for i in chosen]
            batches = [
                batch.rows for batch, _ in batches_by_length(lengths, TokenBudget(fixed=tokens))
            ]
            return [self._loss(self.train[chosen[batch]], len(chosen)) for batch in batches]

        return of_step

    def _loss(self, rows: NDArray[np.int64], total: int) -> Loss:
        return lambda: self.pair.pupil.losses(rows).sum() / total

    def _with_slopes(self) -> MaskInputs:
        rng = np.random.default_rng([self.spec.seed, 2])
        most = min(self.spec.slope_examples, len(self.train))
        rows = np.sort(rng.choice(self.train, most, replace=False))
        with (
            gradients_enabled(self.pair.live, self.pair.base),
            self.console.progress("gradients", most) as advance,
        ):
            each = (_with_progress(self._loss(rows[i : i + 1], 1), advance) for i in range(most))
            return MaskInputs(self.pair.base, self.pair.tuned, task_gradients(self.pair.live, each))

    def _mask(self, kind: str, size: int, rng: torch.Generator) -> Mask:
        if kind in NEED_GRADIENTS:
            self.rank([size])
            return self.ranked[kind, size]
        return MASKS[kind](MaskInputs(self.pair.base, self.pair.tuned), size, rng)

    def _moved(self) -> int:
        """How many weights are elsewhere than they were: what DARE drops from."""
        material = MaskInputs(self.pair.base, self.pair.tuned)
        return sum(int(material.moved(name).sum()) for name in material.base)

    def _top(self, learned: LearnedMask, size: int) -> Mask:
        # The best mask of the way comes first, then the order of the last logits.
        best = learned.mask.places

        def score(name: str) -> torch.Tensor:
            logits = learned.logits[name].clone()
            if name in best:
                logits[best[name]] += 1e4
            return logits

        return top_mask(list(learned.logits), score, size)

    def _judged(self, patch: Patch) -> float:
        with patched_weights(self.pair.live, patch):
            return self.trial.judge()


def _mean_saliency(material: MaskInputs, mask: Mask) -> float:
    """Mean |gradient x movement| of the weights that it would choose: the unit of a step."""
    mean, total = material.need_slopes().mean, 0.0
    for name, places in mask.places.items():
        worth = mean[name].reshape(-1)[places].abs() * material.movement(name).take(places)
        total += float(worth.double().sum())
    return max(total / mask.size, 1e-30)


def _step_reporter(advance: Callable[..., None]) -> Callable[[int, float], None]:
    def told(step: int, loss: float) -> None:
        if step:
            advance(note=f"loss {loss:.3f}")

    return told


def _with_progress(loss: Loss, advance: Callable[..., None]) -> Loss:
    def counted() -> torch.Tensor:
        advance()
        return loss()

    return counted
