"""The life cycle of every verb: resolve, then estimate, or find, measure and save.

    resolve   the spec's names become models, texts and files; what is wrong is refused here
    estimate  what the run would cost (`--dry-run` ends here)
    address   the digest of the spec and of everything it names; a finished run is found by it
    measure   the recipe's own work, in pieces that survive a kill
    save      rows, summary, baselines and files, written atomically

A recipe is a module with the functions of `Recipe`; `run` below calls them in this order.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol, cast

from cutaway.catalog import VERBS, Verb
from cutaway.console import Console, messages_on
from cutaway.core.errors import BadSpec, Missing
from cutaway.core.spec import address
from cutaway.engine import find_engine
from cutaway.engine.process_group import ProcessGroup, is_distributed, process_group
from cutaway.recipe.cost import Estimate, SampleSize, with_samples
from cutaway.recipe.objects import Objects
from cutaway.recipe.options import RunOptions
from cutaway.recipe.result import CostMeter, Result, measure_cost, provenance
from cutaway.store import files, remote
from cutaway.store import results as store
from cutaway.store.progress import Progress
from cutaway.store.records import SAMPLES_FILE, SPLITS_FILE
from cutaway.store.reserve_output import reserve_output
from cutaway.store.results import Record
from cutaway.store.row_passes import saving_passes
from cutaway.store.samples import SamplePieces

if TYPE_CHECKING:
    import polars as pl


SAMPLES_FOLDER, PASSES_FOLDER = "samples", "passes"
"""Where samples and evaluations of an unfinished run are kept in its folder."""


@dataclass(frozen=True)
class Context:
    """What a recipe gets besides its spec: where messages go, and objects given from Python."""

    console: Console = field(default_factory=lambda: Console(quiet=True))
    objects: Objects = field(default_factory=dict)
    """Models, text sets and the like by the names that stand for them in the spec."""


class Request(Protocol):
    """A resolved spec: everything it names, opened and read."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """Digests of what the spec only names; part of the run's address."""


@dataclass(frozen=True)
class Run:
    """A run that is being measured: its address, its finished pieces, its context."""

    address: str
    progress: Progress
    context: Context
    scratch: Path
    """A temporary folder that is removed after the run is saved."""
    samples: SamplePieces | None = None
    """Where the samples go; None unless they were asked for."""

    @property
    def console(self) -> Console:
        """Where messages and progress bars go."""
        return self.context.console

    @property
    def objects(self) -> Objects:
        """Objects given from Python, by name."""
        return self.context.objects

    @property
    def folder(self) -> Path:
        """The folder of the unfinished run; removed when the run is saved."""
        return Path(self.progress.folder)


@dataclass(frozen=True)
class Outcome:
    """What a recipe measured, ready to be saved."""

    rows: "pl.DataFrame"
    summary: Mapping[str, Any]
    baselines: Any
    model: Any
    """Facts about the model, or a list of them."""
    data: Any
    """Facts about the data, or a list of them."""
    files: Mapping[str, Path | bytes] = field(default_factory=dict)
    """Other files of the run, by their name in its folder."""
    splits: "pl.DataFrame | None" = None
    """Which rows were used for what, and the marked positions; see `split_frame`."""


class Output(Protocol):
    """A file or folder that a run writes to `--out`, or else keeps in its own folder."""

    def check_free(self, spec: Any, run_address: str | None) -> None:
        """BadSpec when `--out` holds something else."""

    def restore(self, spec: Any, done: Record) -> Record | None:
        """The finished run with its output in place; None when the output is lost."""

    def finish(self, spec: Any, saved: Record, scratch: Path) -> Record:
        """The saved run, its summary naming where the output is."""


class Recipe(Protocol):
    """What a verb's module provides.

    A verb that saves no run has `perform(request, context)` instead of `measure`, and its
    request needs no identity. `estimate(request)` is optional: without it `--dry-run` is refused.
    A verb that writes to `--out` has an `OUTPUT`. A verb whose spec has `samples` has
    `sample_size(request)`.
    """

    def resolve(self, spec: Any, context: Context) -> Request:
        """The spec's names opened and read; everything that can be refused is refused here."""

    def measure(self, request: Any, run: Run) -> Outcome:
        """The numbers; finished pieces are kept in `run.progress`."""


def run(
    verb: Verb,
    spec: RunOptions,
    context: Context | None = None,
    *,
    group: ProcessGroup | None = None,
) -> Any:
    """The verb's result: a saved run, found again or measured now.

    All processes of a distributed training call this together, unless `group` is a group of one.
    """
    recipe = cast(Any, verb.load())
    context = context or Context()
    with messages_on(context.console):
        result = _run(verb, spec, context, recipe, group or process_group(spec.device))
    return recipe.RESULT(result.record) if hasattr(recipe, "RESULT") else result


def _run(verb: Verb, spec: RunOptions, context: Context, recipe: Any, group: ProcessGroup) -> Any:
    warn_if_not_parallel(verb, spec.engine, context.console)
    output: Output | None = getattr(recipe, "OUTPUT", None)
    if output is not None:
        output.check_free(spec, None)
    request = recipe.resolve(spec, context)
    if hasattr(recipe, "perform"):
        return recipe.perform(request, context)
    name = address(spec, **request.identity)
    done = find_done(verb, spec, request)
    if done is not None and (done := output.restore(spec, done) if output else done) is not None:
        # A process that was killed just after saving the run may have left its pieces.
        files.remove_stale_temporaries(done.path.parent)
        context.console.print(f"This run is already done: {done.path}")
        return Result(done)
    if output is not None:
        output.check_free(spec, name)
    try:
        with reserve_output(getattr(spec, "out", None), name), TemporaryDirectory() as scratch:
            progress = store.run_progress(spec.runs, verb.method, name)
            pieces = sample_pieces(spec, recipe, request, progress, context.console)
            current = Run(name, progress, context, Path(scratch), pieces)
            return _measure_and_save(verb, spec, recipe, request, current, group)
    except Missing:
        # Another process may have finished the same run and removed its pieces.
        if (done := store.find_finished_elsewhere(spec.runs, verb.method, name)) is None:
            raise
        return Result(done)


