"""`cutaway graft learn`: the few weights that hold a skill, and others of the same number."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from cutaway.core.errors import Missing
from cutaway.core.spec import address
from cutaway.methods.graft.patch import Patch, attached, write
from cutaway.methods.graft.select import Mask, count
from cutaway.run.door import needs_to_train
from cutaway.run.graft.atlas import atlas_rows
from cutaway.run.graft.cost import Cost, cost_of
from cutaway.run.graft.finish import finish, skill_meta, summarise
from cutaway.run.graft.heads import head_of
from cutaway.run.graft.pair import Pair, open_pair
from cutaway.run.graft.rows import Where, over_seeds
from cutaway.run.graft.search import Search
from cutaway.run.graft.skill import Skill, load_skill
from cutaway.run.graft.trial import Said, Trial, read_prose, trial_of
from cutaway.run.hands import at_home, away, finished, need_same, travelling
from cutaway.run.lesson import Lesson, read_lesson
from cutaway.run.objects import Objects
from cutaway.run.opened import opened
from cutaway.run.owned import artefact_there, with_artefact
from cutaway.run.record import measured
from cutaway.run.result import Result
from cutaway.run.screen import Screen
from cutaway.run.specs.graft import LearnSpec
from cutaway.run.table import Row
from cutaway.store.artefacts import need_free
from cutaway.store.progress import Progress
from cutaway.store.results import find, progress

FILE = "skill.safetensors"
# Drawn anew with each seed; the others choose the same weights every time.
DRAWN = frozenset({"random", "dare"})
LEARNED = "learned"
# Base, tuned, the live model, gradients, logits of the mask and their optimiser.
COPIES = 7
Job = tuple[str, int, int]
"""How a mask is chosen, its size, its seed."""


@dataclass(frozen=True, eq=False)
class Work:
    """Everything a run needs: what is learned, from what, and where pieces are kept."""

    spec: LearnSpec
    name: str
    pair: Pair
    lesson: Lesson
    trial: Trial
    search: Search
    where: Where
    kept: Progress
    screen: Screen

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds to learn with."""
        return self.spec.seeds or (self.spec.seed,)


def run(spec: LearnSpec, *, screen: Screen | None = None, objects: Objects | None = None) -> Result:
    """A skill file, and how it does beside the base, the tuned model and other masks."""
    screen = screen or Screen(quiet=True)
    if spec.out is not None:
        need_free(Path(spec.out))
    work = prepare(spec, screen, objects)
    name = work.name
    done = find(spec.runs, "graft", name)
    if done is not None and (again := artefact_there(done, spec.out, FILE)) is not None:
        return Result(again)
    with measured() as meter:
        sizes = sizes_of(work)
        said = ends(work)
        rows = [*end_rows(work, said), *mask_rows(work, sizes, said, objects)]
        skill, extra = best_skill(work, sizes[0], said)
        rows = over_seeds([*rows, *extra, *atlas_rows(work.where, work.pair.lm, skill)])
    with TemporaryDirectory() as folder:
        path = Path(spec.out) if spec.out else Path(folder) / FILE
        meta = skill_meta(
            spec, work.pair, work.lesson, skill, rows, share=sizes[0] / work.pair.total,
            seeds=work.seeds,
        )  # fmt: skip
        told = {**meta, "run": name}
        Skill(skill.patch, skill.shapes, told, head_of(work.pair.pupil)).save(path)
        files = {} if spec.out else {p.name: p for p in (path, path.with_suffix(".json"))}
        result = finish(
            "learn", spec, name, meter, rows, model=work.pair.lm, data=work.lesson.texts,
            summary=summarise(work, sizes, rows, str(spec.out or FILE)), files=files,
        )  # fmt: skip
        return Result(with_artefact(result.record, spec.out, FILE, path))


def prepare(spec: LearnSpec, screen: Screen, objects: Objects | None = None) -> Work:
    """Both models, the task's rows, the text; and the run's address."""
    given: Mapping[str, Any] = objects or {}
    lm = opened(spec.base, spec, objects)
    lesson = read_lesson(spec, task=spec.task, data=spec.data, objects=objects)  # type: ignore[arg-type]
    pair = open_pair(spec, lm, lesson, objects)
    prose = read_prose(spec, lm, given)
    trial = trial_of(pair.pupil, lesson, spec, prose)
    identity = {
        "model": lm.identity,
        "base": pair.facts["base"]["checksum"],
        "tuned": pair.facts["tuned"]["checksum"],
        "data": lesson.digest,
        "text": None if prose is None else prose.digest,
    }
    name = address(spec, **identity)
    search = Search(spec, pair, trial, lesson.train, screen)
    where = Where(lm.name, pair.facts["tuned"]["name"], lesson.task.name)
    kept = progress(spec.runs, "graft", name)
    return Work(spec, name, pair, lesson, trial, search, where, kept, screen)


