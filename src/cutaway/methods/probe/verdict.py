"""The verdict of a probe run, in sentences. Needs no torch.

Two cells are compared on the same splits, by the corrected paired t test or, where the repeats
share their test rows, by the variance of these rows too (`measure/repeats.py`).
"Statistically indistinguishable" means that no difference is significant at the given level.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isnan

import numpy as np

from cutaway.core.errors import BadData
from cutaway.measure.intervals import Difference, Interval, clip_interval, negate
from cutaway.measure.metrics import UNIT, MetricFacts, metric_facts
from cutaway.measure.repeats import ResamplingInfo, mean_interval, paired_difference
from cutaway.methods.probe.spec import LEARNED_POOLER

BASELINE_TITLES = {"bow": "bag-of-words", "tfidf": "TF-IDF"}


@dataclass(frozen=True)
class ProbeScore:
    """One metric of one cell over its repeats, in the order of the splits."""

    values: tuple[float, ...]
    resampling: ResamplingInfo
    layers: str = "-"
    pool: str = "text"
    classifier: str = ""

    @property
    def mean(self) -> float:
        """The mean over the repeats that have a value."""
        return float(np.nanmean(self.values))


@dataclass(frozen=True)
class Evidence:
    """The scores that a verdict is based on; what was not measured is left out."""

    metric: str
    cells: tuple[ProbeScore, ...]
    baselines: Mapping[str, ProbeScore] = field(default_factory=dict)
    """By name: majority, bow, tfidf."""
    twins: tuple[ProbeScore, ...] = ()
    """The same cells of the model with random weights."""
    controls: tuple[ProbeScore, ...] = ()
    """The same cells on the control task (random labels by word)."""
    mdl: tuple[float, float, float] | None = None
    """Online code length of the best cell, of the prior code and of the uniform code, in bits."""
    level: float = 0.05

    @property
    def testable(self) -> bool:
        """Whether differences can be tested: several splits, or proportions of the test rows."""
        several = any(len(c.values) > 1 or c.resampling.blocks for c in self.cells)
        return self.facts.proportion or several

    @property
    def facts(self) -> MetricFacts:
        """Direction and range of the metric."""
        return metric_facts(self.metric)

    @property
    def sign(self) -> float:
        """1 for metrics where higher is better, else -1."""
        return 1.0 if self.facts.higher_is_better else -1.0

    def difference(self, first: ProbeScore, second: ProbeScore) -> Difference:
        """How much better the first is than the second on the same splits."""
        found = paired_difference(
            first.values, second.values, first.resampling, second.resampling,
            share=self.facts.proportion,
        )  # fmt: skip
        return found if self.sign > 0 else negate(found)

    def differ(self, first: ProbeScore, second: ProbeScore) -> bool:
        """Whether the difference is significant."""
        return self.difference(first, second).p < self.level


def best_score(evidence: Evidence) -> ProbeScore:
    """The cell with the best mean; BadData if none has a value."""
    known = [cell for cell in evidence.cells if not all(isnan(v) for v in cell.values)]
    if not known:
        raise BadData(f"No cell has a value of {evidence.metric!r}: there is nothing to compare.")
    return max(known, key=lambda cell: evidence.sign * cell.mean)


def tied_scores(evidence: Evidence, top: ProbeScore) -> list[ProbeScore]:
    """Other layers, with the same pooler and classifier, that don't differ from the best cell."""
    return [cell for cell in _other_layers(evidence, top) if not evidence.differ(top, cell)]


def explained_share(top: ProbeScore, baseline: ProbeScore, majority: ProbeScore) -> float:
    """The share of the gain over the majority class that a baseline reaches too, at least 0."""
    gain = top.mean - majority.mean
    return max(0.0, (baseline.mean - majority.mean) / gain) if gain != 0 else float("nan")


def verdict_sentences(evidence: Evidence) -> list[str]:
    """The verdict, the most important sentence first."""
    top = best_score(evidence)
    sentences = [_headline(evidence, top), _tied_layers(evidence, top), _majority(evidence, top)]
    for name in BASELINE_TITLES:
        if name in evidence.baselines:
            sentences.append(_text_baseline(evidence, top, name))
    sentences += [_twin(evidence, top), _control(evidence, top), _mdl(evidence)]
    sentences.append(_learned_pooling(evidence))
    return [sentence for sentence in sentences if sentence]


def _learned_pooling(evidence: Evidence) -> str:
    """Which classifier the pooler `learned` uses."""
    names = {cell.classifier for cell in evidence.cells if cell.pool == LEARNED_POOLER}
    if not names:
        return ""
    return (
        f"The pooler learned uses its own classifier, {', '.join(sorted(names))} (one query over "
        "all tokens and a linear layer, trained together), whatever --classifier says."
    )


def _other_layers(evidence: Evidence, top: ProbeScore) -> list[ProbeScore]:
    return [
        cell
        for cell in evidence.cells
        if (cell.pool, cell.classifier) == (top.pool, top.classifier)
        and cell.layers != top.layers
        and len(cell.values) == len(top.values)
    ]


