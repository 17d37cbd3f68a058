"""The findings: what next-word features give beside the hidden state, and through which words."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from cutaway.methods.nextword.rows import MAIN_METRIC
from cutaway.methods.nextword.task import NextwordTask

FEATURE_NAMES = {
    "f": "the hidden state f",
    "phi_p": "the conditional mean Phi p",
    "subset": "the task's words",
    "classwords": "the class words",
    "posneg": "the word pair",
    "projection": "a random projection of p",
    "p": "the whole next-word distribution p",
    "zeroshot": "zero-shot",
    "zeroshot_calibrated": "calibrated zero-shot",
}
BASELINES = ("majority", "bow", "tfidf")
# Accuracies closer than this count as the same in a sentence.
TIE_MARGIN = 0.02
ScoreTable = dict[tuple[str, str], dict[str, Any]]
"""(prompt, features) -> mean, low, high of the main metric."""


def summarise(
    table: pl.DataFrame,
    questions: Sequence[NextwordTask],
    words: Mapping[str, Mapping[str, Any]],
    details: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Summary and baselines of a run as plain values."""
    findings: list[dict[str, Any]] = []
    baselines: dict[str, Any] = {}
    for question in questions:
        of_task = table.filter(pl.col("task") == question.name)
        for model in of_task["model"].unique(maintain_order=True):
            mine = of_task.filter(pl.col("model") == model)
            told = [d for d in details if (d["model"], d["task"]) == (model, question.name)]
            found = _task_summary(mine, model, question, words[f"{model} on {question.name}"], told)
            baselines[f"{model} on {question.name}"] = found.pop("baselines")
            findings.append(found)
    several = len(findings) > 1
    said = [
        f"{f['model']} on {f['task']}: {line}" if several else line
        for f in findings
        for line in f["verdict"]
    ]
    best = [f["best"] for f in findings if f["best"]]
    summary = {
        "metric": MAIN_METRIC, "best": best[0] if best else None, "verdict": said, "findings": findings,
        "failed": table.filter(pl.col("status") == "failed").height,
    }  # fmt: skip
    return summary, baselines


