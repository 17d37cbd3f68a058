"""What a model can do with the weights it holds right now: the task, and its own language."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cutaway.core.textset import TextSet
from cutaway.data.load import load_text_set
from cutaway.measure.calibration import Reliability, reliability
from cutaway.measure.intervals import Interval, corrected_t, wilson
from cutaway.methods.graft.maths.gain import relative_gain
from cutaway.models.batches import TokenBudget, batches_by_length
from cutaway.models.lm import LM
from cutaway.models.loss import lm_loss, mask_tokens, mlm_loss
from cutaway.models.tokens import pad, tokenize
from cutaway.training.prompting import EVAL_BATCH_TOKENS, predict_from_proba
from cutaway.training.task_model import TaskModel
from cutaway.training.task_scores import metric_values, scores_with_intervals
from cutaway.training.task_split import TaskSplit

# How much the loss counts where two masks have the same metric.
LOSS_TIE_BREAK = 1e-3


@dataclass(frozen=True, eq=False)
class TaskOutputs:
    """The answers of one model to the test rows, and its language-model loss."""

    answers: NDArray[np.float64]
    decisions: NDArray[Any]
    language: Interval | None = None


@dataclass(frozen=True, eq=False)
class TaskEvaluator:
    """The rows that models are tried on."""

    pupil: TaskModel
    test: NDArray[np.int64]
    judges: NDArray[np.int64]
    """Train and dev rows that judge masks on the way."""
    prose: tuple[tuple[int, ...], ...] = ()
    """Texts as tokens, for the language-model loss."""
    seed: int = 0
    facts: dict[str, Any] = field(default_factory=dict)

    def said(self, *, language: bool = False) -> TaskOutputs:
        """What the weights in place answer."""
        asked, found = self.pupil.examples.take(self.test), self.pupil.predict_proba(self.test)
        loss = mean_lm_loss(self.pupil.lm, self.prose, self.seed) if language else None
        return TaskOutputs(found, predict_from_proba(asked, found), loss)

    def scores(self, said: TaskOutputs, base: TaskOutputs, tuned: TaskOutputs) -> dict[str, Any]:
        """Every metric of the task, the share of the gain, agreement with the tuned model."""
        asked = self.pupil.examples.take(self.test)
        metric, classes = asked.metric, asked.task != "regression"
        names = dict.fromkeys([metric, *(("accuracy", "ece") if classes else ())])
        found: dict[str, Any] = dict(scores_with_intervals(asked, said.answers, list(names)))
        before, after = (
            metric_values(asked, one.answers, [metric])[metric] for one in (base, tuned)
        )
        found["relative_gain"] = relative_gain(found[metric].mean, before, after)
        if classes:
            same = int((said.decisions == tuned.decisions).sum())
            found["agreement"] = wilson(same, len(asked))
        if said.language is not None:
            found["lm_loss"] = said.language
        return found

    def reliability(self, said: TaskOutputs) -> Reliability | None:
        """The calibration of the answers; None for a regression."""
        asked = self.pupil.examples.take(self.test)
        if asked.task == "regression":
            return None
        return reliability(said.answers, asked.labels)

    def judge(self) -> float:
        """The metric on the judging rows, with the loss as a tie-break."""
        asked, found = self.pupil.examples.take(self.judges), self.pupil.predict_proba(self.judges)
        right = (asked.targets.cpu().numpy() * np.log(np.clip(found, 1e-12, 1.0))).sum(axis=1)
        return self._metric(found) + LOSS_TIE_BREAK * float(right.mean())

    def metric(self) -> float:
        """The task's metric on the judging rows."""
        return self._metric(self.pupil.predict_proba(self.judges))

    def _metric(self, found: NDArray[np.float64]) -> float:
        asked = self.pupil.examples.take(self.judges)
        value = metric_values(asked, found, [asked.metric])[asked.metric]
        return 0.0 if np.isnan(value) else value


def make_evaluator(
    pupil: TaskModel, lesson: TaskSplit, spec: Any, prose: TextSet | None
) -> TaskEvaluator:
    """The rows of a lesson as a trial: its test rows, and some of train and dev to judge by."""
    rng = np.random.default_rng([spec.seed, 1])
    parts = [_subsample(rows, spec.judge_examples, rng) for rows in (lesson.train, lesson.dev)]
    return TaskEvaluator(
        pupil, lesson.test, np.concatenate(parts), heldout_token_rows(pupil.lm, prose), spec.seed
    )


def load_heldout_text(
    spec: Any, lm: LM, objects: Mapping[str, Any] | None = None
) -> TextSet | None:
    """The held-out text; None where none is wanted or the model has no head to speak with."""
    if spec.text == "none" or not lm.has_head:
        return None
    source = (objects or {}).get(spec.text, spec.text)
    return load_text_set(
        source, as_task="text", limit=spec.text_limit, seed=spec.seed, offline=spec.offline
    )


def heldout_token_rows(
    lm: LM, prose: TextSet | None, most: int = 128
) -> tuple[tuple[int, ...], ...]:
    """Texts as tokens, those long enough to predict something in."""
    if prose is None:
        return ()
    rows = tokenize(lm, prose.texts, limit=min(most, lm.context)).rows
    return tuple(tuple(row) for row in rows if len(row) > 2)


@torch.inference_mode()
def mean_lm_loss(lm: LM, rows: tuple[tuple[int, ...], ...], seed: int) -> Interval | None:
    """Mean loss over texts: of the next token, or of masked ones, the same ones every time."""
    if not rows:
        return None
    found = np.zeros(len(rows))
    for batch, _ in batches_by_length(
        [len(row) for row in rows], TokenBudget(fixed=EVAL_BATCH_TOKENS)
    ):
        ids, mask = (x.to(lm.device) for x in pad([rows[i] for i in batch.rows], lm.pad_id))
        if lm.kind == "causal":
            each = lm_loss(lm, None, ids, mask)
        else:
            rng = np.random.default_rng([seed, int(batch.rows[0])])
            shown, labels = mask_tokens(lm, ids, mask, rng=rng)
            each = mlm_loss(lm, None, shown, mask, labels)
        found[batch.rows] = each.double().cpu().numpy()
    return corrected_t(found, n_train=1, n_test=0)


def _subsample(rows: NDArray[np.int64], most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return rows if len(rows) <= most else np.sort(rng.choice(rows, most, replace=False))