def sizes_of(work: Work) -> list[int]:
    """How many weights to keep, one number per sparsity, or the smallest that keeps the gain."""
    spec, total = work.spec, work.pair.total
    sizes = [count(share, total) for share in spec.sparsity]
    work.screen.say(
        f"{total:,} weights moved and may be chosen; masks of {', '.join(f'{n:,}' for n in sizes)}."
    )
    if spec.keep_gain is None:
        work.search.rank(sizes)
        return sizes
    key, most = "smallest", max(sizes)
    if key not in work.kept.done():
        work.search.rank([most])
        mask, found = work.search.smallest(most, work.seeds[0])
        _skill(work, work.search.patch(mask)).save(work.kept.folder / f"{key}.safetensors")
        tried = [{"size": n, "gain": gain, "reached": found.reached} for n, gain in found.tried]
        work.kept.put(key, [{"size": found.size, "reached": found.reached}, *tried])
    size = int(work.kept.rows([key])[0]["size"])
    if not work.kept.rows([key])[0]["reached"]:
        work.screen.say(f"No mask up to {most:,} weights keeps that share; {size:,} is measured.")
    work.search.rank([size])
    return [size]


def ends(work: Work) -> tuple[Said, Said]:
    """What the base and the tuned model answer."""
    work.screen.say(f"Measuring on {len(work.trial.test):,} test rows.")
    base = work.trial.said(language=True)
    with work.pair.as_tuned():
        return base, work.trial.said(language=True)


def end_rows(work: Work, said: tuple[Said, Said]) -> list[Row]:
    """The rows of base and tuned model."""
    return [
        row
        for kind, one, share in (("base", said[0], 0.0), ("tuned", said[1], 1.0))
        for row in said_rows(work, kind, one, said, sparsity=share, data=work.lesson.texts.name)
    ]


def said_rows(work: Work, kind: str, one: Said, said: tuple[Said, Said], **place: Any) -> list[Row]:
    """Scores and reliability of one model on the test rows."""
    rows = work.where.scores(kind, work.trial.scores(one, *said), **place)
    found = work.trial.reliability(one)
    return rows + ([] if found is None else work.where.bins(kind, found, **place))


def place_of(work: Work, size: int, seed: int) -> dict[str, Any]:
    """The coordinates of one mask."""
    share = size / work.pair.total
    return {"sparsity": share, "seed": seed, "data": work.lesson.texts.name}


def jobs_of(work: Work, sizes: list[int]) -> list[Job]:
    """A mask learned per size and seed, and masks of the same sizes chosen in other ways."""
    learned = [(LEARNED, size, seed) for size in sizes for seed in work.seeds]
    return learned + [
        (kind, size, seed)
        for size in sizes
        for kind in work.spec.baselines
        for seed in (work.seeds if kind in DRAWN else work.seeds[:1])
    ]


def mask_rows(
    work: Work, sizes: list[int], said: tuple[Said, Said], objects: Objects | None = None
) -> list[Row]:
    """The rows of every mask, made here or by the engine's workers; what is done stays done."""
    jobs, done = jobs_of(work, sizes), work.kept.done()
    todo = [
        job
        for job in jobs
        if key_of(job) not in done or (job[0] == LEARNED and not _piece(work, key_of(job)).exists())
    ]
    elsewhere = bool(todo) and away(work.spec.engine, objects, work.screen)
    found = _there(work, todo, said, objects) if elsewhere else _here(work, todo, said)
    for job, rows in found:
        work.kept.put(key_of(job), rows)
    return work.kept.rows([key_of(job) for job in jobs])


def key_of(job: Job) -> str:
    """One word for a mask: how it is chosen, its size, its seed."""
    return "-".join(map(str, job))


