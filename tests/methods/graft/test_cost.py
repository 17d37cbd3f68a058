"""The cost of `graft learn` is estimated without changing anything."""

import json

from cutaway.catalog import VERBS
from cutaway.core.spec import build_spec
from cutaway.methods.graft.spec import GraftEvalSpec, LearnSpec
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


def test_a_dry_run_of_an_evaluation_counts_rows_texts_and_models(toy, skill) -> None:
    base, tuned = toy.pair("bert")
    given = {"skill": [skill, skill], "base": base, "data": [toy.data, toy.other], "text_limit": 6,
             "runs": str(toy.folder / "dry")}  # fmt: skip
    (alone,) = life_cycle.estimate(VERBS["graft eval"], build_spec(GraftEvalSpec, given))
    spec = build_spec(GraftEvalSpec, given | {"tuned": tuned, "text": "none", "test_limit": 9})
    (both,) = life_cycle.estimate(VERBS["graft eval"], spec)
    # 48 of the 240 rows were held out in training; no one trained on the 60 others.
    assert alone.counts == {"rows": 48 + 60, "texts": 6, "models": 4}
    assert both.counts == {"rows": 18, "texts": 0, "models": 8}
    assert alone.seconds > 0 and alone.memory_mb > 0
    assert not (toy.folder / "dry").exists()
