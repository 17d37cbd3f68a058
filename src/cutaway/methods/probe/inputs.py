"""The inputs of all probes of one model on one data set: features, labels and splits."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch import Tensor

from cutaway.console import Console
from cutaway.core.textset import TextSet
from cutaway.data.main_metric import REFERENCE_METRICS, main_metric
from cutaway.engine import find_engine
from cutaway.extract.activations import StoredActivations, extract
from cutaway.extract.model_handle import ModelHandle, make_model_handle, random_twin_handle
from cutaway.extract.request import ExtractionRequest
from cutaway.measure.baselines import WordCounts, count_words
from cutaway.measure.splits import Split, SplitPlan, split
from cutaway.methods.probe.maths.cell import RaggedTokens, RowBlocks, classifier
from cutaway.methods.probe.maths.fitted import FitSettings
from cutaway.methods.probe.maths.layer_mix import LayerMix, mix_layers, parse_layers
from cutaway.methods.probe.spec import LEARNED_POOLER, ProbeSpec
from cutaway.models.lm import LM
from cutaway.models.load import random_twin
from cutaway.pool import pooler
from cutaway.recipe.objects import Objects, shown_names
from cutaway.store.samples import split_frame, text_digests

MAX_MATRIX_BYTES = 256 << 20
"""Feature matrices up to this size are read into memory, larger ones block by block."""
BLOCK_ROWS = 8192


def probe_metric(spec: ProbeSpec, texts: TextSet) -> str:
    """The main metric of a data set; BadSpec if the spec's doesn't fit it."""
    return main_metric(texts, spec.metric, more=REFERENCE_METRICS)


@dataclass(frozen=True)
class ProbeInputs:
    """Features, labels and splits of one model on one data set."""

    spec: ProbeSpec
    lm: LM
    texts: TextSet
    objects: Objects
    console: Console

    def check(self) -> None:
        """Refuse everything that is wrong with the request before anything is computed."""
        for given in self.classifiers.values():
            row = classifier(given)
            row.check(FitSettings(self.texts.task, max(2, len(self.texts.classes))))
        for name in self.spec.pool:
            if name != LEARNED_POOLER:
                pooler(name)
        find_engine(self.spec.engine).check()
        _ = self.mixes, self.splits, self.metric

    @cached_property
    def metric(self) -> str:
        """The main metric."""
        return probe_metric(self.spec, self.texts)

    @cached_property
    def classifiers(self) -> dict[str, Any]:
        """The classifiers of the spec by the name that results show."""
        shown = shown_names(self.spec.classifier, self.objects)
        return {shown[name]: self.objects.get(name, name) for name in self.spec.classifier}

    @cached_property
    def mixes(self) -> list[LayerMix]:
        """The layers and layer mixes of the spec, each once."""
        mixes = [m for text in self.spec.layers for m in parse_layers(text, self.lm.layers)]
        return list({m.name: m for m in mixes}.values())

    @cached_property
    def request(self) -> ExtractionRequest:
        """What one forward pass over the texts has to store."""
        layers = sorted({layer for m in self.mixes for layer in m.layers})
        pools = tuple(dict.fromkeys("all" if p == LEARNED_POOLER else p for p in self.spec.pool))
        return ExtractionRequest(
            layers=tuple(layers), pools=pools, max_tokens=self.spec.max_tokens,
            truncation=self.spec.cut, stored_dtype=self.spec.keep,
        )  # fmt: skip

    @cached_property
    def digests(self) -> list[str]:
        """The digest of each text, by which samples and splits name it."""
        return text_digests(self.texts)

    def splits_table(self) -> pl.DataFrame:
        """The rows of every split by part; `n_train` tells the sizes of a learning curve apart."""
        name, parts = self.texts.name, ("train", "val", "test")
        return pl.concat(
            split_frame(
                name, part, getattr(one, part), self.digests, repeat=one.repeat
            ).with_columns(n_train=pl.lit(len(one.train), dtype=pl.Int64))
            for one in self.splits
            for part in parts
        )

    @cached_property
    def labels(self) -> NDArray[Any]:
        """One label per text."""
        return np.asarray(self.texts.labels)

    @cached_property
    def splits(self) -> tuple[Split, ...]:
        """The splits that every cell and every baseline is measured on."""
        spec = self.spec
        return self._split(
            SplitPlan(
                protocol=spec.protocol, seed=spec.seed, repeats=spec.repeats, folds=spec.folds,
                shots=spec.shots, sizes=self._training_sizes(),
            )
        )  # fmt: skip

    @property
    def coded_rows(self) -> NDArray[np.int64]:
        """The training rows whose labels the MDL code sends: the largest part, of the first split
        that has it."""
        return max((one.train for one in self.splits), key=len)

    def _split(self, plan: SplitPlan) -> tuple[Split, ...]:
        texts = self.texts
        return split(self.labels, plan, task=texts.task, parts=texts.parts, classes=texts.classes)

    def _training_sizes(self) -> tuple[int, ...]:
        """Training sizes of a learning curve in rows; fractions are of the training part."""
        if self.spec.protocol != "curve":
            return ()
        plan = SplitPlan(protocol="repeats", seed=self.spec.seed, repeats=self.spec.repeats)
        full = min(len(one.train) for one in self._split(plan))
        sizes = self.spec.train_sizes
        return tuple(sorted({s if isinstance(s, int) else max(2, round(s * full)) for s in sizes}))

    @cached_property
    def blocks(self) -> NDArray[np.int64]:
        """The jackknife block of each row."""
        from cutaway.measure.jackknife import assign_blocks

        return assign_blocks([split.test for split in self.splits], len(self.texts))

    @cached_property
    def words(self) -> WordCounts:
        """The words of every text, counted once for all text baselines."""
        return count_words(self.texts.texts, self.texts.pairs)

    @cached_property
    def activations(self) -> StoredActivations:
        """The model's hidden states; computed when the first cell needs them."""
        stored = self._extract(self.lm, self._handle)
        if stored.num_truncated:
            self.console.print(f"{stored.num_truncated:,} texts were too long and were truncated.")
        return stored

    @cached_property
    def twin_activations(self) -> StoredActivations:
        """The hidden states of the same architecture with random weights."""
        twin = random_twin(self.lm, seed=self.spec.seed)
        return self._extract(twin, random_twin_handle(self._handle, twin, self.spec.seed))

    def _extract(self, lm: LM, handle: ModelHandle | None) -> StoredActivations:
        return extract(
            lm, self.texts, self.request, console=self.console, engine=self.spec.engine,
            handle=handle,
        )  # fmt: skip

    @property
    def _handle(self) -> ModelHandle | None:
        # A model given as an object, or renamed to be unique, can't be opened by its name.
        return make_model_handle(self.lm, self.spec) if self.lm.name in self.spec.model else None

    def for_workers(self) -> "ProbeInputs":
        """The same inputs without weights: workers read the activations from the store."""
        classifiers = {k: v for k, v in self.objects.items() if k in self.spec.classifier}
        light = replace(self.lm, module=None, tokenizer=None)
        sent = replace(self, lm=light, objects=classifiers, console=Console(quiet=True))
        computed = ("activations", "twin_activations")
        vars(sent).update({name: vars(self)[name] for name in computed if name in vars(self)})
        return sent

    def states(
        self, layers: LayerMix, pool: str, *, of_twin: bool = False
    ) -> Tensor | RowBlocks | RaggedTokens:
        """The features of one layer mix and pooler; large matrices are read block by block."""
        stored = self.twin_activations if of_twin else self.activations
        if pool == LEARNED_POOLER:
            tokens = {layer: stored.tokens(layer) for layer in layers.layers}
            offsets = next(iter(tokens.values()))[1]
            mixed = mix_layers({layer: values for layer, (values, _) in tokens.items()}, layers)
            return RaggedTokens(mixed, offsets)
        if len(layers.layers) == 1 and len(self.texts) * self.lm.width * 4 > MAX_MATRIX_BYTES:
            return self._in_blocks(f"{layers.layers[0]}/{pool}", stored)
        return mix_layers({layer: stored.column(layer, pool) for layer in layers.layers}, layers)

    def _in_blocks(self, column: str, stored: StoredActivations) -> RowBlocks:
        n = len(self.texts)

        def blocks() -> Iterator[Tensor]:
            for start in range(0, n, BLOCK_ROWS):
                yield stored.table.read(column, np.arange(start, min(start + BLOCK_ROWS, n)))

        return RowBlocks(blocks, n, self.lm.width)
