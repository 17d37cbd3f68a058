"""The findings in words: what next-word features give compared to the hidden state."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from cutaway.core.names import short_names
from cutaway.measure.metrics import metric_facts

FEATURE_NAMES = {
    "f": "the hidden state f",
    "phi_p": "the conditional mean embedding Phi p",
    "subset": "the scores of the task's words",
    "classwords": "the scores of the class words",
    "posneg": "the scores of the word pair",
    "projection": "a random projection of p",
    "p": "the full next-word distribution p",
    "zeroshot": "Zero-shot classification",
    "zeroshot_calibrated": "Calibrated zero-shot classification",
}
BASELINES = ("majority", "bow", "tfidf")
# Accuracies closer than this count as equal in a sentence.
TIE_MARGIN = 0.02
ScoreTable = dict[tuple[str, str], dict[str, Any]]
"""(prompt, features) -> mean, low, high of the main metric."""


def summarise(
    table: pl.DataFrame,
    data_names: Mapping[str, str],
    words: Mapping[str, Mapping[str, Any]],
    details: Sequence[Mapping[str, Any]],
    metrics: Mapping[str, str],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Summary and baselines of a run, JSON-ready.

    `data_names` is the text set of each task, `metrics` the main metric of each.
    """
    findings: list[dict[str, Any]] = []
    baselines: dict[str, Any] = {}
    for task, data in data_names.items():
        of_task = table.filter(pl.col("task") == task)
        for model in of_task["model"].unique(maintain_order=True):
            rows, name = of_task.filter(pl.col("model") == model), f"{model} on {task}"
            own = [d for d in details if (d["model"], d["task"]) == (model, task)]
            facts = {"model": model, "task": task, "data": data, "metric": metrics[task]}
            finding = _task_summary(rows, facts, words[name], own)
            baselines[name] = finding.pop("baselines")
            findings.append(finding)
    short = short_names(f["model"] for f in findings)
    verdict = [
        f"{short[f['model']]} on {f['task']}: {line}" if len(findings) > 1 else line
        for f in findings
        for line in f["verdict"]
    ]
    best = [f["best"] for f in findings if f["best"]]
    summary = {
        "metric": findings[0]["metric"] if findings else None,
        "best": best[0] if best else None,
        "verdict": verdict,
        "findings": findings,
        "failed": table.filter(pl.col("status") == "failed").height,
    }
    return summary, baselines


