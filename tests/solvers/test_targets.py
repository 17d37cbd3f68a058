"""Targets, row weights and losses of logistic regression, against torch and scikit-learn."""

import pytest
import torch
from sklearn.utils.class_weight import compute_sample_weight
from torch.nn import functional as F

from cutaway.core.errors import BadData, Mismatch
from cutaway.solvers.rows import as_row_blocks
from cutaway.solvers.targets import binary_loss, fold_weights, softmax_loss, targets

ROWS = as_row_blocks(torch.zeros(8, 2))
Y = torch.tensor([0, 1, 2, 0, 1, 0, 0, 2])
FOLDS = torch.tensor([[1, 1, 1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1, 1, 1]]).double()
BINARY = (Y > 0).long()


def test_weights_are_normalised_per_fold():
    made = targets(Y, FOLDS, ROWS, 3, balanced=False)
    torch.testing.assert_close(made.weight.sum(1), torch.ones(2).double())
    assert made.total.tolist() == [6, 6] and made.outputs == 3 and made.labels == 1


def test_balanced_weights_are_scikit_learns():
    made = targets(Y, FOLDS, ROWS, 3, balanced=True)
    for fold, weight, total in zip(FOLDS.bool(), made.weight, made.total, strict=True):
        expected = torch.from_numpy(compute_sample_weight("balanced", Y[fold].numpy()))
        torch.testing.assert_close(weight[fold] * total, expected)
        assert not weight[~fold].any()


def test_labels_of_a_multilabel_problem_are_separate_problems():
    y = torch.stack([BINARY, 1 - BINARY, BINARY], dim=1)
    made = targets(y, FOLDS, ROWS, 2, balanced=True)
    assert made.labels == 3 and made.outputs == 1 and made.groups_by_label
    assert made.weight.shape == (6, 8)


def test_without_folds_all_rows_count():
    assert torch.equal(fold_weights(None, ROWS), torch.ones(1, 8).double())


@pytest.mark.parametrize(
    ("y", "classes", "error", "message"),
    [
        (Y[:5], 3, Mismatch, "5 labels for 8 rows"),
        (Y, 2, BadData, "class numbers 0 to 1, got 0 to 2"),
        (Y - 1, 3, BadData, "got -1 to 1"),
        (torch.zeros(8).long(), 2, BadData, "2 of 2 folds have training rows of one class"),
    ],
)
def test_wrong_labels_are_refused(y, classes, error, message):
    with pytest.raises(error, match=message):
        targets(y, FOLDS, ROWS, classes, balanced=False)


def test_wrong_folds_are_refused():
    with pytest.raises(Mismatch, match="Folds have 3 rows, the features 8"):
        fold_weights(torch.ones(1, 3), ROWS)
    with pytest.raises(BadData, match="no training row"):
        fold_weights(torch.zeros(1, 8), ROWS)


def random_logits(outputs: int) -> torch.Tensor:
    return torch.randn(3, outputs, 8, generator=torch.Generator().manual_seed(0)).double() * 4


def test_the_binary_loss_and_its_derivatives_are_torchs():
    z = random_logits(1).requires_grad_()
    y, weight = BINARY.double()[None].expand(3, -1), torch.rand(3, 8).double()
    loss, residual, curvature = binary_loss(z.detach(), y, weight)
    expected = F.binary_cross_entropy_with_logits(z[:, 0], y, reduction="none") * weight
    torch.testing.assert_close(loss, expected.sum(1).detach())
    (gradient,) = torch.autograd.grad(expected.sum(), z)
    torch.testing.assert_close(residual, gradient)
    p = torch.sigmoid(z.detach()[:, 0])
    torch.testing.assert_close(curvature[:, 0], (p * (1 - p) * weight).sum(1))


def test_the_softmax_loss_and_its_derivatives_are_torchs():
    z = random_logits(3).requires_grad_()
    y, weight = Y[None].expand(3, -1), torch.rand(3, 8).double()
    loss, residual, curvature = softmax_loss(z.detach(), y, weight)
    expected = F.cross_entropy(z, y, reduction="none") * weight
    torch.testing.assert_close(loss, expected.sum(1).detach())
    (gradient,) = torch.autograd.grad(expected.sum(), z)
    torch.testing.assert_close(residual, gradient)
    p = torch.softmax(z.detach(), 1)
    torch.testing.assert_close(curvature, (p * (1 - p) * weight[:, None]).sum(2))


@pytest.mark.parametrize("scale", [1e3, -1e3])
def test_losses_of_huge_logits_are_finite(scale):
    z = torch.full((1, 1, 8), scale).double()
    loss, residual, _ = binary_loss(z, BINARY.double()[None], torch.ones(1, 8).double())
    assert torch.isfinite(loss).all() and torch.isfinite(residual).all()
