"""Checkpoints of a sweep: written completely, restored to --out, refused where they can't go."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from cutaway.core.errors import BadSpec
from cutaway.methods.inject.checkpoints import (
    CHECKPOINT_FOLDER,
    SweepCheckpoints,
    save_checkpoint,
)
from cutaway.models.load import open_model
from cutaway.recipe.output import checkpoint_owner
from cutaway.store.results import Record
from tests.methods.inject.toys import teach

OUTPUT = SweepCheckpoints()


def spec(out: Path | None, checkpoints: bool = True) -> SimpleNamespace:
    return SimpleNamespace(out=None if out is None else str(out), checkpoints=checkpoints)


def test_an_out_that_is_a_file_is_refused_and_a_folder_is_not(tmp_path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(BadSpec, match="is a file"):
        OUTPUT.check_free(spec(tmp_path / "file"))
    OUTPUT.check_free(spec(tmp_path))
    OUTPUT.check_free(spec(None))


def test_a_checkpoint_replaces_the_old_one_and_names_its_run(toys, tmp_path) -> None:
    lm = open_model(toys["causal"], check=False)
    for address in ("first", "second"):
        save_checkpoint(lm, tmp_path / "cell", {"inject": address})
        assert checkpoint_owner(tmp_path / "cell", "inject") == address
    assert [path.name for path in tmp_path.iterdir()] == ["cell"]
    assert open_model(str(tmp_path / "cell"), check=False).digest == lm.digest


def test_a_checkpoint_that_fails_leaves_the_old_one_and_no_rest(
    toys, tmp_path, monkeypatch
) -> None:
    lm = open_model(toys["causal"], check=False)
    save_checkpoint(lm, tmp_path / "cell", {"inject": "first"})

    def fail(*_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as broken:
        broken.setattr("cutaway.methods.inject.checkpoints.files.write_json", fail)
        with pytest.raises(OSError, match="disk full"):
            save_checkpoint(lm, tmp_path / "cell", {"inject": "second"})
    assert checkpoint_owner(tmp_path / "cell", "inject") == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["cell"]


@pytest.fixture(scope="module")
def done(toys, tmp_path_factory) -> Record:
    return teach(toys, tmp_path_factory.mktemp("done"), regulariser="none,l2sp").record


def test_a_finished_run_is_restored_to_a_new_out(done, tmp_path) -> None:
    found = OUTPUT.restore(spec(tmp_path / "out"), done)
    assert found is not None and found.summary["checkpoints"] == str(tmp_path / "out")
    assert len(done.summary["cells"]) == 2
    for cell in done.summary["cells"]:
        assert checkpoint_owner(tmp_path / "out" / cell, "inject") == done.address
    assert OUTPUT.finish(spec(None), done, tmp_path) is done


def test_a_run_without_checkpoints_or_without_out_is_found_as_it_is(done, tmp_path) -> None:
    assert OUTPUT.restore(spec(None), done) is done
    assert OUTPUT.restore(spec(tmp_path / "out", checkpoints=False), done) is done
    assert not (tmp_path / "out").exists()


def test_a_run_whose_checkpoint_is_lost_has_to_be_trained_again(done, tmp_path) -> None:
    lost = SimpleNamespace(
        path=tmp_path, address="other", summary={**done.summary, "checkpoints": CHECKPOINT_FOLDER}
    )
    assert OUTPUT.restore(spec(tmp_path / "out"), lost) is None