def _task_summary(
    rows: pl.DataFrame,
    facts: Mapping[str, Any],
    words: Mapping[str, Any],
    details: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    metric = facts["metric"]
    cells = mean_scores(rows, metric)
    features = {key: cell for key, cell in cells.items() if key[1] not in BASELINES}
    baselines = {key[1]: cell["value"] for key, cell in cells.items() if key[1] in BASELINES}
    finding = {**facts, "words": dict(words), "baselines": baselines}
    if not features:
        verdict = ["No feature could be measured.", *_failed_sentence(rows)]
        return {**finding, "best": None, "verdict": verdict}
    sign = 1.0 if metric_facts(metric).higher_is_better else -1.0
    top = max(features, key=lambda key: sign * features[key]["value"])
    best = {"model": facts["model"], "data": facts["task"], "prompt": top[0], "features": top[1]}
    verdict = [
        *_score_sentences(features, baselines, top[0], metric),
        *_prompt_sentence(features, metric),
        *_zeroshot_sentence(features),
        *_linearity_sentence(rows),
        *_top_tokens_sentence(details),
        *_missing_words_sentences(words),
        *_failed_sentence(rows),
    ]
    scores = [{"prompt": p, "features": k, **cell} for (p, k), cell in cells.items()]
    best |= {"metric": metric, **features[top]}
    return {**finding, "best": best, "scores": scores, "verdict": verdict}


def mean_scores(rows: pl.DataFrame, metric: str) -> ScoreTable:
    """The mean score of every cell over its repeats."""
    done = rows.filter((pl.col("metric") == metric) & (pl.col("status") == "done"))
    means = done.group_by(["prompt", "features"], maintain_order=True).agg(
        pl.col("value").mean(), pl.col("low").first(), pl.col("high").first()
    )
    return {
        (c["prompt"], c["features"]): {k: c[k] for k in ("value", "low", "high")}
        for c in means.iter_rows(named=True)
    }


def _format_score(cell: Mapping[str, Any]) -> str:
    if cell["low"] is None:
        return f"{cell['value']:.3f}"
    return f"{cell['value']:.3f} [{cell['low']:.3f}, {cell['high']:.3f}]"


def _score_sentences(
    features: ScoreTable, baselines: Mapping[str, float], prompt: str, metric: str
) -> list[str]:
    """The best next-word feature against the baselines and f; then all feature kinds."""
    cells = {kind: cell for (p, kind), cell in features.items() if p == prompt}
    scores = ", ".join(f"{kind} {_format_score(cell)}" for kind, cell in cells.items())
    title = metric_facts(metric).title
    listing = f"{title[:1].upper()}{title[1:]}{_prompt_phrase(prompt)}: {scores}."
    fitted = {k: c for k, c in cells.items() if k != "f" and not k.startswith("zeroshot")}
    if not fitted:
        return [listing]
    best = max(fitted, key=lambda k: fitted[k]["value"])
    value = fitted[best]["value"]
    sentence = (
        f"A linear classifier on {FEATURE_NAMES[best]} reaches {title} "
        f"{_format_score(fitted[best])}{_prompt_phrase(prompt)}"
    )
    if baselines:
        name = max(baselines, key=lambda k: baselines[k])
        gain = value - baselines[name]
        sentence += f"; the best baseline ({name}) reaches {baselines[name]:.3f} ({gain:+.3f})"
    lines = [f"{sentence}."]
    if "f" in cells:
        lines.append(_compared_to_f(best, value, cells["f"]["value"]))
    return [*lines, listing]


def _compared_to_f(best: str, value: float, f: float) -> str:
    """The best next-word feature against the hidden state."""
    if f - value > TIE_MARGIN:
        return f"The hidden state f reaches {f:.3f}, {f - value:.3f} more than {best}."
    return (
        f"The hidden state f reaches {f:.3f}: next-word features ({best}) predict the label as "
        "well as f."
    )


def _prompt_sentence(features: ScoreTable, metric: str) -> list[str]:
    """The change of the score by the prompt, for each feature kind."""
    prompts = list(dict.fromkeys(prompt for prompt, _ in features))
    if len(prompts) != 2 or "" not in prompts:
        return []
    prompt = next(p for p in prompts if p)
    gains = {
        kind: features[prompt, kind]["value"] - features["", kind]["value"]
        for _, kind in features
        if (prompt, kind) in features and ("", kind) in features
    }
    changes = ", ".join(f"{kind} {gain:+.3f}" for kind, gain in gains.items())
    title = metric_facts(metric).title
    return [f"The prompt {prompt!r} changes {title} by: {changes}."] if gains else []


def _zeroshot_sentence(features: ScoreTable) -> list[str]:
    zeroshot = [(key, cell) for key, cell in features.items() if key[1].startswith("zeroshot")]
    if not zeroshot:
        return []
    (prompt, kind), cell = max(zeroshot, key=lambda item: item[1]["value"])
    score = _format_score(cell)
    return [f"{FEATURE_NAMES[kind]}, without training, reaches {score}{_prompt_phrase(prompt)}."]


def _linearity_sentence(rows: pl.DataFrame) -> list[str]:
    """The diagnoses of the last prompt."""
    values = {
        name: rows.filter(pl.col("metric") == name)["value"].to_list()
        for name in ("r2_from_f", "r2_linear", "r2_quadratic")
    }
    if not all(values.values()) or None in (v[-1] for v in values.values()):
        return []
    phi_p, linear, quadratic = (v[-1] for v in values.values())
    return [
        f"R2 on test rows: Phi p from f {phi_p:.3f} (linear); log-partition from f {linear:.3f} "
        f"(linear), {quadratic:.3f} (quadratic)."
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
    return [f"Tokens with the largest effect ({kinds[0]}): {listing}."]


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


def _prompt_phrase(prompt: str) -> str:
    if "{text}" in prompt:
        return f" in the template {prompt!r}"
    return f" with the prompt {prompt!r}" if prompt else " without a prompt"


def feature_scores(rows: pl.DataFrame) -> dict[str, float]:
    """Accuracies by feature kind and prompt, and the R2 of Phi p from f, by a readable name."""
    chosen = rows.filter(
        ((pl.col("metric") == "accuracy") & pl.col("features").is_in(["f", "phi_p"]))
        | (pl.col("metric") == "r2_from_f")
    ).drop_nulls("value")
    means = chosen.group_by(["features", "prompt", "metric"], maintain_order=True).agg(
        pl.col("value").mean()
    )
    return {
        ("R2 of Phi p from f" if metric == "r2_from_f" else f"accuracy of {kind}")
        + _prompt_phrase(prompt): value
        for kind, prompt, metric, value in means.rows()
    }


def quad_verdict(
    objective: str,
    first: Mapping[str, Any],
    best: Mapping[str, Any],
    before: Mapping[str, float],
    after: Mapping[str, float],
    checkpoint: str,
) -> list[str]:
    """The losses at the start and at the best step of a training, and the scores around it."""
    name = {"quad": "Quad loss", "ce": "Cross-entropy"}[objective]
    metric = f"held_{objective}"
    return [
        f"{name} per held-out token: {first[metric]:.4g} -> {best[metric]:.4g} after "
        f"{best['step']} steps; perplexity {_perplexity(first)} -> {_perplexity(best)}.",
        *(
            f"{score}: {before[score]:.3f} before training, {after[score]:.3f} after."
            for score in after
            if score in before
        ),
        f"Checkpoint: {checkpoint}. Measure it with: cutaway nextword --model {checkpoint}",
    ]


def _perplexity(point: Mapping[str, Any]) -> str:
    return f"{math.exp(min(point['held_ce'], 700)):.4g}"
