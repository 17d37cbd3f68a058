"""The batched search on problems whose answers are known."""

import pytest
import torch
from torch import Tensor

from cutaway.solvers.lbfgs import ObjectiveValue, minimise


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
    found = minimise(evaluate_of(matrix, aim), plain, torch.zeros_like(aim), tol=1e-9, max_iter=200)
    assert bool(found.converged.all())
    torch.testing.assert_close(found.point, aim, rtol=1e-6, atol=1e-8)


def test_the_exact_inverse_needs_one_step():
    matrix, aim = quadratics()

    def exact(gradient: Tensor, curvature: Tensor, which: Tensor) -> Tensor:
        return torch.linalg.solve(matrix[which], gradient)

    found = minimise(evaluate_of(matrix, aim), exact, torch.zeros_like(aim), tol=1e-9, max_iter=200)
    assert found.iterations.tolist() == [1, 1, 1, 1]


def test_problems_are_independent():
    matrix, aim = quadratics()
    start = torch.zeros_like(aim)
    together = minimise(evaluate_of(matrix, aim), plain, start, tol=1e-6, max_iter=200)
    for k in range(len(aim)):
        alone = minimise(
            evaluate_of(matrix[k : k + 1], aim[k : k + 1]), plain, start[:1], tol=1e-6, max_iter=200
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


def test_the_rosenbrock_function_is_minimised():
    start = torch.tensor([[-1.2, 1.0], [2.0, -3.0], [1.0, 1.0]], dtype=torch.float64)
    found = minimise(rosenbrock, plain, start, tol=1e-8, max_iter=500)
    assert bool(found.converged.all())
    torch.testing.assert_close(found.point, torch.ones(3, 2).double(), rtol=1e-5, atol=1e-6)
    assert int(found.iterations[2]) == 0


def test_a_step_into_overflow_is_shortened():
    def steep(points: Tensor, which: Tensor) -> ObjectiveValue:
        return ObjectiveValue(
            torch.cosh(points).sum(1), torch.sinh(points), torch.ones(len(points), 1).double()
        )

    start = torch.full((1, 1), 20.0, dtype=torch.float64)
    found = minimise(steep, plain, start, tol=1e-8, max_iter=500)
    assert bool(found.converged.all())


def test_a_wrong_gradient_ends_the_search_unconverged():
    def wrong(points: Tensor, which: Tensor) -> ObjectiveValue:
        value = points.square().sum(1)
        return ObjectiveValue(value, -2 * points, torch.ones(len(points), 1).double())

    found = minimise(wrong, plain, torch.ones(1, 2).double(), tol=1e-8, max_iter=500)
    assert not bool(found.converged.any())
    assert int(found.iterations) < 10


def test_a_gap_continues_the_search_until_the_decrease_is_small():
    """The objective exp(-x) has a small gradient long before its infimum."""

    def separable(points: Tensor, which: Tensor) -> ObjectiveValue:
        value = torch.exp(-points)
        return ObjectiveValue(value.sum(1), -value, value)

    def newton(gradient: Tensor, curvature: Tensor, which: Tensor) -> Tensor:
        return gradient / curvature.clamp_min(1e-300)

    start, tight = torch.zeros(1, 1).double(), {"tol": 0.5, "max_iter": 30}
    early = minimise(separable, newton, start, **tight)
    late = minimise(separable, newton, start, gap=1e-3, **tight)
    assert int(early.iterations) < int(late.iterations)
    assert float(late.objective) < float(early.objective)


def test_the_number_of_iterations_is_bounded_and_reported():
    matrix, aim = quadratics()
    found = minimise(evaluate_of(matrix, aim), plain, torch.zeros_like(aim), tol=1e-12, max_iter=2)
    assert found.iterations.tolist() == [2] * 4 and not bool(found.converged.any())
    assert bool((found.gradient > 1e-12).all())


@pytest.mark.parametrize("memory", [1, 3, 20])
def test_any_length_of_the_history_reaches_the_minimum(memory):
    matrix, aim = quadratics()
    start = torch.zeros_like(aim)
    found = minimise(evaluate_of(matrix, aim), plain, start, tol=1e-8, max_iter=2000, memory=memory)
    torch.testing.assert_close(found.point, aim, rtol=1e-5, atol=1e-6)
