"""`cutaway graft learn`: find the few weights that hold a skill, and compare with baselines."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from cutaway.console import Console
from cutaway.extract.model_handle import training_resources
from cutaway.measure.jackknife import perfect_rows
from cutaway.methods.graft.atlas import atlas_rows
from cutaway.methods.graft.cost import estimate_mask_learning
from cutaway.methods.graft.mask_measurement import (
    LEARNED,
    LearnRequest,
    MaskJob,
    MaskMeasurement,
)
from cutaway.methods.graft.mask_search import MaskSearch
from cutaway.methods.graft.maths.patch import write_values
from cutaway.methods.graft.maths.select import Mask, mask_size
from cutaway.methods.graft.model_pair import open_model_pair
from cutaway.methods.graft.rows import with_seed_intervals
from cutaway.methods.graft.skill import Skill, load_skill
from cutaway.methods.graft.spec import LearnSpec
from cutaway.methods.graft.summary import graft_outcome, skill_metadata, summarise_learning
from cutaway.methods.graft.task_evaluator import (
    TaskOutputs,
    load_heldout_text,
    make_evaluator,
)
from cutaway.methods.graft.tuned_head import copy_head
from cutaway.methods.graft.verdict import moved_sentence
from cutaway.recipe.cost import Estimate, SampleSize
from cutaway.recipe.life_cycle import SAMPLES_FOLDER, Context, Outcome, Run
from cutaway.recipe.objects import Objects
from cutaway.recipe.open_for_spec import open_for_spec
from cutaway.recipe.output import ArtefactFile
from cutaway.recipe.result import Row
from cutaway.recipe.worker_pieces import (
    local_spec,
    resolve_on_worker,
    run_on_workers,
    runs_on_workers,
    sendable,
)
from cutaway.store.progress import Progress
from cutaway.store.samples import SamplePieces
from cutaway.training.predictions import split_table
from cutaway.training.task_split import load_task_split

OUTPUT = ArtefactFile("skill.safetensors")
UNFINISHED = "unfinished"
"""The folder of masks that are being learned, in that of the run."""
# Kinds that differ from seed to seed; the other baselines choose the same weights every time.
RANDOM_KINDS = frozenset({"random", "dare"})
# Copies of the weights in memory: base, tuned, live model, gradients, logits and their optimizer.
COPIES = 7


def resolve(spec: LearnSpec, context: Context) -> LearnRequest:
    """Both models, the task's rows and the held-out text."""
    lm = open_for_spec(spec.base, spec, context.objects)
    split = load_task_split(spec, task=spec.task, data=spec.data, objects=context.objects)  # type: ignore[arg-type]
    pair = open_model_pair(spec, lm, split, context.objects)
    text = load_heldout_text(spec, lm, context.objects)
    evaluator = make_evaluator(pair.model, split, spec, text)
    return LearnRequest(spec, pair, split, evaluator, None if text is None else text.digest)


def measure(request: LearnRequest, run: Run) -> Outcome:
    """A skill, and the scores of base, tuned model, learned masks and baseline masks."""
    spec, pair, evaluator = request.spec, request.pair, request.evaluator
    search = request.search(run.console, run.folder / UNFINISHED)
    sizes = mask_sizes(search, request.seeds[0], run)
    run.console.print(f"Evaluating on {len(evaluator.test):,} test rows.")
    base = evaluator.outputs(language=True)
    with pair.as_tuned():
        tuned = evaluator.outputs(language=True)
    masks = MaskMeasurement(request, search, run.folder, base, tuned, run.samples)
    rows = masks.output_rows("base", base, sparsity=0.0)
    rows += masks.output_rows("tuned", tuned, sparsity=1.0)
    rows += mask_rows(masks, sizes, run)
    skill, removed = best_skill(masks, sizes[0], run.progress)
    examples = evaluator.test_examples
    rows = with_seed_intervals(
        [*rows, *removed, *atlas_rows(masks.coordinates, pair.lm, skill)],
        perfect_rows(examples.metric, examples.labels),
    )
    meta = skill_metadata(
        spec, pair, request.split, skill, rows, share=sizes[0] / pair.total, seeds=request.seeds
    )
    saved = Skill(skill.patch, skill.shapes, {**meta, "run": run.address}, copy_head(pair.model))
    saved.save(OUTPUT.path(spec, run.scratch))
    out = str(spec.out or OUTPUT.name)
    return graft_outcome(
        "learn", rows, model=pair.lm, data=request.split.texts,
        summary=summarise_learning(pair, request.split, sizes, rows, seeds=request.seeds, out=out),
        files=OUTPUT.files(spec, run.scratch), splits=split_table(request.split),
    )  # fmt: skip


def estimate(request: LearnRequest) -> list[Estimate]:
    """The cost of the run."""
    search = request.search(Console(quiet=True))
    return [estimate_mask_learning(search, request.seeds, RANDOM_KINDS)]


def sample_size(request: LearnRequest) -> SampleSize:
    """Predictions on the test rows: base, tuned and removed, and every mask."""
    spec = request.spec
    sizes = [0] * (1 if spec.keep_gain is not None else len(spec.sparsity))
    masks = len(mask_jobs(spec, request.seeds, sizes))
    return SampleSize((3 + masks) * len(request.evaluator.test))


