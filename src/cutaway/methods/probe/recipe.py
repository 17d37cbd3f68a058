"""probe: what can be read off the hidden layers. One pass per model and set, then the grid."""

from collections.abc import Iterator
from typing import Any

from cutaway.console import Console
from cutaway.core.errors import Missing
from cutaway.core.spec import address, build_spec
from cutaway.core.textset import TextSet
from cutaway.data.labels import check_learnable
from cutaway.data.load import load_text_set
from cutaway.extract.estimate import estimate_pass
from cutaway.methods.probe.grid import ProbeGrid, extraction_request_for, layer_mixes
from cutaway.methods.probe.piece_store import split_details
from cutaway.methods.probe.rows import probe_table
from cutaway.methods.probe.spec import ProbeSpec
from cutaway.methods.probe.summary import summarise
from cutaway.models.lm import LM
from cutaway.pool import needs_attention
from cutaway.recipe.cost import Estimate
from cutaway.recipe.objects import Objects, name_objects
from cutaway.recipe.open_for_spec import open_for_spec
from cutaway.recipe.provenance import data_facts, measure_cost, one_or_many, provenance
from cutaway.recipe.result import Result
from cutaway.recipe.unique_names import with_unique_names
from cutaway.report import details as detail_file
from cutaway.store import results as store
from cutaway.store.progress import Progress


def probe(*, quiet: bool = False, **options: Any) -> Result:
    """The grid of a ProbeSpec, from Python: keyword arguments are the flags.

    Models, text sets, dictionaries and classifiers may be given as objects.
    """
    named, objects = name_objects(options, ("model", "data", "classifier"))
    return run(build_spec(ProbeSpec, named), console=Console(quiet=quiet), objects=objects)


def run(
    spec: ProbeSpec, *, console: Console | None = None, objects: Objects | None = None
) -> Result:
    """Measure every cell of the grid that is not yet measured, and save the whole."""
    console, objects = console or Console(quiet=True), objects or {}
    with measure_cost() as meter:
        sets = _load_sets(spec, objects)
        seen = [(_model_facts(lm), lm.identity) for lm in _open_models(spec, objects)]
        models, who = [facts for facts, _ in seen], [identity for _, identity in seen]
        name = address(spec, models=who, data=[s.digest for s in sets])
        if (done := store.find_record(spec.runs, "probe", name)) is not None:
            console.print(f"This run is done already: {done.path}")
            return Result(done)
        progress = store.run_progress(spec.runs, "probe", name)
        try:
            rows, details, stand = split_details(
                _measure_pieces(spec, sets, objects, progress, console)
            )
        except Missing:
            if (done := store.find_finished_elsewhere(spec.runs, "probe", name)) is None:
                raise
            return Result(done)
        table = probe_table(rows)
        summary, baselines = summarise(table, sets, stand, curve=spec.protocol == "curve")
    record = store.save_record(
        spec.runs, method="probe", address=name, spec=spec, summary=summary, baselines=baselines,
        model=one_or_many(models), data=one_or_many([data_facts(s) for s in sets]),
        **provenance("probe", spec, meter), rows=table,
        files={detail_file.DETAILS_FILE: detail_file.dump_details(details)},
    )  # fmt: skip
    return Result(record)


def _measure_pieces(
    spec: ProbeSpec, sets: list[TextSet], objects: Objects, progress: Progress, console: Console
) -> list[dict[str, Any]]:
    """The rows of every piece, in order, those that were lacking measured."""
    keys = [
        key
        for lm in _open_models(spec, objects)
        for texts in sets
        for key in ProbeGrid(spec, lm, texts, objects, progress, console).carry_out()
    ]
    return progress.rows(keys)


def estimate(spec: ProbeSpec, *, console: Console | None = None) -> list[Estimate]:
    """What the passes will cost, one estimate per model and set."""
    sets = _load_sets(spec, {})
    return [
        estimate_pass(lm, texts, extraction_request_for(spec, layer_mixes(spec, lm)))
        for lm in _open_models(spec, {})
        for texts in sets
    ]


def _open_models(spec: ProbeSpec, objects: Objects) -> Iterator[LM]:
    """The models one at a time: only one is held in memory."""
    kernel = spec.attention
    if kernel == "auto":
        kernel = "eager" if needs_attention(spec.pool) else "sdpa"
    options = {"revision": spec.revision, "attention": kernel}
    found = (open_for_spec(name, spec, objects, **options) for name in spec.model)
    yield from with_unique_names(found, lambda lm: lm.short_id, option="--model")


def _load_sets(spec: ProbeSpec, objects: Objects) -> list[TextSet]:
    """Every set of the spec, no two of one name."""
    found = (load_texts(spec, name, objects) for name in spec.data)
    return list(with_unique_names(found, lambda texts: texts.digest, option="--data"))


def load_texts(spec: ProbeSpec, name: str, objects: Objects) -> TextSet:
    """A set of the spec, with its labels."""
    columns = {k: getattr(spec, k) for k in ("text_column", "pair_column", "label_column")}
    texts = load_text_set(
        objects.get(name, name), **columns, as_task=spec.as_,
        drop_empty=spec.drop_empty, limit=spec.limit, seed=spec.seed,
        offline=spec.offline,
    )  # fmt: skip
    return check_learnable(texts)


def _model_facts(lm: LM) -> dict[str, Any]:
    names = ("name", "family", "layers", "width", "parameters", "digest")
    return {name: getattr(lm, name) for name in names}
