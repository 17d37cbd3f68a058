"""What the machine can't do just now is said, and is never kept as what the model can't do."""

import pytest

import cutaway
from cutaway import nextword
from cutaway.core.errors import BadSpec, Corrupt, CutawayError, Missing, NoRoom
from cutaway.extract import activations as extract_room
from cutaway.store import results as store
from tests.tiny import tiny


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> str:
    return str(tiny("gpt2", tmp_path_factory.mktemp("faults") / "gpt2"))


VERBS = {
    "probe": (
        cutaway.probe,
        {"data": "gen:tense?n=40", "layers": "1", "classifier": "lda", "repeats": 2},
    ),
    "nextword": (
        nextword, {"data": "gen:tense?n=40", "features": "f", "baselines": "majority"},
    ),
}  # fmt: skip


@pytest.fixture(params=VERBS)
def run(request, model, tmp_path, monkeypatch):
    """One small run of a verb, in a home where nothing was read yet."""
    monkeypatch.setenv("CUTAWAY_HOME", str(tmp_path / "home"))
    verb, options = VERBS[request.param]
    return lambda: verb(model=model, runs=str(tmp_path / "runs"), quiet=True, **options)


@pytest.mark.parametrize("error", [NoRoom("full"), Corrupt("damaged"), OSError("gone")], ids=str)
def test_states_that_cannot_be_read_end_the_run_and_the_next_one_measures_them(
    run, error, monkeypatch, tmp_path
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(extract_room, "extract_rows", fails)
        with pytest.raises((CutawayError, OSError), match=str(error)):
            run()
    assert list(store.results(tmp_path / "runs")) == []
    assert set(run().rows["status"]) == {"done"}


def test_a_wrong_limit_of_the_cache_is_no_finding(run, monkeypatch, tmp_path) -> None:
    with monkeypatch.context() as wrong:
        wrong.setenv("CUTAWAY_CACHE_GB", "20GB")
        with pytest.raises(BadSpec, match="CUTAWAY_CACHE_GB"):
            run()
    assert list(store.results(tmp_path / "runs")) == []
    assert set(run().rows["status"]) == {"done"}


@pytest.mark.parametrize("name", VERBS)
def test_of_two_processes_with_one_run_the_slower_gets_the_quickers(
    name, model, tmp_path, monkeypatch
) -> None:
    verb, options = VERBS[name]
    asked = {"model": model, "runs": str(tmp_path / "runs"), "quiet": True, **options}
    first, find, looks = verb(**asked), store.find_record, []

    def late(*args: object) -> object:
        """The first look, without and with samples, finds nothing: the other ends meanwhile."""
        looks.append(args)
        return None if len(looks) <= 2 else find(*args)

    def gone(*_: object) -> None:
        raise Missing("pieces are not done")

    monkeypatch.setattr(store, "find_record", late)
    # As the other leaves it: the pieces are put away.
    monkeypatch.setattr(store.Progress, "rows", gone)
    again = verb(**asked)
    assert len(looks) >= 3
    assert again.rows.equals(first.rows)
    assert not list((tmp_path / "runs").rglob("*.partial"))