def _task_summary(
    mine: pl.DataFrame, model: str, question: NextwordTask, words: Mapping[str, Any],
    details: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:  # fmt: skip
    cells = mean_scores(mine)
    own = {key: cell for key, cell in cells.items() if key[1] not in BASELINES}
    told = {
        "model": model, "task": question.name, "data": question.texts.name, "metric": MAIN_METRIC,
        "words": dict(words),
        "baselines": {k[1]: c["value"] for k, c in cells.items() if k[1] in BASELINES},
    }  # fmt: skip
    if not own:
        return {
            **told,
            "best": None,
            "verdict": ["No feature could be measured.", *_failed_sentence(mine)],
        }
    top = max(own, key=lambda key: own[key]["value"])
    best = {
        "model": model, "data": question.name, "prompt": top[0], "features": top[1],
        "metric": MAIN_METRIC, **own[top],
    }  # fmt: skip
    lines = [
        *_accuracy_sentences(own, cells), *_prompt_sentence(own), *_zeroshot_sentence(own), *_linearity_sentence(mine), *_top_tokens_sentence(details),
        *_missing_words_sentences(words), *_failed_sentence(mine),
    ]  # fmt: skip
    return {**told, "best": best, "scores": _score_list(cells), "verdict": lines}


def mean_scores(mine: pl.DataFrame) -> ScoreTable:
    """The mean accuracy of every cell over its repeats."""
    done = mine.filter((pl.col("metric") == MAIN_METRIC) & (pl.col("status") == "done"))
    folded = done.group_by(["prompt", "features"], maintain_order=True).agg(
        pl.col("value").mean(), pl.col("low").first(), pl.col("high").first()
    )
    return {
        (c["prompt"], c["features"]): {k: c[k] for k in ("value", "low", "high")}
        for c in folded.iter_rows(named=True)
    }


def _score_list(cells: ScoreTable) -> list[dict[str, Any]]:
    return [{"prompt": p, "features": k, **cell} for (p, k), cell in cells.items()]


def _format_score(cell: Mapping[str, Any]) -> str:
    if cell["low"] is None:
        return f"{cell['value']:.3f}"
    return f"{cell['value']:.3f} [{cell['low']:.3f}, {cell['high']:.3f}]"


def _accuracy_sentences(own: ScoreTable, cells: ScoreTable) -> list[str]:
    """Every kind under the best prompt; the best next-word feature beside baseline and f."""
    prompt = max(own, key=lambda key: own[key]["value"])[0]
    here = {kind: cell for (p, kind), cell in own.items() if p == prompt}
    said = ", ".join(f"{kind} {_format_score(cell)}" for kind, cell in here.items())
    lines = [f"Accuracy{_prompt_phrase(prompt)}: {said}."]
    fitted = {k: c["value"] for k, c in here.items() if k != "f" and not k.startswith("zeroshot")}
    if not fitted:
        return lines
    best = max(fitted, key=lambda k: fitted[k])
    flat = {key[1]: cell["value"] for key, cell in cells.items() if key[1] in BASELINES}
    floor = max(flat, key=lambda k: flat[k]) if flat else None
    gain = fitted[best] - flat[floor] if floor else 1.0
    if floor:
        lines.append(
            f"{_capitalised(FEATURE_NAMES[best])} {_verb_form(best)} {'more' if gain > 0 else 'no more'} than the "
            f"best baseline, {floor} {flat[floor]:.3f} ({gain:+.3f})."
        )
    return lines + ([_compared_to_f(best, fitted[best], here["f"]["value"])] if "f" in here else [])


def _verb_form(kind: str) -> str:
    return "give" if kind in ("subset", "classwords") else "gives"


def _compared_to_f(best: str, value: float, f: float) -> str:
    """How far the best next-word feature is from the hidden state."""
    gap = f - value
    if gap > TIE_MARGIN:
        return f"The hidden state knows {gap:.3f} more than the next-word features show ({best})."
    return f"The next-word features ({best} {value:.3f}) know as much of it as f does ({f:.3f})."


def _prompt_sentence(own: ScoreTable) -> list[str]:
    """What the prompt adds, kind by kind."""
    prompts = list(dict.fromkeys(p for p, _ in own))
    if len(prompts) != 2 or "" not in prompts:
        return []
    asked = next(p for p in prompts if p)
    gains = {
        kind: own[asked, kind]["value"] - own["", kind]["value"]
        for _, kind in own
        if (asked, kind) in own and ("", kind) in own
    }
    said = ", ".join(f"{kind} {gain:+.3f}" for kind, gain in gains.items())
    return [f"The prompt {asked!r} changes accuracy by: {said}."] if gains else []


def _zeroshot_sentence(own: ScoreTable) -> list[str]:
    found = [(key, cell) for key, cell in own.items() if key[1].startswith("zeroshot")]
    if not found:
        return []
    (prompt, kind), cell = max(found, key=lambda item: item[1]["value"])
    return [
        f"Without any training, {FEATURE_NAMES[kind]}{_prompt_phrase(prompt)} gets {_format_score(cell)}."
    ]


def _linearity_sentence(mine: pl.DataFrame) -> list[str]:
    """The diagnoses of the last prompt."""
    found = {
        name: mine.filter(pl.col("metric") == name)["value"].to_list()
        for name in ("r2_from_f", "r2_linear", "r2_quadratic")
    }
    if not all(found.values()) or None in (v[-1] for v in found.values()):
        return []
    last = {name: values[-1] for name, values in found.items()}
    return [
        f"Phi p is linear in f with R2 {last['r2_from_f']:.3f}; the log-partition with "
        f"{last['r2_linear']:.3f}, as a quadratic {last['r2_quadratic']:.3f} (test rows)."
    ]


def _top_tokens_sentence(details: Sequence[Mapping[str, Any]]) -> list[str]:
    told = [d for d in details if d["figure"] == "tokens"]
    kinds = [k for k in ("p", "subset", "classwords") if any(d["features"] == k for d in told)]
    if not kinds:
        return []
    prompt = [d["prompt"] for d in told if d["features"] == kinds[0]][-1]
    words: dict[str, list[str]] = {}
    for one in told:
        if (one["features"], one["prompt"]) == (kinds[0], prompt):
            words.setdefault(one["label"], []).append(repr(one["token"]))
    said = "; ".join(f"{label}: {' '.join(found[:5])}" for label, found in words.items())
    return [f"The words that carry it ({kinds[0]}): {said}."]


def _missing_words_sentences(words: Mapping[str, Any]) -> list[str]:
    lost = {name: w["missing"] for name, w in words.items() if w["missing"]}
    if lost.get("zeroshot") == lost.get("classwords"):
        lost.pop("zeroshot", None)
    return [
        f"Of {name}, words that are no single token of this model and take no part: "
        f"{', '.join(map(repr, missing))}."
        for name, missing in lost.items()
    ]


def _failed_sentence(mine: pl.DataFrame) -> list[str]:
    failed = mine.filter(pl.col("status") == "failed")
    cells = "1 cell" if failed.height == 1 else f"{failed.height} cells"
    return [f"{cells} failed; the first: {failed['reason'][0]}"] if failed.height else []


def _prompt_phrase(prompt: str) -> str:
    if "{text}" in prompt:
        return f" in the template {prompt!r}"
    return f" with the prompt {prompt!r}" if prompt else " without a prompt"


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def feature_scores(rows: pl.DataFrame) -> dict[str, float]:
    """Accuracies by feature kind and prompt, and how linear Phi p is in f, in words."""
    wanted = rows.filter(
        ((pl.col("metric") == MAIN_METRIC) & pl.col("features").is_in(["f", "phi_p"]))
        | (pl.col("metric") == "r2_from_f")
    ).drop_nulls("value")
    means = wanted.group_by(["features", "prompt", "metric"], maintain_order=True).agg(
        pl.col("value").mean()
    )
    return {
        f"{'R2 of Phi p from f' if m == 'r2_from_f' else f'accuracy of {kind}'}{_prompt_phrase(prompt)}": v
        for kind, prompt, m, v in means.rows()
    }
