"""The batched search on problems whose answers are known."""

import pytest
import torch
from torch import Tensor

from cutaway.solvers.lbfgs import ObjectiveValue, minimise
from cutaway.solvers.rows import as_row_blocks, group_moments
from cutaway.solvers.spectrum import spectrum


def quadratics(count: int = 4, size: int = 6) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    root = torch.randn(count, size, size, generator=draw, dtype=torch.float64)
    return root @ root.mT + torch.eye(size), torch.randn(count, size, generator=draw).double()


def evaluate_of(matrix: Tensor, aim: Tensor):
    def evaluate(points: Tensor, which: Tensor) -> ObjectiveValue:
        gap = points - aim[which]
        slope = (matrix[which] @ gap[:, :, None])[:, :, 0]
        return ObjectiveValue(0.5 * (gap * slope).sum(1), slope, torch.ones(len(which), 1).double())

    return evaluate


def plain(gradient: Tensor, curvature: Tensor, which: Tensor) -> Tensor:
    return gradient


def test_every_quadratic_is_solved():
    matrix, aim = quadratics()
    found = minimise(evaluate_of(matrix, aim), plain, torch.zeros_like(aim), tol=1e-9, most=200)
    assert bool(found.converged.all())
    torch.testing.assert_close(found.point, aim, rtol=1e-6, atol=1e-8)


def test_the_exact_inverse_needs_one_step():
    matrix, aim = quadratics()

    def exact(gradient: Tensor, curvature: Tensor, which: Tensor) -> Tensor:
        return torch.linalg.solve(matrix[which], gradient)

    found = minimise(evaluate_of(matrix, aim), exact, torch.zeros_like(aim), tol=1e-9, most=200)
    assert found.iterations.tolist() == [1, 1, 1, 1]


def test_problems_do_not_feel_each_other():
    matrix, aim = quadratics()
    start = torch.zeros_like(aim)
    together = minimise(evaluate_of(matrix, aim), plain, start, tol=1e-6, most=200)
    for k in range(len(aim)):
        alone = minimise(
            evaluate_of(matrix[k : k + 1], aim[k : k + 1]), plain, start[:1], tol=1e-6, most=200
        )
        assert int(alone.iterations) == int(together.iterations[k])
        torch.testing.assert_close(alone.point[0], together.point[k])


def rosenbrock(points: Tensor, which: Tensor) -> ObjectiveValue:
    tracked = points.detach().requires_grad_()
    with torch.enable_grad():
        x, y = tracked[:, 0], tracked[:, 1]
        value = (1 - x) ** 2 + 100 * (y - x**2) ** 2
        (slope,) = torch.autograd.grad(value.sum(), tracked)
    return ObjectiveValue(value.detach(), slope, torch.ones(len(points), 1).double())


def test_a_bent_valley_is_followed_to_its_end():
    start = torch.tensor([[-1.2, 1.0], [2.0, -3.0], [1.0, 1.0]], dtype=torch.float64)
    found = minimise(rosenbrock, plain, start, tol=1e-8, most=500)
    assert bool(found.converged.all())
    torch.testing.assert_close(found.point, torch.ones(3, 2).double(), rtol=1e-5, atol=1e-6)
    assert int(found.iterations[2]) == 0


def test_a_step_into_overflow_is_shortened():
    def steep(points: Tensor, which: Tensor) -> ObjectiveValue:
        return ObjectiveValue(
            torch.cosh(points).sum(1), torch.sinh(points), torch.ones(len(points), 1).double()
        )

    start = torch.full((1, 1), 20.0, dtype=torch.float64)
    found = minimise(steep, plain, start, tol=1e-8, most=500)
    assert bool(found.converged.all())


def test_a_slope_that_lies_ends_the_search_unconverged():
    def lying(points: Tensor, which: Tensor) -> ObjectiveValue:
        value = points.square().sum(1)
        return ObjectiveValue(value, -2 * points, torch.ones(len(points), 1).double())

    found = minimise(lying, plain, torch.ones(1, 2).double(), tol=1e-8, most=500)
    assert not bool(found.converged.any())
    assert int(found.iterations) < 10


@pytest.mark.parametrize(("n", "d"), [(50, 7), (7, 20)])
def test_directions_invert_the_round_hessian(n, d):
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(0)).double()
    rows = as_row_blocks(x - x.mean(0))
    seen = group_moments(rows, torch.ones(1, n), scatter=d <= n)
    found = spectrum(rows, seen, torch.ones(d).double())
    gradient = torch.randn(3, 2, d, generator=torch.Generator().manual_seed(1)).double()
    bend, penalty = torch.rand(3, 2).double() + 0.1, torch.tensor([0.01, 1.0, 30.0]).double()
    whole = rows.whole()
    for p in range(3):
        for k in range(2):
            dense = bend[p, k] * whole.T @ whole / n + penalty[p] * torch.eye(d)
            expected = torch.linalg.solve(dense, gradient[p, k])
            solved = found.solve(gradient, bend, penalty)[p, k]
            torch.testing.assert_close(solved, expected, rtol=1e-6, atol=1e-8)
