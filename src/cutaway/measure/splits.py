"""The PROTOCOLS table: which rows are used for training, validation and testing.

Every protocol is seeded (PCG64, one spawned stream per repeat, so repeat 3 is the same rows
whether 5 or 50 are asked for), stratified (`strata.py` says by what), and gives `Split`s whose
three parts share no row.

    repeats   repeated seeded splits 70/10/20
    kfold     each row is tested exactly once; validation rows are taken from the other folds
    fixed     the parts that come with the data; without a dev part, one is split off train
    kshot     K rows per class for training, K for validation, the rest (or the test part) to test
    curve     the splits of `repeats`, with nested subsamples of the training part of each size
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.core.errors import BadData, BadSpec
from cutaway.core.lookup import lookup
from cutaway.core.textset import PARTS, Task
from cutaway.measure.strata import RowIndices, nested_order, shuffle, strata, stratified_cut


@dataclass(frozen=True, eq=False)
class Split:
    """Row indices for training, validation and testing; no row in two of them."""

    repeat: int
    """Number of the repeat or fold."""
    train: RowIndices
    val: RowIndices
    test: RowIndices
    size: int | None = None
    """The requested training size, if there was one."""
    drawn: int | None = None
    """Size of the full training part if `train` is a subsample of it."""
    tested: int | None = None
    """Number of distinct test rows of all repeats; rows that are tested more often than others
    count for less, (sum m)^2 / sum m^2 for rows tested m times."""


@dataclass(frozen=True)
class SplitPlan:
    """How to split. Each protocol uses the fields it needs and ignores the others."""

    protocol: str = "repeats"
    seed: int = 0
    repeats: int = 10
    """Number of splits (of each size); kfold gives one per fold instead."""
    fractions: tuple[float, float, float] = (0.7, 0.1, 0.2)
    """Train, validation, test; kfold and fixed use the ratio of the first two."""
    folds: int = 5
    shots: int = 16
    """Training rows per class in kshot; the same number for validation."""
    sizes: tuple[int, ...] = ()
    """Training sizes of curve."""

    def __post_init__(self) -> None:
        """BadSpec for an invalid value."""
        lookup(PROTOCOLS, self.protocol, kind="protocol")
        for name, least in {"seed": 0, "repeats": 1, "folds": 2, "shots": 1}.items():
            if (value := getattr(self, name)) < least:
                raise BadSpec(f"{name} must be at least {least}, got {value!r}.")
        right = len(self.fractions) == 3 and min(self.fractions) > 0
        if not right or abs(sum(self.fractions) - 1) > 1e-6:
            raise BadSpec(
                "fractions must be three positive numbers that add up to 1 (train, validation, "
                f"test), got {self.fractions!r}."
            )


@dataclass(frozen=True, eq=False)
class SplitData:
    """The rows to split: the stratum of each, the names of the strata, the fixed parts."""

    groups: RowIndices
    task: Task
    classes: tuple[str, ...] = ()
    parts: NDArray[np.str_] | None = None

    def name(self, group: int) -> str:
        """What to call a stratum in a message."""
        return self.classes[group] if group < len(self.classes) else str(group)

    @property
    def rows(self) -> RowIndices:
        """All row numbers."""
        return np.arange(len(self.groups), dtype=np.int64)

    @property
    def has_classes(self) -> bool:
        """Whether a row belongs to exactly one class."""
        return self.task in ("binary", "multiclass")


def split(
    labels: NDArray[Any],
    plan: SplitPlan,
    *,
    task: Task,
    parts: NDArray[np.str_] | None = None,
    classes: Sequence[str] = (),
) -> tuple[Split, ...]:
    """Every split of the plan; BadData or BadSpec if the rows or the plan don't allow one."""
    ground = SplitData(strata(np.asarray(labels), task), task, tuple(classes), parts)
    if len(ground.groups) < 2:
        raise BadData(f"{len(ground.groups)} labelled rows can't be split; give at least 10.")
    if ground.has_classes and len(np.unique(ground.groups)) == 1:
        raise BadData(
            f"Every row has the label {ground.name(int(ground.groups[0]))!r}; "
            "there must be rows of at least two classes."
        )
    made = tuple(_check_not_empty(s, ground) for s in PROTOCOLS[plan.protocol](ground, plan))
    return _with_tested_count(made, len(ground.groups))


