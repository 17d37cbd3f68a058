"""`cutaway fisher`: the diagonal Fisher of a model on texts, example by example."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from torch import Tensor

from cutaway.console import Console
from cutaway.core.errors import BadData, BadSpec, Missing, UnknownName
from cutaway.core.spec import address, build_spec, spec_to_dict
from cutaway.core.textset import TextSet
from cutaway.data.load import load_task, load_text_set
from cutaway.data.tasks import TaskFile, find_task
from cutaway.extract.estimate import PassEstimate
from cutaway.extract.model_handle import make_model_handle
from cutaway.methods.inject.arithmetic import answer_examples, is_arithmetic, problems_with_answers
from cutaway.methods.inject.examples import Examples, lm_examples
from cutaway.methods.inject.fisher_file import (
    FisherFile,
    load_fisher,
    need_fisher_path,
    save_fisher,
    tensor_checksums,
)
from cutaway.methods.inject.fisher_overlap import FisherComparison, FisherOverlap
from cutaway.methods.inject.fisher_sums import FisherSums, seconds_per_token
from cutaway.methods.inject.fisher_workers import sum_squared_gradients_on
from cutaway.methods.inject.maths.overlap import fisher_mass
from cutaway.methods.inject.rows import InjectCoordinates, inject_frame
from cutaway.methods.inject.spec import FisherSpec
from cutaway.models.lm import LM, model_facts
from cutaway.models.weight_location import weight_locator
from cutaway.recipe.objects import Objects, name_objects
from cutaway.recipe.open_for_spec import open_spec_model
from cutaway.recipe.output import attach_artefact, restore_artefact
from cutaway.recipe.provenance import CostMeter, measure_cost, provenance
from cutaway.recipe.result import Result
from cutaway.recipe.table import Row
from cutaway.store.files import json_bytes
from cutaway.store.results import find_record, run_progress, save_record
from cutaway.training.prompting import make_prompted_examples

FISHER_FILE, DETAILS_FILE = "fisher.safetensors", "inject.json"
METHOD = "inject"


def fisher(*, quiet: bool = False, **options: Any) -> Result:
    """The diagonal Fisher of a model; keyword arguments are the flags of `cutaway fisher`."""
    fields = ("model", "data", "text")
    named, objects = name_objects(options, fields, single=fields)
    return run(build_spec(FisherSpec, named), console=Console(quiet=quiet), objects=objects)


def run(
    spec: FisherSpec, *, console: Console | None = None, objects: Objects | None = None
) -> Result:
    """The Fisher on disk, where its mass lies, and how it overlaps with others."""
    console = console or Console(quiet=True)
    need_fisher_path(spec.out)
    lm = open_spec_model(spec, objects)
    others = [load_fisher(path, lm) for path in spec.against]
    texts = load_fisher_texts(spec, objects)
    name = address(
        spec, model=lm.identity, data=texts.digest, against=[other.digest for other in others],
        task=_task_wording(spec, texts),
    )  # fmt: skip
    done = find_record(spec.runs, METHOD, name)
    if done is not None and (again := restore_artefact(done, spec.out, FISHER_FILE)) is not None:
        return Result(again)
    with measure_cost() as meter:
        examples = make_fisher_examples(lm, spec, texts)
        report_dropped_texts(examples, texts, console)
        keep = run_progress(spec.runs, METHOD, name).folder / "sums.safetensors"
        door = make_model_handle(lm, spec, objects)
        sums = sum_squared_gradients_on(spec.engine, door, lm, examples, console=console, keep=keep)
        for value in sums.total.values():
            value /= len(examples)
    return save_fisher_run(spec, name, lm, texts, examples, sums, others, meter)


def load_fisher_texts(spec: FisherSpec, objects: Objects | None = None) -> TextSet:
    """The texts that a spec names, of the chosen part."""
    given = [name for name in ("data", "text") if getattr(spec, name) is not None]
    if len(given) != 1:
        raise BadSpec(
            f"Give --data or --text, one of them; got {' and '.join(given) or 'neither'}. "
            "--text docs is on every machine."
        )
    source = getattr(spec, given[0])
    source = (objects or {}).get(source, source)
    columns = {n: getattr(spec, n) for n in ("text_column", "pair_column", "label_column")}
    if spec.objective == "task" and spec.task is not None:
        texts = load_task(spec.task, data=source, seed=spec.seed, offline=spec.offline)
    else:
        kind = "text" if given == ["text"] else None
        texts = load_text_set(
            source, **columns, as_task=kind, seed=spec.seed, offline=spec.offline, drop_empty=True
        )
    texts = texts if spec.part == "all" else texts.part(spec.part)
    if spec.limit is None or spec.limit >= len(texts):
        return texts
    chosen = np.random.default_rng([spec.seed, len(texts)]).permutation(len(texts))[: spec.limit]
    return texts.take(np.sort(chosen))


def make_fisher_examples(lm: LM, spec: FisherSpec, texts: TextSet) -> Examples:
    """The texts as the objective asks about them."""
    if spec.objective == "lm":
        lines = problems_with_answers(texts) if is_arithmetic(texts) else texts
        made = lm_examples(lm, lines, seed=spec.seed, limit=spec.max_tokens)
    elif is_arithmetic(texts):
        made = answer_examples(lm, texts)
    else:
        made = task_examples(lm, spec, texts)
    return made.with_draws(spec.seed) if spec.labels == "sampled" else made


def task_examples(lm: LM, spec: FisherSpec, texts: TextSet) -> Examples:
    """The texts in their task's template, asked for one of its label words."""
    asked = make_prompted_examples(lm, _prompt_task(spec), texts, max_tokens=spec.max_tokens)
    if texts.task == "regression":
        raise BadData(f"{texts.name!r} is a regression: a Fisher of its answers isn't defined.")
    rows = asked.rows
    mark = lm.tokenizer.mask_token_id
    places = [[len(r) - 1 if lm.kind == "causal" else r.index(mark)] for r in rows]
    targets = [[int(label)] for label in asked.labels]
    return Examples(rows, places, targets, words=asked.word_ids, cut=asked.truncated)


