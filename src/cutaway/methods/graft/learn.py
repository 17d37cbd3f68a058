"""`cutaway graft learn`: the few weights that hold a skill, and others of the same number."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from cutaway.console import Console
from cutaway.core.errors import Missing
from cutaway.core.spec import address
from cutaway.extract.model_handle import training_resources
from cutaway.methods.graft.atlas import atlas_rows
from cutaway.methods.graft.cost import MaskLearningCost, estimate_mask_learning
from cutaway.methods.graft.evaluation import (
    TaskEvaluator,
    TaskOutputs,
    load_heldout_text,
    make_evaluator,
)
from cutaway.methods.graft.mask_search import MaskSearch
from cutaway.methods.graft.maths.patch import Patch, patched_weights, write_values
from cutaway.methods.graft.maths.select import Mask, mask_size
from cutaway.methods.graft.model_pair import ModelPair, open_model_pair
from cutaway.methods.graft.rows import GraftCoordinates, with_seed_intervals
from cutaway.methods.graft.skill import Skill, load_skill
from cutaway.methods.graft.spec import LearnSpec
from cutaway.methods.graft.summary import save_graft_run, skill_metadata, summarise_learning
from cutaway.methods.graft.tuned_head import copy_head
from cutaway.recipe.objects import Objects
from cutaway.recipe.open_for_spec import open_for_spec
from cutaway.recipe.output import attach_artefact, restore_artefact
from cutaway.recipe.provenance import measure_cost
from cutaway.recipe.result import Result
from cutaway.recipe.table import Row
from cutaway.recipe.worker_pieces import (
    check_same_run,
    local_spec,
    run_on_workers,
    runs_on_workers,
    sendable,
)
from cutaway.store.artefacts import check_output_free
from cutaway.store.progress import Progress
from cutaway.store.results import find_record, run_progress
from cutaway.training.task_split import TaskSplit, load_task_split

SKILL_FILE = "skill.safetensors"
# Drawn anew with each seed; the others choose the same weights every time.
RANDOM_KINDS = frozenset({"random", "dare"})
LEARNED = "learned"
# Base, tuned, the live model, gradients, logits of the mask and their optimiser.
COPIES = 7
MaskJob = tuple[str, int, int]
"""How a mask is chosen, its size, its seed."""


@dataclass(frozen=True, eq=False)
class LearnContext:
    """Everything a run needs: what is learned, from what, and where pieces are kept."""

    spec: LearnSpec
    name: str
    pair: ModelPair
    lesson: TaskSplit
    trial: TaskEvaluator
    search: MaskSearch
    where: GraftCoordinates
    kept: Progress
    console: Console

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds to learn with."""
        return self.spec.seeds or (self.spec.seed,)


def run(
    spec: LearnSpec, *, console: Console | None = None, objects: Objects | None = None
) -> Result:
    """A skill file, and how it does beside the base, the tuned model and other masks."""
    console = console or Console(quiet=True)
    if spec.out is not None:
        check_output_free(Path(spec.out))
    work = open_learning(spec, console, objects)
    name = work.name
    done = find_record(spec.runs, "graft", name)
    if done is not None and (again := restore_artefact(done, spec.out, SKILL_FILE)) is not None:
        return Result(again)
    with measure_cost() as meter:
        sizes = mask_sizes(work)
        said = base_and_tuned(work)
        rows = [*base_and_tuned_rows(work, said), *mask_rows(work, sizes, said, objects)]
        skill, extra = best_skill(work, sizes[0], said)
        rows = with_seed_intervals([*rows, *extra, *atlas_rows(work.where, work.pair.lm, skill)])
    with TemporaryDirectory() as folder:
        path = Path(spec.out) if spec.out else Path(folder) / SKILL_FILE
        meta = skill_metadata(
            spec, work.pair, work.lesson, skill, rows, share=sizes[0] / work.pair.total,
            seeds=work.seeds,
        )  # fmt: skip
        told = {**meta, "run": name}
        Skill(skill.patch, skill.shapes, told, copy_head(work.pair.pupil)).save(path)
        files = {} if spec.out else {p.name: p for p in (path, path.with_suffix(".json"))}
        result = save_graft_run(
            "learn", spec, name, meter, rows, model=work.pair.lm, data=work.lesson.texts,
            summary=summarise_learning(work, sizes, rows, str(spec.out or SKILL_FILE)), files=files,
        )  # fmt: skip
        return Result(attach_artefact(result.record, spec.out, SKILL_FILE, path))