def mask_sizes(search: MaskSearch, seed: int, run: Run) -> list[int]:
    """The number of weights to keep for each sparsity, or the smallest that keeps the gain."""
    spec, total, progress = search.spec, search.pair.total, run.progress
    sizes = [mask_size(share, total) for share in spec.sparsity]
    listed = ", ".join(f"{n:,}" for n in sizes)
    run.console.print(f"{moved_sentence(total, search.pair.compared)} Masks of {listed}.")
    if spec.keep_gain is not None:
        key, largest = "smallest", max(sizes)
        if key not in progress.done():
            search.rank_by_gradients([largest])
            mask, found = search.find_smallest(largest, seed)
            search.skill(search.patch(mask)).save(run.folder / f"{key}.safetensors")
            tried = [{"size": n, "gain": gain, "reached": found.reached} for n, gain in found.tried]
            progress.put(key, [{"size": found.size, "reached": found.reached}, *tried])
        smallest = progress.rows([key])[0]
        sizes = [int(smallest["size"])]
        if not smallest["reached"]:
            run.console.print(
                f"No mask of up to {largest:,} weights keeps that share of the gain; {sizes[0]:,} "
                "weights are measured."
            )
    search.rank_by_gradients(sizes)
    return sizes


def mask_jobs(spec: LearnSpec, seeds: Sequence[int], sizes: Sequence[int]) -> list[MaskJob]:
    """Every mask to measure: the learned ones, then the baselines."""
    learned = [MaskJob(LEARNED, size, seed) for size in sizes for seed in seeds]
    return learned + [
        MaskJob(kind, size, seed)
        for size in sizes
        for kind in spec.baselines
        for seed in (seeds if kind in RANDOM_KINDS else seeds[:1])
    ]


def mask_rows(masks: MaskMeasurement, sizes: list[int], run: Run) -> list[Row]:
    """The rows of every mask, measured here or by the engine's workers; finished ones are kept."""
    spec = masks.request.spec
    jobs = mask_jobs(spec, masks.request.seeds, sizes)
    done = run.progress.done()
    todo = [
        job
        for job in jobs
        if job.key not in done or (job.kind == LEARNED and not masks.skill_path(job).exists())
    ]
    workers = bool(todo) and runs_on_workers(spec.engine, run.objects, run.console)
    for job, rows in _on_workers(masks, todo, run) if workers else _locally(masks, todo, run):
        run.progress.put(job.key, rows)
        masks.search.snapshots(job.key).discard()
    return run.progress.rows([job.key for job in jobs])


def _locally(
    masks: MaskMeasurement, todo: list[MaskJob], run: Run
) -> Iterator[tuple[MaskJob, list[Row]]]:
    # A learned mask has its own progress bar.
    for job in (job for job in todo if job.kind == LEARNED):
        yield job, masks.rows(job)
    baselines = [job for job in todo if job.kind != LEARNED]
    with run.console.progress("baseline masks", len(baselines)) as advance:
        for job in baselines:
            yield job, masks.rows(job)
            advance(note=job.kind)


def _on_workers(
    masks: MaskMeasurement, todo: list[MaskJob], run: Run
) -> Iterator[tuple[MaskJob, list[Row]]]:
    spec, search = masks.request.spec, masks.search
    arrays = {
        which: {name: indices.numpy() for name, indices in mask.indices.items()}
        for which, mask in search.gradient_masks.items()
    }
    worker = MaskWorker(
        local_spec(spec), sendable(run.objects), run.address, run.folder.absolute(), masks.base,
        masks.tuned, arrays, dict(search.step_units),
    )  # fmt: skip
    needs = training_resources(spec.engine, spec, masks.request.pair.lm, copies=COPIES)
    with run.console.progress("masks", len(todo)) as advance:
        for job, rows in run_on_workers(
            spec.engine, worker, todo, key=lambda job: job.key, needs=needs, kept=run.folder,
            console=run.console,
        ):  # fmt: skip
            yield job, rows
            advance(note=job.kind)


@dataclass(frozen=True, eq=False)
class MaskWorker:
    """Measures masks on a worker: the spec, and what was computed once for all masks."""

    spec: LearnSpec
    objects: Objects
    address: str
    folder: Path
    base: TaskOutputs
    tuned: TaskOutputs
    gradient_masks: Mapping[tuple[str, int], Mapping[str, Any]]
    step_units: Mapping[int, float]

    @cached_property
    def measurement(self) -> MaskMeasurement:
        """Both models and the rows, opened once per worker."""
        request = resolve_on_worker(resolve, self.spec, self.objects, self.address)
        search = request.search(Console(quiet=True), self.folder / UNFINISHED)
        search.step_units.update(self.step_units)
        for which, indices in self.gradient_masks.items():
            mask = Mask({name: torch.from_numpy(array) for name, array in indices.items()})
            search.gradient_masks[which] = mask
        samples = SamplePieces(self.folder / SAMPLES_FOLDER) if self.spec.samples else None
        return MaskMeasurement(request, search, self.folder, self.base, self.tuned, samples)

    def __call__(self, job: MaskJob) -> list[Row]:
        """The rows of one mask."""
        return self.measurement.rows(job)


def best_skill(masks: MaskMeasurement, size: int, progress: Progress) -> tuple[Skill, list[Row]]:
    """The skill of the seed with the best validation score, and the rows of removing it."""
    jobs = [MaskJob(LEARNED, size, seed) for seed in masks.request.seeds]
    scores = {
        job: next(row["value"] for row in progress.rows([job.key]) if row["metric"] == "judge")
        for job in jobs
    }
    best = max(jobs, key=lambda job: (scores[job], -job.seed))
    skill, pair = load_skill(masks.skill_path(best)), masks.request.pair
    with pair.as_tuned():
        write_values(pair.params, skill.patch.mask, skill.patch.before)
        outputs = masks.request.evaluator.outputs(language=True)
    return skill, masks.output_rows("removed", outputs, **masks.cell(size, best.seed))