def _task_wording(spec: FisherSpec, texts: TextSet) -> dict[str, Any] | None:
    """How the task asks, where a task asks: a file of the user's may change under its name."""
    if spec.objective == "lm" or is_arithmetic(texts):
        return None
    return spec_to_dict(_prompt_task(spec))


def _prompt_task(spec: FisherSpec) -> TaskFile:
    """The task that says how to ask; BadSpec when none is named."""
    try:
        return find_task(spec.task or spec.data or "")
    except (UnknownName, Missing) as error:
        if spec.task is not None:
            raise
        raise BadSpec(
            f"--objective task needs to know how to ask about {spec.data or spec.text!r}: name its "
            "task with --task (cutaway tasks lists them; a .toml of your own works too)."
        ) from error


def report_dropped_texts(examples: Examples, texts: TextSet, console: Console) -> None:
    """Say what was lost before the work starts."""
    if examples.left_out:
        console.print(
            f"{examples.left_out} of {len(texts)} texts have less than two tokens: left out."
        )
    if examples.cut:
        console.print(f"{examples.cut} of {len(texts)} texts are cut to fit.")


def save_fisher_run(
    spec: FisherSpec,
    name: str,
    lm: LM,
    texts: TextSet,
    examples: Examples,
    sums: FisherSums,
    others: list[FisherFile],
    meter: CostMeter,
) -> Result:
    """The Fisher's file and its run, saved whole."""
    masses = fisher_mass(sums.total, weight_locator(lm))
    where = InjectCoordinates(lm.name, texts.name, "fisher")
    overlaps, looked = compare_fishers(lm, spec, where, sums.total, others)
    drawn = {DETAILS_FILE: json_bytes({"tops": looked.tops, "maps": []})} if others else {}
    with TemporaryDirectory() as folder:
        path = Path(spec.out) if spec.out else Path(folder) / FISHER_FILE
        told = fisher_metadata(spec, lm, texts, examples, sums)
        save_fisher(path, sums.total, {**told, "run": name})
        kept = {} if spec.out else {p.name: p for p in (path, path.with_suffix(".json"))}
        record = save_record(
            spec.runs,
            method=METHOD,
            address=name,
            spec=spec,
            summary=fisher_summary(spec, texts, examples, sums, masses, overlaps),
            baselines={"uniform": {"share": 1 / max(len(masses), 1)}},
            model=model_facts(lm),
            data={"name": texts.name, "rows": len(texts), "digest": texts.digest},
            **provenance("fisher", spec, meter),
            rows=inject_frame(mass_rows(where, masses) + looked.rows),
            files={**kept, **drawn},
        )
        return Result(attach_artefact(record, spec.out, FISHER_FILE, path))


