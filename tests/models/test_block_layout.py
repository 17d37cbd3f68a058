"""Every layout of a block says how all its parts are connected."""

from cutaway.models.anatomy import ANATOMIES
from cutaway.models.block_layout import BLOCK_EQUATIONS


def test_every_layout_has_equations_that_determine_every_part() -> None:
    sides = {f"{part}.in" for part in ("norm1", "attn", "norm2", "mlp")} | {"block.out"}
    for layout, equations in BLOCK_EQUATIONS.items():
        assert {equation.partition(" = ")[0] for equation in equations} == sides, layout
    used = {row.layout for row in ANATOMIES.values()}
    assert used == set(BLOCK_EQUATIONS)
