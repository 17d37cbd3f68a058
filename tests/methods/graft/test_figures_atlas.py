"""The heat maps of a skill show the counts of the rows."""

import pytest

from cutaway.core.errors import Missing
from cutaway.methods.graft.figures_atlas import head_heatmap, module_heatmap
from cutaway.methods.graft.rows import GRAFT_SCHEMA, GraftCoordinates
from cutaway.recipe.result import table

HERE = GraftCoordinates("base", "tuned", "task")
CELLS = [(1, "mlp.up", 4.0), (2, "mlp.up", 0.0), (1, "attn.q", 2.0), (2, "attn.q", 7.0)]
ROWS = [
    row
    for layer, part, n in CELLS
    for row in HERE.scores("learned", {"weights": n, "density": n / 100}, layer=layer, part=part)
]
OUTSIDE = HERE.row("learned", "weights", 3.0, part="lm_head")
HEADS = [
    HERE.row("learned", "head_weights", n, layer=layer, head=head, part="attn")
    for layer, head, n in ((1, 0, 2.0), (3, 1, 5.5))
]


def test_the_modules_have_their_counts_and_shares() -> None:
    (heatmap,) = module_heatmap(table([*ROWS, OUTSIDE], GRAFT_SCHEMA), None).data
    parts, layers = list(heatmap.y), list(heatmap.x)
    for layer, part, n in CELLS:
        assert heatmap.z[parts.index(part)][layers.index(layer)] == n
        assert heatmap.customdata[parts.index(part)][layers.index(layer)][0] == n / 100


def test_weights_outside_the_blocks_are_in_the_caption() -> None:
    caption = module_heatmap(table([*ROWS, OUTSIDE], GRAFT_SCHEMA), None).layout.meta["caption"]
    assert caption.endswith("Outside the blocks: lm_head 3.")
    none = module_heatmap(table(ROWS, GRAFT_SCHEMA), None).layout.meta["caption"]
    assert none.endswith("Outside the blocks: none.")


def test_heads_without_weights_are_zero() -> None:
    (heatmap,) = head_heatmap(table(HEADS, GRAFT_SCHEMA), None).data
    assert list(heatmap.y) == [1, 2, 3]
    assert [list(line) for line in heatmap.z] == [[2.0, 0.0], [0.0, 0.0], [0.0, 5.5]]


@pytest.mark.parametrize("draw", [module_heatmap, head_heatmap])
def test_rows_without_counts_name_the_command(draw) -> None:
    rows = table([HERE.row("learned", "accuracy", 0.5)], GRAFT_SCHEMA)
    with pytest.raises(Missing, match="cutaway graft learn"):
        draw(rows, None)
