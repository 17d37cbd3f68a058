"""Retained texts, and how well a model still knows them: language loss and probe accuracy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cutaway.core.digest import digest_json
from cutaway.core.errors import BadData, BadSpec
from cutaway.core.textset import PARTS, TextSet
from cutaway.data.load import DataSource, defines_columns, load_text_set
from cutaway.measure.intervals import Interval, corrected_t
from cutaway.measure.splits import Split
from cutaway.methods.inject.examples import Examples, example_losses, lm_examples
from cutaway.methods.inject.maths.probe_accuracy import probe_accuracy
from cutaway.methods.inject.spec import InjectSpec
from cutaway.models.batches import TokenBudget, batches_by_length
from cutaway.models.digests import module_checksum
from cutaway.models.lm import LM
from cutaway.recipe.objects import Objects, with_unique_names
from cutaway.store.row_passes import fill_rows
from cutaway.store.samples import text_digests

BATCH_TOKENS = 1024
MONITORED_TEXTS = 64
"""Dev texts of each set that are evaluated during training."""


@dataclass(frozen=True, eq=False)
class RetainedSet:
    """One retained set: texts to regularise with, to monitor training, and to test on."""

    name: str
    digest: str
    rows: int
    train: Examples
    dev: Examples
    test: Examples
    labelled: TextSet | None
    """The texts with their classes, if they have some: a probe is trained on them."""
    parts: Mapping[str, NDArray[np.int64]]
    """The rows of train, dev and test."""
    digests: Sequence[str]
    """Of every text."""

    @property
    def dropped(self) -> int:
        """Texts with fewer than two tokens."""
        return sum(part.dropped for part in (self.train, self.dev, self.test))


def read_retained_sets(
    lm: LM, spec: InjectSpec, objects: Objects | None = None
) -> list[RetainedSet]:
    """Every set of `--retain`, with unique names."""
    if not spec.retain:
        raise BadData("--retain is empty: name at least one text to keep, such as docs.")
    sources = [(objects or {}).get(name, name) for name in (*spec.retain, *spec.retain_tasks)]
    if (spec.text_column or spec.label_column) and all(map(defines_columns, sources)):
        raise BadSpec(
            "--text-column and --label-column are for files of --retain and --retain-tasks, and "
            "there is none. Leave them out."
        )
    sets = (_read_retained_set(lm, spec, name, objects or {}) for name in spec.retain)
    return list(with_unique_names(sets, lambda one: one.digest, option="--retain"))


def retained_columns(spec: InjectSpec, source: DataSource) -> dict[str, Any]:
    """`--text-column` and `--label-column` for a retained set or task that has neither."""
    if defines_columns(source):
        return {}
    return {"text_column": spec.text_column, "label_column": spec.label_column}


def _read_retained_set(lm: LM, spec: InjectSpec, source: str, objects: Objects) -> RetainedSet:
    texts = load_text_set(
        objects.get(source, source),
        **retained_columns(spec, objects.get(source, source)),
        limit=spec.retain_limit,
        seed=spec.seed,
        offline=spec.offline,
        drop_empty=True,
    )
    if len(texts) < 10:
        raise BadData(
            f"--retain {source!r} has {len(texts)} texts, at least 10 are needed: some to "
            "regularise with, others to measure on. Give more texts."
        )
    # Half for training, a tenth for dev, the rest for testing.
    order = np.random.default_rng([spec.seed, len(texts)]).permutation(len(texts))
    bounds = [len(texts) // 2, len(texts) // 2 + max(1, len(texts) // 10)]
    rows = [np.sort(part) for part in np.split(order, bounds)]
    parts = dict(zip(PARTS, rows, strict=True))
    train, dev, test = (
        lm_examples(lm, texts.take(part), seed=spec.seed, limit=spec.max_tokens) for part in rows
    )
    labelled = texts if texts.task in ("binary", "multiclass") else None
    return RetainedSet(
        texts.name, texts.digest, len(texts), train, dev, test, labelled, parts, text_digests(texts)
    )


@torch.inference_mode()
def loss_per_text(lm: LM, examples: Examples) -> NDArray[np.float64]:
    """The language loss of every text, in nats per predicted token."""
    losses, budget = np.zeros(len(examples)), TokenBudget(fixed=BATCH_TOKENS)

    def losses_of(rows: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
        return {"loss": example_losses(lm, examples, rows.tolist()).cpu().double().numpy()}

    fill_rows(
        {"loss": losses},
        [batch.rows for batch, _ in batches_by_length(examples.lengths, budget)],
        losses_of,
        inputs=lambda: digest_json([examples.rows, examples.positions, examples.targets]),
        weights=lambda: module_checksum(lm.module),
    )
    return losses


def monitored_loss(lm: LM, retained: Sequence[RetainedSet]) -> float:
    """The mean language loss on some dev texts of every set."""
    some = (one.dev.take(range(min(MONITORED_TEXTS, len(one.dev)))) for one in retained)
    return float(np.mean([loss_per_text(lm, examples).mean() for examples in some]))


@dataclass(frozen=True, eq=False)
class RetainedScores:
    """Test losses, and probe accuracies of labelled sets, by name of the set."""

    losses: dict[str, NDArray[np.float64]]
    probes: dict[str, Interval]

    def metrics(self, name: str) -> dict[str, float | Interval]:
        """The metrics of one set."""
        loss = mean_over_texts(self.losses[name])
        mean, low, high = np.exp([loss.mean, loss.low, loss.high]).tolist()
        metrics: dict[str, float | Interval] = {
            "lm_loss": loss,
            "perplexity": Interval(mean, low, high, loss.level, loss.n),
        }
        return metrics | ({"probe_accuracy": self.probes[name]} if name in self.probes else {})


def score_retained(lm: LM, retained: Sequence[RetainedSet], seed: int) -> RetainedScores:
    """The language loss of every test text, and the probe accuracy of every labelled set."""
    return RetainedScores(
        {r.name: loss_per_text(lm, r.test) for r in retained},
        {r.name: _last_layer_accuracy(lm, r.labelled, seed) for r in retained if r.labelled},
    )


def mean_over_texts(values: NDArray[np.float64]) -> Interval:
    """The mean over independent texts with its t interval."""
    return corrected_t(values, n_train=1, n_test=0)


def forgetting_metrics(
    before: RetainedScores, after: RetainedScores, name: str
) -> dict[str, float | Interval]:
    """What one set lost: the rise of the loss, text by text, and the fall of probe accuracy."""
    metrics: dict[str, float | Interval] = {
        "forgetting": mean_over_texts(after.losses[name] - before.losses[name])
    }
    if name in before.probes:
        metrics["probe_forgetting"] = before.probes[name].mean - after.probes[name].mean
    return metrics


def _last_layer_accuracy(lm: LM, texts: TextSet, seed: int) -> Interval:
    """Accuracy of a logistic probe on the last layer, on a third of the texts."""
    states = lm.read(texts.texts, pairs=texts.pairs, layers=[lm.layers], pool="mean")[lm.layers]
    order = np.random.default_rng([seed, len(texts)]).permutation(len(texts))
    bounds = [len(texts) // 2, 2 * len(texts) // 3]
    train, val, test = (np.sort(rows) for rows in np.split(order, bounds))
    labels = np.asarray(texts.labels).astype(np.int64)
    classes = 2 if texts.task == "binary" else len(texts.classes) or int(labels.max(initial=1)) + 1
    return probe_accuracy(states.float(), labels, Split(0, train, val, test), classes)
