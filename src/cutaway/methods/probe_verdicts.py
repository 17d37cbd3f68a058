"""What follows from the scores, in plain sentences. Needs no torch.

Two cells are compared on the same splits, by the corrected paired t test or, where the repeats
share their test rows, by these rows too (`measure/tested.py`); "can't be told from" means that no
difference is found at the level asked for. How much a text baseline explains is the share of the
gain over the majority class that it reaches as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan

import numpy as np

from cutaway.core.errors import BadData
from cutaway.measure.intervals import Difference, Interval, mirrored, within
from cutaway.measure.metrics import METRICS, UNIT
from cutaway.measure.tested import Basis, gap_over, mean_over

NAMES = {"bow": "bag-of-words", "tfidf": "TF-IDF"}


@dataclass(frozen=True)
class Score:
    """One metric of one cell over its repeats, in the order of the splits."""

    values: tuple[float, ...]
    basis: Basis
    layers: str = "-"
    pool: str = "text"
    classifier: str = ""

    @property
    def mean(self) -> float:
        """The mean over the repeats that have a value."""
        return float(np.nanmean(self.values))

    def against(self, other: "Score", sign: float, *, share: bool = False) -> Difference:
        """How much better than the other on the same splits; `share` is one of right answers."""
        found = gap_over(self.values, other.values, self.basis, other.basis, share=share)
        return found if sign > 0 else mirrored(found)


@dataclass(frozen=True)
class Evidence:
    """All that a verdict looks at; what was not measured is left out."""

    metric: str
    cells: tuple[Score, ...]
    baselines: Mapping[str, Score] = field(default_factory=dict)
    """By name: majority, bow, tfidf."""
    twins: tuple[Score, ...] = ()
    """The same cells of the model with random weights."""
    controls: tuple[Score, ...] = ()
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
        return self.metric == "accuracy"

    @property
    def sign(self) -> float:
        """1 where more is better, -1 where less is."""
        row = METRICS.get(self.metric.removesuffix("_ref"))
        return 1.0 if row is None or row.higher_is_better else -1.0


def best(evidence: Evidence) -> Score:
    """The cell with the best mean; BadData where none has a value."""
    known = [cell for cell in evidence.cells if not all(isnan(v) for v in cell.values)]
    if not known:
        raise BadData(f"No cell has a value of {evidence.metric!r}: nothing to judge.")
    return max(known, key=lambda cell: evidence.sign * cell.mean)


def ties(evidence: Evidence, top: Score) -> list[Score]:
    """The other layers of the best cell's pooler and classifier that can't be told from it."""
    return [cell for cell in _rivals(evidence, top) if not _differs(top, cell, evidence)]


def explained(top: Score, baseline: Score, majority: Score) -> float:
    """The share of the gain over the majority class that a baseline reaches, from 0 up."""
    gain = top.mean - majority.mean
    return max(0.0, (baseline.mean - majority.mean) / gain) if gain != 0 else float("nan")


def verdicts(evidence: Evidence) -> list[str]:
    """The sentences, most important first."""
    top = best(evidence)
    said = [_headline(evidence, top), _tied(evidence, top), _majority(evidence, top)]
    said += [_text(evidence, top, name) for name in NAMES if name in evidence.baselines]
    said += [_twin(evidence, top), _control(evidence, top), _code(evidence)]
    return [sentence for sentence in said if sentence]


def _rivals(evidence: Evidence, top: Score) -> list[Score]:
    return [
        cell
        for cell in evidence.cells
        if (cell.pool, cell.classifier) == (top.pool, top.classifier)
        and cell.layers != top.layers
        and len(cell.values) == len(top.values)
    ]


def _differs(top: Score, other: Score, evidence: Evidence) -> bool:
    """Whether the test tells them apart."""
    return _gap(evidence, top, other).p < evidence.level


def _gap(evidence: Evidence, top: Score, other: Score) -> Difference:
    return top.against(other, evidence.sign, share=evidence.share)


def _headline(evidence: Evidence, top: Score) -> str:
    span = _spread(evidence, top)
    extreme = "highest" if evidence.sign > 0 else "lowest"
    reach = "" if isnan(span.low) else f" [{_n(span.low)}, {_n(span.high)}]"
    return (
        f"{evidence.metric} is {extreme} at {_layer(top.layers)} ({top.pool}, {top.classifier}): "
        f"{_n(top.mean)}{reach} over {_count(len(top.values), 'repeat')}."
    )


def _spread(evidence: Evidence, top: Score) -> Interval:
    """Where the mean lies."""
    span = mean_over(top.values, top.basis, share=evidence.share)
    return within(span, 0.0, 1.0) if evidence.metric in UNIT else span


def _tied(evidence: Evidence, top: Score) -> str:
    rivals, equal = _rivals(evidence, top), ties(evidence, top)
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
    return f"{_layers(equal)} can't be told from {_layer(top.layers)}."


def _majority(evidence: Evidence, top: Score) -> str:
    base = evidence.baselines.get("majority")
    if base is None or not evidence.judged or _differs(top, base, evidence):
        return ""
    return (
        f"It can't be told from the majority class ({_n(base.mean)}): "
        "these layers do not give the property away."
    )


def _text(evidence: Evidence, top: Score, name: str) -> str:
    base, majority = evidence.baselines[name], evidence.baselines.get("majority")
    known = NAMES[name]
    if evidence.sign * (base.mean - top.mean) >= 0:
        return f"{_cap(known)} alone gives {_n(base.mean)}, no less than the {_n(top.mean)}."
    sentence = f"{_cap(known)} explains {_n(base.mean)} of the {_n(top.mean)}"
    share = explained(top, base, majority) if majority else float("nan")
    if majority and not isnan(share):
        sentence += f", {share:.0%} of the gain over the majority class ({_n(majority.mean)})"
    if evidence.judged and not _differs(top, base, evidence):
        sentence += "; the two can't be told apart"
    return f"{sentence}."


def _twin(evidence: Evidence, top: Score) -> str:
    other = _same_place(evidence.twins, top)
    if other is None:
        return ""
    gap = _gap(evidence, top, other)
    start = f"The same model with random weights gives {_n(other.mean)} there"
    if evidence.judged and not gap.p < evidence.level:
        return f"{start}, which can't be told from it: pretraining is not what makes it readable."
    return f"{start}: pretraining adds {_n(gap.interval.mean)}{_span(gap)}."


def _control(evidence: Evidence, top: Score) -> str:
    other = _same_place(evidence.controls, top)
    if other is None:
        return ""
    gap = _gap(evidence, top, other)
    return (
        f"Selectivity {_n(gap.interval.mean)}{_span(gap)}: with shuffled word labels the same "
        f"probe gives {_n(other.mean)}."
    )


def _code(evidence: Evidence) -> str:
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


def _same_place(cells: Sequence[Score], top: Score) -> Score | None:
    place = (top.layers, top.pool, top.classifier)
    found = [c for c in cells if (c.layers, c.pool, c.classifier) == place]
    usable = [c for c in found if len(c.values) == len(top.values)]
    return usable[0] if usable else None


def _span(gap: Difference) -> str:
    low, high = gap.interval.low, gap.interval.high
    return "" if isnan(low) else f" [{_n(low)}, {_n(high)}]"


def _layer(name: str) -> str:
    return f"layer {name}" if name.isdigit() else name


def _layers(cells: Sequence[Score]) -> str:
    names = [cell.layers for cell in cells]
    if len(names) == 1:
        return _cap(_layer(names[0]))
    alike = all(name.isdigit() for name in names)
    names = sorted(names, key=int) if alike else names
    listed = f"{', '.join(names[:-1])} and {names[-1]}"
    return f"Layers {listed}" if alike else _cap(listed)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _cap(text: str) -> str:
    return text[:1].upper() + text[1:]


def _n(value: float) -> str:
    return f"{value:.3f}"
