"""nextword: does predicting the next word already solve the task, and through which words?"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from cutaway.core.errors import Missing
from cutaway.core.spec import address, build
from cutaway.models.lm import LM
from cutaway.report.nextword_details import FILE
from cutaway.run.apart import apart
from cutaway.run.estimate import Estimate
from cutaway.run.estimate import estimate as estimate_pass
from cutaway.run.nextword_rows import frame
from cutaway.run.nextword_save import save_p, size_of_p, tell_size
from cutaway.run.nextword_sheet import prompts_of, reading
from cutaway.run.nextword_summary import summarise
from cutaway.run.nextword_task import Question, questions
from cutaway.run.nextword_work import Work, rows_and_details
from cutaway.run.objects import Objects, name_objects
from cutaway.run.opened import opened
from cutaway.run.probe import about, one_or_many
from cutaway.run.record import measured, provenance
from cutaway.run.result import Result
from cutaway.run.screen import Screen
from cutaway.run.shortcut.maps import model_facts
from cutaway.run.specs.nextword import NextwordSpec
from cutaway.store import results as store
from cutaway.store.progress import Progress


def nextword(*, quiet: bool = False, **options: Any) -> Result:
    """What next-word features give on a task, from Python: keyword arguments are the flags.

    Models, task files and text sets may be given as objects.
    """
    named, objects = name_objects(options, ("model", "task", "data"))
    return run(build(NextwordSpec, named), screen=Screen(quiet=quiet), objects=objects)


def run(
    spec: NextwordSpec, *, screen: Screen | None = None, objects: Objects | None = None
) -> Result:
    """Measure every feature that is not yet measured, and save the whole."""
    screen, objects = screen or Screen(quiet=True), objects or {}
    with measured() as meter:
        asked = questions(spec, objects)
        seen = [(_facts(spec, lm, asked, screen), lm.identity) for lm in _models(spec, objects)]
        models, who = [facts for facts, _ in seen], [identity for _, identity in seen]
        name = address(spec, models=who, data=[q.identity for q in asked])
        if (done := store.find(spec.runs, "nextword", name)) is not None:
            screen.say(f"This run is done already: {done.path}")
            return Result(done)
        progress = store.progress(spec.runs, "nextword", name)
        try:
            keys, words, files = _carry_out(spec, asked, progress, screen, objects)
            rows, details = rows_and_details(progress.rows(keys))
        except Missing:
            if (done := store.made_by_another(spec.runs, "nextword", name)) is None:
                raise
            return Result(done)
        table = frame(rows)
        summary, baselines = summarise(table, asked, words, details)
    record = store.save(
        spec.runs, method="nextword", address=name, spec=spec, summary=summary,
        baselines=baselines, model=one_or_many(models),
        data=one_or_many([{**about(q.texts), "name": q.name} for q in asked]),
        **provenance("nextword", spec, meter), rows=table,
        files={FILE: json.dumps(details).encode(), **files},
    )  # fmt: skip
    return Result(record)


def _facts(spec: NextwordSpec, lm: LM, asked: list[Question], screen: Screen) -> dict[str, Any]:
    """What identifies a model, once everything asked of it is known to be possible."""
    for question in asked:
        Work(spec, lm, question, Progress(Path()), screen).need_possible()
        if spec.save_p:
            prompts = len(prompts_of(spec, lm, question))
            tell_size(lm, len(question.texts), prompts, spec.runs, screen)
    return model_facts(lm)


def estimate(spec: NextwordSpec, *, screen: Screen | None = None) -> list[Estimate]:
    """What the passes over the texts will cost, one estimate per model, task and prompt."""
    asked = questions(spec, {})
    return [
        _with_p(spec, lm, estimate_pass(lm, read.texts, read.ask))
        for lm in _models(spec, {})
        for question in asked
        for prompt in prompts_of(spec, lm, question)
        for read in [reading(spec, lm, question, prompt, question.texts)]
    ]


def _with_p(spec: NextwordSpec, lm: LM, found: Estimate) -> Estimate:
    """The estimate with what --save-p puts on the disk."""
    more = size_of_p(lm, found.rows) / 2**20 if spec.save_p else 0.0
    return replace(found, disk_mb=round(found.disk_mb + more, 1))


def _carry_out(
    spec: NextwordSpec, asked: list[Question], progress: Progress, screen: Screen, objects: Objects
) -> tuple[list[str], dict[str, Any], dict[str, Path]]:
    """Every model on every task: the keys of all pieces, the words' tokens, files to keep."""
    keys: list[str] = []
    words: dict[str, Any] = {}
    files: dict[str, Path] = {}
    for lm in _models(spec, objects):
        for question in asked:
            work = Work(spec, lm, question, progress, screen)
            keys += work.carry_out()
            words[f"{lm.name} on {question.name}"] = _words(work)
            files |= _saved(work, progress) if spec.save_p else {}
    return keys, words, files


def _models(spec: NextwordSpec, objects: Objects) -> Iterator[LM]:
    """The models one at a time: only one is held in memory."""
    found = (opened(name, spec, objects, revision=spec.revision) for name in spec.model)
    yield from apart(found, lambda lm: lm.short, option="--model")


def _words(work: Work) -> dict[str, Any]:
    """Every word list with its tokens, and the words that have none."""
    return {
        name: {
            "tokens": {word: list(ids) for word, ids in found.tokens.items()},
            "missing": list(found.missing),
        }
        for name, found in work.found.items()
        if name in work.kinds
    }


def _saved(work: Work, progress: Progress) -> dict[str, Path]:
    files: dict[str, Path] = {}
    folder = Path(progress.folder) / "p"
    for number, prompt in enumerate(prompts_of(work.spec, work.lm, work.question)):
        name = f"{work.lm.short[:8]}-{work.question.texts.digest[:8]}-{number}"
        files |= save_p(work.sheet(prompt), folder, name, work.screen)
    return files
