"""The answers to every test question as samples, and which rows were used for what."""

from collections.abc import Mapping, Sequence

import polars as pl

from cutaway.core.textset import TextSet
from cutaway.methods.inject.answers import answer_text
from cutaway.methods.inject.retain import RetainedSet
from cutaway.methods.inject.rows import InjectCoordinates
from cutaway.methods.inject.skill import QuestionSkill, SetAnswers
from cutaway.methods.inject.task_forgetting import RetainedTask
from cutaway.store.samples import prediction_frame, split_frame, text_digests


def predictions(
    coordinates: InjectCoordinates, stage: str, tested: Mapping[str, SetAnswers]
) -> pl.DataFrame:
    """The answers to every test question, as samples."""
    return pl.concat(
        prediction_frame(
            {**vars(coordinates), "stage": stage},
            part=name,
            rows=given.texts.meta["row"].tolist(),
            digests=row_digests(given.texts),
            truth=[answer_text(value) for value in given.truth.tolist()],
            answer=[answer_text(value) for value in given.answers.tolist()],
            score=given.probabilities.tolist(),
        )
        for name, given in tested.items()
    )


def row_digests(texts: TextSet) -> dict[int, str]:
    """The digest of each text by its row."""
    return dict(zip(texts.meta["row"].tolist(), text_digests(texts), strict=True))


def splits_table(
    skill: QuestionSkill, retained: Sequence[RetainedSet], tasks: Sequence[RetainedTask]
) -> pl.DataFrame:
    """The rows of the skill, of the retained sets and of the retained tasks, by part."""
    own = {"train": skill.train, "dev": skill.dev, "test": skill.test, **skill.beyond}
    frames = [text_rows(skill.source, part, texts) for part, texts in own.items()]
    for one in retained:
        frames += [split_frame(one.name, p, r.tolist(), one.digests) for p, r in one.parts.items()]
    for task in tasks:
        digests = text_digests(task.split.texts)
        parts = {part: getattr(task.split, part) for part in ("train", "dev", "test")}
        frames += [split_frame(task.name, p, r.tolist(), digests) for p, r in parts.items()]
    return pl.concat(frames)


def text_rows(name: str, part: str, texts: TextSet) -> pl.DataFrame:
    """The rows of texts that have their row numbers in `meta`."""
    return split_frame(name, part, texts.meta["row"].tolist(), row_digests(texts))
