"""Evaluate the weights that a model has at the moment: task scores and language-model loss."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cutaway.core.digest import digest_json
from cutaway.core.textset import TextSet
from cutaway.data.load import load_text_set
from cutaway.measure.calibration import Reliability, reliability
from cutaway.measure.intervals import Interval, corrected_t, wilson
from cutaway.methods.graft.maths.gain import kept_gain
from cutaway.models.batches import TokenBudget, batches_by_length
from cutaway.models.digests import module_checksum
from cutaway.models.lm import LM
from cutaway.models.loss import lm_loss, mask_tokens, mlm_loss
from cutaway.models.tokens import pad, tokenize
from cutaway.store.row_passes import fill_rows
from cutaway.training.prompting import EVAL_BATCH_TOKENS, PromptedExamples, predict_from_proba
from cutaway.training.task_model import TaskModel
from cutaway.training.task_scores import block_scores, metric_values, scores_with_intervals
from cutaway.training.task_split import TaskSplit

# The weight of the loss in a mask's score: it only breaks ties of the metric.
LOSS_TIE_BREAK = 1e-3
MAX_TEXT_TOKENS = 128

TokenRows = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class TaskOutputs:
    """Probabilities and predictions of one model on the test rows, and its language-model loss."""

    probabilities: NDArray[np.float64]
    predictions: NDArray[Any]
    lm_loss: Interval | None = None


@dataclass(frozen=True, eq=False)
class TaskEvaluator:
    """The rows and texts that models are evaluated on."""

    model: TaskModel
    test: NDArray[np.int64]
    validation: NDArray[np.int64]
    """Train and dev rows that score masks while they are learned."""
    text_rows: TokenRows = ()
    """Held-out texts as tokens, for the language-model loss."""
    seed: int = 0

    @property
    def test_examples(self) -> PromptedExamples:
        """The test rows as prompts with labels."""
        return self.model.examples.take(self.test)

    def outputs(self, *, language: bool = False) -> TaskOutputs:
        """Outputs with the current weights; `language` adds the language-model loss."""
        probabilities = self.model.predict_proba(self.test)
        loss = mean_lm_loss(self.model.lm, self.text_rows, self.seed) if language else None
        return TaskOutputs(
            probabilities, predict_from_proba(self.test_examples, probabilities), loss
        )

    def scores(self, outputs: TaskOutputs, base: TaskOutputs, tuned: TaskOutputs) -> dict[str, Any]:
        """The task's metrics, the relative gain, agreement with the tuned model, text loss."""
        examples = self.test_examples
        scores = task_scores(examples, outputs)
        scores |= gain_and_agreement(examples, outputs, base, tuned)
        return scores if outputs.lm_loss is None else scores | {"lm_loss": outputs.lm_loss}

    def reliability(self, outputs: TaskOutputs) -> Reliability | None:
        """The reliability diagram of the predictions; None for a regression."""
        examples = self.test_examples
        if examples.task == "regression":
            return None
        return reliability(outputs.probabilities, examples.labels)

    def score(self) -> float:
        """The metric on the validation rows, ties broken by the loss; higher is better."""
        examples = self.model.examples.take(self.validation)
        probabilities = self.model.predict_proba(self.validation)
        log_likelihood = np.log(np.clip(probabilities, 1e-12, 1.0))
        likely = (examples.targets.cpu().numpy() * log_likelihood).sum(axis=1)
        return _metric_or_zero(examples, probabilities) + LOSS_TIE_BREAK * float(likely.mean())

    def metric(self) -> float:
        """The task's metric on the validation rows."""
        examples = self.model.examples.take(self.validation)
        return _metric_or_zero(examples, self.model.predict_proba(self.validation))


def _metric_or_zero(examples: PromptedExamples, probabilities: NDArray[np.float64]) -> float:
    value = metric_values(examples, probabilities, [examples.metric])[examples.metric]
    return 0.0 if np.isnan(value) else value


def task_scores(examples: PromptedExamples, outputs: TaskOutputs) -> dict[str, Any]:
    """The task's metric, and for classes accuracy and calibration error, with intervals."""
    names = [examples.metric, *(("accuracy", "ece") if examples.task != "regression" else ())]
    return dict(scores_with_intervals(examples, outputs.probabilities, list(dict.fromkeys(names))))


def gain_and_agreement(
    examples: PromptedExamples,
    outputs: TaskOutputs,
    base: TaskOutputs,
    tuned: TaskOutputs,
) -> dict[str, Any]:
    """The metric's gain relative to the tuned model's, and agreement with its predictions."""
    blocks = [block_scores(examples, one.probabilities) for one in (outputs, base, tuned)]
    scores: dict[str, Any] = {"relative_gain": kept_gain(*blocks)}
    if examples.task != "regression":
        same = int((outputs.predictions == tuned.predictions).sum())
        scores["agreement"] = wilson(same, len(examples))
    return scores


def make_evaluator(
    model: TaskModel, split: TaskSplit, spec: Any, texts: TextSet | None
) -> TaskEvaluator:
    """Evaluate on the test rows, validate on samples of train and dev, and on the texts."""
    rng = np.random.default_rng([spec.seed, 1])
    parts = [_subsample(rows, spec.judge_examples, rng) for rows in (split.train, split.dev)]
    text_rows = heldout_token_rows(model.lm, texts)
    return TaskEvaluator(model, split.test, np.concatenate(parts), text_rows, spec.seed)


def load_heldout_text(spec: Any, lm: LM, objects: Mapping[str, Any]) -> TextSet | None:
    """The held-out text; None when none is wanted or the model has no language-model head."""
    if spec.text == "none" or not lm.has_head:
        return None
    source = objects.get(spec.text, spec.text)
    return load_text_set(
        source, as_task="text", limit=spec.text_limit, seed=spec.seed, offline=spec.offline
    )


def heldout_token_rows(lm: LM, texts: TextSet | None) -> TokenRows:
    """Texts as tokens, without those too short to predict a token in."""
    if texts is None:
        return ()
    rows = tokenize(lm, texts.texts, limit=min(MAX_TEXT_TOKENS, lm.context)).rows
    return tuple(tuple(row) for row in rows if len(row) > 2)


@torch.inference_mode()
def mean_lm_loss(lm: LM, rows: TokenRows, seed: int) -> Interval | None:
    """Mean loss over texts: of the next token, or of masked tokens drawn with the seed."""
    if not rows:
        return None
    losses = np.zeros(len(rows))
    budget = TokenBudget(fixed=EVAL_BATCH_TOKENS)

    def losses_of(some: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
        ids, mask = (x.to(lm.device) for x in pad([rows[i] for i in some], lm.pad_id))
        if lm.kind == "causal":
            each = lm_loss(lm, ids, mask)
        else:
            rng = np.random.default_rng([seed, int(some[0])])
            masked_ids, labels = mask_tokens(lm, ids, mask, rng=rng)
            each = mlm_loss(lm, masked_ids, mask, labels)
        return {"loss": each.cpu().double().numpy()}

    fill_rows(
        {"loss": losses},
        [batch.rows for batch, _ in batches_by_length([len(row) for row in rows], budget)],
        losses_of,
        inputs=lambda: digest_json(["lm_loss", seed, list(rows)]),
        weights=lambda: module_checksum(lm.module),
    )
    return corrected_t(losses, n_train=1, n_test=0)


def _subsample(rows: NDArray[np.int64], most: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return rows if len(rows) <= most else np.sort(rng.choice(rows, most, replace=False))
