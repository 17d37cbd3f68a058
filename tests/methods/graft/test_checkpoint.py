"""Checkpoint folders of attach and detach: complete or absent, with a note about the skill."""

import json

import pytest

from cutaway.core.errors import BadSpec
from cutaway.methods.graft.checkpoint import (
    need_empty_folder,
    open_for_skill,
    open_skill_model,
    skill_note,
    write_checkpoint,
)
from cutaway.methods.graft.skill import load_skill
from cutaway.methods.graft.spec import AttachSpec
from cutaway.models.precision import stored_precision
from cutaway.recipe.output import OWNER_FILE


def test_an_empty_or_new_folder_is_accepted(tmp_path) -> None:
    assert need_empty_folder(str(tmp_path)) == tmp_path
    assert need_empty_folder(str(tmp_path / "new")) == tmp_path / "new"


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_file_or_a_folder_with_files_is_refused(tmp_path, kind: str) -> None:
    (tmp_path / "taken").write_text("x")
    out = tmp_path / "taken" if kind == "file" else tmp_path
    with pytest.raises(BadSpec, match="empty or new"):
        need_empty_folder(str(out))


def test_the_note_has_the_task_and_short_checksums(skill) -> None:
    note = skill_note(load_skill(skill), "attached")
    assert (note["graft"], note["task"]["name"]) == ("attached", "toyfeel")
    assert len(note["base"]["checksum"]) == 12
    assert json.dumps(note)


def test_a_checkpoint_that_fails_halfway_leaves_nothing(toy, skill, tmp_path) -> None:
    def fail(folder) -> None:
        assert (folder / "config.json").exists()
        raise RuntimeError("no more")

    base, out = toy.pair("bert")[0], tmp_path / "out"
    spec = AttachSpec(skill=skill, base=base, out=str(out))
    opened = open_skill_model(load_skill(skill), base, spec)
    with pytest.raises(RuntimeError, match="no more"):
        write_checkpoint(opened, out, opened.skill.patch, "attached", also=fail)
    assert list(tmp_path.iterdir()) == []
    write_checkpoint(opened, out, opened.skill.patch, "attached")
    assert json.loads((out / OWNER_FILE).read_text())["graft"] == "attached"


def test_a_skill_of_a_coarser_precision_is_written_in_it(toy, tmp_path) -> None:
    result = toy.learn(dtype="bfloat16", steps=0, baselines="none", text="none")
    skill = load_skill(result.path / "skill.safetensors")
    spec = AttachSpec(skill="s", base=toy.pair("bert")[0], out="o")
    assert open_for_skill(skill, spec.base, spec).dtype == "bfloat16"
    opened = open_skill_model(skill, spec.base, spec)
    # The base is stored in float32: with values of bfloat16 the base couldn't be restored from it.
    assert (opened.precision, opened.source) == ("bfloat16", None)
    opened.skill.attach(opened.lm)
    write_checkpoint(opened, tmp_path / "with", opened.skill.patch, "attached")
    assert stored_precision(str(tmp_path / "with")) == "bfloat16"
