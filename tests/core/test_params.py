"""Parameters are matched by name and shape."""

import numpy as np
import pytest

from cutaway.core.errors import Mismatch
from cutaway.core.params import check_same_parameters

ANCHOR = {"w": np.zeros((2, 3)), "b": np.zeros(3)}


def test_the_same_names_and_shapes_in_any_order_pass():
    other = {"b": np.ones(3), "w": np.ones((2, 3))}
    assert check_same_parameters(ANCHOR, tuned=other, fisher=ANCHOR) is None


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"w": np.zeros((2, 3))}, r"tuned lacks \['b'\]"),
        ({**ANCHOR, "extra": np.zeros(1)}, r"tuned also has \['extra'\]"),
        ({"w": np.zeros((2, 3)), "c": np.zeros(3)}, r"tuned lacks \['b'\]; tuned also has \['c'\]"),
        ({**ANCHOR, "w": np.zeros((3, 2))}, r"tuned\['w'\] has shape \(3, 2\), expected \(2, 3\)"),
        ({**ANCHOR, "b": np.zeros(1)}, r"tuned\['b'\] has shape \(1,\)"),
    ],
)
def test_what_differs_is_said_by_name(other, words):
    with pytest.raises(Mismatch, match=words):
        check_same_parameters(ANCHOR, fine=ANCHOR, tuned=other)


def test_at_most_three_names_are_shown():
    many = {f"p{i}": np.zeros(1) for i in range(9)}
    with pytest.raises(Mismatch, match=r"lacks \['p0', 'p1', 'p2'\] \(first three shown\)"):
        check_same_parameters(many, tuned={})
