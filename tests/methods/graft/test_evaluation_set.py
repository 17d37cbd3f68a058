"""Sets to evaluate on: their rows are known by number, skills without prompts are refused."""

from types import SimpleNamespace

import numpy as np
import pytest

from cutaway.core.errors import BadSpec
from cutaway.core.textset import TextSet
from cutaway.methods.graft.evaluation_set import (
    load_evaluation_set,
    need_prompts,
    prompts_for_skill,
)
from cutaway.methods.graft.held_out import training_data_of
from cutaway.methods.graft.skill import load_skill
from cutaway.methods.graft.spec import GraftEvalSpec


@pytest.mark.parametrize("limit", [None, 7])
def test_the_rows_are_those_of_the_whole_set(toy, skill, limit) -> None:
    spec = GraftEvalSpec(skill=[skill], base="b", data=[toy.data], test_limit=limit)
    skills = [load_skill(skill)]
    one, note = load_evaluation_set(spec, None, toy.data, skills, training_data_of(skills, None))
    assert len(one.rows) == (limit or 48) and "48 of its 240 rows" in note
    assert one.texts.texts == tuple(one.whole.texts[i] for i in one.rows)


def test_numbers_are_predicted_on_the_scale_that_was_learned(tiny_lm) -> None:
    task = {
        "name": "alike", "template": "{text} It is", "words": ["the", "a"], "edits": {},
        "classes": [], "metric": "pearson", "bounds": [0.0, 5.0],
    }  # fmt: skip
    texts = TextSet("some", ("one", "two"), np.array([2.0, 3.0]), "regression")
    skill = SimpleNamespace(meta={"task": task})
    examples = prompts_for_skill(tiny_lm("llama"), skill, texts, None)
    assert examples.bounds == (0.0, 5.0)
    assert examples.targets[:, 1].tolist() == pytest.approx([0.4, 0.6])


@pytest.mark.parametrize(("mode", "words"), [("head", "learned with a head"), (None, "is stacked")])
def test_a_skill_without_prompts_needs_a_task(mode, words) -> None:
    with pytest.raises(BadSpec, match=f"{words}.*--task"):
        need_prompts(SimpleNamespace(label="x", meta={"task": {"mode": mode}}))
