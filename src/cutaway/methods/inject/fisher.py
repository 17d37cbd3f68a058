"""`cutaway fisher`: the diagonal Fisher information of a model on texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cutaway.console import Console
from cutaway.core.errors import BadData, BadSpec, Missing, UnknownName
from cutaway.core.spec import spec_to_dict
from cutaway.core.textset import TextSet
from cutaway.data.load import load_if_questions, load_task, load_text_set
from cutaway.data.tasks import TaskFile, find_task
from cutaway.extract.model_handle import make_model_handle
from cutaway.methods.inject.answers import answer_examples, with_answers
from cutaway.methods.inject.examples import Examples, lm_examples
from cutaway.methods.inject.fisher_file import (
    FisherFile,
    load_fisher,
    save_fisher,
    tensor_checksums,
)
from cutaway.methods.inject.fisher_overlap import FisherComparison
from cutaway.methods.inject.fisher_sums import (
    FisherMethod,
    seconds_per_token,
    sum_squared_gradients_on,
)
from cutaway.methods.inject.maths.overlap import fisher_mass
from cutaway.methods.inject.rows import DETAILS_FILE, InjectCoordinates, inject_frame
from cutaway.methods.inject.samples import text_rows
from cutaway.methods.inject.skill import with_row_numbers
from cutaway.methods.inject.spec import FISHER_COPIES, FisherSpec
from cutaway.methods.inject.verdict import fisher_verdict
from cutaway.models.lm import LM, model_facts
from cutaway.models.weight_location import weight_locator
from cutaway.recipe.cost import Estimate
from cutaway.recipe.life_cycle import Context, Outcome, Run
from cutaway.recipe.objects import Objects
from cutaway.recipe.open_for_spec import open_spec_model
from cutaway.recipe.output import ArtefactFile
from cutaway.store.files import json_bytes
from cutaway.training.prompting import make_prompted_examples

OUTPUT = ArtefactFile("fisher.safetensors")
CHECKPOINT_FOLDER = "sums"


@dataclass(frozen=True, eq=False)
class FisherRequest:
    """The model, the texts, and the Fishers to compare with."""

    spec: FisherSpec
    lm: LM
    texts: TextSet
    others: Sequence[FisherFile]
    task: TaskFile | None
    """The task that asks for label words; None for other objectives."""

    @property
    def identity(self) -> dict[str, Any]:
        """Digests of the weights, the texts, the other Fishers and the task's wording."""
        return {
            "model": self.lm.identity,
            "data": self.texts.digest,
            "against": [other.digest for other in self.others],
            "task": None if self.task is None else spec_to_dict(self.task),
        }

    def examples(self) -> Examples:
        """The texts as examples of the objective."""
        lm, spec, texts = self.lm, self.spec, self.texts
        if spec.objective == "lm":
            lines = texts if texts.answers is None else with_answers(texts)
            examples = lm_examples(lm, lines, seed=spec.seed, limit=spec.max_tokens)
        elif self.task is None:
            examples = answer_examples(lm, texts)
        else:
            examples = task_examples(lm, self.task, texts, spec.max_tokens)
        return examples.with_sampled_targets(spec.seed) if spec.labels == "sampled" else examples


def resolve(spec: FisherSpec, context: Context) -> FisherRequest:
    """The model, the texts and the other Fishers of a spec."""
    if spec.chat and spec.objective == "task":
        raise BadSpec(
            "--chat is for --objective lm: the prompt of a task is read as plain text. Leave one "
            "of them out."
        )
    lm = open_spec_model(spec, context.objects)
    others = [load_fisher(path, lm) for path in spec.against]
    texts = load_fisher_texts(spec, context.objects)
    asks = spec.objective == "task" and texts.answers is None
    return FisherRequest(spec, lm, texts, others, _prompt_task(spec) if asks else None)


def measure(request: FisherRequest, run: Run) -> Outcome:
    """The Fisher information, its mass by layer and module, and its overlap with others."""
    spec, lm, texts, examples = request.spec, request.lm, request.texts, request.examples()
    _report_losses(examples, len(texts), run.console)
    sums = sum_squared_gradients_on(
        spec.engine,
        make_model_handle(lm, spec, run.objects),
        lm,
        examples,
        console=run.console,
        checkpoint=run.folder / CHECKPOINT_FOLDER,
    )
    fisher = sums.mean(len(examples))
    metadata = fisher_metadata(request, examples, sums.method)
    if spec.file:
        save_fisher(OUTPUT.path(spec, run.scratch), fisher, {**metadata, "run": run.address})
    masses = fisher_mass(fisher, weight_locator(lm))
    coordinates = InjectCoordinates(lm.name, texts.name, "fisher")
    rows, overlaps = coordinates.weight_rows("fisher", "mass", masses), {}
    files = OUTPUT.files(spec, run.scratch)
    if request.others:
        comparison = FisherComparison(
            lm, coordinates, texts.name, fisher, seed=spec.seed, most=spec.top
        )
        overlaps = {one.name: comparison.add(one.name, one.tensors()) for one in request.others}
        rows += comparison.overlap.rows
        files[DETAILS_FILE] = json_bytes({"tops": comparison.overlap.tops, "maps": []})
    notes = [f"Example by example: {sums.method.reason}."] if sums.method.reason else []
    keys = ("objective", "labels", "examples", "left_out", "cut", "way", "difference", "noise")
    return Outcome(
        inject_frame(rows),
        summary={
            "verb": "fisher",
            **{key: metadata[key] for key in keys},
            "out": spec.out or (OUTPUT.name if spec.file else None),
            "overlap": overlaps,
            "notes": [*texts.notes, *notes],
            "verdict": fisher_verdict(masses, len(examples)),
        },
        baselines={"uniform": {"share": 1 / max(len(masses), 1)}},
        model=model_facts(lm),
        data=metadata["data"],
        files=files,
        splits=text_rows(texts.name, "fisher", texts),
    )


