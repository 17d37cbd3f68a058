"""The cost of `graft learn` is estimated without changing anything."""

import json

from cutaway.catalog import VERBS
from cutaway.core.spec import build_spec
from cutaway.methods.graft.spec import LearnSpec
from cutaway.recipe import life_cycle


def test_a_dry_run_estimates_time_and_memory_and_changes_nothing(toy) -> None:
    base, tuned = toy.pair("bert")
    spec = build_spec(LearnSpec, {"base": base, "tuned": tuned, "task": toy.task, "data": toy.data,
                             "sparsity": "0.01,0.1", "runs": str(toy.folder / "dry")})  # fmt: skip
    (cost,) = life_cycle.estimate(VERBS["graft learn"], spec)
    weights = cost.plain()["weights"]
    assert cost.plain()["sizes"] == (round(0.01 * weights), round(0.1 * weights))
    assert cost.seconds > 0
    assert f"{weights:,}" in cost.sentence()
    assert json.dumps(cost.plain())
    assert not (toy.folder / "dry").exists()
