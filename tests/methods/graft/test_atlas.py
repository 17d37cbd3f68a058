"""The head atlas against the model itself: a weight belongs to the heads that it changes."""

from types import SimpleNamespace

import pytest
import torch

from cutaway.methods.graft import atlas
from cutaway.methods.graft.atlas import head_layout, module_location, weights_by_head
from cutaway.methods.graft.maths.patch import Patch
from cutaway.methods.graft.maths.select import Mask
from cutaway.methods.graft.skill import load_skill
from cutaway.models.load import open_model
from tests.methods.graft.toy import value
from tests.tiny import FAMILIES, tiny

LAYER = 1
# Layouts that hang on the config: a family's other shapes besides its row in FAMILIES.
OTHERS = {
    "codegen of 8 heads": ("codegen", {"n_head": 8, "rotary_dim": 2}),
    "falcon, a key for each query": ("falcon", {"multi_query": False}),
    "falcon, keys for groups": ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "gpt_bigcode, a key for each query": ("gpt_bigcode", {"multi_query": False}),
}


def planted(lm, name: str, row: int) -> set[int]:
    """The heads that the atlas gives to a skill of one output row of a weight."""
    value = lm.params()[name]
    flat = torch.arange(value.numel()).reshape(value.shape)
    module = lm.module.get_submodule(name.rpartition(".")[0])
    places = flat[:, row] if type(module).__name__ == "Conv1D" else flat[row]
    skill = SimpleNamespace(
        patch=Patch(Mask({name: places}), {}, {}), shapes={name: tuple(value.shape)}
    )
    found = atlas.weights_by_head(lm, skill)
    assert {layer for layer, _ in found} == {LAYER}
    assert sum(found.values()) == pytest.approx(len(places))
    return {head for _, head in found}


def into_the_map_out(lm, ids: torch.Tensor, out: str) -> torch.Tensor:
    """What the heads of a block hand on, side by side."""
    seen: list[torch.Tensor] = []
    hook = lm.module.get_submodule(out).register_forward_pre_hook(
        lambda module, args: seen.append(args[0].detach().clone())
    )
    with torch.inference_mode():
        lm.module(ids)
    hook.remove()
    return seen[0]


def most_changed(lm, name: str, row: int, out: str, count: int) -> set[int]:
    """The heads that change most when a row of a weight does."""
    ids = torch.tensor([lm.tokenizer("The quick brown fox jumps over the dog")["input_ids"]])
    value, width = lm.params()[name], atlas.attention_shape(lm).width
    module = lm.module.get_submodule(name.rpartition(".")[0])
    line = value.data[:, row] if type(module).__name__ == "Conv1D" else value.data[row]
    before, kept = into_the_map_out(lm, ids, out), line.clone()
    line += 3 * torch.randn(line.shape, generator=torch.Generator().manual_seed(row))
    after = into_the_map_out(lm, ids, out)
    line.copy_(kept)
    change = (after - before).abs().flatten(0, -2).sum(0).reshape(-1, width).sum(1)
    assert change.max() > 0
    return set(change.topk(count).indices.tolist())


def maps_of(lm) -> tuple[list[str], str]:
    """The weights in front of a block's heads, and the map behind them."""
    into, out = [], []
    for name in lm.params():
        place = atlas.module_location(lm, name)
        reader = atlas.head_layout(place.module, lm.anatomy)
        if place.layer == LAYER and reader is not None and name.endswith(".weight"):
            (out if reader is atlas._output_layout else into).append(name)
    assert len(out) == 1
    return into, out[0].rpartition(".")[0]


@pytest.mark.parametrize("case", [*FAMILIES, *OTHERS])
def test_a_weight_belongs_to_the_heads_that_it_changes_most(case, tmp_path) -> None:
    family, options = OTHERS.get(case, (case, {}))
    lm = open_model(str(tiny(family, tmp_path / "m", **options)), check=False, dtype="float32")
    into, out = maps_of(lm)
    width = atlas.attention_shape(lm).width
    assert into
    for name in into:
        sides = lm.params()[name].shape
        module = lm.module.get_submodule(name.rpartition(".")[0])
        outputs = sides[1] if type(module).__name__ == "Conv1D" else sides[0]
        for row in range(1, outputs, width):
            claimed = planted(lm, name, row)
            assert claimed == most_changed(lm, name, row, out, len(claimed)), (name, row)


def test_the_atlas_counts_every_weight_once(learned) -> None:
    _, result, out = learned
    assert sum(value(result.rows, "learned", "weights")) == load_skill(out).size


HEADED = [name for name in FAMILIES if name not in ("albert", "mixtral", "qwen3_moe")]


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_weight_of_every_family_has_its_place_in_the_atlas(tiny_lm, family) -> None:
    lm = tiny_lm(family)
    places = {name: module_location(lm, name) for name in lm.params()}
    blocks = {place.layer for place in places.values() if place.layer is not None}
    assert blocks == set(range(1, len(lm.blocks) + 1))
    assert all(place.module for place in places.values())


class _All:
    """A skill that holds every weight of a model's attention, or of some of its modules."""

    def __init__(self, lm, words=("",)) -> None:
        chosen = {
            name: value
            for name, value in lm.params().items()
            if head_layout(module_location(lm, name).module, lm.anatomy) and name.endswith(words)
        }
        self.patch = Patch(Mask({n: torch.arange(p.numel()) for n, p in chosen.items()}), {}, {})
        self.shapes = {n: tuple(p.shape) for n, p in chosen.items()}


@pytest.mark.parametrize("family", ["llama", "gpt2", "gpt_neox", "bert", "roberta", "modernbert"])
def test_a_skill_of_all_attention_weights_is_spread_evenly_over_the_heads(tiny_lm, family) -> None:
    lm = tiny_lm(family)
    found = weights_by_head(lm, _All(lm))
    assert set(found) == {(layer, head) for layer in (1, 2, 3) for head in range(4)}
    assert len(set(found.values())) == 1


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("llama", "o_proj.weight"),
        ("gpt2", "attn.c_proj.weight"),
        ("gpt_neox", "attention.dense.weight"),
        ("bert", "attention.output.dense.weight"),
    ],
)
def test_the_map_out_of_attention_belongs_to_the_heads_it_reads(tiny_lm, family, name) -> None:
    lm = tiny_lm(family)
    found = weights_by_head(lm, _All(lm, (name,)))
    held = sum(p.numel() for n, p in lm.params().items() if n.endswith(name))
    assert held > 0
    assert sum(found.values()) == held
    assert len(set(found.values())) == 1
