"""The Quad objective: its minimiser and its values."""

import pytest
import torch

from cutaway.methods.nextword.maths.quad import quad_loss, squared_logits


def minimiser(phi: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """The f with the lowest Quad loss for next-word distributions p: (Phi^T Phi)^-1 Phi^T p."""
    return torch.linalg.lstsq(phi.double(), p.double().T).solution.T


@pytest.fixture
def phi() -> torch.Tensor:
    return torch.randn(30, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_the_minimiser_is_linear_in_the_conditional_mean(phi) -> None:
    """Phi^T p* = Phi^T Phi f, found by descent on the loss itself, not by its formula."""
    rng = torch.Generator().manual_seed(1)
    p = torch.softmax(2 * torch.randn(30, generator=rng, dtype=torch.float64), dim=0)
    f = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS(
        [f],
        max_iter=200,
        tolerance_grad=1e-12,
        tolerance_change=1e-16,
        line_search_fn="strong_wolfe",
    )

    def loss() -> torch.Tensor:
        search.zero_grad()
        every = quad_loss(f.expand(30, 4), phi, torch.arange(30))
        mean = (p * every).sum()
        mean.backward()
        return mean

    search.step(loss)
    found = f.detach()[0]
    torch.testing.assert_close(phi.T @ p, phi.T @ phi @ found, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(minimiser(phi, p[None])[0], found, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("n", [2, 50])
def test_the_loss_is_what_the_paper_writes(n: int, phi) -> None:
    rng = torch.Generator().manual_seed(2)
    f = torch.randn(n, 4, generator=rng, dtype=torch.float64)
    words = torch.randint(30, (n,), generator=rng)
    logits = f @ phi.T
    torch.testing.assert_close(squared_logits(f, phi), logits.square().sum(1))
    expected = -logits[torch.arange(n), words] + 0.5 * logits.square().sum(1)
    torch.testing.assert_close(quad_loss(f, phi, words), expected)


def test_the_loss_of_nothing_is_nothing_and_its_gradient_is_the_word(phi) -> None:
    f = torch.zeros(3, 4, dtype=torch.float64, requires_grad=True)
    words = torch.tensor([0, 1, 2])
    loss = quad_loss(f, phi, words)
    assert loss.tolist() == [0.0, 0.0, 0.0]
    loss.sum().backward()
    torch.testing.assert_close(f.grad, -phi[:3])
