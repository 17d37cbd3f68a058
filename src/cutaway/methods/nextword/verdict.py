"""The findings in words: what next-word features give compared to the hidden state.

One function per kind of sentence. A comparison is a paired test on the same splits; it ends in one
of three ways: a difference is shown, shown to be absent, or these rows can't tell
(`measure/conclusions.py`). What is compared was chosen on validation rows (`evidence.py`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from cutaway.core.names import short_names
from cutaway.data.main_metric import accuracy_warning, choices_score
from cutaway.measure.conclusions import (
    Conclusion,
    describe,
    equivalence_interval,
    margin_of,
    rows_would_show,
)
from cutaway.measure.repeats import ResamplingInfo
from cutaway.methods.nextword.evidence import (
    ChosenFeature,
    FeatureEvidence,
    FeatureScore,
    feature_evidence,
)
from cutaway.methods.nextword.rows import NextwordCell

FEATURE_NAMES = {
    "f": "the hidden state f",
    "phi_p": "the conditional mean embedding Phi p",
    "subset": "the scores of the task's words",
    "classwords": "the scores of the class words",
    "posneg": "the scores of the word pair",
    "projection": "a random projection of p",
    "p": "the full next-word distribution p",
    "zeroshot": "zero-shot classification",
    "zeroshot_calibrated": "calibrated zero-shot classification",
}
BASELINE_NAMES = {"majority": "the majority baseline", "bow": "bag of words", "tfidf": "TF-IDF"}


def summarise(
    table: pl.DataFrame,
    data_names: Mapping[str, str],
    words: Mapping[str, Mapping[str, Any]],
    details: Sequence[Mapping[str, Any]],
    metrics: Mapping[str, str],
    resampling: Mapping[NextwordCell, ResamplingInfo] | None = None,
    shares: Mapping[str, float] | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Summary and baselines of a run, JSON-ready.

    By task: `data_names` are the text sets, `metrics` the main metrics, `shares` the shares of the
    most frequent class.
    `resampling` tells how the repeats of a cell were drawn, where its rows don't.
    """
    results: list[dict[str, Any]] = []
    baselines: dict[str, Any] = {}
    for task, data in data_names.items():
        of_task = table.filter(pl.col("task") == task)
        for model in of_task["model"].unique(maintain_order=True):
            rows, name = of_task.filter(pl.col("model") == model), f"{model} on {task}"
            own = [d for d in details if (d["model"], d["task"]) == (model, task)]
            evidence = feature_evidence(rows, metrics[task], resampling or {})
            facts = {"model": model, "task": task, "data": data, "metric": evidence.metric}
            share = (shares or {}).get(task, 0.0)
            found = _task_result(rows, evidence, facts, words[name], own, share)
            baselines[name] = {kind: score.mean for kind, score in evidence.baselines.items()}
            results.append(found)
    short = short_names(f["model"] for f in results)
    verdict = [
        f"{short[f['model']]} on {f['task']}: {line}" if len(results) > 1 else line
        for f in results
        for line in f["verdict"]
    ]
    summary = {
        "metric": results[0]["metric"] if results else None,
        "headline": next((f["headline"] for f in results if f["headline"]), None),
        "verdict": verdict,
        "results": results,
        "failed": table.filter(pl.col("status") == "failed").height,
    }
    return summary, baselines


