"""The findings of `cutaway inject` and `cutaway fisher` in sentences."""

from collections.abc import Mapping, Sequence
from math import nan

from cutaway.measure.conclusions import conclude, describe, margin_of, unpaired
from cutaway.measure.intervals import Interval
from cutaway.methods.inject.pareto import ParetoPoint
from cutaway.report import formats

# A regularised training counts as having learned the skill when it is this close to plain training.
EXACT_MATCH_MARGIN = 0.05
LEVEL = 0.05
TEST = "z test, unpaired"


def inject_verdict(
    points: Sequence[ParetoPoint], before: float, skill: str, texts: int
) -> list[str]:
    """What plain training gains and loses, and the regulariser that forgets least.

    `texts` is the number of retained texts that forgetting is measured on.
    """
    sentences = []
    plain = next((p for p in points if p["regulariser"].startswith("none")), None)
    candidates = [p for p in points if p is not plain]
    if plain is not None:
        sentences.append(
            f"Plain training changes exact match on {skill} from {before:.0%} to "
            f"{plain['exact_match']:.0%}; the loss on retained texts "
            f"{formats.change(plain['forgetting'], 'nats')}{_score_changes(plain)}."
        )
        enough = plain["exact_match"] - EXACT_MATCH_MARGIN
        candidates = [p for p in candidates if p["exact_match"] >= enough] or candidates
    if candidates:
        best = min(candidates, key=lambda p: p["forgetting"])
        sentences.append(
            f"Least forgetting as measured: {best['regulariser']} at strength "
            f"{best['strength']:g}, with exact match {best['exact_match']:.0%}; the loss on "
            "retained texts "
            f"{formats.change(best['forgetting'], 'nats')}{_score_changes(best)}."
        )
        if plain is not None:
            found = conclude(
                unpaired(_forgetting(plain), _forgetting(best)), margin=margin_of("forgetting"),
                rows=texts, level=LEVEL / len(candidates),
            )  # fmt: skip
            words = ("less forgetting", "more forgetting")
            outcome = describe(found, rows=texts, test=TEST, words=words, unit="retained texts")
            sentences.append(f"Against plain training: {outcome}.")
    return sentences


def _forgetting(point: ParetoPoint) -> Interval:
    low, high = (point.get(f"forgetting_{end}") for end in ("low", "high"))
    ends = nan if low is None else low, nan if high is None else high
    return Interval(point["forgetting"], ends[0], ends[1], 0.95, 1)


def _score_changes(point: ParetoPoint) -> str:
    """How the scores of probes and fine-tunings changed, where they were measured."""
    names = {"probe_forgetting": "probe score", "finetune_forgetting": "fine-tuning score"}
    changes = [f"{name} {-point[key]:+.3f}" for key, name in names.items() if key in point]
    return f" ({', '.join(changes)})" if changes else ""


def fisher_verdict(masses: Mapping[tuple[int, str], float], examples: int) -> list[str]:
    """Where the Fisher information is largest."""
    (layer, module), share = max(masses.items(), key=lambda item: item[1])
    return [
        f"Layer {layer} ({module}) has the largest share of the Fisher information: {share:.0%}, "
        f"estimated on {examples} examples."
    ]
