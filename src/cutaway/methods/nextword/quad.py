"""`cutaway quad`: train a language model with the Quad objective, or with cross-entropy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from cutaway.catalog import VERBS
from cutaway.console import quiet_transformers
from cutaway.core.digest import digest_json
from cutaway.core.errors import BadData
from cutaway.core.float64 import to_float64
from cutaway.data.load import load_text_set
from cutaway.engine.process_group import ProcessGroup, process_group
from cutaway.measure.splits import hold_out_split
from cutaway.methods.nextword.initial_model import base_and_initial
from cutaway.methods.nextword.maths.quad import quad_loss
from cutaway.methods.nextword.rows import NextwordCell, curve_rows, nextword_frame
from cutaway.methods.nextword.spec import NextwordSpec, QuadSpec
from cutaway.methods.nextword.task import NextwordTask, nextword_tasks
from cutaway.methods.nextword.verdict_quad import feature_scores, quad_verdict
from cutaway.models.digests import module_checksum
from cutaway.models.hooks import forward_kwargs
from cutaway.models.lm import LM, model_facts
from cutaway.models.tokens import pad, tokenize
from cutaway.recipe import life_cycle
from cutaway.recipe.life_cycle import Context, Outcome, Run
from cutaway.recipe.objects import Objects
from cutaway.recipe.output import CheckpointFolder
from cutaway.store.records import run_folder
from cutaway.store.row_passes import fill_rows
from cutaway.training.batch_order import make_batch_order
from cutaway.training.loop import TrainingResult, train
from cutaway.training.plan import TrainingPlan

OUTPUT = CheckpointFolder("quad")
MAX_HELD_OUT = 256
"""Held-out texts used in each evaluation."""
EVALUATION_BATCH = 16


@dataclass(frozen=True, eq=False)
class TokenizedTexts:
    """The texts as token ids, and which rows are for training."""

    name: str
    digest: str
    rows: list[list[int]]
    train: list[int]
    held_out: list[int]


@dataclass(frozen=True, eq=False)
class QuadRequest:
    """The model to train, the texts, and the task to measure before and after."""

    spec: QuadSpec
    base: LM
    lm: LM
    texts: TokenizedTexts
    tasks: list[NextwordTask]

    @property
    def identity(self) -> dict[str, Any]:
        """The base model's weights, the texts and the task's rows."""
        asked = [task.identity for task in self.tasks]
        return {"model": self.base.identity, "data": self.texts.digest, "asked": asked}


def resolve(spec: QuadSpec, context: Context) -> QuadRequest:
    """The base model and the one to train, the tokenized texts, the task's rows."""
    base, lm = base_and_initial(spec, context.objects)
    texts = _tokenize_texts(spec, lm, context.objects)
    tasks = []
    if _has_task(spec):
        tasks = nextword_tasks(_nextword_spec(spec, spec.model), context.objects)
    return QuadRequest(spec, base, lm, texts, tasks)


def measure(request: QuadRequest, run: Run) -> Outcome:
    """Train; measure the features on the task before and after."""
    spec, lm, texts, group = request.spec, request.lm, request.texts, process_group()
    before = group.broadcast(lambda: _task_scores(spec, lm, run.context, "start"))
    trained = _train(request, run)
    after = group.broadcast(lambda: _task_scores(spec, lm, run.context, run.address))
    facts = model_facts(request.base)
    note = {"quad": run.address, "base": facts}
    cell = NextwordCell(lm.name, texts.name, "", spec.objective)
    metrics = ("loss", *(f"held_{name}" for name in OBJECTIVES))
    sizes = {"n_train": len(texts.train), "n_test": len(texts.held_out)}
    return Outcome(
        rows=nextword_frame(curve_rows(cell, trained.curve, metrics, **sizes)),
        summary=_summary(request, trained, before, after, run.address),
        baselines={"before": before},
        model=facts,
        data={"name": texts.name, "rows": len(texts.rows), "digest": texts.digest},
        files=OUTPUT.write(spec, run.scratch, lambda path: _save(lm, path), note)
        if group.first
        else {},
    )


def _tokenize_texts(spec: QuadSpec, lm: LM, objects: Objects) -> TokenizedTexts:
    texts = load_text_set(
        objects.get(spec.text, spec.text), text_column=spec.text_column, as_task="text",
        limit=spec.limit, seed=spec.seed, offline=spec.offline,
    )  # fmt: skip
    limit = min(spec.max_tokens, lm.context)
    rows = [row for row in tokenize(lm, texts.texts, limit=limit).rows if len(row) > 1]
    if len(rows) < 4:
        raise BadData(
            f"{texts.name!r} has {len(rows)} texts of two tokens or more, and at least 4 are "
            "needed. Give more texts with --text."
        )
    held_out, learn = hold_out_split(len(rows), spec.held_out, spec.seed)
    held_out = held_out[:MAX_HELD_OUT]
    return TokenizedTexts(texts.name, texts.digest, rows, learn.tolist(), held_out.tolist())


