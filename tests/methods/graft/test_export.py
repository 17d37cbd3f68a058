"""`graft export`: the README's own code gives the model with the skill."""

import re

import pytest
import torch
from safetensors.torch import load_file

from cutaway.core.errors import BadSpec
from cutaway.methods.graft import api as graft
from cutaway.methods.graft.skill import load_skill, model_weights
from cutaway.models.load import open_model


def test_the_code_of_the_readme_attaches_the_skill(learned, toy, tmp_path, monkeypatch) -> None:
    family, _, out = learned
    result = graft.export(skill=str(out), out=str(tmp_path / "plain"))
    monkeypatch.chdir(tmp_path / "plain")
    code = re.search(r"```python\n(.*?)```", (tmp_path / "plain" / "README.md").read_text(), re.S)
    scope: dict = {}
    exec(code.group(1), scope)
    expected = load_skill(out).attach(open_model(toy.pair(family)[0]))
    for name, value in model_weights(expected).items():
        assert torch.equal(value, scope["weights"][name]), name
    assert result.facts["size"] == load_skill(out).size


def test_the_tensors_are_indices_and_values_by_weight_name(skill, tmp_path) -> None:
    result = graft.export(skill=skill, out=str(tmp_path / "plain"))
    path = tmp_path / "plain" / "skill.safetensors"
    tensors, patch = load_file(path), load_skill(skill).patch
    assert result.facts["bytes"] == path.stat().st_size
    assert len(tensors) == 3 * len(patch.mask.indices)
    for name, indices in patch.mask.indices.items():
        assert torch.equal(tensors[f"{name}/places"], indices)
        assert torch.equal(tensors[f"{name}/before"], patch.before[name])
        assert torch.equal(tensors[f"{name}/after"], patch.after[name])


def test_a_folder_with_files_is_refused(skill, tmp_path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(BadSpec, match="already has files"):
        graft.export(skill=skill, out=str(tmp_path))