def _task_result(
    rows: pl.DataFrame,
    evidence: FeatureEvidence,
    facts: Mapping[str, Any],
    words: Mapping[str, Any],
    details: Sequence[Mapping[str, Any]],
    share: float,
) -> dict[str, Any]:
    found = {**facts, "words": dict(words)}
    if not evidence.cells:
        verdict = ["No feature could be measured.", *_failed_sentence(rows)]
        return {**found, "headline": None, "best_on_test": None, "verdict": verdict}
    chosen, best = evidence.choose(evidence.cells), evidence.best_on_test_facts()
    verdict = [
        *_headline_sentence(evidence, chosen),
        *_majority_sentence(rows, chosen, share),
        *_best_on_test_sentence(evidence, chosen, best),
        *_baseline_sentences(evidence, chosen),
        *_hidden_state_sentence(evidence),
        *_listing_sentence(evidence, chosen),
        *_prompt_sentence(evidence),
        *_zeroshot_sentence(evidence),
        *_linearity_sentence(rows),
        *_top_tokens_sentence(details),
        *_missing_words_sentences(words),
        *_failed_sentence(rows),
    ]
    where = {"model": facts["model"], "data": facts["task"]}
    return {
        **found,
        "headline": {**where, **evidence.headline_facts(chosen)} if chosen else None,
        "best_on_test": {**where, **best},
        "scores": [_score_facts(evidence, one) for one in evidence.every],
        "verdict": verdict,
    }


def _score_facts(evidence: FeatureEvidence, score: FeatureScore) -> dict[str, Any]:
    span = evidence.interval(score)
    low, high = (None if math.isnan(end) else end for end in (span.low, span.high))
    cell = {"prompt": score.prompt, "features": score.features}
    return {**cell, "value": score.mean, "low": low, "high": high}


def _format_score(evidence: FeatureEvidence, score: FeatureScore) -> str:
    span = evidence.interval(score)
    bounds = "" if math.isnan(span.low) else f" [{span.low:.3f}, {span.high:.3f}]"
    return f"{score.mean:.3f}{bounds}"


def _headline_sentence(evidence: FeatureEvidence, chosen: ChosenFeature | None) -> list[str]:
    """The test score of the prompt and feature that validation rows choose."""
    if chosen is None:
        return []
    cell, count = chosen.score, evidence.repeats
    name = FEATURE_NAMES[cell.features] + prompt_phrase(cell.prompt)
    score = f"{evidence.facts.title} {_format_score(evidence, cell)} on the test rows"
    if chosen.agreeing < count:
        how = f"best on average, chosen in {chosen.agreeing} of {count} splits"
        return [
            f"Chosen on validation rows: {name} ({how});{_own_choice(evidence, chosen)}, {score}."
        ]
    repeats = "" if count == 1 else f" over {count} splits"
    return [f"Chosen on validation rows: {name}, with {score}{repeats}."]


def _own_choice(evidence: FeatureEvidence, chosen: ChosenFeature) -> str:
    """What a score is of if the splits chose different cells."""
    return " with each split's own choice" if chosen.agreeing < evidence.repeats else ""


def _majority_sentence(rows: pl.DataFrame, chosen: ChosenFeature | None, share: float) -> list[str]:
    """Whether the accuracy of the choices is not above that of the most frequent class."""
    if chosen is None:
        return []
    done = rows.filter(pl.col("status") == "done")
    repeats = sorted(done["repeat"].drop_nulls().unique())
    where = {
        repeat: {"prompt": prompt, "features": features}
        for repeat, (prompt, features) in zip(repeats, chosen.by_repeat, strict=False)
    }
    base = done.filter((pl.col("features") == "majority") & (pl.col("metric") == "accuracy"))
    reached = base.select(pl.mean("value")).item()
    accuracy, auc = (choices_score(done, name, where) for name in ("accuracy", "auc"))
    line = accuracy_warning(accuracy, auc, share if reached is None else reached)
    return [line] if line else []


def _best_on_test_sentence(
    evidence: FeatureEvidence, chosen: ChosenFeature | None, best: Mapping[str, Any]
) -> list[str]:
    """The best cell on the test rows, and what choosing it there adds by chance."""
    if best["cells"] == 1:
        return []
    cell = (best["prompt"], best["features"])
    is_chosen = chosen is not None and chosen.agreeing == evidence.repeats
    if chosen is not None and is_chosen and cell == (chosen.score.prompt, chosen.score.features):
        start = f"It is also the best of the {best['cells']} cells on the test rows"
    else:
        name = FEATURE_NAMES[best["features"]] + prompt_phrase(best["prompt"])
        start = (
            f"The best of the {best['cells']} cells on the test rows is {name} with "
            f"{best['value']:.3f}"
        )
    gain = best["gained_by_chance"]
    adds = "" if gain is None else f"; choosing the best of them adds about {gain:.3f} by chance"
    return [f"{start}{adds}."]


