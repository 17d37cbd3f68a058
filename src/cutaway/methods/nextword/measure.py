"""What each kind of piece measures; all use the same splits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.core.errors import BadData
from cutaway.measure.baselines import fit_baseline
from cutaway.measure.calibration import reliability
from cutaway.measure.jackknife import row_scores
from cutaway.measure.metrics import evaluate
from cutaway.measure.repeats import RepeatMetrics
from cutaway.measure.splits import Split
from cutaway.methods.nextword.features import NextwordFeatures, features_for
from cutaway.methods.nextword.maths import diagnose, full_p
from cutaway.methods.nextword.maths.classify import LinearClassifier, fit_logistic_cv
from cutaway.methods.nextword.maths.tokens import TopToken, example_rows, top_tokens
from cutaway.methods.nextword.maths.words import class_token_ids
from cutaway.methods.nextword.maths.zeroshot import (
    CONTENT_FREE,
    class_scores,
    contextual_calibration,
)
from cutaway.methods.nextword.output_head import token_text
from cutaway.solvers.rows import check_finite

if TYPE_CHECKING:
    from cutaway.methods.nextword.grid import NextwordGrid
    from cutaway.methods.nextword.piece import NextwordPiece

Details = list[dict[str, Any]]
"""What figures need in addition to the rows; see `details.py`."""


@dataclass(frozen=True, eq=False)
class SplitAnswers:
    """The class that is predicted for each test row of a split, and its probability."""

    split: Split
    decisions: NDArray[np.int64]
    scores: NDArray[np.float64]


class Measurement(NamedTuple):
    """The metrics of one feature kind on each split, what its figures need, and its predictions."""

    scores: list[RepeatMetrics]
    details: Details
    answers: Sequence[SplitAnswers] = ()


Measurements = dict[str, Measurement]
"""By feature kind."""
RowIndex = NDArray[np.int64]
EXAMPLE_CHARS = 160


def measure_baseline(grid: "NextwordGrid", piece: "NextwordPiece") -> Measurements:
    """A text baseline, trained on the same rows as the features."""
    labels, texts, scores, answers = grid.task.labels, grid.task.texts, [], []
    for split in grid.splits:
        learn = Split(split.repeat, np.setdiff1d(split.train, split.val), split.val, split.test)
        predict = fit_baseline(
            piece.kind, grid.word_counts, labels, learn, task=texts.task,
            n_classes=len(texts.classes), refit=True,
        )  # fmt: skip
        output = predict(split.test)
        metrics = evaluate(labels[split.test], output.decisions, output.scores, task=texts.task)
        scores.append(_repeat_metrics(grid, split, metrics, output.decisions, output.scores))
        p = np.asarray(output.scores, dtype=np.float64)
        p = np.stack([1 - p, p], axis=1) if p.ndim == 1 else p
        answers.append(_answers(split, np.asarray(output.decisions, dtype=np.int64), p))
    return {piece.kind: Measurement(scores, [], answers)}


def measure_features(grid: "NextwordGrid", piece: "NextwordPiece") -> Measurements:
    """Linear classifiers on features that fit into memory."""
    features = grid.features(piece.prompt)
    x, ids = _feature_matrix(grid, features, piece.kind)
    check_finite(x)
    trains = [split.train for split in grid.splits]
    fits = fit_logistic_cv(x, grid.task.labels, trains, grid.settings)
    logits = [fit.logits(x) for fit in fits]
    std = x[torch.from_numpy(trains[0])].double().std(dim=0) if ids else None
    return {piece.kind: _classifier_results(grid, features, fits, logits, ids, std)}


def _feature_matrix(
    grid: "NextwordGrid", features: NextwordFeatures, kind: str
) -> tuple[Tensor, Sequence[int]]:
    """The features of one kind, and the token of each column if columns are tokens."""
    if kind in ("f", "phi_p", "projection"):
        return getattr(features, kind), ()
    ids = grid.word_tokens[kind].ids
    if not ids:
        raise BadData(grid.no_token_message(kind))
    return features.token_scores(ids, grid.spec.kind), ids


def measure_full_p(grid: "NextwordGrid", piece: "NextwordPiece") -> Measurements:
    """Linear classifiers on the full p, which is computed block by block and never stored."""
    features, settings = grid.features(piece.prompt), grid.settings
    check_finite(features.f)
    trains = [split.train for split in grid.splits]
    rows, vocab = len(np.unique(np.concatenate(trains))), features.head.vocab
    solver = full_p.choose_p_solver(rows, vocab)
    how = "its Gram matrix" if solver == "gram" else "passes over blocks of rows"
    grid.console.print(f"p: {rows:,} x {vocab:,} values, never stored; solved with {how}.")
    if solver == "stream":
        settings = replace(settings, max_iter=grid.spec.p_steps)
    with grid.console.progress(f"p ({solver})", rows) as advance:
        # The streaming solver passes over the rows an unknown number of times.
        done = (lambda count: advance(count)) if solver == "gram" else (lambda count: None)
        fits = full_p.fit_p(
            features.f, features.head, grid.task.labels, trains, settings, solver=solver, done=done
        )
    logits = full_p.classifier_logits(fits, features.f, features.head).unbind(1)
    std = full_p.probability_std(features.f[torch.from_numpy(trains[0])], features.head)
    converged = [{"converged": float(fit.converged)} for fit in fits]
    return {
        piece.kind: _classifier_results(
            grid, features, fits, logits, range(vocab), std, converged=converged
        )
    }


def _classifier_results(
    grid: "NextwordGrid",
    features: NextwordFeatures,
    fits: Sequence[LinearClassifier],
    logits: Sequence[Tensor],
    ids: Sequence[int],
    std: Tensor | None,
    converged: Sequence[dict[str, float]] | None = None,
) -> Measurement:
    """The metrics of the classifier of each split; confusions and top tokens of the first."""
    scores, answers = [], []
    for i, (split, fit) in enumerate(zip(grid.splits, fits, strict=True)):
        p = fit.probabilities(logits[i])
        metrics = {
            **_metrics(grid, split.test, p),
            "accuracy_train": _metrics(grid, split.train, p)["accuracy"],
            **_validation(grid, split, _held_out_probabilities(fit)),
            "c": fit.c,
            **(converged[i] if converged else {}),
        }
        scores.append(_repeat_metrics(grid, split, metrics, *_decide(p, split.test)))
        answers.append(_most_likely(split, p))
    test = grid.splits[0].test
    p = fits[0].probabilities(logits[0][torch.from_numpy(test)])
    details = [_confusion(grid, test, p.argmax(dim=1).numpy())]
    if std is not None:
        top = top_tokens(fits[0].weights, std, classes=grid.settings.classes, most=grid.spec.tokens)
        details += _token_details(grid, features, top, ids)
    return Measurement(scores, details, answers)


def measure_zeroshot(grid: "NextwordGrid", piece: "NextwordPiece") -> Measurements:
    """The class whose word is most likely next, without and with contextual calibration."""
    words, word_tokens = grid.words["zeroshot"], grid.word_tokens["zeroshot"]
    groups = class_token_ids(words, word_tokens, grid.task.texts.classes)
    ids = [token for group in groups for token in group]
    columns = [[ids.index(token) for token in group] for group in groups]
    features = grid.features(piece.prompt)
    scores = class_scores(features.head.at(features.f, ids), columns)
    content_free = features_for(
        grid.spec, grid.lm, grid.task, piece.prompt, grid.console, texts=CONTENT_FREE
    )
    prior = class_scores(content_free.head.at(content_free.f, ids), columns)
    calibrated = contextual_calibration(scores, prior)
    return {
        "zeroshot": _zeroshot_results(grid, scores.exp()),
        "zeroshot_calibrated": _zeroshot_results(grid, calibrated.exp()),
    }


def _zeroshot_results(grid: "NextwordGrid", p: Tensor) -> Measurement:
    scores = []
    for split in grid.splits:
        # Nothing is fitted, so the training rows are new rows, by which kinds can be compared.
        train = p[torch.from_numpy(split.train)]
        metrics = {**_metrics(grid, split.test, p), **_validation(grid, split, train)}
        scores.append(_repeat_metrics(grid, split, metrics, *_decide(p, split.test)))
    test = grid.splits[0].test
    probabilities = p[torch.from_numpy(test)].numpy()
    curve = reliability(probabilities, grid.task.labels[test], bins=10)
    used = curve.count > 0
    calibration = {
        "figure": "calibration",
        "confidence": curve.confidence[used].tolist(),
        "accuracy": curve.accuracy[used].tolist(),
        "count": curve.count[used].tolist(),
        "ece": curve.ece,
    }
    details = [_confusion(grid, test, probabilities.argmax(axis=1)), calibration]
    return Measurement(scores, details, [_most_likely(split, p) for split in grid.splits])


def measure_linearity(grid: "NextwordGrid", piece: "NextwordPiece") -> Measurements:
    """R2 on test rows: Phi p from f, and the log-partition from f, linear and quadratic."""
    features, split = grid.features(piece.prompt), grid.splits[0]
    train, test = (torch.from_numpy(rows) for rows in (split.train, split.test))
    phi_p = diagnose.linear_r2(features.f, features.phi_p, train, test)
    logz = diagnose.log_partition_r2(features.f, features.logz, train, test)
    metrics = {
        "r2_linear": logz.linear,
        "r2_quadratic": logz.quadratic,
        "directions": float(logz.directions),
    }
    return {
        "phi_p": Measurement([RepeatMetrics.of(split, {"r2_from_f": phi_p})], []),
        "logz": Measurement([RepeatMetrics.of(split, metrics)], []),
    }


def _metrics(grid: "NextwordGrid", rows: RowIndex, p: Tensor) -> dict[str, float]:
    return evaluate(grid.task.labels[rows], *_decide(p, rows), task=grid.task.texts.task)


def _decide(p: Tensor, rows: RowIndex) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The most likely class of some rows, and their scores as the metrics want them."""
    chosen = p[torch.from_numpy(rows)].double().numpy()
    return chosen.argmax(axis=1), chosen[:, 1] if chosen.shape[1] == 2 else chosen


