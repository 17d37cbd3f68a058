"""A run's probes, fitted again from the activations it left, reading one sentence."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cutaway.console import Console
from cutaway.core.errors import BadSpec, Mismatch, Missing
from cutaway.core.spec import build_spec
from cutaway.core.textset import TextSet
from cutaway.measure.splits import Split
from cutaway.methods.probe.inputs import ProbeInputs
from cutaway.methods.probe.maths.cell import classifier, encode_labels, evaluate_fit, take_rows
from cutaway.methods.probe.maths.fitted import FitSettings, FittedProbe
from cutaway.methods.probe.recipe import load_texts
from cutaway.methods.probe.rows import MAIN_METRIC
from cutaway.methods.probe.spec import LEARNED_POOLER, ProbeSpec
from cutaway.models.lm import LM
from cutaway.models.read_texts import read_pooled_states
from cutaway.pool import needs_attention
from cutaway.store.activations import open_activations
from cutaway.store.records import Record, read_record
from cutaway.studies.live.request import LiveSpec

MAX_TOKENS = 512
# Solved in closed form or by few steps: fitting every layer takes seconds.
QUICK_CLASSIFIERS = ("logistic", "lda", "lda_shrink", "ridge", "centroid", "nb")
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class LayerProbe:
    """One layer's classifier, and how well it does on rows it never saw."""

    layer: int
    fitted: FittedProbe
    held_out: float


@dataclass(frozen=True, eq=False)
class FittedProbes:
    """The probes of one run, set and pooler, fitted once and kept."""

    texts: TextSet
    aim: FitSettings
    names: tuple[str, ...]
    spec: ProbeSpec
    pool: str
    kind: str
    """Which classifier."""
    split: Split
    probes: list[LayerProbe] = field(default_factory=list)


@dataclass
class ProbeCache:
    """All probes fitted in this process, by run, set and pooler."""

    lm: LM
    made: dict[tuple[str, str, str], FittedProbes] = field(default_factory=dict)

    def score(self, spec: LiveSpec, tell: OnProgress) -> dict[str, Any]:
        """What the run's probes say of the sentence, layer by layer."""
        assert spec.run is not None
        record = read_record(Path(spec.run))
        bench = self._bench(record, spec, tell)
        limit = min(bench.spec.max_tokens or MAX_TOKENS, MAX_TOKENS, self.lm.context)
        layers = [probe.layer for probe in bench.probes]
        found = read_pooled_states(
            self.lm, [spec.text], layers=layers, pool=(bench.pool,), limit=limit
        )
        states: Any = next(iter(found.values()))
        said = [_class_outputs(probe, states[probe.layer], bench.aim) for probe in bench.probes]
        return {
            "model": self.lm.name, "run": record.address, "data": bench.texts.name,
            "pool": bench.pool, "classifier": bench.kind, "task": bench.aim.task,
            "classes": bench.names, "layers": layers, "said": said, "metric": MAIN_METRIC[bench.aim.task],
            "held_out": [probe.held_out for probe in bench.probes],
            "n_train": len(bench.split.train), "n_val": len(bench.split.val),
            "n_test": len(bench.split.test), "command": record.command,
        }  # fmt: skip

    def _bench(self, record: Record, spec: LiveSpec, tell: OnProgress) -> FittedProbes:
        own = build_spec(ProbeSpec, record.spec)
        pool, data = spec.pool or own.pool[0], spec.data or own.data[0]
        key = (record.address, data, pool)
        if key not in self.made:
            self.made[key] = fit_probes(self.lm, record, own, data, pool, tell)
        return self.made[key]


