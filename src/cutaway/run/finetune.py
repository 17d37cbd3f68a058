"""`cutaway finetune`: teach a model a task, keep the checkpoint that did best on dev."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from cutaway.core.errors import BadSpec
from cutaway.core.spec import address, build
from cutaway.models.lm import LM
from cutaway.run.finetune_cost import Cost, cost_of
from cutaway.run.finetune_keep import Work, found_again, kept_checkpoint, need_free, out_of
from cutaway.run.finetune_rows import curve_rows, frame, majority, scores_of, verdict
from cutaway.run.lesson import Lesson, read_lesson
from cutaway.run.objects import Objects, name_objects
from cutaway.run.opened import model_of
from cutaway.run.pupil import Pupil, enrol, mode_for
from cutaway.run.record import Meter, measured, provenance
from cutaway.run.result import Result
from cutaway.run.screen import Screen
from cutaway.run.shortcut.maps import model_facts
from cutaway.run.specs.finetune import FinetuneSpec
from cutaway.run.teaching import given_back, teach, trained_params
from cutaway.run.team import by_first, team
from cutaway.run.whole import tell_whole
from cutaway.store.results import find, progress, save


def finetune(*, quiet: bool = False, **options: Any) -> Result:
    """Teach a model a task; `model` and `data` may be given as objects, and stay as they are."""
    fields = ("model", "data")
    named, objects = name_objects(options, fields, single=fields)
    spec, screen = build(FinetuneSpec, named), Screen(quiet=quiet)
    tell_whole("finetune", spec.engine, screen)
    return run(spec, screen=screen, objects=objects)


def run(
    spec: FinetuneSpec, *, screen: Screen | None = None, objects: Objects | None = None
) -> Result:
    """The taught model's checkpoint, and what it can do beside what the base could."""
    screen = screen or Screen(quiet=True)
    team(spec.device)
    lm = model_of(spec, objects)
    pupil, lesson = prepare(lm, spec, objects)
    name = address(spec, model=lm.identity, data=lesson.digest, mode=pupil.mode)
    done = find(spec.runs, "finetune", name)
    if done is not None and (again := found_again(spec, name, done)) is not None:
        return Result(again)
    need_free(spec, name)
    params = trained_params(pupil, spec)
    with given_back(params, when=bool(objects and spec.model in objects)):
        with measured() as meter:
            work = carry_out(spec, name, pupil, lesson, params, screen)
        return by_first(lambda: kept(work, meter), spec.runs, "finetune", name)


def carry_out(
    spec: FinetuneSpec,
    name: str,
    pupil: Pupil,
    lesson: Lesson,
    params: Mapping[str, nn.Parameter],
    screen: Screen,
) -> Work:
    """Measured on the test rows before, taught, measured after."""
    test = pupil.asked.take(lesson.test)
    base = scores_of(test, pupil.answers(lesson.test))
    folder = progress(spec.runs, "finetune", name).folder / "training"
    trained = teach(pupil, lesson, params, spec, folder, screen, identity=name)
    tuned = scores_of(test, pupil.answers(lesson.test))
    scores = {"tuned": tuned, "base": base, "majority": majority(test)}
    return Work(spec, name, pupil.lm, pupil, lesson, params, trained, scores)


def prepare(lm: LM, spec: FinetuneSpec, objects: Objects | None = None) -> tuple[Pupil, Lesson]:
    """The model with the task's questions, and how the rows are dealt."""
    mode = mode_for(lm, spec.mode)
    if spec.at != "auto" and mode != "head":
        raise BadSpec(f"at is for --mode head, got {spec.at!r} with mode {mode!r}.")
    columns = {name: getattr(spec, name) for name in ("text_column", "pair_column", "label_column")}
    lesson = read_lesson(spec, task=spec.task, data=spec.data, columns=columns, objects=objects)
    pupil = enrol(
        lm,
        lesson,
        mode,
        template=spec.template,
        words=spec.words,
        at=spec.at,
        max_tokens=spec.max_tokens,
        seed=spec.seed,
    )
    return pupil, lesson


def kept(work: Work, meter: Meter) -> Result:
    """The checkpoint and the run are on the disk."""
    with kept_checkpoint(work) as held:
        return finish(work, meter, held)


def finish(work: Work, meter: Meter, held: Mapping[str, Path | bytes]) -> Result:
    """The run, saved whole."""
    spec, texts, where = work.spec, work.lesson.texts, work.where
    metric = work.lesson.task.metric
    steps = {"base": 0, "majority": 0, "tuned": work.trained.best_step}
    rows = [
        row
        for kind, scores in work.scores.items()
        for row in where.rows(kind, steps[kind], "test", scores)
    ] + curve_rows(where, work.trained.curve)
    record = save(
        spec.runs,
        method="finetune",
        address=work.name,
        spec=spec,
        summary=summarise(work),
        baselines={
            f"{where.base} on {texts.name}": {
                kind: work.scores[kind][metric].mean for kind in ("base", "majority")
            }
        },
        model=model_facts(work.lm),
        data={"name": texts.name, "rows": len(texts), "digest": texts.digest},
        **provenance("finetune", spec, meter),
        rows=frame(rows),
        files=held,
    )
    return Result(record)


def summarise(work: Work) -> dict[str, Any]:
    """The findings."""
    metric, asked, trained = work.lesson.task.metric, work.pupil.asked, work.trained
    best = work.scores["tuned"][metric]
    shown = {"value": best.mean, "low": best.low, "high": best.high}
    return {
        "mode": work.pupil.mode,
        "task": work.lesson.task.name,
        "template": asked.form.template,
        "words": list(asked.form.words),
        "metric": metric,
        "best": {"model": work.lm.name, "data": work.lesson.texts.name, "metric": metric, **shown},
        "test": {k: {n: s.mean for n, s in found.items()} for k, found in work.scores.items()},
        "rows": {part: len(getattr(work.lesson, part)) for part in ("train", "dev", "test")},
        "best_step": trained.best_step,
        "best_dev": trained.best,
        "stopped": trained.stopped,
        "steps_per_second": round(trained.curve[-1]["step"] / max(trained.seconds, 1e-9), 2),
        "trained_weights": sum(p.numel() for p in work.params.values()),
        "cut_texts": asked.cut,
        "checkpoint": str(out_of(work.spec, work.name)),
        "notes": list(work.lesson.texts.notes),
        "verdict": verdict(work.where, metric, work.scores, trained, len(work.lesson.train)),
    }


def estimate(spec: FinetuneSpec, *, screen: Screen | None = None) -> list[Cost]:
    """The cost, from a few steps that change nothing."""
    return [cost_of(*prepare(model_of(spec), spec), spec)]