def _report_losses(examples: Examples, texts: int, console: Console) -> None:
    """Print how many texts were dropped or truncated."""
    counts = {
        "dropped: fewer than two tokens": examples.dropped, "truncated": examples.truncated,
    }  # fmt: skip
    for done, count in counts.items():
        if count:
            console.print(f"{count} of {texts} texts {done}.")


def load_fisher_texts(spec: FisherSpec, objects: Objects | None = None) -> TextSet:
    """The texts of a spec: the chosen part, at most `--limit` rows."""
    given = [name for name in ("data", "text") if getattr(spec, name) is not None]
    if len(given) != 1:
        raise BadSpec(
            f"Give --data or --text, one of them; got {' and '.join(given) or 'neither'}. "
            "--text docs is on every machine."
        )
    source = getattr(spec, given[0])
    source = (objects or {}).get(source, source)
    columns = {n: getattr(spec, n) for n in ("text_column", "pair_column", "label_column")}
    reading = {**columns, "seed": spec.seed, "offline": spec.offline}
    questions = None
    if spec.objective == "task" and spec.task is None and not any(columns.values()):
        questions = load_if_questions(source, offline=spec.offline)
    if questions is not None:
        texts = questions
    elif spec.objective == "task" and spec.task is not None:
        texts = load_task(spec.task, data=source, **reading)
    else:
        kind = "text" if given == ["text"] else None
        texts = load_text_set(source, **reading, as_task=kind, drop_empty=True, chat=spec.chat)
    texts = with_row_numbers(texts)
    texts = texts if spec.part == "all" else texts.part(spec.part)
    if spec.limit is None or spec.limit >= len(texts):
        return texts
    chosen = np.random.default_rng([spec.seed, len(texts)]).permutation(len(texts))[: spec.limit]
    return texts.take(np.sort(chosen))


def task_examples(lm: LM, task: TaskFile, texts: TextSet, max_tokens: int | None) -> Examples:
    """The texts in their task's template, with one of its label words to predict."""
    prompted = make_prompted_examples(lm, task, texts, max_tokens=max_tokens)
    if texts.task == "regression":
        raise BadData(f"{texts.name!r} is a regression: a Fisher of its answers isn't defined.")
    rows, mask = prompted.rows, lm.tokenizer.mask_token_id
    positions = [[len(r) - 1 if lm.kind == "causal" else r.index(mask)] for r in rows]
    targets = [[int(label)] for label in prompted.labels]
    return Examples(rows, positions, targets, words=prompted.word_ids, truncated=prompted.truncated)


def _prompt_task(spec: FisherSpec) -> TaskFile:
    """The task whose template is used; BadSpec when none is named."""
    try:
        return find_task(spec.task or spec.data or "")
    except (UnknownName, Missing) as error:
        if spec.task is not None:
            raise
        raise BadSpec(
            f"--objective task needs a prompt for {spec.data or spec.text!r}: name its task with "
            "--task (cutaway tasks lists them; a .toml file works too)."
        ) from error


def fisher_metadata(
    request: FisherRequest, examples: Examples, method: FisherMethod
) -> dict[str, Any]:
    """The description of a Fisher file."""
    spec, lm, texts = request.spec, request.lm, request.texts
    return {
        "model": model_facts(lm) | {"tokenizer_digest": lm.tokenizer_digest, "dtype": lm.dtype},
        "data": {"name": texts.name, "rows": len(texts), "digest": texts.digest},
        "objective": spec.objective,
        "labels": spec.labels,
        "examples": len(examples),
        "left_out": examples.dropped,
        "cut": examples.truncated,
        "seed": spec.seed,
        "loss": "mean over the predicted tokens of one example",
        "masking": None if lm.kind == "causal" else "15 %: 80 % mask, 10 % random, 10 % kept",
        "way": method.way,
        "difference": method.difference,
        "noise": method.noise,
        "weights": tensor_checksums(lm.params()),
    }


def estimate(request: FisherRequest) -> list[Estimate]:
    """The cost of the pass, from a few examples."""
    lm, examples = request.lm, request.examples()
    tokens = sum(examples.lengths)
    weights_mb = sum(p.numel() for p in lm.params().values()) * 4 / 2**20
    counts = {
        "rows": len(examples),
        "tokens": tokens,
        "shortened": examples.truncated,
        "cached_rows": 0,
    }
    return [
        Estimate(
            f"{len(examples):,} texts, {tokens:,} tokens to read",
            seconds=round(seconds_per_token(lm, examples) * tokens, 1),
            memory_mb=round(weights_mb * FISHER_COPIES + 400, 1),
            disk_mb=round(weights_mb, 1),
            counts=counts,
        )
    ]
