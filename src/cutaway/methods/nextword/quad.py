"""`cutaway quad`: a language model trained with the Quad objective, or with cross-entropy."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from cutaway.console import Console
from cutaway.core.digest import digest_json
from cutaway.core.errors import BadData, BadSpec
from cutaway.core.spec import address, build_spec
from cutaway.data.load import load_text_set
from cutaway.engine.process_group import process_group
from cutaway.measure.splits import hold_out_split
from cutaway.methods.nextword.initial_model import base_and_initial
from cutaway.methods.nextword.maths.quad import quad_loss
from cutaway.methods.nextword.recipe import run as measure
from cutaway.methods.nextword.rows import NextwordCell, nextword_frame
from cutaway.methods.nextword.spec import NextwordSpec, QuadSpec
from cutaway.methods.nextword.summary import feature_scores
from cutaway.methods.nextword.task import NextwordTask, nextword_tasks
from cutaway.models.lm import LM, model_facts
from cutaway.models.quiet import quiet as without_chatter
from cutaway.models.read import forward_kwargs
from cutaway.models.tokens import pad, tokenize
from cutaway.recipe.life_cycle import on_rank0
from cutaway.recipe.objects import Objects, name_objects
from cutaway.recipe.output import OWNER_FILE, checkpoint_owner, restore_checkpoint
from cutaway.recipe.provenance import measure_cost, provenance
from cutaway.recipe.result import Result
from cutaway.store import files
from cutaway.store import results as store
from cutaway.store.records import run_folder
from cutaway.training.batch_order import make_batch_order
from cutaway.training.loop import TrainingResult, train
from cutaway.training.plan import TrainingPlan

CHECKPOINT = "checkpoint"
MAX_HELD_OUT = 256
"""Held-out texts looked at in each evaluation."""


@dataclass(frozen=True, eq=False)
class TokenizedTexts:
    """The texts as tokens, and which are learned from."""

    name: str
    digest: str
    rows: list[list[int]]
    train: list[int]
    held: list[int]


def quad(*, quiet: bool = False, **options: Any) -> Result:
    """Train a model with Quad or cross-entropy, from Python: keyword arguments are the flags.

    `model`, `text` and `data` may be given as objects; a model given so stays as it is.
    """
    fields = ("model", "text", "data")
    named, objects = name_objects(options, fields, single=fields)
    spec, console = build_spec(QuadSpec, named), Console(quiet=quiet)
    return run(spec, console=console, objects=objects)


def run(
    spec: QuadSpec, *, console: Console | None = None, objects: Objects | None = None
) -> Result:
    """The trained model, its loss curves, and what its features know before and after."""
    console, objects = console or Console(quiet=True), objects or {}
    together = process_group(spec.device)
    with measure_cost() as meter:
        base, lm = base_and_initial(spec, objects)
        pages = _tokenize_texts(spec, lm, objects)
        asked = [question.identity for question in _tasks_to_measure(spec, objects)]
        name = address(spec, model=base.identity, data=pages.digest, asked=asked)
        done = store.find_record(spec.runs, "nextword", name)
        again = None if done is None else finished_quad_run(spec, done)
        if again is not None:
            console.print(f"This run is done already: {again.path}")
            return Result(again)
        check_out_free(spec)
        before = together.broadcast(lambda: _task_scores(spec, lm, console, objects, "start"))
        trained = _train(spec, name, lm, pages, console)
        after = together.broadcast(lambda: _task_scores(spec, lm, console, objects, name))

    def save() -> Result:
        with _saved_checkpoint(spec, lm, {"quad": name, "base": model_facts(base)}) as held:
            record = store.save_record(
                spec.runs, method="nextword", address=name, spec=spec,
                summary=_summary(spec, lm, pages, trained, before, after, name),
                baselines={"before": before}, model=model_facts(base),
                data={"name": pages.name, "rows": len(pages.rows), "digest": pages.digest},
                **provenance("quad", spec, meter),
                rows=nextword_frame(_rows(spec, lm, pages, trained)), files=held,
            )  # fmt: skip
        return Result(record)

    return on_rank0(save, spec.runs, "nextword", name)


def _tokenize_texts(spec: QuadSpec, lm: LM, objects: Objects) -> TokenizedTexts:
    texts = load_text_set(
        objects.get(spec.text, spec.text), text_column=spec.text_column, as_task="text",
        limit=spec.limit, seed=spec.seed, offline=spec.offline,
    )  # fmt: skip
    rows = tokenize(lm, texts.texts, limit=min(spec.max_tokens, lm.context)).rows
    kept = [row for row in rows if len(row) > 1]
    if len(kept) < 4:
        raise BadData(f"{texts.name!r} has {len(kept)} texts of two tokens or more: give more.")
    held, learn = hold_out_split(len(kept), spec.held_out, spec.seed)
    return TokenizedTexts(
        texts.name, texts.digest, kept, learn.tolist(), held.tolist()[:MAX_HELD_OUT]
    )


def _train(
    spec: QuadSpec, name: str, lm: LM, pages: TokenizedTexts, console: Console
) -> TrainingResult:
    """The weights that did best on held-out texts are in the model afterwards."""
    params: dict[str, nn.Parameter] = dict(lm.module.named_parameters())
    mine = [pages.rows[i] for i in pages.train]
    order = make_batch_order(mine, spec.batch, spec.seed)
    plan = TrainingPlan(
        steps=spec.steps, lr=spec.lr, schedule="cosine", warmup=min(spec.warmup, spec.steps - 1),
        every=min(spec.every, spec.steps), seed=spec.seed,
    )  # fmt: skip

    together = process_group()

    def loss(step: int) -> Mapping[str, Tensor]:
        rows = order(step)
        f, words = _contexts_and_targets(lm, [mine[i] for i in together.share(rows)])
        # The mean runs over tokens, each of which but the first of a row is predicted.
        weight = together.weight(rows, lambda some: sum(len(mine[i]) - 1 for i in some))
        return {"loss": OBJECTIVES[spec.objective](lm, f, words).mean() * weight}

    folder = Path(store.run_progress(spec.runs, "nextword", name).folder) / "training"
    return train(
        params, loss, plan, folder=folder, identity={"run": name}, console=console,
        evaluate=lambda: held_out_losses(lm, [pages.rows[i] for i in pages.held], spec.objective),
        score="score",
    )  # fmt: skip


def _contexts_and_targets(lm: LM, rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    """f at every token that has a next one, and that next one."""
    ids, mask = (x.to(lm.device) for x in pad(rows, lm.pad_id))
    f = lm.body(**forward_kwargs(lm, ids, mask)).last_hidden_state
    there = mask[:, 1:]
    return f[:, :-1][there], ids[:, 1:][there]


def _quad(lm: LM, f: Tensor, words: Tensor) -> Tensor:
    return quad_loss(f.float(), lm.output_embedding[0].float(), words)


def _cross_entropy(lm: LM, f: Tensor, words: Tensor) -> Tensor:
    return F.cross_entropy(lm.unembed(f).float(), words, reduction="none")


OBJECTIVES: dict[str, Callable[[LM, Tensor, Tensor], Tensor]] = {
    "quad": _quad,
    "ce": _cross_entropy,
}


@torch.no_grad()
def held_out_losses(lm: LM, rows: list[list[int]], objective: str) -> dict[str, float]:
    """Both losses per held-out token, and the score that training keeps the best of."""
    sums, count = dict.fromkeys(OBJECTIVES, 0.0), 0
    for start in range(0, len(rows), 16):
        f, words = _contexts_and_targets(lm, rows[start : start + 16])
        count += len(words)
        for name, function in OBJECTIVES.items():
            sums[name] += float(function(lm, f, words).double().sum())
    found = {f"held_{name}": value / count for name, value in sums.items()}
    return {**found, "score": -found[f"held_{objective}"]}


def _task_scores(
    spec: QuadSpec, lm: LM, console: Console, objects: Objects, state: str
) -> dict[str, float]:
    """What the features of the model know of the task, as it is now; nothing without a task."""
    if spec.task is None and spec.data is None:
        return {}
    when = "before" if state == "start" else "after"
    digest = digest_json({"start": lm.digest, "state": state})
    now = replace(lm, name=f"{lm.name} {when}", digest=digest)
    result = measure(
        _nextword_spec(spec, now.name), console=console, objects={**objects, now.name: now}
    )
    return feature_scores(result.rows)


def _nextword_spec(spec: QuadSpec, model: str) -> NextwordSpec:
    """What is asked of the model's features before and after."""
    return NextwordSpec(
        model=(model,), task=(spec.task,) if spec.task else (),
        data=(spec.data,) if spec.data else (), features=("f", "phi_p"), runs=spec.runs,
        seed=spec.seed, offline=spec.offline, baselines=(),
    )  # fmt: skip


