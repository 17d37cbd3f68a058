"""Where a skill's weights are: counted from its file, or read from the run that learned it."""

import pytest

import cutaway
from cutaway.core.errors import Mismatch
from cutaway.models.lm import model_facts
from cutaway.models.load import open_model
from cutaway.store.results import results
from cutaway.studies.draw.found_runs import is_of_model
from cutaway.studies.draw.weights import skill_file_track, skill_run_track
from tests.methods.graft.toy import ToyGraft


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    toy = ToyGraft(tmp_path_factory.mktemp("skill"))
    out = toy.folder / "one.safetensors"
    result = toy.learn("llama", sparsity=0.02, out=str(out))
    return open_model(toy.pair("llama")[0]), result, str(out)


def shares(track) -> list[float]:
    return [
        sum(track.series[part][n] or 0 for part in track.series) for n in range(len(track.main))
    ]


def test_the_file_and_the_run_give_the_same_shares_of_the_blocks(learned) -> None:
    lm, result, path = learned
    file, run = skill_file_track(lm, path), skill_run_track([result.record], lm)
    assert is_of_model(result.record, model_facts(lm))
    assert run.run == result.record.address
    inside = shares(file)[1:]
    total = sum(inside)
    assert shares(run)[1:] == pytest.approx([value / total for value in inside])
    assert file.trained == run.trained


def test_the_shares_are_those_of_the_mask(learned) -> None:
    lm, _, path = learned
    skill = cutaway.graft.load(path)
    blocks = f"{lm.anatomy.blocks}.0."
    first = sum(len(v) for n, v in skill.patch.mask.indices.items() if n.startswith(blocks))
    assert shares(skill_file_track(lm, path))[1] == pytest.approx(first / skill.size)


def test_a_skill_of_another_base_is_refused(learned, masked) -> None:
    with pytest.raises(Mismatch):
        skill_file_track(masked, learned[2])


def test_without_a_learned_skill_there_is_no_track(learned, drawn, place) -> None:
    assert skill_run_track(results(place / "runs"), learned[0]) is None
