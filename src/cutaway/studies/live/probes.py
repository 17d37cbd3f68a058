"""Applies a run's probes, fitted again from its stored activations, to one sentence."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cutaway.console import Console
from cutaway.core.errors import BadSpec, Mismatch, Missing
from cutaway.core.messages import conversation_from_lines
from cutaway.core.spec import build_spec
from cutaway.core.textset import TextSet
from cutaway.measure.splits import Split
from cutaway.methods.probe.inputs import ProbeInputs
from cutaway.methods.probe.maths.cell import (
    classifier,
    decision_criterion,
    encode_labels,
    evaluate_fit,
    take_rows,
)
from cutaway.methods.probe.maths.fitted import FitSettings, FittedProbe
from cutaway.methods.probe.recipe import load_texts
from cutaway.methods.probe.spec import LEARNED_POOLER, ProbeSpec
from cutaway.models.chat import with_chat
from cutaway.models.lm import LM
from cutaway.models.read_texts import read_states
from cutaway.models.start_token import with_bos
from cutaway.pool import needs_attention
from cutaway.store.activations import open_activations
from cutaway.store.records import Record, read_record
from cutaway.studies.live.request import LiveSpec

MAX_TOKENS = 512
# Closed form or few steps: fitting every layer takes seconds.
QUICK_CLASSIFIERS = ("logistic", "lda", "lda_shrink", "ridge", "centroid", "nb")
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class LayerProbe:
    """One layer's classifier and its score on held-out rows."""

    layer: int
    fitted: FittedProbe
    held_out: float


@dataclass(frozen=True, eq=False)
class FittedProbes:
    """The probes of one run, data set and pooler."""

    texts: TextSet
    aim: FitSettings
    names: tuple[str, ...]
    spec: ProbeSpec
    pool: str
    kind: str
    """The classifier's name."""
    metric: str
    """The run's main metric."""
    split: Split
    probes: list[LayerProbe] = field(default_factory=list)


@dataclass
class ProbeCache:
    """All probes fitted in this process, by run, data set and pooler."""

    lm: LM
    cached: dict[tuple[str, str, str], FittedProbes] = field(default_factory=dict)

    def score(self, spec: LiveSpec, on_progress: OnProgress) -> dict[str, Any]:
        """The outputs of the run's probes for the sentence, per layer."""
        assert spec.run is not None
        record = read_record(Path(spec.run))
        fitted = self._fitted(record, spec, on_progress)
        limit = min(fitted.spec.max_tokens or MAX_TOKENS, MAX_TOKENS, self.lm.context)
        layers = [probe.layer for probe in fitted.probes]
        lm = _in_run_format(self.lm, fitted.spec)
        text = conversation_from_lines(spec.text) if lm.chat else spec.text
        found: Any = read_states(lm, [text], layers=layers, pool=(fitted.pool,), limit=limit)
        states: Any = next(iter(found.values()))
        outputs = [_class_outputs(p, states[p.layer], fitted.aim) for p in fitted.probes]
        return {
            "model": self.lm.name, "run": record.address, "data": fitted.texts.name,
            "pool": fitted.pool, "classifier": fitted.kind, "task": fitted.aim.task,
            "classes": fitted.names, "layers": layers, "said": outputs,
            "metric": fitted.metric,
            "held_out": [probe.held_out for probe in fitted.probes],
            "n_train": len(fitted.split.train), "n_val": len(fitted.split.val),
            "n_test": len(fitted.split.test), "command": record.command,
        }  # fmt: skip

    def _fitted(self, record: Record, spec: LiveSpec, on_progress: OnProgress) -> FittedProbes:
        own = build_spec(ProbeSpec, record.spec)
        pool, data = spec.pool or own.pool[0], spec.data or own.data[0]
        key = (record.address, data, pool)
        if key not in self.cached:
            self.cached[key] = fit_probes(self.lm, record, own, data, pool, on_progress)
        return self.cached[key]