def _headline(evidence: Evidence, top: ProbeScore) -> str:
    interval = mean_interval(top.values, top.resampling, share=evidence.facts.proportion)
    if evidence.facts.bounds == UNIT:
        interval = clip_interval(interval, 0.0, 1.0)
    majority = evidence.baselines.get("majority")
    guess = "" if majority is None else f"; the majority baseline reaches {_format(majority.mean)}"
    repeats = "1 repeat" if len(top.values) == 1 else f"{len(top.values)} repeats"
    return (
        f"The best probe reads {_layer_name(top.layers)} (pooler {top.pool}, classifier "
        f"{top.classifier}) and reaches {evidence.facts.title} "
        f"{_format(top.mean)}{_interval_text(interval)} over {repeats}{guess}."
    )


def _tied_layers(evidence: Evidence, top: ProbeScore) -> str:
    others, tied = _other_layers(evidence, top), tied_scores(evidence, top)
    if not others:
        return ""
    if not evidence.testable:
        return (
            "Differences between layers can't be tested with a single split; the protocols "
            "repeats and kfold have several."
        )
    if not tied:
        return "Every other layer is significantly worse."
    if len(tied) == len(others) and len(others) > 3:
        return f"All {len(others)} other layers are statistically indistinguishable from it."
    names, verb = _layer_list([cell.layers for cell in tied]), "is" if len(tied) == 1 else "are"
    return f"{names} {verb} statistically indistinguishable from {_layer_name(top.layers)}."


def _majority(evidence: Evidence, top: ProbeScore) -> str:
    base = evidence.baselines.get("majority")
    if base is None or not evidence.testable or evidence.differ(top, base):
        return ""
    return (
        "There is no evidence that these layers encode the property: the score is statistically "
        f"indistinguishable from the majority baseline ({_format(base.mean)})."
    )


def _text_baseline(evidence: Evidence, top: ProbeScore, name: str) -> str:
    base, majority = evidence.baselines[name], evidence.baselines.get("majority")
    start = f"A {BASELINE_TITLES[name]} baseline reaches {_format(base.mean)}"
    if evidence.sign * (base.mean - top.mean) >= 0:
        return f"{start}, at least as good as the probe ({_format(top.mean)})."
    share = explained_share(top, base, majority) if majority else float("nan")
    sentence = f"{start} (probe: {_format(top.mean)})"
    if not isnan(share):
        sentence += f", {share:.0%} of the gain over the majority baseline"
    if evidence.testable and not evidence.differ(top, base):
        sentence += "; the two are statistically indistinguishable"
    return f"{sentence}."


def _twin(evidence: Evidence, top: ProbeScore) -> str:
    other = _same_cell(evidence.twins, top)
    if other is None:
        return ""
    gain = evidence.difference(top, other)
    start = f"The same model with random weights reaches {_format(other.mean)}"
    if evidence.testable and not gain.p < evidence.level:
        return f"{start}, statistically indistinguishable: the score does not need pretraining."
    return (
        f"{start}: pretraining adds {_format(gain.interval.mean)}{_interval_text(gain.interval)}."
    )


def _control(evidence: Evidence, top: ProbeScore) -> str:
    other = _same_cell(evidence.controls, top)
    if other is None:
        return ""
    gain = evidence.difference(top, other).interval
    return (
        f"Selectivity: {_format(gain.mean)}{_interval_text(gain)} (control-task "
        f"{evidence.facts.title}: {_format(other.mean)})."
    )


def _mdl(evidence: Evidence) -> str:
    if evidence.mdl is None:
        return ""
    bits, prior, uniform = evidence.mdl
    start = f"Minimum description length of the training labels: {bits:,.0f} bits"
    without = f"{prior:,.0f} bits of the class frequencies alone (uniform code: {uniform:,.0f})"
    if bits >= prior:
        return f"{start}, no shorter than the {without}: these features do not compress the labels."
    return f"{start} instead of the {without}, {prior / bits:.2f}x compression."


def _same_cell(cells: Sequence[ProbeScore], top: ProbeScore) -> ProbeScore | None:
    for cell in cells:
        same = (cell.layers, cell.pool, cell.classifier) == (top.layers, top.pool, top.classifier)
        if same and len(cell.values) == len(top.values):
            return cell
    return None


def _interval_text(interval: Interval) -> str:
    low, high = interval.low, interval.high
    return "" if isnan(low) else f" [{_format(low)}, {_format(high)}]"


def _layer_name(name: str) -> str:
    return f"layer {name}" if name.isdigit() else name


def _layer_list(names: Sequence[str]) -> str:
    """Layers as ranges, "Layers 13 and 15-30", before mixes of layers by name."""
    numbers = sorted(int(name) for name in names if name.isdigit())
    starts = [b for a, b in pairwise([-2, *numbers]) if b > a + 1]
    ends = [a for a, b in pairwise([*numbers, np.inf]) if b > a + 1]
    parts: list[str] = []
    for first, last in zip(starts, ends, strict=True):
        parts += [f"{first}-{last}"] if last > first + 1 else map(str, range(first, int(last) + 1))
    parts += [name for name in names if not name.isdigit()]
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    if not numbers:
        return listed[:1].upper() + listed[1:]
    return f"Layer {listed}" if len(names) == 1 else f"Layers {listed}"


def _format(value: float) -> str:
    return f"{value:.3f}"
