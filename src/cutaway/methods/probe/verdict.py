"""The verdict of a probe run, in sentences. Needs no torch.

A comparison ends in one of three ways (`measure/conclusions.py`): a difference is shown, shown to
be absent (smaller than a margin), or neither; then the sentence says how many rows would settle it.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import isnan

import numpy as np

from cutaway.measure.conclusions import Conclusion, describe, rows_would_show
from cutaway.measure.intervals import Interval
from cutaway.methods.probe.evidence import Evidence, ProbeScore
from cutaway.methods.probe.spec import LEARNED_POOLER

BASELINE_TITLES = {"bow": "bag-of-words", "tfidf": "TF-IDF"}


def verdict_sentences(evidence: Evidence) -> list[str]:
    """The verdict, the most important sentence first."""
    sentences = [
        _headline(evidence), evidence.warning, _best_on_test(evidence), *_layers(evidence),
        _majority(evidence),
        *(_text_baseline(evidence, name) for name in BASELINE_TITLES),
        _twin(evidence), _control(evidence), _mdl(evidence), _learned_pooling(evidence),
    ]  # fmt: skip
    return [sentence for sentence in sentences if sentence]


def explained_share(top: ProbeScore, baseline: ProbeScore, majority: ProbeScore) -> float:
    """The share of the gain over the constant answer that a baseline reaches too.

    NaN if either is no better than the constant answer: there is no gain to share.
    """
    gain, part = (score.mean - majority.mean for score in (top, baseline))
    return part / gain if gain != 0 and part / gain > 0 else float("nan")


def _headline(evidence: Evidence) -> str:
    top, majority = evidence.headline, evidence.baselines.get("majority")
    guess = ""
    if majority is not None:
        guess = f"; the {evidence.constant} baseline reaches {_format(majority.mean)}"
    count, one = len(top.values), evidence.repeat_name
    who, how_often, each = "probe", "", ""
    if len(evidence.measured) > 1:
        who = "probe chosen on validation rows"
        if evidence.agreeing < count:
            how_often = f"; best on average, chosen in {evidence.agreeing} of {count} {one}s"
            each = f", with each {one}'s own choice,"
    trained = "" if evidence.curve_rows is None else f", with {evidence.curve_rows:,} training rows"
    return (
        f"The {who} reads {_cell_name(top, how_often)} and{each} reaches {evidence.facts.title} "
        f"{_format(top.mean)}{_interval_text(evidence.interval(top))} on {evidence.rows:,} "
        f"{evidence.unit}{trained}{guess}."
    )


def _best_on_test(evidence: Evidence) -> str:
    cells, top = len(evidence.measured), evidence.best_on_test
    if cells == 1:
        return ""
    same = evidence.agreeing == len(top.values) and top.name == evidence.headline.name
    start = f"It is also the best of the {cells} cells on the test rows" if same else (
        f"The best of the {cells} cells on the test rows is {_cell_name(top)} with "
        f"{_format(top.mean)}"
    )  # fmt: skip
    if isnan(evidence.chance_gain):
        return f"{start}; what choosing the best of them adds by chance, one split can't show."
    gain = _format(evidence.chance_gain)
    return f"{start}; choosing the best of them adds about {gain} by chance."


def _layers(evidence: Evidence) -> list[str]:
    """Which other layers are worse, better, as good, or none of these."""
    found = evidence.other_layers
    if not found:
        return []
    if all(isnan(one.difference.p) for one in found.values()):
        if len(evidence.headline.values) > 1:
            return ["Differences between layers can't be tested with so few test rows."]
        return [
            "Differences between layers can't be tested with a single split; the protocols "
            "repeats and kfold have several."
        ]

    def listed(test: Callable[[Conclusion], bool], sentence: str) -> str:
        names = [layer for layer, one in found.items() if test(one)]
        if not names:
            return ""
        verb = "is" if len(names) == 1 else "are"
        every = f"All {len(names)} other layers" if len(names) == len(found) > 3 else ""
        return f"{every or _layer_list(names)} {verb} {sentence}."

    margin = next(iter(found.values())).margin
    count = "1 comparison" if len(found) == 1 else f"{len(found)} comparisons"
    over = f"{evidence.level:.0%} over {count}"
    needed = [one.rows_needed for one in found.values() if one.rows_needed is not None]
    more = f"; {rows_would_show(max(needed), margin)}" if needed else ""
    return [
        listed(lambda one: one.kind == "shown" and _gain(one) > 0, f"worse (Holm's test, {over})"),
        listed(lambda one: one.kind == "shown" and _gain(one) < 0, f"better (Holm's test, {over})"),
        listed(
            lambda one: one.kind == "absent",
            f"as good, within {margin:g} (equivalence tests, {over})",
        ),
        listed(
            lambda one: one.kind == "unknown",
            f"neither shown to be worse nor as good: {evidence.rows:,} {evidence.unit} can't "
            f"tell{more}",
        ),
    ]


def _majority(evidence: Evidence) -> str:
    base = evidence.baselines.get("majority")
    if base is None:
        return ""
    found, rival = evidence.compare(base), f"{evidence.constant} baseline ({_format(base.mean)})"
    outcome = _outcome(evidence, found)
    # Printed whatever the outcome: a test that is printed only when it fails has another level.
    if found.kind == "shown" and _gain(found) > 0:
        return f"The probe against the {rival}: {outcome}."
    return f"It is not shown that these layers encode the property: against the {rival}, {outcome}."


def _text_baseline(evidence: Evidence, name: str) -> str:
    if name not in evidence.baselines:
        return ""
    top, base = evidence.headline, evidence.baselines[name]
    found, majority = evidence.compare(base), evidence.baselines.get("majority")
    share = explained_share(top, base, majority) if majority else float("nan")
    reached = ""
    if majority is not None and evidence.sign * (base.mean - majority.mean) <= 0:
        reached = f", not better than the {evidence.constant} baseline ({_format(majority.mean)})"
    elif not isnan(share) and found.kind == "shown" and _gain(found) > 0:
        reached = f", {share:.0%} of the gain over the {evidence.constant} baseline"
    return (
        f"A {BASELINE_TITLES[name]} baseline reaches {_mean(evidence, base)}{reached}; the probe "
        f"({_format(top.mean)}) against it: {_outcome(evidence, found)}."
    )


def _twin(evidence: Evidence) -> str:
    other = evidence.at_choice(evidence.twins)
    if other is None:
        return ""
    return (
        f"The same model with random weights reaches {_mean(evidence, other)}; the pretrained one "
        f"against it: {_outcome(evidence, evidence.compare(other))}."
    )


def _control(evidence: Evidence) -> str:
    other, seen = evidence.at_choice(evidence.controls), evidence.control_seen
    if other is None:
        return ""
    words = (
        ""
        if seen is None
        else f"; {seen:.0%} of its test rows have a control word seen in training"
    )
    return (
        f"Selectivity, against the control task ({_mean(evidence, other)}{words}): "
        f"{_outcome(evidence, evidence.compare(other))}."
    )


def _mdl(evidence: Evidence) -> str:
    if evidence.mdl is None:
        return ""
    bits, prior, uniform = evidence.mdl
    start = f"Minimum description length of the training labels: {bits:,.0f} bits"
    without = f"{prior:,.0f} bits of the class frequencies alone (uniform code: {uniform:,.0f})"
    if bits >= prior:
        return f"{start}, no shorter than the {without}: no compression."
    return f"{start} instead of the {without}, {prior / bits:.2f}x compression."


def _learned_pooling(evidence: Evidence) -> str:
    """Which classifier the pooler `learned` uses."""
    names = {cell.classifier for cell in evidence.cells if cell.pool == LEARNED_POOLER}
    if not names:
        return ""
    return (
        f"The pooler learned uses its own classifier, {', '.join(sorted(names))} (one query over "
        "all tokens and a linear layer, trained together), whatever --classifier says."
    )


def _mean(evidence: Evidence, score: ProbeScore) -> str:
    """A mean, with its repeats if some have no value: differences are over these alone."""
    known, count = sum(not isnan(v) for v in score.values), len(score.values)
    some = "" if known == count else f" in {known} of {count} {evidence.repeat_name}s"
    return f"{_format(score.mean)}{some}"


def _gain(found: Conclusion) -> float:
    return found.difference.interval.mean


def _outcome(evidence: Evidence, found: Conclusion) -> str:
    return describe(found, rows=evidence.rows, test=evidence.test, unit=evidence.unit)


def _interval_text(interval: Interval) -> str:
    low, high = interval.low, interval.high
    return "" if isnan(low) else f" [{_format(low)}, {_format(high)}]"


def _cell_name(cell: ProbeScore, more: str = "") -> str:
    return f"{_layer_name(cell.layers)} (pooler {cell.pool}, classifier {cell.classifier}{more})"


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
    # Without the sign of a zero.
    return f"{round(value, 3) + 0.0:.3f}"
