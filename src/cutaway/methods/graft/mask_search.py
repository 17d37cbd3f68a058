"""Find masks for a pair of models: learned ones, the smallest sufficient one, and baselines."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from cutaway.console import Console
from cutaway.core.errors import BadSpec
from cutaway.core.float64 import to_float64
from cutaway.core.lookup import lookup
from cutaway.methods.graft.maths.gain import SizeSearchResult, find_smallest_size, relative_gain
from cutaway.methods.graft.maths.learn_mask import LearnedMask, learn_mask
from cutaway.methods.graft.maths.masks import (
    MASKS,
    NEED_GRADIENTS,
    RESCALED,
    MaskInputs,
    task_gradients,
)
from cutaway.methods.graft.maths.patch import Patch, make_patch, patched_weights
from cutaway.methods.graft.maths.select import Mask, top_mask
from cutaway.methods.graft.maths.soft_mask import Loss, MaskPlan, gradients_enabled
from cutaway.methods.graft.model_pair import ModelPair
from cutaway.methods.graft.skill import Skill, load_skill
from cutaway.methods.graft.spec import BACKWARD_TOKENS, LearnSpec
from cutaway.methods.graft.task_evaluator import TaskEvaluator
from cutaway.methods.graft.unfinished import mask_keeper, saved_mask, saved_sums, sums_keeper
from cutaway.models.batches import TokenBudget, batches_by_length
from cutaway.store.snapshots import Snapshots
from cutaway.training.batch_order import make_batch_order

DEFAULT_LR = {"mirror": 30.0, "sgd": 1e7, "adam": 0.5}
START_CANDIDATES = ("movement", "grad_movement")
RESCALE_FACTORS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


@dataclass(frozen=True, eq=False)
class MaskSearch:
    """The mask search of one pair of models on one task."""

    spec: LearnSpec
    pair: ModelPair
    evaluator: TaskEvaluator
    train: NDArray[np.int64]
    console: Console
    folder: Path | None = None
    """Where unfinished masks and gradients are saved."""
    gradient_masks: dict[tuple[str, int], Mask] = field(default_factory=dict)
    """Masks that rank weights by gradients, by kind and size."""
    step_units: dict[int, float] = field(default_factory=dict)
    """The scale of mirror descent steps by mask size: mean |gradient x movement| of its weights."""

    def rank_by_gradients(self, sizes: Sequence[int]) -> None:
        """Compute the task's gradients at the base once, and keep only the masks they give."""
        starts = set(START_CANDIDATES) if self.spec.start == "best" else {self.spec.start}
        wanted = {*self.spec.baselines, *starts} & NEED_GRADIENTS
        todo = [n for n in sizes if n not in self.step_units]
        if not todo or not (wanted or self.spec.optimizer == "mirror"):
            return
        inputs = self._inputs_with_gradients()
        for size in todo:
            for kind in sorted({*wanted, "grad_movement"}):
                self.gradient_masks[kind, size] = MASKS[kind](inputs, size, torch.Generator())
            unit = _mean_saliency(inputs, self.gradient_masks["grad_movement", size])
            self.step_units[size] = unit

    def snapshots(self, name: str) -> Snapshots:
        """The snapshots of a mask or of the gradients."""
        return Snapshots(self.folder and self.folder / name, self.console)

    def learn(
        self, size: int, seed: int, start: Mask | None = None, *, name: str = "mask"
    ) -> LearnedMask:
        """A mask of exactly this size, learned by gradient steps from `start`.

        It is saved as `name` while it is learned.
        """
        spec, pair = self.spec, self.pair
        rng = torch.Generator().manual_seed(seed)
        begin = start or self.starting_mask(size, seed)
        lr = spec.lr or DEFAULT_LR[spec.optimizer]
        if spec.optimizer == "mirror":
            lr /= self.step_units[size]
        plan = MaskPlan(spec.steps, lr, spec.optimizer, spec.every, spec.optimizer != "sgd")
        snapshots = self.snapshots(name)
        saved = saved_mask(snapshots)
        with self.console.progress(f"mask of {size:,}, seed {seed}", spec.steps) as advance:
            advance(0 if saved is None else saved.step)

            def report(step: int, loss: float) -> None:
                if step:
                    advance(note=f"loss {loss:.3f}")

            return learn_mask(
                pair.params, pair.base, pair.tuned, begin, self.losses(seed), self.evaluator.score,
                plan, rng=rng, report=report, saved=saved, keep=mask_keeper(snapshots, spec.steps),
            )  # fmt: skip

    def find_smallest(self, largest: int, seed: int) -> tuple[Mask, SizeSearchResult]:
        """The smallest mask that keeps the wanted gain on the validation rows, by bisection."""
        base = self.evaluator.metric()
        with self.pair.as_tuned():
            tuned = self.evaluator.metric()
        if not tuned > base:
            raise BadSpec(
                f"keep_gain needs a gain: the base scores {base:.3f} on train and dev rows, the "
                f"tuned model {tuned:.3f}. Give --sparsity instead."
            )
        learned = self.learn(largest, seed, name="smallest")

        def gain(size: int) -> float:
            with patched_weights(self.pair.params, self.patch(_top_of_learned(learned, size))):
                return relative_gain(self.evaluator.metric(), base, tuned)

        with self.console.progress("smallest mask", 1) as advance:
            result = find_smallest_size(largest, gain, float(self.spec.keep_gain or 1.0))
            advance(note=f"{result.size:,} weights")
        return _top_of_learned(learned, result.size), result

    def baseline(self, kind: str, size: int, seed: int) -> Patch:
        """The patch of a baseline mask of this size; rescaled kinds take the best factor."""
        mask = self._mask(kind, size, torch.Generator().manual_seed(seed))
        if kind not in RESCALED:
            return self.patch(mask)
        factors = {*RESCALE_FACTORS}
        if kind == "dare":
            inputs = self._inputs()
            changed = sum(int(inputs.moved(name).sum()) for name in inputs.base)
            factors |= {changed / size}
        patches = [make_patch(self.pair.base, self.pair.tuned, mask, scale=s) for s in factors]
        return max(patches, key=self._patch_score)

    def patch(self, mask: Mask) -> Patch:
        """The change from base to tuned at the chosen weights."""
        return make_patch(self.pair.base, self.pair.tuned, mask)

    def skill(self, patch: Patch) -> Skill:
        """A patch as a skill that names both checkpoints."""
        shapes = {name: tuple(self.pair.base[name].shape) for name in patch.mask.indices}
        return Skill(patch, shapes, dict(self.pair.facts))

    def starting_mask(self, size: int, seed: int) -> Mask:
        """The mask to start from: a row of MASKS, or a skill extended or cut to size."""
        chosen = self.spec.start
        if chosen == "best":
            masks = [self._mask(kind, size, torch.Generator()) for kind in START_CANDIDATES]
            return max(masks, key=lambda mask: self._patch_score(self.patch(mask)))
        if not chosen.endswith(".safetensors"):
            lookup({**MASKS, "best": None}, chosen, kind="starting mask")
            return self._mask(chosen, size, torch.Generator().manual_seed(seed))
        first, inputs = load_skill(Path(chosen)).patch.mask, self._inputs()

        def score(name: str) -> torch.Tensor:
            return inputs.moved_first(name, _raised(inputs.movement(name), first, name, 1e6))

        return top_mask(list(self.pair.base), score, size)

    def losses(self, seed: int) -> Callable[[int], list[Loss]]:
        """step -> its loss in several terms, one per batch of the step's examples."""
        model = self.pair.model
        rows = [model.examples.rows[i] for i in self.train]
        # Batches are made within a step, so steps needn't group rows by length to save padding;
        # a step with rows of one length only would be a biased sample.
        order = make_batch_order(rows, min(self.spec.step_examples, len(rows)), seed, window=1)
        device = str(model.lm.device).split(":")[0]
        budget = TokenBudget(fixed=BACKWARD_TOKENS.get(device, BACKWARD_TOKENS["cpu"]))

        def step_losses(step: int) -> list[Loss]:
            chosen = order(step - 1)
            batches = batches_by_length([len(rows[i]) for i in chosen], budget)
            return [self._loss(self.train[chosen[b.rows]], len(chosen)) for b, _ in batches]

        return step_losses

    def _loss(self, rows: NDArray[np.int64], total: int) -> Loss:
        return lambda: self.pair.model.losses(rows).sum() / total

    def _inputs(self) -> MaskInputs:
        return MaskInputs(self.pair.base, self.pair.tuned)

    def _inputs_with_gradients(self) -> MaskInputs:
        pair, rng = self.pair, np.random.default_rng([self.spec.seed, 2])
        n = min(self.spec.slope_examples, len(self.train))
        rows = np.sort(rng.choice(self.train, n, replace=False))
        snapshots = self.snapshots("gradients")
        sums = saved_sums(snapshots, pair.params)
        done = 0 if sums is None else sums.examples
        with (
            gradients_enabled(pair.params, pair.base),
            self.console.progress("gradients", n) as advance,
        ):
            advance(done)
            one_by_one = (self._loss(rows[i : i + 1], 1) for i in range(done, n))
            losses = (_with_progress(loss, advance) for loss in one_by_one)
            gradients = task_gradients(pair.params, losses, sums, sums_keeper(snapshots, n))
            return MaskInputs(pair.base, pair.tuned, gradients)

    def _mask(self, kind: str, size: int, rng: torch.Generator) -> Mask:
        if kind in NEED_GRADIENTS:
            self.rank_by_gradients([size])
            return self.gradient_masks[kind, size]
        return MASKS[kind](self._inputs(), size, rng)

    def _patch_score(self, patch: Patch) -> float:
        with patched_weights(self.pair.params, patch):
            return self.evaluator.score()


def _top_of_learned(learned: LearnedMask, size: int) -> Mask:
    """Part of a learned mask: weights of the best mask first, then by the last logits."""
    return top_mask(
        list(learned.logits),
        lambda name: _raised(learned.logits[name].clone(), learned.mask, name, 1e4),
        size,
    )


def _raised(scores: torch.Tensor, mask: Mask, name: str, by: float) -> torch.Tensor:
    """Scores of one tensor, flattened, with those in the mask raised above all others."""
    flat = scores.reshape(-1)
    if name in mask.indices:
        flat[mask.indices[name]] += by
    return flat


def _mean_saliency(inputs: MaskInputs, mask: Mask) -> float:
    """Mean |gradient x movement| of the mask's weights."""
    mean, total = inputs.need_gradients().mean, 0.0
    for name, indices in mask.indices.items():
        saliency = mean[name].reshape(-1)[indices].abs() * inputs.movement(name).take(indices)
        total += float(to_float64(saliency).sum())
    return max(total / mask.size, 1e-30)


def _with_progress(loss: Loss, advance: Callable[..., None]) -> Loss:
    def counted() -> torch.Tensor:
        advance()
        return loss()

    return counted