def open_learning(
    spec: LearnSpec, console: Console, objects: Objects | None = None
) -> LearnContext:
    """Both models, the task's rows, the text; and the run's address."""
    given: Mapping[str, Any] = objects or {}
    lm = open_for_spec(spec.base, spec, objects)
    lesson = load_task_split(spec, task=spec.task, data=spec.data, objects=objects)  # type: ignore[arg-type]
    pair = open_model_pair(spec, lm, lesson, objects)
    prose = load_heldout_text(spec, lm, given)
    trial = make_evaluator(pair.pupil, lesson, spec, prose)
    identity = {
        "model": lm.identity,
        "base": pair.facts["base"]["checksum"],
        "tuned": pair.facts["tuned"]["checksum"],
        "data": lesson.digest,
        "text": None if prose is None else prose.digest,
    }
    name = address(spec, **identity)
    search = MaskSearch(spec, pair, trial, lesson.train, console)
    where = GraftCoordinates(lm.name, pair.facts["tuned"]["name"], lesson.task.name)
    kept = run_progress(spec.runs, "graft", name)
    return LearnContext(spec, name, pair, lesson, trial, search, where, kept, console)


def mask_sizes(work: LearnContext) -> list[int]:
    """How many weights to keep, one number per sparsity, or the smallest that keeps the gain."""
    spec, total = work.spec, work.pair.total
    sizes = [mask_size(share, total) for share in spec.sparsity]
    work.console.print(
        f"{total:,} weights moved and may be chosen; masks of {', '.join(f'{n:,}' for n in sizes)}."
    )
    if spec.keep_gain is None:
        work.search.rank(sizes)
        return sizes
    key, most = "smallest", max(sizes)
    if key not in work.kept.done():
        work.search.rank([most])
        mask, found = work.search.smallest(most, work.seeds[0])
        _make_skill(work, work.search.patch(mask)).save(work.kept.folder / f"{key}.safetensors")
        tried = [{"size": n, "gain": gain, "reached": found.reached} for n, gain in found.tried]
        work.kept.put(key, [{"size": found.size, "reached": found.reached}, *tried])
    size = int(work.kept.rows([key])[0]["size"])
    if not work.kept.rows([key])[0]["reached"]:
        work.console.print(
            f"No mask up to {most:,} weights keeps that share; {size:,} is measured."
        )
    work.search.rank([size])
    return [size]


def base_and_tuned(work: LearnContext) -> tuple[TaskOutputs, TaskOutputs]:
    """What the base and the tuned model answer."""
    work.console.print(f"Measuring on {len(work.trial.test):,} test rows.")
    base = work.trial.said(language=True)
    with work.pair.as_tuned():
        return base, work.trial.said(language=True)


def base_and_tuned_rows(work: LearnContext, said: tuple[TaskOutputs, TaskOutputs]) -> list[Row]:
    """The rows of base and tuned model."""
    return [
        row
        for kind, one, share in (("base", said[0], 0.0), ("tuned", said[1], 1.0))
        for row in output_rows(work, kind, one, said, sparsity=share, data=work.lesson.texts.name)
    ]


