"""Projections to two dimensions, compared with scikit-learn's."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from cutaway.methods.probe.maths.projection import project_2d


def clusters(classes: int, n: int = 300, d: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """Gaussian clusters whose centres differ in a few columns."""
    rng = np.random.default_rng(0)
    labels = np.arange(n) % classes
    centres = rng.normal(0, 3, (classes, d))
    return torch.from_numpy(rng.normal(size=(n, d)) + centres[labels]), torch.from_numpy(labels)


def test_pca_is_scikit_learns_up_to_signs():
    x, _ = clusters(3)
    found = project_2d(x, None, "pca").numpy()
    expected = PCA(2).fit_transform(x.numpy())
    assert np.abs(found) == pytest.approx(np.abs(expected), abs=1e-8)


def test_pca_has_reproducible_signs():
    x, _ = clusters(2)
    mixed = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    assert project_2d(x[mixed], None, "pca").numpy() == pytest.approx(
        project_2d(x, None, "pca")[mixed].numpy(), abs=1e-8
    )


def separation(points: np.ndarray, labels: np.ndarray) -> float:
    """The share of the variance that is between the classes."""
    means = np.stack([points[labels == k].mean(0) for k in np.unique(labels)])
    return float(
        ((means[labels] - points.mean(0)) ** 2).sum() / ((points - points.mean(0)) ** 2).sum()
    )


@pytest.mark.parametrize("classes", [2, 3])
def test_lda_separates_the_classes_as_well_as_scikit_learns_first_axis(classes):
    x, labels = clusters(classes)
    found = project_2d(x, labels, "lda").numpy()
    expected = LinearDiscriminantAnalysis().fit_transform(x.numpy(), labels.numpy())
    assert found.shape == (len(x), 2)
    assert separation(found[:, :1], labels.numpy()) > 0.8 * separation(
        expected[:, :1], labels.numpy()
    )


def test_repeated_rows_and_a_single_column_still_have_two_coordinates():
    same = torch.ones(20, 4, dtype=torch.float64)
    assert project_2d(same, torch.arange(20) % 2, "lda").isfinite().all()
    assert project_2d(torch.arange(5.0)[:, None], None, "pca").shape == (5, 2)