def _tasks_to_measure(spec: QuadSpec, objects: Objects) -> list[NextwordTask]:
    """The task's rows and words, where there is a task."""
    if spec.task is None and spec.data is None:
        return []
    return nextword_tasks(_nextword_spec(spec, spec.model), objects)


def finished_quad_run(spec: QuadSpec, done: store.Record) -> store.Record | None:
    """A finished run with its checkpoint at --out, copied if it was elsewhere; None if lost."""
    if spec.out is None:
        return done
    if checkpoint_owner(Path(spec.out), "quad") != done.address:
        check_out_free(spec)
    kept = (done.path / CHECKPOINT, Path(str(done.summary["checkpoint"])))
    out = Path(spec.out)
    if not process_group().broadcast(lambda: restore_checkpoint(out, "quad", done.address, kept)):
        return None
    return replace(done, summary={**done.summary, "checkpoint": spec.out})


def check_out_free(spec: QuadSpec) -> None:
    """BadSpec when --out holds something already."""
    if spec.out is not None and Path(spec.out).exists():
        other = checkpoint_owner(Path(spec.out), "quad")
        whose = f", with the checkpoint of run {other}" if other else ""
        raise BadSpec(
            f"out {spec.out!r} exists already{whose}: choose another folder, or remove it."
        )