def output_rows(
    work: LearnContext,
    kind: str,
    one: TaskOutputs,
    said: tuple[TaskOutputs, TaskOutputs],
    **place: Any,
) -> list[Row]:
    """Scores and reliability of one model on the test rows."""
    rows = work.where.scores(kind, work.trial.scores(one, *said), **place)
    found = work.trial.reliability(one)
    return rows + ([] if found is None else work.where.bins(kind, found, **place))


def mask_coordinates(work: LearnContext, size: int, seed: int) -> dict[str, Any]:
    """The coordinates of one mask."""
    share = size / work.pair.total
    return {"sparsity": share, "seed": seed, "data": work.lesson.texts.name}


def mask_jobs(work: LearnContext, sizes: list[int]) -> list[MaskJob]:
    """A mask learned per size and seed, and masks of the same sizes chosen in other ways."""
    learned = [(LEARNED, size, seed) for size in sizes for seed in work.seeds]
    return learned + [
        (kind, size, seed)
        for size in sizes
        for kind in work.spec.baselines
        for seed in (work.seeds if kind in RANDOM_KINDS else work.seeds[:1])
    ]


def mask_rows(
    work: LearnContext,
    sizes: list[int],
    said: tuple[TaskOutputs, TaskOutputs],
    objects: Objects | None = None,
) -> list[Row]:
    """The rows of every mask, made here or by the engine's workers; what is done stays done."""
    jobs, done = mask_jobs(work, sizes), work.kept.done()
    todo = [
        job
        for job in jobs
        if job_key(job) not in done
        or (job[0] == LEARNED and not _skill_path(work, job_key(job)).exists())
    ]
    elsewhere = bool(todo) and runs_on_workers(work.spec.engine, objects, work.console)
    found = (
        _measure_on_workers(work, todo, said, objects)
        if elsewhere
        else _measure_locally(work, todo, said)
    )
    for job, rows in found:
        work.kept.put(job_key(job), rows)
    return work.kept.rows([job_key(job) for job in jobs])


def job_key(job: MaskJob) -> str:
    """One word for a mask: how it is chosen, its size, its seed."""
    return "-".join(map(str, job))


def _measure_locally(
    work: LearnContext, todo: list[MaskJob], said: tuple[TaskOutputs, TaskOutputs]
) -> Iterator[tuple[MaskJob, list[Row]]]:
    others = [job for job in todo if job[0] != LEARNED]
    for job in todo[: len(todo) - len(others)]:
        yield job, measure_mask(work, job, said)
    with work.console.progress("other masks", len(others)) as advance:
        for job in others:
            yield job, measure_mask(work, job, said)
            advance(note=job[0])


def _measure_on_workers(
    work: LearnContext,
    todo: list[MaskJob],
    said: tuple[TaskOutputs, TaskOutputs],
    objects: Objects | None,
) -> Iterator[tuple[MaskJob, list[Row]]]:
    spec, search = work.spec, work.search
    ranked = {
        which: {name: places.numpy() for name, places in mask.places.items()}
        for which, mask in search.ranked.items()
    }
    hand = MaskWorker(
        local_spec(spec), sendable(objects), work.name, said, ranked, dict(search.units)
    )
    needs = training_resources(spec.engine, spec, work.pair.lm, copies=COPIES)
    with work.console.progress("masks", len(todo)) as advance:
        for job, rows in run_on_workers(
            spec.engine, hand, todo, key=job_key, needs=needs, kept=work.kept.folder,
            console=work.console,
        ):  # fmt: skip
            yield job, rows
            advance(note=job[0])


@dataclass(frozen=True, eq=False)
class MaskWorker:
    """What a worker needs to make a mask: the request, and what was measured and ranked once."""

    spec: LearnSpec
    objects: Objects
    name: str
    said: tuple[TaskOutputs, TaskOutputs]
    ranked: Mapping[tuple[str, int], Mapping[str, Any]]
    units: Mapping[int, float]

    @cached_property
    def work(self) -> LearnContext:
        """Both models and the rows, opened once per worker."""
        work = open_learning(self.spec, Console(quiet=True), self.objects)
        check_same_run(work.name, self.name)
        work.search.units.update(self.units)
        for which, places in self.ranked.items():
            work.search.ranked[which] = Mask({n: torch.from_numpy(p) for n, p in places.items()})
        return work

    def __call__(self, job: MaskJob) -> list[Row]:
        """The mask's rows; a learned one's skill is in the run's folder."""
        return measure_mask(self.work, job, self.said)


