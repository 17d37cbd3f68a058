import torch

from cutaway.extract.activations import extract
from cutaway.extract.request import ExtractionRequest
from cutaway.models.load import random_twin


def test_a_twin_has_the_shape_but_not_the_weights(tiny_lm, texts):
    lm = tiny_lm("gpt2")
    other = random_twin(lm, seed=0)
    assert other.digest != lm.digest
    mine, its = dict(lm.module.named_parameters()), dict(other.module.named_parameters())
    assert {n: p.shape for n, p in mine.items()} == {n: p.shape for n, p in its.items()}
    assert not torch.equal(mine["transformer.wte.weight"], its["transformer.wte.weight"])


def test_a_twin_is_seeded_and_leaves_the_process_its_own_chance(tiny_lm):
    lm = tiny_lm("llama")
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    first, again, third = random_twin(lm, seed=1), random_twin(lm, seed=1), random_twin(lm, seed=2)
    assert torch.equal(torch.rand(1), expected)
    weights = [next(t.module.parameters()) for t in (first, again, third)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_twin_has_features_of_its_own_on_the_shelf(tiny_lm, texts):
    lm, ask = tiny_lm("bert"), ExtractionRequest(layers=(1,))
    real, random = extract(lm, texts, ask), extract(random_twin(lm, seed=0), texts, ask)
    assert random.table.folder != real.table.folder
    assert not torch.allclose(real.column(1), random.column(1))