def repeat_rng(seed: int, repeat: int) -> np.random.Generator:
    """The random stream of one repeat, the same however many repeats there are."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(repeat,))))


def _repeats(ground: SplitData, plan: SplitPlan) -> Iterator[Split]:
    _check_two_per_class(ground)
    for repeat in range(plan.repeats):
        rng = repeat_rng(plan.seed, repeat)
        train, val, test = stratified_cut(ground.rows, ground.groups, plan.fractions, rng)
        yield Split(repeat, train, val, test)


def _kfold(ground: SplitData, plan: SplitPlan) -> Iterator[Split]:
    if plan.folds > len(ground.groups):
        raise BadSpec(
            f"folds must be at most the number of rows, {len(ground.groups)}, got {plan.folds!r}."
        )
    _check_two_per_class(ground)
    mixed = shuffle(ground.rows, repeat_rng(plan.seed, 0))
    ordered = mixed[np.argsort(ground.groups[mixed], kind="stable")]
    # Assigned in turn, class after class: fold sizes and classes per fold differ by at most one.
    fold = np.empty(len(ordered), dtype=np.int64)
    fold[ordered] = np.arange(len(ordered)) % plan.folds
    for k in range(plan.folds):
        train, val = _split_off_validation(
            np.flatnonzero(fold != k), ground, plan, repeat_rng(plan.seed, k + 1)
        )
        yield Split(k, train, val, np.flatnonzero(fold == k))


def _fixed(ground: SplitData, plan: SplitPlan) -> Iterator[Split]:
    train, test = _fixed_part(ground, "train"), _fixed_part(ground, "test")
    for name in _known_parts(ground):
        _check_two_classes(ground, name)
    if "dev" in _known_parts(ground):
        # Every repeat would be the same split, and ten copies would look like certainty.
        yield Split(0, train, _fixed_part(ground, "dev"), test)
        return
    for repeat in range(plan.repeats):
        yield Split(
            repeat, *_split_off_validation(train, ground, plan, repeat_rng(plan.seed, repeat)), test
        )


def _kshot(ground: SplitData, plan: SplitPlan) -> Iterator[Split]:
    if not ground.has_classes:
        raise BadSpec(
            f"Protocol 'kshot' counts rows per class, and {ground.task!r} has no such classes. "
            "Use protocol 'curve' with sizes instead."
        )
    apart = "test" in _known_parts(ground)
    pool = _fixed_part(ground, "train") if apart else ground.rows
    _check_enough_shots(ground, pool, plan.shots, spare=0 if apart else 1)
    if apart:
        _check_two_classes(ground, "test")
    for repeat in range(plan.repeats):
        mixed = shuffle(pool, repeat_rng(plan.seed, repeat))
        each = [mixed[ground.groups[mixed] == c] for c in np.unique(ground.groups)]
        train = np.sort(np.concatenate([rows[: plan.shots] for rows in each]))
        val = np.sort(np.concatenate([rows[plan.shots : 2 * plan.shots] for rows in each]))
        rest = np.setdiff1d(pool, np.concatenate([train, val]))
        yield Split(repeat, train, val, _fixed_part(ground, "test") if apart else rest, len(train))


def _curve(ground: SplitData, plan: SplitPlan) -> Iterator[Split]:
    sizes = sorted(set(plan.sizes))
    least = len(np.unique(ground.groups)) if ground.has_classes else 1
    if not sizes or sizes[0] < least:
        raise BadSpec(
            f"Protocol 'curve' needs training sizes of at least {least} (each class once), "
            f"got {plan.sizes!r}."
        )
    for whole in _repeats(ground, plan):
        if sizes[-1] > len(whole.train):
            raise BadSpec(
                f"Training sizes must be at most the train part, {len(whole.train)} rows, "
                f"got {[s for s in sizes if s > len(whole.train)]!r}."
            )
        # A separate stream, so that the full size of the curve is the split of `repeats`.
        order = nested_order(
            whole.train, ground.groups, repeat_rng(plan.seed, whole.repeat).spawn(1)[0]
        )
        for size in sizes:
            yield replace(whole, train=np.sort(order[:size]), size=size, drawn=len(order))


PROTOCOLS: dict[str, Callable[[SplitData, SplitPlan], Iterator[Split]]] = {
    "repeats": _repeats,
    "kfold": _kfold,
    "fixed": _fixed,
    "kshot": _kshot,
    "curve": _curve,
}


SHARED_TEST_PROTOCOLS = ("fixed", "kshot")
"""Protocols whose repeats test on the same rows, or on nearly all of them."""


def _with_tested_count(made: tuple[Split, ...], n: int) -> tuple[Split, ...]:
    """The splits with the number of distinct rows they test on together."""
    times = np.zeros(n, dtype=np.int64)
    for one in made:
        times[one.test] += 1
    tested = round(int(times.sum()) ** 2 / int((times**2).sum()))
    return tuple(replace(one, tested=tested) for one in made)


def _split_off_validation(
    rows: RowIndices, ground: SplitData, plan: SplitPlan, rng: np.random.Generator
) -> tuple[RowIndices, RowIndices]:
    train, val, _ = plan.fractions
    share = val / (train + val)
    kept, held = stratified_cut(rows, ground.groups, (1.0 - share, share), rng)
    return kept, held


def _known_parts(ground: SplitData) -> list[str]:
    return [] if ground.parts is None else sorted(set(ground.parts.tolist()))


def _fixed_part(ground: SplitData, name: str) -> RowIndices:
    have = _known_parts(ground)
    if ground.parts is None or name not in have:
        they = f"no {name!r} part (they have: {', '.join(have)})" if have else "no parts"
        raise BadData(
            f"The data have {they}; fixed parts are named {', '.join(PARTS)}. Use protocol "
            "'repeats' to cut some."
        )
    return np.flatnonzero(ground.parts == name)


def _check_two_classes(ground: SplitData, part: str) -> None:
    if ground.has_classes:
        labels = ground.groups[_fixed_part(ground, part)]
        check_two_classes(labels, part, ground.classes, instead="--protocol repeats")


def check_two_classes(
    labels: NDArray[np.integer], part: str, classes: Sequence[str], *, instead: str
) -> None:
    """BadData if a part has rows of one class: they can't train, choose or test a classifier."""
    if len(labels) and bool((labels == labels[0]).all()):
        number = int(labels[0])
        name = classes[number] if number < len(classes) else str(number)
        raise BadData(
            f"All {len(labels)} rows of the part {part!r} have the label {name!r}. Give it rows of "
            f"at least two classes, or have new parts cut from all rows ({instead})."
        )


