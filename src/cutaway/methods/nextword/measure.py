"""What each kind of piece measures, all on the same splits."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.core.errors import BadData
from cutaway.measure.baselines import fit_baseline
from cutaway.measure.calibration import reliability
from cutaway.measure.metrics import evaluate
from cutaway.measure.repeats import RepeatMetrics
from cutaway.measure.splits import Split
from cutaway.methods.nextword.features import NextwordFeatures, features_for
from cutaway.methods.nextword.maths import diagnose as linear
from cutaway.methods.nextword.maths import full_p, tokens
from cutaway.methods.nextword.maths.classify import LinearClassifier, fit_logistic_cv
from cutaway.methods.nextword.maths.readout import next_token_probs, vocab_blocks
from cutaway.methods.nextword.maths.words import WordTokens, class_token_ids
from cutaway.methods.nextword.maths.zeroshot import (
    CONTENT_FREE,
    class_scores,
    contextual_calibration,
)
from cutaway.methods.nextword.output_head import token_text
from cutaway.solvers import check_finite

if TYPE_CHECKING:
    from cutaway.methods.nextword.grid import NextwordGrid, NextwordPiece

Details = list[dict[str, Any]]
Measurements = dict[str, tuple[list[RepeatMetrics], Details]]
RowIndex = NDArray[np.int64]
EXAMPLE_CHARS = 160


def measure_baseline(work: "NextwordGrid", piece: "NextwordPiece") -> Measurements:
    """A baseline on the words of the texts alone, from the rows that features learn from."""
    labels, texts, measured = work.question.labels, work.question.texts, []
    for split in work.splits:
        learn = Split(split.repeat, np.setdiff1d(split.train, split.val), split.val, split.test)
        model = fit_baseline(
            piece.what, work.counted, labels, learn, task=texts.task,
            n_classes=len(texts.classes), refit=True,
        )  # fmt: skip
        said = model(split.test)
        metrics = evaluate(labels[split.test], said.decisions, said.scores, task=texts.task)
        measured.append(_split_scores(split, metrics))
    return {piece.what: (measured, [])}


def measure_features(work: "NextwordGrid", piece: "NextwordPiece") -> Measurements:
    """Classifiers on features that fit into memory."""
    page = work.sheet(piece.prompt)
    x, ids = _feature_matrix(work, page, piece.what)
    check_finite(x)
    fits = fit_logistic_cv(
        x, work.question.labels, [split.train for split in work.splits], work.plan
    )
    logits = [one.logits(x) for one in fits]
    measured = [
        _classifier_scores(work, s, one, z)
        for s, one, z in zip(work.splits, fits, logits, strict=True)
    ]
    details = [_classifier_confusion(work, work.splits[0], logits[0], fits[0])]
    if ids:
        train = torch.from_numpy(work.splits[0].train)
        found = tokens.top_tokens(
            fits[0].weights, x[train].double().std(dim=0), classes=work.plan.classes,
            most=work.spec.tokens,
        )  # fmt: skip
        details += _token_details(work, page, found, ids)
    return {piece.what: (measured, details)}


def _feature_matrix(
    work: "NextwordGrid", page: NextwordFeatures, what: str
) -> tuple[Tensor, tuple[int, ...]]:
    """The features of one kind, and the tokens they belong to where they are words."""
    if what in ("f", "phi_p", "projection"):
        return getattr(page, what), ()
    found = work.found[what]
    if not found.ids:
        raise BadData(no_token_message(work, found))
    return page.at(found.ids, work.spec.kind), found.ids


def no_token_message(work: "NextwordGrid", found: WordTokens) -> str:
    """What is wrong with words of which this model has none."""
    return (
        f"none of the words {', '.join(map(repr, found.missing))} is a single token of "
        f"{work.lm.name!r}."
    )


def measure_full_p(work: "NextwordGrid", piece: "NextwordPiece") -> Measurements:
    """Classifiers on the whole p, of which only blocks are ever made."""
    page, labels = work.sheet(piece.prompt), work.question.labels
    check_finite(page.f)
    trains = [split.train for split in work.splits]
    rows = len(np.unique(np.concatenate(trains)))
    way = full_p.choose_p_solver(rows, page.output.vocab)
    work.console.print(
        f"p: {rows:,} x {page.output.vocab:,} numbers that are never stored, solved "
        + ("through the products of its rows." if way == "inside" else "block by block.")
    )
    plan = replace(work.plan, most=work.spec.p_steps) if way == "stream" else work.plan
    with work.console.progress(f"p ({way})", rows) as advance:
        step = (lambda rows: advance(rows)) if way == "inside" else (lambda rows: None)
        fits = full_p.fit_p(page.f, page.output, labels, trains, plan, way=way, done=step)
    logits = full_p.classifier_logits(fits, page.f, page.output)
    measured = [
        _classifier_scores(work, split, one, logits[:, i], converged=float(one.converged))
        for i, (split, one) in enumerate(zip(work.splits, fits, strict=True))
    ]
    train = work.splits[0].train
    found = tokens.top_tokens(
        fits[0].weights,
        _probability_std(page, train),
        classes=work.plan.classes,
        most=work.spec.tokens,
    )
    details = [_classifier_confusion(work, work.splits[0], logits[:, 0], fits[0])]
    return {
        piece.what: (
            measured,
            details + _token_details(work, page, found, range(page.output.vocab)),
        )
    }


def _probability_std(page: NextwordFeatures, rows: RowIndex) -> Tensor:
    """The deviation of every word's probability over some rows, in one look at p."""
    f = page.f[torch.from_numpy(rows)]
    first, second = torch.zeros(2, page.output.vocab, dtype=torch.float64)
    for part in vocab_blocks(len(f), page.output.vocab):
        p = next_token_probs(f[part], page.output)
        first += p.sum(dim=0, dtype=torch.float64)
        second += p.square_().sum(dim=0, dtype=torch.float64)
    spread: Tensor = second / len(f) - (first / len(f)).square()
    return spread.clamp_min(0.0).sqrt()