def fit_probes(
    lm: LM, record: Record, spec: ProbeSpec, data: str, pool: str, tell: OnProgress
) -> FittedProbes:
    """One classifier per layer, on the first split of the run's rows."""
    if pool == LEARNED_POOLER:
        raise BadSpec("The pooler 'learned' trains a network per layer: choose another pooler.")
    spec = spec.model_copy(update={"engine": "local", "offline": True})
    as_read = _model_as_recorded(lm, record, spec)
    texts = _load_recorded_texts(record, spec, data)
    kind = next((name for name in spec.classifier if name in QUICK_CLASSIFIERS), "")
    kind = kind or ("ridge" if texts.task == "regression" else "logistic")
    work = ProbeInputs(spec, as_read, texts, {}, Console(quiet=True))
    _need_activations(work, record)
    labels, names = encode_labels(np.asarray(texts.labels), texts.task, texts.classes)
    aim = FitSettings(texts.task, len(names), spec.seed, spec.class_weight == "balanced")
    classifier(kind).check(aim)
    bench = FittedProbes(texts, aim, names, spec, pool, kind, work.splits[0])
    mixes = [mix for mix in work.mixes if len(mix.layers) == 1]
    if not mixes:
        raise BadSpec(f"Run {record.address} probed only mixes of layers, no single layer.")
    for number, mix in enumerate(mixes):
        tell(number, len(mixes))
        states = work.states(mix, pool)
        if not isinstance(states, Tensor):
            raise BadSpec(f"The features of run {record.address} are too large for a quick fit.")
        bench.probes.append(_fit_layer(mix.layers[0], states, labels, bench))
    return bench


def _fit_layer(layer: int, states: Tensor, labels: Any, bench: FittedProbes) -> LayerProbe:
    split, aim, y = bench.split, bench.aim, torch.from_numpy(labels)
    fitted = classifier(bench.kind).fit(
        take_rows(states, split.train), y[torch.from_numpy(split.train)],
        take_rows(states, split.val), y[torch.from_numpy(split.val)],
        task=aim.task, classes=aim.classes, seed=aim.seed, balanced=aim.balanced,
    )  # fmt: skip
    metric = MAIN_METRIC[aim.task]
    return LayerProbe(
        layer, fitted, evaluate_fit(fitted, states, labels, split, aim).metrics[metric]
    )


def _class_outputs(probe: LayerProbe, state: Tensor, aim: FitSettings) -> list[float]:
    """Probability of each class where the classifier has them, else its scores or its value."""
    x = state.float()
    scores = probe.fitted.scores(x)
    chance = probe.fitted.probabilities(x, scores)
    found = (scores if chance is None else chance)[0]
    if aim.task == "binary" and chance is not None:
        return [1 - float(found), float(found)]
    return [float(one) for one in found.reshape(-1)]


def _model_as_recorded(lm: LM, record: Record, spec: ProbeSpec) -> LM:
    """The model under the name and kernel that the run's activations are kept by."""
    models = record.model if isinstance(record.model, list) else [record.model]
    mine = [one for one in models if one.get("digest") == lm.digest]
    if not mine:
        named = ", ".join(str(one.get("name")) for one in models)
        raise Mismatch(
            f"Run {record.address} probed {named} (other weights than those of {lm.name!r}): "
            "choose that model above, or a run of this one."
        )
    weighs = needs_attention(spec.pool)
    kernel = ("eager" if weighs else lm.attention) if spec.attention == "auto" else spec.attention
    return replace(lm, name=mine[0]["name"], dtype=spec.dtype, attention=kernel)


def _load_recorded_texts(record: Record, spec: ProbeSpec, data: str) -> TextSet:
    """The run's rows, as long as they are still the same."""
    if data not in spec.data:
        raise BadSpec(f"Run {record.address} has no set {data!r}: it has {', '.join(spec.data)}.")
    texts = load_texts(spec, data, {})
    sets = record.data if isinstance(record.data, list) else [record.data]
    if texts.digest not in [one.get("digest") for one in sets]:
        raise Mismatch(
            f"{data!r} is not what run {record.address} read: its rows have changed since. "
            f"Run it again: {record.command}"
        )
    if texts.pairs is not None:
        raise BadSpec(f"{data!r} has two texts a row; one sentence has only one.")
    return texts


def _need_activations(work: ProbeInputs, record: Record) -> None:
    """Missing when the activations were dropped from the cache."""
    shelf = open_activations(work.request.key(work.lm, work.texts), len(work.texts))
    there = shelf.columns()
    lacking = [name for name in work.request.columns() if name not in there]
    if lacking:
        raise Missing(
            f"The activations of run {record.address} are no longer in the cache. To get them "
            f"back, remove {str(record.path)!r} and repeat: {record.command}"
        )