def measure_mask(
    work: LearnContext, job: MaskJob, said: tuple[TaskOutputs, TaskOutputs]
) -> list[Row]:
    """One mask, measured."""
    kind, size, seed = job
    if kind == LEARNED:
        return _learned_rows(work, job_key(job), size, seed, said)
    return _baseline_rows(work, kind, size, seed, said)


def _learned_rows(
    work: LearnContext, key: str, size: int, seed: int, said: tuple[TaskOutputs, TaskOutputs]
) -> list[Row]:
    begin = work.kept.folder / "smallest.safetensors"
    start = load_skill(begin).patch.mask if work.spec.keep_gain is not None else None
    learned = work.search.learned(size, seed, start)
    patch = work.search.patch(learned.mask)
    _make_skill(work, patch).save(_skill_path(work, key))
    place = mask_coordinates(work, size, seed)
    with patched_weights(work.pair.live, patch):
        one = work.trial.said(language=True)
    rows = output_rows(work, "learned", one, said, **place)
    rows += work.where.scores(
        "learned", {"size": float(patch.size), "judge": learned.score}, **place
    )
    for point in learned.curve:
        at = place | {"step": int(point["step"])}
        named = {
            "mask_loss": point["loss"],
            "mask_score": point["score"],
            "mask_ones": point["ones"],
        }
        rows += work.where.scores("learned", {n: float(v) for n, v in named.items()}, **at)
    return rows


def _baseline_rows(
    work: LearnContext, kind: str, size: int, seed: int, said: tuple[TaskOutputs, TaskOutputs]
) -> list[Row]:
    try:
        patch = work.search.baseline(kind, size, seed)
    except Missing as error:
        work.console.print(f"{kind}: {error}")
        return []
    place = mask_coordinates(work, size, seed)
    with patched_weights(work.pair.live, patch):
        rows = output_rows(work, kind, work.trial.said(), said, **place)
    return rows + work.where.scores(kind, {"size": float(patch.size)}, **place)


def best_skill(
    work: LearnContext, size: int, said: tuple[TaskOutputs, TaskOutputs]
) -> tuple[Skill, list[Row]]:
    """The skill of the seed that was judged best on train and dev, and what removing it costs."""
    scored = {
        seed: next(
            row["value"]
            for row in work.kept.rows([f"learned-{size}-{seed}"])
            if row["metric"] == "judge"
        )
        for seed in work.seeds
    }
    seed = max(scored, key=lambda one: (scored[one], -one))
    skill = load_skill(_skill_path(work, f"learned-{size}-{seed}"))
    with work.pair.as_tuned():
        write_values(work.pair.live, skill.patch.mask, skill.patch.before)
        gone = work.trial.said(language=True)
    return skill, output_rows(work, "removed", gone, said, **mask_coordinates(work, size, seed))


def _make_skill(work: LearnContext, patch: Patch) -> Skill:
    shapes = {name: tuple(work.pair.base[name].shape) for name in patch.mask.places}
    return Skill(patch, shapes, dict(work.pair.facts))


def _skill_path(work: LearnContext, key: str) -> Path:
    return work.kept.folder / f"{key}.safetensors"


def estimate(spec: LearnSpec, *, console: Console | None = None) -> list[MaskLearningCost]:
    """What the run will cost, before it starts."""
    work = open_learning(spec, console or Console(quiet=True))
    return [estimate_mask_learning(work, RANDOM_KINDS)]
