"""The rows of a set that no skill and no tuned model was trained on.

A set without fixed splits is split by `training.task_split`. Skill files and checkpoints keep the
set's digest with the seed and the shots of that split, so the same test rows are found again when
the same set is evaluated.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cutaway.core.errors import BadData
from cutaway.core.textset import TextSet
from cutaway.methods.graft.skill import Skill
from cutaway.recipe.output import OWNER_FILE
from cutaway.store import files
from cutaway.training.options import TrainingSpec
from cutaway.training.task_split import split_task_rows

TrainingData = Mapping[str, Any]
"""`TaskSplit.training_data` as read from a file; empty when the file doesn't have it."""


def training_data_of(skills: Sequence[Skill], tuned: str | None) -> list[TrainingData]:
    """What each skill was trained on, and the tuned model if its folder has a note."""
    data = [one for skill in skills for one in skill_training_data(skill)]
    note = None if tuned is None else Path(tuned) / OWNER_FILE
    if note is not None and note.is_file():
        tuned_on = files.read_json(note).get("data")
        data += [tuned_on] if isinstance(tuned_on, dict) else []
    return data


def skill_training_data(skill: Skill) -> list[TrainingData]:
    """What a skill was trained on; for a stacked skill one entry per part."""
    if "stacked" in skill.meta:
        parts = skill.meta["stacked"].get("data") or [{}]
    else:
        parts = [skill.meta.get("task", {}).get("data")]
    return [part if isinstance(part, dict) else {} for part in parts]


def held_out_texts(
    texts: TextSet, variants: Sequence[TextSet], trained_on: Sequence[TrainingData]
) -> tuple[TextSet, str]:
    """The rows to evaluate on, and a note about them for the user.

    These are the rows that every training on this set kept for testing; else the set's test part
    (dev if there is none); else all rows. `variants` are the set with its classes ordered as in
    training, which changes its digest.
    """
    known = {one.digest: one for one in (texts, *variants)}
    own = [data for data in trained_on if data.get("digest") in known]
    tests = [_test_rows(known[data["digest"]], data) for data in own]
    splits = [rows for rows in tests if rows is not None]
    parts = set() if texts.parts is None else set(texts.parts.tolist())
    part = next((name for name in ("test", "dev") if name in parts), None)
    if splits:
        chosen = texts.take(_shared_test_rows(texts, splits))
    else:
        chosen = texts if part is None else texts.part(part)
    if part is not None:
        return chosen, ""
    return chosen, _held_out_note(texts, chosen, trained_on, len(own) - len(splits))


def _test_rows(texts: TextSet, data: TrainingData) -> NDArray[np.int64] | None:
    """The test rows of a split; None when the file doesn't say how the rows were split."""
    shots, seed = data.get("shots"), data.get("data_seed")
    if not isinstance(seed, int) or seed < 0:
        return None
    if shots is not None and (not isinstance(shots, int) or shots < 1):
        return None
    return split_task_rows(texts, TrainingSpec(shots=shots, data_seed=seed))[2]


def _shared_test_rows(texts: TextSet, splits: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The rows that are test rows in every split; BadData when there is none."""
    rows: NDArray[np.int64] = reduce(np.intersect1d, splits)
    if not len(rows):
        raise BadData(
            f"Every row of {texts.name!r} was used for training by one of these skills or the "
            "tuned model, because they split it with different seeds. Evaluate them one by one, "
            "or give other rows with --data."
        )
    return rows


def _held_out_note(
    texts: TextSet, chosen: TextSet, trained_on: Sequence[TrainingData], unknown_splits: int
) -> str:
    """A note about a set without a test part."""
    if unknown_splits:
        return (
            f"{texts.name}: a skill was trained on these rows, and its file doesn't say which were "
            f"held out. The scores are of {len(chosen):,} rows that include training rows; learn "
            "the skill again, or give other rows."
        )
    if any("digest" not in data for data in trained_on):
        return (
            f"{texts.name}: a skill's file doesn't say what it was trained on. If it was this set, "
            f"the {len(chosen):,} evaluated rows include training rows."
        )
    if len(chosen) < len(texts):
        return (
            f"{texts.name}: {len(chosen):,} of its {len(texts):,} rows are evaluated, those that "
            "were held out in training."
        )
    return ""
