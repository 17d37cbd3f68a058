"""The findings of the verbs of shortcut in sentences."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cutaway.measure.conclusions import describe
from cutaway.methods.shortcut.comparisons import conclude_over_texts, log_ratio

if TYPE_CHECKING:
    from cutaway.measure.conclusions import Conclusion
    from cutaway.measure.intervals import Interval
    from cutaway.methods.shortcut.comparisons import TriedExit
    from cutaway.methods.shortcut.maths.exit_simulation import CalibratedExit

BETTER = ("better", "worse")
PLAIN_FALLBACK = (
    "A short measurement shows that drafting would not be faster here, so every token comes from "
    "the full model, one at a time. To draft anyway, give --exit-layers and --draft."
)


def fit_verdict(
    r2: float, identity_r2: float, layer: int, last: int, gain: "Conclusion", texts: int
) -> list[str]:
    """How much of the last layer's variance a map from the middle explains."""
    return [
        f"A linear map from layer {layer} explains {_variance(r2)} of the variance of layer {last} "
        f"on held-out text (identity: {_variance(identity_r2)}).",
        f"The map against the identity, in explained variance: {_over_texts(gain, texts)}.",
    ]


def _over_texts(found: "Conclusion", texts: int, words: tuple[str, str] = BETTER) -> str:
    test = f"paired t test over {texts} texts"
    return describe(found, rows=texts, test=test, unit="texts", words=words)


def _variance(r2: float) -> str:
    """A share of variance; below 0 predicting the mean would be better."""
    return f"{r2:.0%}" if r2 > 0 else "none"


def eval_verdict(
    precision: Mapping[str, Sequence[float]],
    best: str,
    last: int,
    gain: "Conclusion | None",
    texts: int,
) -> list[str]:
    """How often the best map's prediction at the middle layer is the full model's."""
    half = last // 2
    sentence = (
        f"At layer {half} of {last}, the prediction through the {best} map is the full model's "
        f"for {precision[best][half]:.0%} of the tokens"
    )
    if gain is None:
        return [sentence + "."]
    count = len(precision) - 1
    kinds = "" if count == 1 else f", chosen from {count} kinds that hold 5 % together"
    return [
        f"{sentence} (logit lens, id: {precision['id'][half]:.0%}).",
        f"The {best} map{kinds}, against the logit lens at layer {half}: "
        f"{_over_texts(gain, texts)}.",
    ]


def exit_verdict(
    saved: Mapping[str, "Interval"],
    tried: "TriedExit | None",
    calibrated: Sequence[tuple[str, str, "CalibratedExit"]],
    timing: Mapping[str, float],
    *,
    layers: int,
    risk: float,
    positions: int,
) -> list[str]:
    """What an early exit saves: at best, with a guarantee, and in time on this machine."""
    best = max(saved, key=lambda key: saved[key].mean)
    sentences = []
    if tried is not None:
        sentences.append(
            f"Set for 95 % agreement on every second text ({tried.setting}, lambda "
            f"{tried.threshold:g}), early exit skips {_share(tried.saved)} of the {layers} layers "
            f"on the others, with {_share(tried.agreement)} agreement."
        )
    sentences.append(
        f"At best it skips {saved[best].mean:.1%} at 95 % agreement ({best}), if map, confidence "
        f"and lambda are chosen on the same {saved[best].n} tokens."
    )
    for kind, confidence, one in calibrated[:1]:
        sentences += _calibration_sentences(kind, confidence, one, risk, positions)
    if timing:
        sentences.append(
            "On this machine a block takes {block_ms:.2g} ms and predicting from a layer "
            "{look_ms:.2g} ms of processor time: testing every layer takes {exit_ms:.3g} ms per "
            "token, the full model {plain_ms:.3g} ms.".format(**timing)
        )
    if "run_exit_ms" in timing:
        sentences.append(
            "Measured generation with a key-value cache that tests two layers only (lambda "
            "{run_lambda:g}): {run_exit_processor_ms:.3g} ms of processor time per token after "
            "{run_layers:.1f} layers on average, {run_plain_processor_ms:.3g} ms without early "
            "exit; {run_exit_ms:.3g} and {run_plain_ms:.3g} ms by the clock.".format(**timing)
        )
    return sentences


