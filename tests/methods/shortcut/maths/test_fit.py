"""Fits: least squares as lstsq gives it, penalties as their formula says, ranks as asked for."""

import pytest
import torch

from cutaway.core.errors import BadData, BadSpec, Missing
from cutaway.methods.shortcut.maths.fidelity import StreamingR2
from cutaway.methods.shortcut.maths.fit import (
    IDENTITY,
    RIDGES,
    SourceGram,
    fit_shortcuts,
)
from cutaway.methods.shortcut.maths.moments import layer_pairs
from tests.methods.shortcut.maths.test_moments import gather, some_layers


def measure(states, maps) -> dict:
    fidelity = StreamingR2()
    for start in range(0, len(states[0]), 37):
        fidelity.add({i: v[start : start + 37] for i, v in states.items()}, maps)
    return fidelity.all()


@pytest.mark.parametrize("target", [1, 3])
def test_predictions_agree_with_float64_lstsq_despite_outlier_coordinates(target: int) -> None:
    states = some_layers(3000, 96, 3)
    jump = fit_shortcuts(gather(states, layer_pairs(3), chunk=512), 0, [target])[target]
    x, y = states[0].double(), states[target].double()
    exact = x @ torch.linalg.lstsq(x, y).solution
    error = (jump(x) - exact).norm(dim=0) / exact.norm(dim=0)
    assert float(error.max()) < 1e-4


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("ridge", [0.0, 0.03])
@pytest.mark.parametrize("prior", ["zero", "identity"])
def test_a_penalty_gives_the_textbook_solution(intercept, ridge, prior) -> None:
    states = some_layers(200, 6, 1)
    moments = gather(states, [(0, 1)], cross=torch.float64)
    jump = fit_shortcuts(moments, 0, [1], ridge=ridge, intercept=intercept, prior=prior)[1]
    x, y = states[0].double(), states[1].double()
    if intercept:
        x, y = x - x.mean(0), y - y.mean(0)
    base = torch.eye(6).double() if prior == "identity" else torch.zeros(6, 6).double()
    size = torch.diag((x.T @ x).diagonal())
    exact = base + torch.linalg.solve(x.T @ x + ridge * size, x.T @ (y - x @ base))
    torch.testing.assert_close(jump.matrix.double(), exact, rtol=1e-4, atol=1e-4)
    assert (jump.bias is not None) == intercept


def test_with_an_intercept_the_mean_goes_to_the_mean() -> None:
    states = some_layers(200, 6, 1)
    jump = fit_shortcuts(gather(states, [(0, 1)]), 0, [1], intercept=True)[1]
    torch.testing.assert_close(jump(states[0].mean(0)), states[1].mean(0), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("width_out", [6, 4])
def test_exactly_linear_layers_give_r2_of_one(width_out: int) -> None:
    x, mix = torch.randn(300, 6), torch.randn(6, width_out)
    states = {0: x, 1: x @ mix}
    jump = fit_shortcuts(gather(states, [(0, 1)]), 0, [1])[1]
    torch.testing.assert_close(jump.matrix, mix, rtol=1e-4, atol=1e-4)
    assert measure(states, {"mat": {(0, 1): jump}})["mat", (0, 1)] == pytest.approx(1, abs=1e-6)


def test_the_way_from_a_layer_to_itself_is_the_identity() -> None:
    states = some_layers(300, 8, 0)
    jump = fit_shortcuts(gather(states, [(0, 0)]), 0, [0])[0]
    torch.testing.assert_close(jump.matrix, torch.eye(8), rtol=0, atol=1e-6)
    assert measure(states, {"id": {(0, 0): IDENTITY}})["id", (0, 0)] == 1.0


@pytest.mark.parametrize("ridge", [0.0, 1e-3, 1.0, "auto"])
def test_on_its_own_rows_the_map_beats_the_identity(ridge) -> None:
    states, pairs = some_layers(400, 8, 3), layer_pairs(3)
    moments = gather(states, pairs)
    mat = {pair: fit_shortcuts(moments, pair[0], [pair[1]], ridge=ridge)[pair[1]] for pair in pairs}
    r2 = measure(states, {"mat": mat, "id": dict.fromkeys(pairs, IDENTITY)})
    assert all(r2["mat", pair] >= r2["id", pair] for pair in pairs)


def test_a_penalty_shrinks_the_map_towards_the_identity() -> None:
    moments = gather(some_layers(100, 8, 1), [(0, 1)])
    steps = []
    for ridge in RIDGES:
        jump = fit_shortcuts(moments, 0, [1], ridge=ridge)[1]
        assert jump.ridge == ridge
        scale = moments.grams[0, 0].diagonal().sqrt()
        steps.append(float((scale[:, None] * (jump.matrix.double() - torch.eye(8))).norm()))
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] < 0.9 * steps[0]