def measure_zeroshot(work: "NextwordGrid", piece: "NextwordPiece") -> Measurements:
    """The likeliest class word, as the model says it and with its habits taken out."""
    found, words = work.found["zeroshot"], work.words["zeroshot"]
    groups = class_token_ids(words, found, work.question.texts.classes)
    ids = [token for group in groups for token in group]
    columns = [[ids.index(token) for token in group] for group in groups]
    page = work.sheet(piece.prompt)
    plain = class_scores(page.output.at(page.f, ids), columns)
    free = features_for(
        work.spec, work.lm, work.question, piece.prompt, work.console, texts=CONTENT_FREE
    )
    prior = class_scores(free.output.at(free.f, ids), columns)
    return {
        name: _zeroshot_scores(work, scores.exp())
        for name, scores in (
            ("zeroshot", plain),
            ("zeroshot_calibrated", contextual_calibration(plain, prior)),
        )
    }


def _zeroshot_scores(work: "NextwordGrid", p: Tensor) -> tuple[list[RepeatMetrics], Details]:
    labels, measured = work.question.labels, []
    for split in work.splits:
        measured.append(_split_scores(split, _metrics(work, split.test, p)))
    test = work.splits[0].test
    said, bins = p[torch.from_numpy(test)].numpy(), 10
    curve = reliability(said, labels[test], bins=bins)
    known = curve.count > 0
    details: Details = [
        _confusion_matrix(work, test, said.argmax(axis=1)),
        {
            "figure": "calibration",
            "confidence": curve.confidence[known].tolist(),
            "accuracy": curve.accuracy[known].tolist(),
            "count": curve.count[known].tolist(),
            "ece": curve.ece,
        },
    ]
    return measured, details


def measure_linearity(work: "NextwordGrid", piece: "NextwordPiece") -> Measurements:
    """How linear Phi p is in f, and how quadratic the log-partition, on test rows."""
    page, split = work.sheet(piece.prompt), work.splits[0]
    train, test = (torch.from_numpy(rows) for rows in (split.train, split.test))
    phi_p = linear.linear_r2(page.f, page.phi_p, train, test)
    logz = linear.log_partition_r2(page.f, page.logz, train, test)
    about = {
        "r2_linear": logz.linear,
        "r2_quadratic": logz.quadratic,
        "directions": float(logz.directions),
    }
    return {
        "phi_p": ([_split_scores(split, {"r2_from_f": phi_p})], []),
        "logz": ([_split_scores(split, about)], []),
    }


def _classifier_scores(
    work: "NextwordGrid", split: Split, one: LinearClassifier, logits: Tensor, **besides: float
) -> RepeatMetrics:
    """The metrics of one classifier on its test rows, and its training accuracy."""
    p = one.probabilities(logits)
    train = _metrics(work, split.train, p)["accuracy"]
    more = {"accuracy_train": train, "c": one.c, **besides}
    return _split_scores(split, {**_metrics(work, split.test, p), **more})


def _metrics(work: "NextwordGrid", rows: RowIndex, p: Tensor) -> dict[str, float]:
    mine = p[torch.from_numpy(rows)].double().numpy()
    scores = mine[:, 1] if mine.shape[1] == 2 else mine
    labels = work.question.labels[rows]
    return evaluate(labels, mine.argmax(axis=1), scores, task=work.question.texts.task)


def _split_scores(split: Split, metrics: dict[str, float]) -> RepeatMetrics:
    return RepeatMetrics(split.repeat, len(split.train), 0, len(split.test), metrics)


def _classifier_confusion(
    work: "NextwordGrid", split: Split, logits: Tensor, one: LinearClassifier
) -> dict[str, Any]:
    said = one.probabilities(logits[torch.from_numpy(split.test)]).argmax(dim=1).numpy()
    return _confusion_matrix(work, split.test, said)


def _confusion_matrix(work: "NextwordGrid", rows: RowIndex, said: NDArray[Any]) -> dict[str, Any]:
    classes = work.question.texts.classes
    counts = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(counts, (work.question.labels[rows], said), 1)
    return {"figure": "confusion", "classes": list(classes), "counts": counts.tolist()}


def _token_details(
    work: "NextwordGrid",
    page: NextwordFeatures,
    found: list[tuple[int, int, float, float]],
    ids: Sequence[int],
) -> Details:
    """The telling tokens as words, with sentences of their class."""
    if not found:
        return []
    columns = [ids[column] for _, column, _, _ in found]
    rows = work.splits[0].train
    chosen = torch.from_numpy(rows)
    values = (page.output.at(page.f[chosen], columns) - page.logz[chosen, None]).exp()
    told = tokens.with_examples(found, values, work.question.labels, rows)
    texts, classes = work.question.texts, work.question.texts.classes
    return [
        {
            "figure": "tokens",
            "label": classes[one.label],
            "token": token_text(work.lm, token),
            "id": int(token),
            "weight": one.weight,
            "effect": one.effect,
            "examples": [texts.texts[i][:EXAMPLE_CHARS] for i in one.examples],
        }
        for one, token in zip(told, columns, strict=True)
    ]