def _held_out_probabilities(fit: LinearClassifier) -> Tensor:
    assert fit.held_out is not None
    return fit.probabilities(fit.held_out)


def _validation(grid: "NextwordGrid", split: Split, p: Tensor) -> dict[str, float]:
    """The main metric on the training rows, `p` from classifiers that were fitted without them."""
    truth, given = grid.task.labels[split.train], _decide(p, np.arange(len(p)))
    found = evaluate(truth, *given, task=grid.task.texts.task, names=[grid.task.metric])
    return {f"{grid.task.metric}_val": found[grid.task.metric]}


def _repeat_metrics(
    grid: "NextwordGrid",
    split: Split,
    metrics: dict[str, float],
    decisions: NDArray[Any],
    scores: NDArray[Any],
) -> RepeatMetrics:
    """The metrics of a split, with pseudo-values of the main one over blocks of test rows."""
    labels, task = grid.task.labels[split.test], grid.task.texts.task

    def value(rows: NDArray[np.int64]) -> float:
        found = evaluate(labels[rows], decisions[rows], scores[rows], task=task, names=[main])
        return found[main]

    main, blocks = grid.task.metric, grid.blocks
    found = row_scores(main, labels, value, blocks[split.test], int(blocks.max()) + 1)
    return RepeatMetrics.of(split, metrics, {main: found})