def fit_probes(
    lm: LM, record: Record, spec: ProbeSpec, data: str, pool: str, on_progress: OnProgress
) -> FittedProbes:
    """One classifier per layer, on the first split of the run's rows."""
    if pool == LEARNED_POOLER:
        raise BadSpec("The pooler 'learned' trains a network per layer: choose another pooler.")
    spec = spec.model_copy(update={"engine": "local", "offline": True})
    as_read = _model_as_recorded(lm, record, spec)
    texts = _load_recorded_texts(record, spec, data)
    kind = next((name for name in spec.classifier if name in QUICK_CLASSIFIERS), "")
    kind = kind or ("ridge" if texts.task == "regression" else "logistic")
    inputs = ProbeInputs(spec, as_read, texts, {}, Console(quiet=True))
    _need_activations(inputs, record)
    labels, names = encode_labels(np.asarray(texts.labels), texts.task, texts.classes)
    aim = FitSettings(
        texts.task, len(names), spec.seed, spec.class_weight == "balanced",
        decision_criterion(inputs.metric),
    )  # fmt: skip
    classifier(kind).check(aim)
    fitted = FittedProbes(texts, aim, names, spec, pool, kind, inputs.metric, inputs.splits[0])
    mixes = [mix for mix in inputs.mixes if len(mix.layers) == 1]
    if not mixes:
        raise BadSpec(f"Run {record.address} probed only mixes of layers, no single layer.")
    for number, mix in enumerate(mixes):
        on_progress(number, len(mixes))
        states = inputs.states(mix, pool)
        if not isinstance(states, Tensor):
            raise BadSpec(f"The features of run {record.address} are too large for a quick fit.")
        fitted.probes.append(_fit_layer(mix.layers[0], states, labels, fitted))
    return fitted


def _fit_layer(layer: int, states: Tensor, labels: Any, probes: FittedProbes) -> LayerProbe:
    split, aim, y = probes.split, probes.aim, torch.from_numpy(labels)
    fitted = classifier(probes.kind).fit(
        take_rows(states, split.train), y[torch.from_numpy(split.train)],
        take_rows(states, split.val), y[torch.from_numpy(split.val)],
        task=aim.task, classes=aim.classes, seed=aim.seed, balanced=aim.balanced,
    )  # fmt: skip
    found = evaluate_fit(fitted, states, labels, split, aim).metrics
    return LayerProbe(layer, fitted, found[probes.metric])


def _class_outputs(probe: LayerProbe, state: Tensor, aim: FitSettings) -> list[float]:
    """The probability of each class, if available, else the scores or the value."""
    x = state.float()
    scores = probe.fitted.scores(x)
    probabilities = probe.fitted.probabilities(x, scores)
    outputs = (scores if probabilities is None else probabilities)[0]
    if aim.task == "binary" and probabilities is not None:
        return [1 - float(outputs), float(outputs)]
    return [float(one) for one in outputs.reshape(-1)]


def _model_as_recorded(lm: LM, record: Record, spec: ProbeSpec) -> LM:
    """The model with the name and attention kernel of the run's stored activations."""
    models = record.model if isinstance(record.model, list) else [record.model]
    mine = [one for one in models if one.get("digest") == lm.digest]
    if not mine:
        named = ", ".join(str(one.get("name")) for one in models)
        raise Mismatch(
            f"Run {record.address} probed {named} (other weights than those of {lm.name!r}): "
            "choose that model, or a run of this one."
        )
    weighs = needs_attention(spec.pool)
    kernel = ("eager" if weighs else lm.attention) if spec.attention == "auto" else spec.attention
    dtype = lm.dtype if spec.dtype == "auto" else spec.dtype
    lm = replace(lm, name=mine[0]["name"], dtype=dtype, attention=kernel)
    return _in_run_format(lm, spec)


def _in_run_format(lm: LM, spec: ProbeSpec) -> LM:
    """The model reading plain text or conversations, with or without start token, as the run."""
    lm = with_bos(lm, spec.bos)
    return with_chat(lm, system=spec.system) if spec.chat else lm


def _load_recorded_texts(record: Record, spec: ProbeSpec, data: str) -> TextSet:
    """The run's texts; Mismatch if they have changed."""
    if data not in spec.data:
        raise BadSpec(
            f"Run {record.address} has no data set {data!r}: it has {', '.join(spec.data)}."
        )
    texts = load_texts(spec, data, {})
    sets = record.data if isinstance(record.data, list) else [record.data]
    if texts.digest not in [one.get("digest") for one in sets]:
        raise Mismatch(
            f"{data!r} has changed since run {record.address}. Run it again: {record.command}"
        )
    if texts.pairs is not None:
        raise BadSpec(f"{data!r} has two texts per row and can't be applied to one sentence.")
    return texts


def _need_activations(inputs: ProbeInputs, record: Record) -> None:
    """Missing when the activations are no longer in the cache."""
    stored = open_activations(inputs.request.key(inputs.lm, inputs.texts), len(inputs.texts))
    lacking = set(inputs.request.columns()) - set(stored.columns())
    if lacking:
        raise Missing(
            f"The activations of run {record.address} are no longer in the cache. To compute "
            f"them again, remove {str(record.path)!r} and repeat: {record.command}"
        )