def _share(one: "Interval") -> str:
    """A share with its interval: 16.2 % (95 % interval 11.0 % to 21.4 %)."""
    if one.low != one.low or one.low == one.high:
        return f"{one.mean:.1%}"
    return f"{one.mean:.1%} (95 % interval {max(one.low, 0.0):.1%} to {min(one.high, 1.0):.1%})"


def _calibration_sentences(
    kind: str, confidence: str, one: "CalibratedExit", risk: float, positions: int
) -> list[str]:
    sentences = [
        f"Calibrated on {one.tokens} held-out tokens: with {kind}/{confidence} and lambda "
        f"{one.setting:g}, agreement is at least {one.wished:.0%} with {1 - risk:.0%} confidence "
        f"(measured: {_share(one.agreement)}), and {_share(one.saved)} of the layers are skipped."
    ]
    if positions > 1:
        sentences.append(
            "This treats the tokens of one text as independent; for a strict guarantee use one "
            "position per text."
        )
    if one.tokens < one.needed:
        sentences.append(
            f"{one.tokens} tokens are too few to guarantee {one.wished:.0%} for any early exit: "
            f"even without a single disagreement {one.needed} are needed. Give more text."
        )
    return sentences


def generate_verdict(
    texts: Sequence[Any], setting: Any, setup: Any, *, layers: int, mode: str, sample: bool
) -> list[str]:
    """The time it took, what was drafted or skipped, and the comparison with plain generate."""
    ours, processor = (_total(texts, name) for name in ("seconds", "processor_seconds"))
    count = sum(len(text.tokens) for text in texts)
    sentences = [
        f"{count} tokens in {ours:.2f} s ({processor:.2f} s of processor time), after "
        f"{setup.seconds:.2f} s of measurements."
    ]
    if mode == "exit":
        mean = sum(text.layers_mean for text in texts) / len(texts)
        sentences.append(f"Tokens exit after {mean:.1f} of {layers} layers on average.")
    elif setting is None:
        sentences.append(PLAIN_FALLBACK)
    else:
        accepted = sum(text.accepted for text in texts) / len(texts)
        sentences.append(
            f"Drafts of up to {setting.length} tokens with the {setting.kind} map from layer "
            f"{setting.layer} of {layers}, minimum confidence {setting.floor:.0%}: {accepted:.0%} "
            "of the drafted tokens were accepted."
        )
    if not texts or texts[0].plain_seconds is None:
        return sentences
    plain, plain_processor = (
        _total(texts, name) for name in ("plain_seconds", "plain_processor_seconds")
    )
    by_processor = plain_processor / (processor + setup.processor_seconds)
    sentences.append(
        f"{by_processor:.2f} times the speed of plain generate in processor time "
        f"({plain_processor:.2f} s), {plain / (ours + setup.seconds):.2f} times by the clock "
        f"({plain:.2f} s); measurements included."
    )
    sentences += _speed_sentence(texts)
    if not sample:
        same = sum(text.identical for text in texts)
        sentences.append(f"{same} of {len(texts)} texts are identical to plain generate's.")
    return sentences


def _speed_sentence(texts: Sequence[Any]) -> list[str]:
    """Whether the texts took less processor time than plain generate's, text by text."""
    times = [(text.plain_processor_seconds, text.processor_seconds) for text in texts]
    if len(times) < 2 or min(map(min, times)) <= 0:
        return []
    found = conclude_over_texts(log_ratio(*zip(*times, strict=True)), len(times))
    outcome = _over_texts(found, len(times), ("faster", "slower"))
    return [f"Log ratio of processor times, text by text, without measurements: {outcome}."]


def _total(texts: Sequence[Any], name: str) -> float:
    return float(sum(getattr(text, name) for text in texts))
