"""The overlap of Fishers in a run."""

import json

import pytest

from cutaway.core.textset import TextSet
from tests import tiny
from tests.methods.inject.toys import (
    RETAIN,
    teach,
)


def test_the_clash_of_fishers_and_the_maps_of_weights_are_kept(toys, tmp_path) -> None:
    more = TextSet("more", tuple(tiny.toy_language(30, seed=6)))
    given = {"regulariser": "none,ewc", "clash": True, "fisher_examples": 8}
    result = teach(toys, tmp_path, retain=[RETAIN, more], **given)
    found = json.loads((result.path / "inject.json").read_text())
    assert found["tops"][0]["where"] == "all layers"
    for panel in found["tops"]:
        skill, *others = (curve["values"] for curve in panel["curves"].values())
        assert list(panel["curves"]) == ["skill", "toy", "more"]
        assert skill == sorted(skill, reverse=True)
        assert {len(curve) for curve in others} == {len(skill)} == {800}
    assert {one["way"] for one in found["maps"]} == {"pca", "tsne"}
    assert "rank_correlation" in set(result.rows["metric"])


def test_a_killed_sweep_makes_its_fishers_only_once(toys, tmp_path, monkeypatch) -> None:
    import cutaway.methods.inject.fisher_overlap as clashes
    import cutaway.training.loop as loop

    real, made = clashes.mean_squared_gradients, []
    monkeypatch.setattr(
        clashes, "mean_squared_gradients", lambda *a, **k: made.append(1) or real(*a, **k)
    )
    given = {"regulariser": "ewc", "clash": True, "fisher_examples": 8}
    with monkeypatch.context() as killed:
        killed.setattr(loop, "training_step", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            teach(toys, tmp_path / "killed", **given)
    resumed = teach(toys, tmp_path / "killed", **given)
    assert len(made) == 2
    assert resumed.rows.equals(teach(toys, tmp_path / "whole", **given).rows)