def _measure_and_save(
    verb: Verb, spec: RunOptions, recipe: Any, request: Request, current: Run, group: ProcessGroup
) -> Result:
    output: Output | None = getattr(recipe, "OUTPUT", None)
    # Other processes of a training compute the same values and write nothing.
    passes = current.folder / PASSES_FOLDER if group.first else None
    with measure_cost() as meter, saving_passes(passes, current.console):
        outcome = recipe.measure(request, current)

    def save() -> Result:
        saved = save_outcome(verb, spec, current.address, with_tables(outcome, current), meter)
        return Result(output.finish(spec, saved, current.scratch) if output else saved)

    return on_rank0(save, spec.runs, verb.method, current.address, group)


def estimate(verb: Verb, spec: RunOptions, context: Context | None = None) -> list[Estimate]:
    """What the verb would cost; BadSpec when nothing estimates it."""
    context, recipe = context or Context(), cast(Any, verb.load())
    if not hasattr(recipe, "estimate"):
        raise BadSpec(f"'cutaway {verb.words}' has no --dry-run: its cost can't be estimated.")
    with messages_on(context.console):
        request = recipe.resolve(spec, context)
    estimates = list(recipe.estimate(request))
    return with_samples(estimates, recipe.sample_size(request)) if has_samples(spec) else estimates


def has_samples(spec: Any) -> bool:
    """Whether the spec asks for samples."""
    return bool(getattr(spec, "samples", False))


def find_done(verb: Verb, spec: RunOptions, request: Request) -> Record | None:
    """The finished run of a spec; one that also has samples answers a request without them."""
    wanted = [spec]
    if getattr(spec, "samples", None) is False:
        wanted.append(spec.model_copy(update={"samples": True}))
    names = (address(one, **request.identity) for one in wanted)
    found = (store.find_record(spec.runs, verb.method, name) for name in names)
    return next((record for record in found if record is not None), None)


def sample_pieces(
    spec: RunOptions, recipe: Any, request: Request, progress: Progress, console: Console
) -> SamplePieces | None:
    """Where the run's samples go, after printing how many there will be; None without them."""
    if not has_samples(spec):
        return None
    size: SampleSize = recipe.sample_size(request)
    console.print(f"{size.clause()}.")
    # The pieces and the file that is made of them.
    files.check_free_space(remote.local_folder(spec.runs), 2 * size.bytes)
    return SamplePieces(Path(progress.folder) / SAMPLES_FOLDER)


def with_tables(outcome: Outcome, current: Run) -> Outcome:
    """The outcome with its samples and splits among its files."""
    tables: dict[str, Path | bytes] = {}
    if current.samples is not None:
        tables[SAMPLES_FILE] = current.samples.merge(current.scratch / SAMPLES_FILE)
    if outcome.splits is not None:
        tables[SPLITS_FILE] = store.parquet_bytes(outcome.splits)
    return replace(outcome, files={**outcome.files, **tables})


def save_outcome(
    verb: Verb, spec: RunOptions, name: str, outcome: Outcome, meter: CostMeter
) -> Record:
    """The run, written whole."""
    return store.save_record(
        spec.runs,
        method=verb.method,
        address=name,
        spec=spec,
        summary=outcome.summary,
        baselines=outcome.baselines,
        model=outcome.model,
        data=outcome.data,
        **provenance(verb.words, spec, meter),
        rows=outcome.rows,
        files=outcome.files,
    )


def on_rank0(
    make: Callable[[], Result], runs: str, method: str, name: str, group: ProcessGroup | None = None
) -> Result:
    """The run that the first process saves; the other processes read it afterwards."""
    group = group or process_group()
    result = make() if group.first else None
    group.wait()
    if result is not None:
        return result
    record = store.find_record(runs, method, name)
    if record is None:
        raise Missing(
            f"The first process saved run {name!r}, but it is not in {runs!r} here: give every "
            "machine the same folder with --runs."
        )
    return Result(record)


def check_launcher(verb: Verb, engine: str) -> None:
    """BadSpec when a launcher started several processes and the verb can't share its work."""
    if not is_distributed():
        return
    if engine != "local":
        raise BadSpec(
            f"--engine {engine} distributes trainings over workers, a launcher splits each of "
            "them: choose one of the two."
        )
    if not verb.distributed:
        able = ", ".join(words for words, row in VERBS.items() if row.distributed)
        raise BadSpec(
            f"'cutaway {verb.words}' runs in one process, and a launcher started "
            f"{os.environ['WORLD_SIZE']}. Verbs that train together: {able}. To distribute the "
            "work of others use --engine."
        )


def warn_if_not_parallel(verb: Verb, engine: str, console: Console) -> None:
    """One message when an engine was asked for and the verb can't use it."""
    if verb.parallel or find_engine(engine).in_process:
        return
    able = ", ".join(words for words, row in VERBS.items() if row.parallel)
    console.print(
        f"--engine {engine} has no effect: 'cutaway {verb.words}' runs in one process. Verbs that "
        f"use it: {able}."
    )
