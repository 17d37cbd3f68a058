"""What should be kept: retained texts in parts, and how well a model still knows them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cutaway.core.errors import BadData
from cutaway.core.textset import TextSet
from cutaway.data.load import load_text_set
from cutaway.measure.intervals import Interval, corrected_t
from cutaway.measure.splits import Split
from cutaway.methods.inject.examples import Examples, example_losses, lm_examples
from cutaway.methods.inject.maths.probe_accuracy import probe_accuracy
from cutaway.methods.inject.spec import InjectSpec
from cutaway.models.batches import TokenBudget, batches_by_length
from cutaway.models.lm import LM
from cutaway.recipe.objects import Objects
from cutaway.recipe.unique_names import with_unique_names

BATCH_TOKENS = 1024
MONITORED_TEXTS = 64
"""Texts looked at while training goes on."""


@dataclass(frozen=True, eq=False)
class RetainedSet:
    """One retained set: texts to hold on to, texts watched while training, texts for the end."""

    name: str
    digest: str
    rows: int
    fit: Examples
    watch: Examples
    held: Examples
    labelled: TextSet | None
    """The texts with their classes, where they have some: a probe is trained on them."""

    @property
    def left_out(self) -> int:
        """Texts with less than two tokens."""
        return sum(part.left_out for part in (self.fit, self.watch, self.held))


def read_retained_sets(
    lm: LM, spec: InjectSpec, objects: Objects | None = None
) -> list[RetainedSet]:
    """Every retained set of a spec, no two of one name; a set without rows is refused."""
    if not spec.retain:
        raise BadData("--retain is empty: name at least one text to keep, such as docs.")
    found = (_read_retained_set(lm, spec, name, objects or {}) for name in spec.retain)
    return list(with_unique_names(found, lambda kept: kept.digest, option="--retain"))


def _read_retained_set(lm: LM, spec: InjectSpec, source: str, objects: Objects) -> RetainedSet:
    texts = load_text_set(
        objects.get(source, source),
        text_column=spec.text_column,
        label_column=spec.label_column,
        limit=spec.retain_limit,
        seed=spec.seed,
        offline=spec.offline,
        drop_empty=True,
    )
    if len(texts) < 10:
        raise BadData(
            f"--retain {source!r} has {len(texts)} texts, at least 10 are needed: some to hold on "
            "to, others to measure by."
        )
    fit, watch, held = (
        lm_examples(lm, texts.take(rows), seed=spec.seed, limit=spec.max_tokens)
        for rows in _split_rows(len(texts), spec.seed)
    )
    labelled = texts if texts.task in ("binary", "multiclass") else None
    return RetainedSet(texts.name, texts.digest, len(texts), fit, watch, held, labelled)


def _split_rows(count: int, seed: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Half to hold on to, a tenth to watch, the rest for the end."""
    order = np.random.default_rng([seed, count]).permutation(count)
    one, two = count // 2, count // 2 + max(1, count // 10)
    return np.sort(order[:one]), np.sort(order[one:two]), np.sort(order[two:])


@torch.inference_mode()
def loss_per_text(lm: LM, examples: Examples) -> NDArray[np.float64]:
    """The language loss of every text, in nats per predicted token."""
    found = np.zeros(len(examples))
    for batch, _ in batches_by_length(examples.lengths, TokenBudget(fixed=BATCH_TOKENS)):
        found[batch.rows] = example_losses(lm, examples, batch.rows.tolist()).double().cpu().numpy()
    return found


def monitored_loss(lm: LM, kept: list[RetainedSet]) -> float:
    """The mean language loss on some texts of every set, while training goes on."""
    return float(
        np.mean([loss_per_text(lm, one.watch.take(range(min(MONITORED_TEXTS, len(one.watch))))).mean()
                 for one in kept])
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class RetainedScores:
    """What a model knows of every retained set."""

    losses: dict[str, NDArray[np.float64]]
    probes: dict[str, Interval]

    def metrics(self, name: str) -> dict[str, float | Interval]:
        """The numbers of one set."""
        loss = mean_over_texts(self.losses[name])
        mean, low, high = np.exp([loss.mean, loss.low, loss.high]).tolist()
        found: dict[str, float | Interval] = {
            "lm_loss": loss,
            "perplexity": Interval(mean, low, high, loss.level, loss.n),
        }
        return found | ({"probe_accuracy": self.probes[name]} if name in self.probes else {})


def score_retained(lm: LM, kept: list[RetainedSet], seed: int) -> RetainedScores:
    """The language loss of every held-out text, and a probe for every labelled set."""
    return RetainedScores(
        {one.name: loss_per_text(lm, one.held) for one in kept},
        {
            one.name: _last_layer_accuracy(lm, one.labelled, seed)
            for one in kept
            if one.labelled is not None
        },
    )


def mean_over_texts(values: NDArray[np.float64]) -> Interval:
    """The plain t interval of a mean over independent texts."""
    return corrected_t(values, n_train=1, n_test=0)


def forgetting_metrics(
    before: RetainedScores, after: RetainedScores, name: str
) -> dict[str, float | Interval]:
    """How much was lost on a set: rise of the loss, text by text; fall of the probe."""
    found: dict[str, float | Interval] = {
        "forgetting": mean_over_texts(after.losses[name] - before.losses[name])
    }
    if name in before.probes:
        found["probe_forgetting"] = before.probes[name].mean - after.probes[name].mean
    return found


def _last_layer_accuracy(lm: LM, texts: TextSet, seed: int) -> Interval:
    """Accuracy of a logistic probe on the last layer, on a third of the texts."""
    states = lm.read(texts.texts, pairs=texts.pairs, layers=[lm.layers], pool="mean")[lm.layers]
    order = np.random.default_rng([seed, len(texts)]).permutation(len(texts))
    one, two = len(texts) // 2, 2 * len(texts) // 3
    split = Split(0, np.sort(order[:one]), np.sort(order[one:two]), np.sort(order[two:]))
    labels = np.asarray(texts.labels).astype(np.int64)
    classes = 2 if texts.task == "binary" else len(texts.classes) or int(labels.max(initial=1)) + 1
    return probe_accuracy(states.float(), labels, split, classes)