def _check_two_per_class(ground: SplitData) -> None:
    if not ground.has_classes:
        return
    numbers, counts = np.unique(ground.groups, return_counts=True)
    lone = [ground.name(int(k)) for k in numbers[counts == 1]]
    if lone:
        more = f" ({len(lone)} classes have 1)" if len(lone) > 1 else ""
        raise BadData(
            f"Class {lone[0]!r} has 1 row{more}, and a class needs 2, one for training and one for "
            "testing. Drop such classes or merge them."
        )


def _check_enough_shots(ground: SplitData, pool: RowIndices, shots: int, *, spare: int) -> None:
    need = 2 * shots + spare
    for group in np.unique(ground.groups):
        have = int(np.count_nonzero(ground.groups[pool] == group))
        if have < need:
            raise BadData(
                f"Class {ground.name(int(group))!r} has {have} rows, and shots={shots} takes "
                f"{need} ({shots} for training, {shots} for validation"
                f"{', 1 for testing' if spare else ''}). Ask for fewer shots."
            )


def _check_not_empty(made: Split, ground: SplitData) -> Split:
    for name in ("train", "val", "test"):
        if len(getattr(made, name)) == 0:
            raise BadData(
                f"{len(ground.groups)} rows are too few: repeat {made.repeat} has no {name} row. "
                "Give more rows or a larger fraction."
            )
    return made


def hold_out_split(
    texts: int, share: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row numbers (held out, to fit on): seeded, at least one each, in order."""
    order = np.random.default_rng([seed, texts]).permutation(texts)
    cut = min(max(round(share * texts), 1), texts - 1)
    return np.sort(order[:cut]), np.sort(order[cut:])
