"""Skills stack, overlap and export."""

from cutaway.methods.graft import api as graft
from cutaway.methods.graft.skill import load_skill
from cutaway.models.load import open_model


def test_skills_stack_overlap_and_export(toy, learned, tmp_path) -> None:
    from safetensors.torch import load_file

    family, _, out = learned
    one = load_skill(out)
    more = toy.learn(family, sparsity=0.05, baselines="none", text="none", steps=2)
    two = more.path / "skill.safetensors"
    told = graft.stack(skill=[str(out), str(two)], rule="mean", out=str(tmp_path / "s.safetensors"))
    stacked = load_skill(tmp_path / "s.safetensors")
    assert told.facts["conflicts"] == 0
    assert stacked.size == told.facts["size"] >= max(one.size, load_skill(two).size)
    lm = open_model(toy.pair(family)[0])
    stacked.detach(stacked.attach(lm))
    result = graft.overlap([out, two, tmp_path / "s.safetensors"], runs=toy.runs, quiet=True)
    matrix = result.summary["overlap"]
    assert all(matrix[name][name] == 1.0 for name in matrix)
    assert matrix["toyfeel+toyfeel"]["toyfeel 1"] == 1.0
    graft.export(skill=str(out), out=str(tmp_path / "plain"))
    plain = load_file(tmp_path / "plain" / "skill.safetensors")
    assert sum(len(v) for k, v in plain.items() if k.endswith("/places")) == one.size
    assert "load_file" in (tmp_path / "plain" / "README.md").read_text()