@contextmanager
def _saved_checkpoint(
    spec: QuadSpec, lm: LM, note: Mapping[str, Any]
) -> Iterator[dict[str, Path | bytes]]:
    """The trained model stands in --out; without it, its files go into the run's own folder."""
    out = Path(spec.out) if spec.out else None
    with TemporaryDirectory() as scratch:
        aside = Path(scratch) if out is None else files.temporary_path(out)
        try:
            with without_chatter():
                lm.module.save_pretrained(aside)
                lm.tokenizer.save_pretrained(aside)
            files.write_json(aside / OWNER_FILE, dict(note))
            if out is None:
                yield {f"{CHECKPOINT}/{path.name}": path for path in sorted(aside.iterdir())}
            else:
                with files.disk_errors(out):
                    aside.rename(out)
                yield {}
        finally:
            if out is not None:
                files.discard(aside)


def _rows(
    spec: QuadSpec, lm: LM, pages: TokenizedTexts, trained: TrainingResult
) -> list[dict[str, Any]]:
    """The curves as tidy rows: loss of training, both losses on held-out texts."""
    cell = NextwordCell(lm.name, pages.name, "", spec.objective).coordinates
    sizes = {"repeat": 0, "n_train": len(pages.train), "n_test": len(pages.held)}
    return [
        {**cell, **sizes, "step": point["step"], "metric": metric, "value": point[metric],
         "status": "done", "reason": ""}
        for point in trained.curve
        for metric in ("loss", *(f"held_{name}" for name in OBJECTIVES))
        if point.get(metric) is not None
    ]  # fmt: skip


def _summary(
    spec: QuadSpec, lm: LM, pages: TokenizedTexts, trained: TrainingResult,
    before: Mapping[str, float], after: Mapping[str, float], name: str,
) -> dict[str, Any]:  # fmt: skip
    own = f"held_{spec.objective}"
    first, last = trained.curve[0], next(p for p in trained.curve if p["step"] == trained.best_step)
    said = [
        f"{trained.best_step} steps of {spec.objective}: its loss per held-out token went from "
        f"{first[own]:.4g} to {last[own]:.4g}, perplexity from {_perplexity(first)} to "
        f"{_perplexity(last)}."
    ]
    said += [
        f"{what}: {before[what]:.3f} before, {after[what]:.3f} after."
        for what in after
        if what in before
    ]
    where = spec.out or str(run_folder(spec.runs, "nextword", name) / CHECKPOINT)
    said.append(f"The trained model: {where}. Look at it with: cutaway nextword --model {where}")
    best = {"model": lm.name, "data": pages.name, "features": spec.objective, "metric": own}
    return {
        "verb": "quad", "metric": own, "best": {**best, "value": last[own]}, "verdict": said,
        "checkpoint": where, "best_step": trained.best_step, "stopped": trained.stopped,
        "tied": lm.tied, "before": dict(before), "after": dict(after),
    }  # fmt: skip


def _perplexity(point: Mapping[str, Any]) -> str:
    return f"{math.exp(min(point['held_ce'], 700)):.4g}"