def _train(request: QuadRequest, run: Run) -> TrainingResult:
    """Train the model in place; it has the best weights on held-out texts afterwards."""
    spec, lm, texts, group = request.spec, request.lm, request.texts, process_group()
    rows = [texts.rows[i] for i in texts.train]
    held_out = [texts.rows[i] for i in texts.held_out]
    order = make_batch_order(rows, spec.batch, spec.seed)
    plan = TrainingPlan(
        steps=spec.steps, lr=spec.lr, schedule="cosine", warmup=min(spec.warmup, spec.steps - 1),
        every=min(spec.every, spec.steps), seed=spec.seed,
    )  # fmt: skip

    def loss(step: int) -> Mapping[str, Tensor]:
        batch = order(step)
        f, targets = _contexts_and_targets(lm, [rows[i] for i in group.share(batch)])
        # The mean is over predicted tokens: all tokens of a row but its first.
        weight = group.weight(batch, lambda some: sum(len(rows[i]) - 1 for i in some))
        return {"loss": OBJECTIVES[spec.objective](lm, f, targets).mean() * weight}

    return train(
        dict(lm.module.named_parameters()), loss, plan, folder=run.folder / "training",
        identity={"run": run.address}, console=run.console, score="score",
        evaluate=lambda: held_out_losses(lm, held_out, spec.objective),
    )  # fmt: skip


def _contexts_and_targets(lm: LM, rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    """f at every token that has a next token, and the next tokens."""
    ids, mask = (x.to(lm.device) for x in pad(rows, lm.pad_id))
    f = lm.body(**forward_kwargs(lm, ids, mask)).last_hidden_state
    has_next = mask[:, 1:]
    return f[:, :-1][has_next], ids[:, 1:][has_next]


def _quad(lm: LM, f: Tensor, targets: Tensor) -> Tensor:
    return quad_loss(f.float(), lm.output_embedding[0].float(), targets)


def _cross_entropy(lm: LM, f: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(lm.unembed(f).float(), targets, reduction="none")


OBJECTIVES: dict[str, Callable[[LM, Tensor, Tensor], Tensor]] = {
    "quad": _quad,
    "ce": _cross_entropy,
}


@torch.no_grad()
def held_out_losses(lm: LM, rows: list[list[int]], objective: str) -> dict[str, float]:
    """Both losses per held-out token, and `score`, the negative loss of the objective."""
    names = ("count", *OBJECTIVES)
    batches = range(0, len(rows), EVALUATION_BATCH)
    sums = np.zeros((len(batches), len(names)))

    def sums_of(batch: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
        start = batches[int(batch[0])]
        f, targets = _contexts_and_targets(lm, rows[start : start + EVALUATION_BATCH])
        losses = [to_float64(one(lm, f, targets)).sum().item() for one in OBJECTIVES.values()]
        return {"sums": np.array([[len(targets), *losses]])}

    fill_rows(
        {"sums": sums},
        [np.array([number]) for number in range(len(batches))],
        sums_of,
        inputs=lambda: digest_json(["held_out_losses", rows]),
        weights=lambda: module_checksum(lm.module),
    )
    count, *totals = (sum(column) for column in sums.T.tolist())
    means = {f"held_{name}": value / count for name, value in zip(names[1:], totals, strict=True)}
    return {**means, "score": -means[f"held_{objective}"]}


def _has_task(spec: QuadSpec) -> bool:
    return spec.task is not None or spec.data is not None


def _nextword_spec(spec: QuadSpec, model: str) -> NextwordSpec:
    """The nextword run that measures the features before or after the training."""
    return NextwordSpec(
        model=(model,), task=(spec.task,) if spec.task else (),
        data=(spec.data,) if spec.data else (), features=("f", "phi_p"), runs=spec.runs,
        seed=spec.seed, offline=spec.offline, baselines=(),
    )  # fmt: skip


def _task_scores(spec: QuadSpec, lm: LM, context: Context, state: str) -> dict[str, float]:
    """The scores of the model's features on the task, in a run of `nextword`; {} without a task.

    Only the first process of a distributed training calls this, so the run doesn't wait for others.
    """
    if not _has_task(spec):
        return {}
    when = "before" if state == "start" else "after"
    digest = digest_json({"start": lm.digest, "state": state})
    now = replace(lm, name=f"{lm.name} {when}", digest=digest)
    objects = {**context.objects, now.name: now}
    result = life_cycle.run(
        VERBS["nextword"], _nextword_spec(spec, now.name), Context(context.console, objects),
        group=ProcessGroup(),
    )  # fmt: skip
    return feature_scores(result.rows)


def _save(lm: LM, folder: Path) -> None:
    with quiet_transformers():
        lm.module.save_pretrained(folder)
        lm.tokenizer.save_pretrained(folder)


def _summary(
    request: QuadRequest,
    trained: TrainingResult,
    before: Mapping[str, float],
    after: Mapping[str, float],
    address: str,
) -> dict[str, Any]:
    spec, lm = request.spec, request.lm
    checkpoint = spec.out or str(run_folder(spec.runs, "nextword", address) / OUTPUT.name)
    metric, curve = f"held_{spec.objective}", trained.curve
    last = next(point for point in curve if point["step"] == trained.best_step)
    best = {"model": lm.name, "data": request.texts.name, "features": spec.objective}
    return {
        "verb": "quad",
        "metric": metric,
        "best": {**best, "metric": metric, "value": last[metric]},
        "verdict": quad_verdict(spec.objective, curve[0], last, before, after, checkpoint),
        "checkpoint": checkpoint,
        "best_step": trained.best_step,
        "stopped": trained.stopped,
        "tied": lm.tied,
        "before": dict(before),
        "after": dict(after),
    }
