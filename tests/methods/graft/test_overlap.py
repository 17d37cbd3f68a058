"""`graft overlap`: labels and rows of masks with a known intersection."""

import pytest
import torch

import cutaway
from cutaway.core.errors import Missing
from cutaway.methods.graft.maths.patch import Patch
from cutaway.methods.graft.maths.select import Mask
from cutaway.methods.graft.overlap import overlap_rows, unique_labels
from cutaway.methods.graft.skill import Skill


def skill(task: str, indices: list[int], trained: int | None = 100) -> Skill:
    values = {"w": torch.zeros(len(indices))}
    meta = {"base": {"name": "m"}, "task": {"name": task}, "trained": trained, "sparsity": 0.1}
    return Skill(Patch(Mask({"w": torch.tensor(indices)}), values, values), {"w": (100,)}, meta)


SKILLS = [skill("a", [0, 1, 2, 3]), skill("b", [2, 3]), skill("a", [9])]


def test_skills_of_one_task_are_numbered() -> None:
    assert unique_labels(SKILLS) == ["a 1", "b", "a 2"]
    assert unique_labels(SKILLS[:2]) == ["a", "b"]


def test_the_rows_have_the_shares_and_those_of_chance() -> None:
    rows = overlap_rows(SKILLS)
    found = {(r["kind"], r["task"], r["data"]): r["value"] for r in rows}
    assert len(rows) == 2 * 9
    assert found["learned", "a 1", "b"] == 1.0
    assert found["learned", "b", "a 1"] == 0.5
    assert found["learned", "b", "a 2"] == 0.0
    assert found["random", "a 1", "b"] == pytest.approx(4 / 100)
    assert all(found[kind, i, i] == 1.0 for kind in ("learned", "random") for i in ("b", "a 1"))


def test_chance_is_unknown_without_the_number_of_trained_weights() -> None:
    rows = overlap_rows([skill("a", [1], None), skill("b", [2], None)])
    assert {r["value"] for r in rows if r["kind"] == "random"} == {1.0, None}


def test_a_missing_file_is_a_wrong_request(tmp_path) -> None:
    with pytest.raises(Missing, match="No artefact"):
        cutaway.graft.overlap([tmp_path / "a.safetensors", tmp_path / "b.safetensors"], quiet=True)
