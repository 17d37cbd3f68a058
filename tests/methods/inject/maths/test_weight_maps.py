"""Maps of weights: several models in one projection."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from cutaway.methods.inject.maths.weight_maps import project_rows

ROWS = np.random.default_rng(0).standard_normal((20, 8)) * np.arange(1, 9)


@pytest.mark.parametrize("way", ["pca", "tsne"])
def test_every_row_has_a_point_and_equal_rows_are_close(way) -> None:
    points = project_rows({"base": ROWS, "same": ROWS, "moved": ROWS + 5.0}, way)
    assert list(points) == ["base", "same", "moved"]
    assert {p.shape for p in points.values()} == {(20, 2)}
    near = np.linalg.norm(points["base"] - points["same"], axis=1)
    far = np.linalg.norm(points["base"] - points["moved"], axis=1)
    assert np.median(near) < np.median(far)


def test_the_linear_map_is_that_of_scikit_learn_and_repeats() -> None:
    parts = {"a": ROWS[:12], "b": ROWS[12:]}
    made = np.concatenate(list(project_rows(parts, "pca").values()))
    theirs = PCA(2, random_state=0).fit_transform(ROWS)
    np.testing.assert_allclose(np.abs(made), np.abs(theirs), atol=1e-9)
    again = np.concatenate(list(project_rows(parts, "pca").values()))
    np.testing.assert_array_equal(made, again)


@pytest.mark.parametrize("way", ["pca", "tsne"])
def test_equal_rows_lie_on_equal_points(way) -> None:
    rows = np.random.default_rng(0).normal(size=(12, 6))
    found = project_rows({"base": rows, "same": rows, "other": rows + 5}, way)
    near = np.abs(found["base"] - found["same"]).max()
    assert near < 0.2 * np.abs(found["base"] - found["other"]).max()
