"""nextword: does predicting the next word already solve the task, and through which words?"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from cutaway.console import Console
from cutaway.core.errors import Missing
from cutaway.core.spec import address, build_spec
from cutaway.extract.estimate import PassEstimate
from cutaway.extract.estimate import estimate_pass as estimate_pass
from cutaway.methods.nextword.details import DETAILS_FILE
from cutaway.methods.nextword.features import prompt_texts, prompts_for
from cutaway.methods.nextword.grid import NextwordGrid, rows_and_details
from cutaway.methods.nextword.rows import nextword_frame
from cutaway.methods.nextword.save_p import p_size_bytes, report_p_size, save_p
from cutaway.methods.nextword.spec import NextwordSpec
from cutaway.methods.nextword.summary import summarise
from cutaway.methods.nextword.task import NextwordTask, nextword_tasks
from cutaway.models.lm import LM, model_facts
from cutaway.recipe.objects import Objects, name_objects
from cutaway.recipe.open_for_spec import open_for_spec
from cutaway.recipe.provenance import data_facts, measure_cost, one_or_many, provenance
from cutaway.recipe.result import Result
from cutaway.recipe.unique_names import with_unique_names
from cutaway.store import results as store
from cutaway.store.progress import Progress


def nextword(*, quiet: bool = False, **options: Any) -> Result:
    """What next-word features give on a task, from Python: keyword arguments are the flags.

    Models, task files and text sets may be given as objects.
    """
    named, objects = name_objects(options, ("model", "task", "data"))
    return run(build_spec(NextwordSpec, named), console=Console(quiet=quiet), objects=objects)


def run(
    spec: NextwordSpec, *, console: Console | None = None, objects: Objects | None = None
) -> Result:
    """Measure every feature that is not yet measured, and save the whole."""
    console, objects = console or Console(quiet=True), objects or {}
    with measure_cost() as meter:
        asked = nextword_tasks(spec, objects)
        seen = [
            (_check_and_describe(spec, lm, asked, console), lm.identity)
            for lm in _models(spec, objects)
        ]
        models, who = [facts for facts, _ in seen], [identity for _, identity in seen]
        name = address(spec, models=who, data=[q.identity for q in asked])
        if (done := store.find_record(spec.runs, "nextword", name)) is not None:
            console.print(f"This run is done already: {done.path}")
            return Result(done)
        progress = store.run_progress(spec.runs, "nextword", name)
        try:
            keys, words, files = _measure_all(spec, asked, progress, console, objects)
            rows, details = rows_and_details(progress.rows(keys))
        except Missing:
            if (done := store.find_finished_elsewhere(spec.runs, "nextword", name)) is None:
                raise
            return Result(done)
        table = nextword_frame(rows)
        summary, baselines = summarise(table, asked, words, details)
    record = store.save_record(
        spec.runs, method="nextword", address=name, spec=spec, summary=summary,
        baselines=baselines, model=one_or_many(models),
        data=one_or_many([{**data_facts(q.texts), "name": q.name} for q in asked]),
        **provenance("nextword", spec, meter), rows=table,
        files={DETAILS_FILE: json.dumps(details).encode(), **files},
    )  # fmt: skip
    return Result(record)


def _check_and_describe(
    spec: NextwordSpec, lm: LM, asked: list[NextwordTask], console: Console
) -> dict[str, Any]:
    """What identifies a model, once everything asked of it is known to be possible."""
    for question in asked:
        NextwordGrid(spec, lm, question, Progress(Path()), console).need_possible()
        if spec.save_p:
            prompts = len(prompts_for(spec, lm, question))
            report_p_size(lm, len(question.texts), prompts, spec.runs, console)
    return model_facts(lm)


def estimate(spec: NextwordSpec, *, console: Console | None = None) -> list[PassEstimate]:
    """What the passes over the texts will cost, one estimate per model, task and prompt."""
    asked = nextword_tasks(spec, {})
    return [
        _add_p_size(spec, lm, estimate_pass(lm, read.texts, read.ask))
        for lm in _models(spec, {})
        for question in asked
        for prompt in prompts_for(spec, lm, question)
        for read in [prompt_texts(spec, lm, question, prompt, question.texts)]
    ]


def _add_p_size(spec: NextwordSpec, lm: LM, found: PassEstimate) -> PassEstimate:
    """The estimate with what --save-p puts on the disk."""
    more = p_size_bytes(lm, found.rows) / 2**20 if spec.save_p else 0.0
    return replace(found, disk_mb=round(found.disk_mb + more, 1))


def _measure_all(
    spec: NextwordSpec,
    asked: list[NextwordTask],
    progress: Progress,
    console: Console,
    objects: Objects,
) -> tuple[list[str], dict[str, Any], dict[str, Path]]:
    """Every model on every task: the keys of all pieces, the words' tokens, files to keep."""
    keys: list[str] = []
    words: dict[str, Any] = {}
    files: dict[str, Path] = {}
    for lm in _models(spec, objects):
        for question in asked:
            work = NextwordGrid(spec, lm, question, progress, console)
            keys += work.carry_out()
            words[f"{lm.name} on {question.name}"] = _word_lists(work)
            files |= _save_distributions(work, progress) if spec.save_p else {}
    return keys, words, files


def _models(spec: NextwordSpec, objects: Objects) -> Iterator[LM]:
    """The models one at a time: only one is held in memory."""
    found = (open_for_spec(name, spec, objects, revision=spec.revision) for name in spec.model)
    yield from with_unique_names(found, lambda lm: lm.short_id, option="--model")


def _word_lists(work: NextwordGrid) -> dict[str, Any]:
    """Every word list with its tokens, and the words that have none."""
    return {
        name: {
            "tokens": {word: list(ids) for word, ids in found.tokens.items()},
            "missing": list(found.missing),
        }
        for name, found in work.found.items()
        if name in work.kinds
    }


def _save_distributions(work: NextwordGrid, progress: Progress) -> dict[str, Path]:
    files: dict[str, Path] = {}
    folder = Path(progress.folder) / "p"
    for number, prompt in enumerate(prompts_for(work.spec, work.lm, work.question)):
        name = f"{work.lm.short_id[:8]}-{work.question.texts.digest[:8]}-{number}"
        files |= save_p(work.sheet(prompt), folder, name, work.console)
    return files
