"""The null suite: what it counts, and a sample of its worlds."""

import json
from pathlib import Path

import numpy as np
import pytest
from bench.nulls import (
    simulated_features,
    simulated_probes,
    simulated_shortcuts,
    simulated_studies,
    simulated_trainings,
    worlds,
)
from bench.nulls.__main__ import RESULTS, every_world, main
from bench.nulls.answers import accuracy_blocks, simulate
from bench.nulls.tally import (
    BARS,
    Count,
    Verdict,
    World,
    beyond_bar,
    kinds_tested,
    merge,
    tally,
    totals,
)
from scipy.stats import binom

from cutaway.measure.jackknife import pseudo_values
from cutaway.report.sentences import CLAIMS, kind_of, sentence_kinds

# Few runs can't measure 5 %: a sample fails if chance gives so many false claims once in 10,000.
SURE = 1e-4
SAMPLE = 20
MODULES = (
    simulated_probes, simulated_features, simulated_shortcuts, simulated_trainings,
    simulated_studies,
)  # fmt: skip
SIMULATED = [world for module in MODULES for world in module.worlds()]
REAL = 1


def kind_with(claims: str):
    return next(kind for kind in sentence_kinds().values() if kind.claims == claims)


def spoken(kind, **fields: str) -> str:
    text = kind.says[0]
    for name in [part[1:-1] for part in text.split() if part[:1] == "{"]:
        text = text.replace(f"{{{name}}}", fields.get(name, "0.5"))
    return text


def counted(world: World, runs: int = 10) -> Count:
    counts: dict = {}
    assert list(tally(world, range(runs), counts)) == list(range(runs))
    (one,) = counts.values()
    return one


def test_a_verdict_that_always_claims_is_always_false() -> None:
    claim = kind_with("difference")
    loud = World("x", claim.method, ("difference",), (claim.name,), lambda seed: Verdict((TEXT,)))
    TEXT = spoken(claim)
    assert kind_of(TEXT, claim.method) == claim
    one = counted(loud)
    assert (one.false, one.runs) == (10, 10)
    rates = merge({}, loud, {(claim.key, "difference"): one})
    assert len(beyond_bar(rates)) == 2


def test_a_verdict_that_never_claims_is_never_false_and_its_runs_count() -> None:
    claim = kind_with("difference")
    quiet = World("x", claim.method, ("difference",), (claim.name,), lambda seed: Verdict(()))
    one = counted(quiet)
    assert (one.false, one.runs) == (0, 10)
    assert not beyond_bar(merge({}, quiet, {(claim.key, "difference"): one}))


def test_a_sentence_of_no_table_stops_the_count() -> None:
    claim = kind_with("difference")
    world = World("x", claim.method, ("difference",), (), lambda seed: Verdict(("All is well.",)))
    with pytest.raises(LookupError, match="All is well"):
        list(tally(world, [0], {}))


@pytest.mark.parametrize(("truth", "false"), [(0.5, 0), (0.41, 0), (0.7, 5), (0.39, 5)])
def test_an_interval_is_false_where_the_truth_is_outside(truth: float, false: int) -> None:
    kind = sentence_kinds()["probe headline"]
    text = kind.says[0].replace("{value}", "0.5 [0.400, 0.600]").replace("{rows}", "40 test rows")
    world = World("x", "probe", ("interval",), ("headline",), lambda seed: Verdict((text,), truth))
    assert counted(world, 5).false == false


@pytest.mark.parametrize(("false", "above"), [(10, 0), (14, 0), (20, 2)])
def test_a_count_is_above_the_bar_if_chance_does_not_explain_it(false: int, above: int) -> None:
    key = kind_with("difference").key
    assert len(beyond_bar({key: {"difference": {"x": [false, 200]}}})) == above


def test_simulated_worlds_draw_their_own_numbers_and_real_ones_their_seeds() -> None:
    seen: dict = {}
    for name, real in (("x", False), ("y", False), ("z", True)):
        seen[name] = []
        world = World(name, "probe", (), (), lambda s, n=name: seen[n].append(s) or Verdict(()),
                      real=real)  # fmt: skip
        list(tally(world, range(2), {}))
    assert seen["z"] == [0, 1]
    assert not set(seen["x"]) & set(seen["y"]) and not set(seen["x"]) & {0, 1}


def test_merging_replaces_one_world_and_drops_sentences_that_are_gone() -> None:
    key = kind_with("difference").key
    method = key.split()[0]
    kept = {
        key: {"difference": {"x": [9, 10], "y": [1, 10]}},
        "gone x": {"difference": {"x": [1, 1]}},
    }
    world = World("x", method, ("difference",), (), lambda seed: Verdict(()))
    rates = merge(kept, world, {(key, "difference"): Count(0, 20)})
    assert rates == {key: {"difference": {"x": [0, 20], "y": [1, 10]}}}
    assert totals(rates) == {(key, "difference"): (1, 30)}


def test_simulated_cells_have_the_accuracies_asked_for() -> None:
    rng = np.random.default_rng(0)
    many = [simulate(rng, [0.6, 0.9], rows=400, repeats=2) for _ in range(60)]
    means = np.mean([[np.mean(cell.values) for cell in cells] for cells in many], axis=0)
    assert means == pytest.approx([0.6, 0.9], abs=0.01)


def test_blocks_of_an_accuracy_are_the_jackknifes_pseudo_values() -> None:
    rng = np.random.default_rng(0)
    right, blocks = (rng.random(50) < 0.6).astype(float), rng.integers(7, size=50)
    expected = pseudo_values(lambda rows: float(right[rows].mean()), blocks, 8)
    assert accuracy_blocks(right, blocks, 8) == pytest.approx(expected)


@pytest.mark.parametrize("world", SIMULATED, ids=lambda world: world.title)
def test_simulated_worlds_make_few_false_claims(world: World) -> None:
    counts: dict = {}
    list(tally(world, range(SAMPLE), counts))
    assert counts
    for (key, wrong), one in counts.items():
        assert binom.sf(one.false - 1, one.runs, BARS[wrong]) > SURE, (key, wrong, one)


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> worlds.Workshop:
    return worlds.Workshop(tmp_path_factory.mktemp("nulls"))


@pytest.mark.parametrize("make", worlds.WORLDS, ids=lambda make: make.__name__)
def test_real_runs_on_null_data_claim_next_to_nothing(make, shop) -> None:
    counts: dict = {}
    list(tally(make(shop), range(REAL), counts))
    for (key, wrong), one in counts.items():
        assert binom.sf(one.false - 1, one.runs, BARS[wrong]) > SURE, (key, wrong, one)


def test_every_claim_has_a_world_and_a_measured_rate_below_the_bar(tmp_path: Path) -> None:
    every = every_world(tmp_path)
    tested = {kind.key for world in every for kind in kinds_tested(world)}
    claiming = {key for key, kind in sentence_kinds().items() if kind.claims}
    assert claiming <= tested
    names = {(world.method, world.name) for world in every}
    assert len(names) == len(every), "two worlds of the same name"
    rates = json.loads(RESULTS.read_text())
    assert beyond_bar(rates) == []


def test_an_unknown_world_is_refused_with_a_list(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"No world called .* There are: "):
        main(["--only", "nothing", "--results", str(tmp_path / "r.json")])


def test_every_sort_of_claim_is_explained() -> None:
    assert {kind.claims for kind in sentence_kinds().values()} <= set(CLAIMS)
