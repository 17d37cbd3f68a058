"""What follows from the scores, in plain sentences. Needs no torch.

Two cells are compared on the same splits, by the corrected paired t test or, where the repeats
share their test rows, by these rows too (`measure/shared_test_variance.py`); "can't be told from" means that no
difference is found at the level asked for. How much a text baseline explains is the share of the
gain over the majority class that it reaches as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan

import numpy as np

from cutaway.core.errors import BadData
from cutaway.measure.intervals import Difference, Interval, clip_interval, negate
from cutaway.measure.metrics import UNIT, metric_facts
from cutaway.measure.shared_test_variance import ResamplingInfo, mean_interval, paired_difference

BASELINE_TITLES = {"bow": "bag-of-words", "tfidf": "TF-IDF"}


@dataclass(frozen=True)
class ProbeScore:
    """One metric of one cell over its repeats, in the order of the splits."""

    values: tuple[float, ...]
    basis: ResamplingInfo
    layers: str = "-"
    pool: str = "text"
    classifier: str = ""

    @property
    def mean(self) -> float:
        """The mean over the repeats that have a value."""
        return float(np.nanmean(self.values))

    def against(self, other: "ProbeScore", sign: float, *, share: bool = False) -> Difference:
        """How much better than the other on the same splits; `share` is one of right answers."""
        found = paired_difference(self.values, other.values, self.basis, other.basis, share=share)
        return found if sign > 0 else negate(found)


@dataclass(frozen=True)
class Evidence:
    """All that a verdict looks at; what was not measured is left out."""

    metric: str
    cells: tuple[ProbeScore, ...]
    baselines: Mapping[str, ProbeScore] = field(default_factory=dict)
    """By name: majority, bow, tfidf."""
    twins: tuple[ProbeScore, ...] = ()
    """The same cells of the model with random weights."""
    controls: tuple[ProbeScore, ...] = ()
    """The same cells on the control task (shuffled word labels)."""
    mdl: tuple[float, float] | None = None
    """Online code length of the best cell and of the uniform code, in bits."""
    level: float = 0.05

    @property
    def judged(self) -> bool:
        """Whether two cells can be told apart at all: several splits, or rows to count."""
        return self.share or any(len(c.values) > 1 or c.basis.blocks for c in self.cells)

    @property
    def share(self) -> bool:
        """Whether the metric is a share of the test rows."""
        return metric_facts(self.metric).proportion

    @property
    def sign(self) -> float:
        """1 where more is better, -1 where less is."""
        return 1.0 if metric_facts(self.metric).higher_is_better else -1.0


def best_score(evidence: Evidence) -> ProbeScore:
    """The cell with the best mean; BadData where none has a value."""
    known = [cell for cell in evidence.cells if not all(isnan(v) for v in cell.values)]
    if not known:
        raise BadData(f"No cell has a value of {evidence.metric!r}: nothing to judge.")
    return max(known, key=lambda cell: evidence.sign * cell.mean)


def tied_scores(evidence: Evidence, top: ProbeScore) -> list[ProbeScore]:
    """The other layers of the best cell's pooler and classifier that can't be told from it."""
    return [cell for cell in _other_layers(evidence, top) if not _is_different(top, cell, evidence)]


def explained_share(top: ProbeScore, baseline: ProbeScore, majority: ProbeScore) -> float:
    """The share of the gain over the majority class that a baseline reaches, from 0 up."""
    gain = top.mean - majority.mean
    return max(0.0, (baseline.mean - majority.mean) / gain) if gain != 0 else float("nan")


def verdict_sentences(evidence: Evidence) -> list[str]:
    """The sentences, most important first."""
    top = best_score(evidence)
    said = [_headline(evidence, top), _tied_layers(evidence, top), _majority(evidence, top)]
    said += [
        _text_baseline(evidence, top, name)
        for name in BASELINE_TITLES
        if name in evidence.baselines
    ]
    said += [_twin(evidence, top), _control(evidence, top), _mdl(evidence)]
    return [sentence for sentence in said if sentence]


def _other_layers(evidence: Evidence, top: ProbeScore) -> list[ProbeScore]:
    return [
        cell
        for cell in evidence.cells
        if (cell.pool, cell.classifier) == (top.pool, top.classifier)
        and cell.layers != top.layers
        and len(cell.values) == len(top.values)
    ]


def _is_different(top: ProbeScore, other: ProbeScore, evidence: Evidence) -> bool:
    """Whether the test tells them apart."""
    return _difference(evidence, top, other).p < evidence.level


def _difference(evidence: Evidence, top: ProbeScore, other: ProbeScore) -> Difference:
    return top.against(other, evidence.sign, share=evidence.share)


def _headline(evidence: Evidence, top: ProbeScore) -> str:
    span = _mean_interval(evidence, top)
    extreme = "highest" if evidence.sign > 0 else "lowest"
    reach = "" if isnan(span.low) else f" [{_format(span.low)}, {_format(span.high)}]"
    return (
        f"{evidence.metric} is {extreme} at {_layer_name(top.layers)} ({top.pool}, {top.classifier}): "
        f"{_format(top.mean)}{reach} over {_count(len(top.values), 'repeat')}."
    )


def _mean_interval(evidence: Evidence, top: ProbeScore) -> Interval:
    """Where the mean lies."""
    span = mean_interval(top.values, top.basis, share=evidence.share)
    return clip_interval(span, 0.0, 1.0) if metric_facts(evidence.metric).bounds == UNIT else span


def _tied_layers(evidence: Evidence, top: ProbeScore) -> str:
    rivals, equal = _other_layers(evidence, top), tied_scores(evidence, top)
    if not rivals:
        return ""
    if not evidence.judged:
        return (
            "With one split no layer can be told from another; the repeats and kfold protocols "
            "have several."
        )
    if not equal:
        return "Every other layer is worse."
    if len(equal) == len(rivals) and len(rivals) > 3:
        return f"None of the other {len(rivals)} layers can be told from it."
    return f"{_layer_list(equal)} can't be told from {_layer_name(top.layers)}."


def _majority(evidence: Evidence, top: ProbeScore) -> str:
    base = evidence.baselines.get("majority")
    if base is None or not evidence.judged or _is_different(top, base, evidence):
        return ""
    return (
        f"It can't be told from the majority class ({_format(base.mean)}): "
        "these layers do not give the property away."
    )


def _text_baseline(evidence: Evidence, top: ProbeScore, name: str) -> str:
    base, majority = evidence.baselines[name], evidence.baselines.get("majority")
    known = BASELINE_TITLES[name]
    if evidence.sign * (base.mean - top.mean) >= 0:
        return f"{_capitalise(known)} alone gives {_format(base.mean)}, no less than the {_format(top.mean)}."
    sentence = f"{_capitalise(known)} explains {_format(base.mean)} of the {_format(top.mean)}"
    share = explained_share(top, base, majority) if majority else float("nan")
    if majority and not isnan(share):
        sentence += f", {share:.0%} of the gain over the majority class ({_format(majority.mean)})"
    if evidence.judged and not _is_different(top, base, evidence):
        sentence += "; the two can't be told apart"
    return f"{sentence}."


def _twin(evidence: Evidence, top: ProbeScore) -> str:
    other = _same_cell(evidence.twins, top)
    if other is None:
        return ""
    gap = _difference(evidence, top, other)
    start = f"The same model with random weights gives {_format(other.mean)} there"
    if evidence.judged and not gap.p < evidence.level:
        return f"{start}, which can't be told from it: pretraining is not what makes it readable."
    return f"{start}: pretraining adds {_format(gap.interval.mean)}{_interval_text(gap)}."


def _control(evidence: Evidence, top: ProbeScore) -> str:
    other = _same_cell(evidence.controls, top)
    if other is None:
        return ""
    gap = _difference(evidence, top, other)
    return (
        f"Selectivity {_format(gap.interval.mean)}{_interval_text(gap)}: with shuffled word labels the same "
        f"probe gives {_format(other.mean)}."
    )


def _mdl(evidence: Evidence) -> str:
    if evidence.mdl is None:
        return ""
    bits, uniform = evidence.mdl
    if bits >= uniform:
        return (
            f"The labels cost {bits:,.0f} bits (online code), no less than the {uniform:,.0f} of "
            "the uniform code: nothing is gained from the features."
        )
    return (
        f"The labels cost {bits:,.0f} bits instead of {uniform:,.0f} (online code), "
        f"{uniform / bits:.2f} times fewer."
    )


def _same_cell(cells: Sequence[ProbeScore], top: ProbeScore) -> ProbeScore | None:
    place = (top.layers, top.pool, top.classifier)
    found = [c for c in cells if (c.layers, c.pool, c.classifier) == place]
    usable = [c for c in found if len(c.values) == len(top.values)]
    return usable[0] if usable else None


def _interval_text(gap: Difference) -> str:
    low, high = gap.interval.low, gap.interval.high
    return "" if isnan(low) else f" [{_format(low)}, {_format(high)}]"


def _layer_name(name: str) -> str:
    return f"layer {name}" if name.isdigit() else name


def _layer_list(cells: Sequence[ProbeScore]) -> str:
    names = [cell.layers for cell in cells]
    if len(names) == 1:
        return _capitalise(_layer_name(names[0]))
    alike = all(name.isdigit() for name in names)
    names = sorted(names, key=int) if alike else names
    listed = f"{', '.join(names[:-1])} and {names[-1]}"
    return f"Layers {listed}" if alike else _capitalise(listed)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]


def _format(value: float) -> str:
    return f"{value:.3f}"