def test_fewer_rows_than_coordinates_bring_a_penalty_and_a_note() -> None:
    states = some_layers(60, 24, 1)
    few = {i: v[:20] for i, v in states.items()}
    jump = fit_shortcuts(gather(few, [(0, 1)]), 0, [1])[1]
    assert jump.ridge in RIDGES
    assert "20 rows for 24 coordinates" in jump.note
    rest = {i: v[20:] for i, v in states.items()}
    r2 = measure(rest, {"mat": {(0, 1): jump}, "id": {(0, 1): IDENTITY}})
    assert r2["mat", (0, 1)] > r2["id", (0, 1)] - 0.05


def test_hardly_more_rows_than_coordinates_are_warned_of_but_fitted_as_asked() -> None:
    moments = gather(some_layers(30, 24, 1), [(0, 1)])
    jump = fit_shortcuts(moments, 0, [1])[1]
    assert "30 rows for 24 coordinates" in jump.note
    assert "--ridge auto" in jump.note
    assert jump.ridge == 0
    assert fit_shortcuts(moments, 0, [1], ridge=0.1)[1].note == ""


def test_plenty_of_rows_bring_no_note() -> None:
    assert fit_shortcuts(gather(some_layers(60, 6, 1), [(0, 1)]), 0, [1])[1].note == ""


def test_coordinates_that_copy_each_other_or_never_move_do_no_harm() -> None:
    x = torch.randn(200, 5)
    x[:, 1], x[:, 2] = x[:, 0], 0.0
    y = x @ torch.randn(5, 5)
    ready = SourceGram(gather({0: x, 1: y}, [(0, 1)]), 0)
    assert ready.cholesky is None
    jump = fit_shortcuts(ready.moments, 0, [1])[1]
    torch.testing.assert_close(jump(x), y, rtol=1e-3, atol=1e-3)
    assert torch.equal(jump.matrix[2], torch.zeros(5))


@pytest.mark.parametrize("rank", [1, 3, 8])
def test_a_low_rank_map_has_its_rank_and_no_other_of_that_rank_fits_better(rank: int) -> None:
    x = torch.randn(500, 8)
    y = x @ torch.randn(8, 8) + torch.randn(500, 8)
    moments = gather({0: x, 1: y}, [(0, 1)])
    full, low = fit_shortcuts(moments, 0, [1])[1], fit_shortcuts(moments, 0, [1], rank=rank)[1]
    assert [tuple(f.shape) for f in low.factors] == [(8, rank), (rank, 8)]
    u, s, v = torch.linalg.svd(full(x), full_matrices=False)
    best = (u[:, :rank] * s[:rank]) @ v[:rank]
    assert float((low(x) - y).norm()) == pytest.approx(float((best - y).norm()), rel=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ridge": -1.0}, "ridge must be"),
        ({"rank": 0}, "between 1 and the width 4"),
        ({"rank": 5}, "between 1 and the width 4"),
    ],
)
def test_a_request_that_cannot_be_is_refused(options, message) -> None:
    with pytest.raises(BadSpec, match=message):
        fit_shortcuts(gather(some_layers(20, 4, 1), [(0, 1)]), 0, [1], **options)


def test_what_was_not_gathered_is_missing() -> None:
    with pytest.raises(Missing, match="from 0 to 2"):
        fit_shortcuts(gather(some_layers(20, 4, 1), [(0, 1)]), 0, [2])
    with pytest.raises(Missing, match="identity"):
        _ = IDENTITY.matrix
    with pytest.raises(BadData, match="No rows"):
        StreamingR2().r2("mat", (0, 1))
