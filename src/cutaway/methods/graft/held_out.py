"""Which rows of a set nobody has learned from: skills and tuned models say what taught them.

A set without parts is dealt to train, dev and test by `lesson.deal`. Beside the weights that were
taught stands the set's digest, with the seed and the shots of that deal, so that the same test
rows are found again when the same set is measured on.
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
"""What `Lesson.taught_on` said; empty where nothing is known."""


def training_data_of(skills: Sequence[Skill], tuned: str | None) -> list[TrainingData]:
    """What each skill, and the tuned model where a note lies beside it, was taught on."""
    found = [one for skill in skills for one in skill_training_data(skill)]
    note = None if tuned is None else Path(tuned) / OWNER_FILE
    if note is not None and note.is_file():
        data = files.read_json(note).get("data")
        found += [data] if isinstance(data, dict) else []
    return found


def skill_training_data(skill: Skill) -> list[TrainingData]:
    """What a skill was taught on, or each of those that it is stacked of."""
    if "stacked" in skill.meta:
        parts = skill.meta["stacked"].get("data") or [{}]
    else:
        parts = [skill.meta.get("task", {}).get("data")]
    return [part if isinstance(part, dict) else {} for part in parts]


def held_out_texts(
    texts: TextSet, forms: Sequence[TextSet], taught: Sequence[TrainingData]
) -> tuple[TextSet, str]:
    """The rows to measure on, and what is to be told about them.

    The test rows of every deal that this set was taught by; else its test part (dev where it has
    none); else all of it. `forms` are the set with its classes as those name them that were
    taught on it.
    """
    known = {form.digest: form for form in (texts, *forms)}
    mine = [one for one in taught if one.get("digest") in known]
    tests = [_test_rows(known[one["digest"]], one) for one in mine]
    dealt = [rows for rows in tests if rows is not None]
    have = set() if texts.parts is None else set(texts.parts.tolist())
    part = next((name for name in ("test", "dev") if name in have), None)
    if dealt:
        found = texts.take(_shared_test_rows(texts, dealt))
    else:
        found = texts if part is None else texts.part(part)
    return found, "" if part is not None else _held_out_note(
        texts, found, taught, len(mine) - len(dealt)
    )


def _test_rows(form: TextSet, taught: TrainingData) -> NDArray[np.int64] | None:
    """The test rows of a deal; None where the note doesn't say how rows were dealt."""
    shots, seed = taught.get("shots"), taught.get("data_seed")
    if not isinstance(seed, int) or seed < 0:
        return None
    if shots is not None and (not isinstance(shots, int) or shots < 1):
        return None
    return split_task_rows(form, TrainingSpec(shots=shots, data_seed=seed))[2]


def _shared_test_rows(texts: TextSet, dealt: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The rows that every deal tests on; BadData where there is none."""
    rows: NDArray[np.int64] = reduce(np.intersect1d, dealt)
    if not len(rows):
        raise BadData(
            f"Every row of {texts.name!r} was learned from by one of these skills or the tuned "
            "model, for they dealt it with other seeds. Measure them one by one, or give other "
            "rows with --data."
        )
    return rows


def _held_out_note(
    texts: TextSet, found: TextSet, taught: Sequence[TrainingData], undealt: int
) -> str:
    """What to say of a set that has no test rows of its own."""
    if undealt:
        return (
            f"{texts.name}: it was taught on these rows, and the file doesn't say which of them "
            f"were held out. Scores are of {len(found):,} rows with training rows among them; "
            "learn the skill again, or give rows it has not seen."
        )
    if any("digest" not in one for one in taught):
        return (
            f"{texts.name}: a skill's file doesn't say what it was taught on. If it was this set, "
            f"training rows are among the {len(found):,} that are measured."
        )
    if len(found) < len(texts):
        return (
            f"{texts.name}: {len(found):,} of its {len(texts):,} rows are measured, those that "
            "were held out when it was learned from."
        )
    return ""