def _most_likely(split: Split, p: Tensor) -> SplitAnswers:
    """The most likely class of each test row; `p` has the probabilities of all rows."""
    chosen = p[torch.from_numpy(split.test)].double().numpy()
    return _answers(split, chosen.argmax(axis=1), chosen)


def _answers(split: Split, decisions: NDArray[np.int64], p: NDArray[np.float64]) -> SplitAnswers:
    return SplitAnswers(split, decisions, p[np.arange(len(p)), decisions])


def _confusion(grid: "NextwordGrid", rows: RowIndex, predicted: NDArray[Any]) -> dict[str, Any]:
    classes = grid.task.texts.classes
    counts = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(counts, (grid.task.labels[rows], predicted), 1)
    return {"figure": "confusion", "classes": list(classes), "counts": counts.tolist()}


def _token_details(
    grid: "NextwordGrid", features: NextwordFeatures, top: list[TopToken], ids: Sequence[int]
) -> Details:
    """The top tokens as text, with example sentences of their class."""
    if not top:
        return []
    chosen = [ids[one.column] for one in top]
    rows, texts = grid.splits[0].train, grid.task.texts
    index = torch.from_numpy(rows)
    p = (features.head.at(features.f[index], chosen) - features.logz[index, None]).exp()
    details = []
    for one, token, values in zip(top, chosen, p.T, strict=True):
        examples = example_rows(values, rows, grid.task.labels[rows] == one.label)
        details.append(
            {
                "figure": "tokens",
                "label": texts.classes[one.label],
                "token": token_text(grid.lm, token),
                "id": int(token),
                "weight": one.weight,
                "effect": one.effect,
                "examples": [texts.texts[i][:EXAMPLE_CHARS] for i in examples],
            }
        )
    return details