def _baseline_sentences(evidence: FeatureEvidence, chosen: ChosenFeature | None) -> list[str]:
    """The chosen cell against each baseline, on the same splits."""
    if chosen is None:
        return []
    return [
        f"Against {BASELINE_NAMES[name]} ({base.mean:.3f}): "
        f"{_outcome(evidence, evidence.compare(chosen.score, base))}."
        for name, base in evidence.baselines.items()
    ]


def _hidden_state_sentence(evidence: FeatureEvidence) -> list[str]:
    """The best next-word feature against the hidden state, both chosen on validation rows."""
    kinds = {"f": [], "words": []}  # type: dict[str, list[FeatureScore]]
    for cell in evidence.cells:
        if not cell.features.startswith("zeroshot"):
            kinds["f" if cell.features == "f" else "words"].append(cell)
    state, feature = evidence.choose(kinds["f"]), evidence.choose(kinds["words"])
    if state is None or feature is None:
        return []
    name = feature.score.features + prompt_phrase(feature.score.prompt)
    found = evidence.compare(feature.score, state.score)
    return [
        f"Next-word features ({name}, {feature.score.mean:.3f}{_own_choice(evidence, feature)}) "
        f"against f{prompt_phrase(state.score.prompt)} ({state.score.mean:.3f}"
        f"{_own_choice(evidence, state)}): "
        f"{_outcome(evidence, found)}."
    ]


def _outcome(evidence: FeatureEvidence, found: Conclusion) -> str:
    return describe(found, rows=evidence.rows, test=evidence.test, unit=evidence.unit)


def _listing_sentence(evidence: FeatureEvidence, chosen: ChosenFeature | None) -> list[str]:
    """The scores of all feature kinds under the chosen prompt."""
    prompt = chosen.score.prompt if chosen else evidence.cells[-1].prompt
    cells = [cell for cell in evidence.cells if cell.prompt == prompt]
    scores = ", ".join(f"{cell.features} {_format_score(evidence, cell)}" for cell in cells)
    title = evidence.facts.title
    return [f"{title[:1].upper()}{title[1:]}{prompt_phrase(prompt)}: {scores}."]


def _prompt_sentence(evidence: FeatureEvidence) -> list[str]:
    """The change by the prompt for each feature kind; all claims together hold the level."""
    prompts = list(dict.fromkeys(cell.prompt for cell in evidence.cells))
    if len(prompts) != 2 or "" not in prompts:
        return []
    prompt = next(p for p in prompts if p)
    cells = {(cell.prompt, cell.features): cell for cell in evidence.cells}
    pairs = {k: (cells[prompt, k], cells["", k]) for p, k in cells if p and ("", k) in cells}
    if not pairs:
        return []
    found = {k: evidence.compare(*pair, among=len(pairs)) for k, pair in pairs.items()}
    parts = [
        part
        for kind, start in (
            ("shown", "changes"),
            ("absent", f"no change larger than {margin_of(evidence.metric):g}"),
            ("unknown", f"{evidence.rows:,} {evidence.unit} can't tell"),
        )
        if (part := _prompt_effects(found, kind, start))
    ]
    together = f", {len(pairs)} comparisons at 5 % together" if len(pairs) > 1 else ""
    start = f"Effect of the prompt {prompt!r} on {evidence.facts.title} ({evidence.test}{together})"
    return [f"{start}: {'; '.join(parts)}."]