def _here(work: Work, todo: list[Job], said: tuple[Said, Said]) -> Iterator[tuple[Job, list[Row]]]:
    others = [job for job in todo if job[0] != LEARNED]
    for job in todo[: len(todo) - len(others)]:
        yield job, carry_out(work, job, said)
    with work.screen.progress("other masks", len(others)) as advance:
        for job in others:
            yield job, carry_out(work, job, said)
            advance(note=job[0])


def _there(
    work: Work, todo: list[Job], said: tuple[Said, Said], objects: Objects | None
) -> Iterator[tuple[Job, list[Row]]]:
    spec, search = work.spec, work.search
    ranked = {
        which: {name: places.numpy() for name, places in mask.places.items()}
        for which, mask in search.ranked.items()
    }
    hand = Hand(at_home(spec), travelling(objects), work.name, said, ranked, dict(search.units))
    needs = needs_to_train(spec.engine, spec, work.pair.lm, copies=COPIES)
    with work.screen.progress("masks", len(todo)) as advance:
        for job, rows in finished(
            spec.engine, hand, todo, key=key_of, needs=needs, kept=work.kept.folder,
            screen=work.screen,
        ):  # fmt: skip
            yield job, rows
            advance(note=job[0])


@dataclass(frozen=True, eq=False)
class Hand:
    """What a worker needs to make a mask: the request, and what was measured and ranked once."""

    spec: LearnSpec
    objects: Objects
    name: str
    said: tuple[Said, Said]
    ranked: Mapping[tuple[str, int], Mapping[str, Any]]
    units: Mapping[int, float]

    @cached_property
    def work(self) -> Work:
        """Both models and the rows, opened once per worker."""
        work = prepare(self.spec, Screen(quiet=True), self.objects)
        need_same(work.name, self.name)
        work.search.units.update(self.units)
        for which, places in self.ranked.items():
            work.search.ranked[which] = Mask({n: torch.from_numpy(p) for n, p in places.items()})
        return work

    def __call__(self, job: Job) -> list[Row]:
        """The mask's rows; a learned one's skill is in the run's folder."""
        return carry_out(self.work, job, self.said)


def carry_out(work: Work, job: Job, said: tuple[Said, Said]) -> list[Row]:
    """One mask, measured."""
    kind, size, seed = job
    if kind == LEARNED:
        return _learn(work, key_of(job), size, seed, said)
    return _baseline(work, kind, size, seed, said)


def _learn(work: Work, key: str, size: int, seed: int, said: tuple[Said, Said]) -> list[Row]:
    begin = work.kept.folder / "smallest.safetensors"
    start = load_skill(begin).patch.mask if work.spec.keep_gain is not None else None
    learned = work.search.learned(size, seed, start)
    patch = work.search.patch(learned.mask)
    _skill(work, patch).save(_piece(work, key))
    place = place_of(work, size, seed)
    with attached(work.pair.live, patch):
        one = work.trial.said(language=True)
    rows = said_rows(work, "learned", one, said, **place)
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


def _baseline(work: Work, kind: str, size: int, seed: int, said: tuple[Said, Said]) -> list[Row]:
    try:
        patch = work.search.baseline(kind, size, seed)
    except Missing as error:
        work.screen.say(f"{kind}: {error}")
        return []
    place = place_of(work, size, seed)
    with attached(work.pair.live, patch):
        rows = said_rows(work, kind, work.trial.said(), said, **place)
    return rows + work.where.scores(kind, {"size": float(patch.size)}, **place)


def best_skill(work: Work, size: int, said: tuple[Said, Said]) -> tuple[Skill, list[Row]]:
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
    skill = load_skill(_piece(work, f"learned-{size}-{seed}"))
    with work.pair.as_tuned():
        write(work.pair.live, skill.patch.mask, skill.patch.before)
        gone = work.trial.said(language=True)
    return skill, said_rows(work, "removed", gone, said, **place_of(work, size, seed))


def _skill(work: Work, patch: Patch) -> Skill:
    shapes = {name: tuple(work.pair.base[name].shape) for name in patch.mask.places}
    return Skill(patch, shapes, dict(work.pair.facts))


def _piece(work: Work, key: str) -> Path:
    return work.kept.folder / f"{key}.safetensors"


def estimate(spec: LearnSpec, *, screen: Screen | None = None) -> list[Cost]:
    """What the run will cost, before it starts."""
    work = prepare(spec, screen or Screen(quiet=True))
    return [cost_of(work, DRAWN)]
