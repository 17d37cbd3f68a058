"""Every weight of every family has a layer and a part."""

import pytest

from cutaway.models.weight_location import weight_locator
from tests.tiny import FAMILIES


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_of_a_block_has_its_layer_and_part(family, tiny_lm) -> None:
    lm = tiny_lm(family)
    place = weight_locator(lm)
    layers = {place(name)[0] for name in lm.params()}
    assert layers <= set(range(lm.layers + 2))
    blocks = [place(n) for n in lm.params() if n.startswith(lm.anatomy.blocks)]
    assert {"attn", "mlp"} <= {module for _, module in blocks}


def test_weights_are_located_by_layer_and_part(tiny_lm) -> None:
    lm = tiny_lm("gpt2")
    place = weight_locator(lm)
    assert place("transformer.wte.weight") == (0, "embeddings")
    assert place("transformer.wpe.weight") == (0, "embeddings")
    assert place("transformer.h.0.ln_1.weight") == (1, "norm1")
    assert place("transformer.h.2.attn.c_attn.weight") == (3, "attn")
    assert place("transformer.h.1.mlp.c_fc.bias") == (2, "mlp")
    assert place("transformer.ln_f.weight") == (lm.layers + 1, "norm")
    assert place("lm_head.weight") == (lm.layers + 1, "head")


def test_norms_inside_another_part_are_norms(tiny_lm) -> None:
    place = weight_locator(tiny_lm("bert"))
    name = "bert.encoder.layer.0.attention.output.LayerNorm.weight"
    assert place(name) == (1, "norm1")
    assert place("bert.encoder.layer.0.attention.self.query.weight") == (1, "attn")