def compare_fishers(
    lm: LM,
    spec: FisherSpec,
    where: InjectCoordinates,
    total: Mapping[str, Tensor],
    others: list[FisherFile],
) -> tuple[dict[str, dict[str, float]], FisherOverlap]:
    """How far other Fishers overlap with this one, and what they are at its largest entries."""
    if not others:
        return {}, FisherOverlap([], [])
    view = FisherComparison(lm, where, where.skill, total, seed=spec.seed, most=spec.top)
    return {one.name: view.compare(one.name, one.tensors()) for one in others}, view.found


def mass_rows(where: InjectCoordinates, masses: Mapping[tuple[int, str], float]) -> list[Row]:
    """Mass by layer and module."""
    return [
        where.row("fisher", f"{layer}/{module}", "mass", value)
        for (layer, module), value in masses.items()
    ]


def fisher_metadata(
    spec: FisherSpec, lm: LM, texts: TextSet, examples: Examples, sums: FisherSums
) -> dict[str, Any]:
    """What the file says about itself."""
    return {
        "model": model_facts(lm) | {"tokenizer_digest": lm.tokenizer_digest, "dtype": lm.dtype},
        "data": {"name": texts.name, "rows": len(texts), "digest": texts.digest},
        "objective": spec.objective,
        "labels": spec.labels,
        "examples": len(examples),
        "left_out": examples.left_out,
        "cut": examples.cut,
        "seed": spec.seed,
        "loss": "mean over the predicted tokens of one example",
        "masking": None if lm.kind == "causal" else "15 %: 80 % mask, 10 % random, 10 % kept",
        "way": sums.way,
        "difference": sums.difference,
        "weights": tensor_checksums(lm.params()),
    }


def fisher_summary(
    spec: FisherSpec,
    texts: TextSet,
    examples: Examples,
    sums: FisherSums,
    masses: Any,
    overlaps: dict[str, dict[str, float]],
) -> dict[str, Any]:
    """The findings of a Fisher."""
    (layer, module), share = max(masses.items(), key=lambda item: item[1])
    notes = list(texts.notes) + ([f"Example by example: {sums.why}."] if sums.why else [])
    return {
        "verb": "fisher",
        "objective": spec.objective,
        "labels": spec.labels,
        "examples": len(examples),
        "left_out": examples.left_out,
        "cut": examples.cut,
        "way": sums.way,
        "difference": sums.difference,
        "out": spec.out or FISHER_FILE,
        "overlap": overlaps,
        "notes": notes,
        "verdict": [
            f"{share:.0%} of the Fisher lies in layer {layer} ({module}); {len(examples)} examples."
        ],
    }


def estimate(spec: FisherSpec, *, console: Console | None = None) -> list[PassEstimate]:
    """What the pass will cost, from a short trial."""
    lm = open_spec_model(spec)
    texts = load_fisher_texts(spec)
    examples = make_fisher_examples(lm, spec, texts)
    tokens = sum(examples.lengths)
    weights = sum(p.numel() for p in lm.params().values()) * 4 / 2**20
    return [
        PassEstimate(
            rows=len(examples),
            tokens=tokens,
            shortened=examples.cut,
            cached_rows=0,
            seconds=round(seconds_per_token(lm, examples) * tokens, 1),
            disk_mb=round(weights, 1),
            memory_mb=round(weights * 1.2 + 400, 1),
        )
    ]