def _prompt_effects(found: Mapping[str, Conclusion], kind: str, start: str) -> str:
    """The effects that end in the same conclusion."""
    listed, needed = [], []
    for name, one in found.items():
        if one.kind == kind:
            # Intervals that hold together, as the claims do.
            span = equivalence_interval(one.difference, one.level / 2)
            bounds = "" if math.isnan(span.low) else f" [{span.low:+.3f}, {span.high:+.3f}]"
            listed.append(f"{name} {span.mean:+.3f}{bounds}")
            needed += [(one.rows_needed, one.margin)] if one.rows_needed else []
    more = f" ({rows_would_show(*max(needed))})" if needed else ""
    return f"{start}{more}: {', '.join(listed)}" if listed else ""


def _zeroshot_sentence(evidence: FeatureEvidence) -> list[str]:
    """Zero-shot, its prompt and calibration chosen on validation rows, against the majority."""
    chosen = evidence.choose([c for c in evidence.cells if c.features.startswith("zeroshot")])
    if chosen is None:
        return []
    cell, base = chosen.score, evidence.baselines.get("majority")
    name = FEATURE_NAMES[cell.features]
    sentence = (
        f"{name[:1].upper()}{name[1:]}, without training, reaches {_format_score(evidence, cell)}"
        f"{prompt_phrase(cell.prompt)}{_own_choice(evidence, chosen)}"
    )
    if base is None:
        return [f"{sentence}."]
    found = _outcome(evidence, evidence.compare(cell, base))
    return [f"{sentence}; against {BASELINE_NAMES['majority']} ({base.mean:.3f}): {found}."]


def _linearity_sentence(rows: pl.DataFrame) -> list[str]:
    """The diagnoses of the last prompt."""
    values = {
        name: rows.filter(pl.col("metric") == name)["value"].to_list()
        for name in ("r2_from_f", "r2_linear", "r2_quadratic")
    }
    if not all(values.values()) or None in (v[-1] for v in values.values()):
        return []
    phi_p, linear, quadratic = (v[-1] for v in values.values())
    where = prompt_phrase(rows.filter(pl.col("metric") == "r2_from_f")["prompt"][-1])
    return [
        f"R2 on test rows{where}: Phi p from f {phi_p:.3f} (linear); log-partition "
        f"from f {linear:.3f} (linear), {quadratic:.3f} (quadratic)."
    ]


def _top_tokens_sentence(details: Sequence[Mapping[str, Any]]) -> list[str]:
    tokens = [d for d in details if d["figure"] == "tokens"]
    kinds = [k for k in ("p", "subset", "classwords") if any(d["features"] == k for d in tokens)]
    if not kinds:
        return []
    prompt = [d["prompt"] for d in tokens if d["features"] == kinds[0]][-1]
    by_label: dict[str, list[str]] = {}
    for one in tokens:
        if (one["features"], one["prompt"]) == (kinds[0], prompt):
            by_label.setdefault(one["label"], []).append(repr(one["token"]))
    listing = "; ".join(f"{label}: {' '.join(some[:5])}" for label, some in by_label.items())
    return [f"Tokens with the largest effect ({kinds[0]}{prompt_phrase(prompt)}): {listing}."]


def _missing_words_sentences(words: Mapping[str, Any]) -> list[str]:
    missing = {name: w["missing"] for name, w in words.items() if w["missing"]}
    if missing.get("zeroshot") == missing.get("classwords"):
        missing.pop("zeroshot", None)
    return [
        f"Left out of {name} because they are not single tokens of this model: "
        f"{', '.join(map(repr, some))}."
        for name, some in missing.items()
    ]


def _failed_sentence(rows: pl.DataFrame) -> list[str]:
    failed = rows.filter(pl.col("status") == "failed")
    cells = "1 cell" if failed.height == 1 else f"{failed.height} cells"
    return [f"{cells} failed; the first: {failed['reason'][0]}"] if failed.height else []


def prompt_phrase(prompt: str) -> str:
    """How a sentence names a prompt, a template, or neither."""
    if "{text}" in prompt:
        return f" in the template {prompt!r}"
    return f" with the prompt {prompt!r}" if prompt else " without a prompt"
