"""`graft detach`: sentences, refusals, and nothing written when refused."""

import pytest

from cutaway.core.errors import BadSpec, Mismatch
from cutaway.methods.graft import api as graft
from cutaway.methods.graft.skill import load_skill
from cutaway.models.digests import checksum
from cutaway.models.load import open_model


def test_the_detached_checkpoint_is_the_base_bit_for_bit(toy, skill, tmp_path) -> None:
    base = toy.pair("bert")[0]
    graft.attach(skill=skill, base=base, out=str(tmp_path / "with"))
    result = graft.detach(skill=skill, model=str(tmp_path / "with"), out=str(tmp_path / "without"))
    expected = load_skill(skill).meta["base"]["checksum"]
    assert result.facts["checksum"] == expected
    assert checksum(open_model(tmp_path / "without").params()) == expected
    assert expected[:12] in result.verdict[0]


def test_a_model_without_the_skill_is_refused_and_nothing_is_written(toy, skill, tmp_path) -> None:
    with pytest.raises(Mismatch, match="isn't attached here"):
        graft.detach(skill=skill, model=toy.pair("bert")[0], out=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_folder_with_files_is_refused_before_anything_is_opened(skill, tmp_path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(BadSpec, match="already has files"):
        graft.detach(skill=skill, model="no such model", out=str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
