"""Networks to probe with."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from cutaway.core.errors import BadSpec, Mismatch
from cutaway.methods.probe.maths.nets import AttentionProbe, RaggedTokens, glu, mlp, user_net


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_an_mlp_has_as_many_linear_layers_as_its_depth(depth):
    net = mlp(depth)(5, 3)
    assert sum(isinstance(layer, nn.Linear) for layer in net) == depth
    assert net(torch.zeros(4, 5)).shape == (4, 3)


def test_a_gated_net_with_an_identity_gate_is_quadratic():
    net = glu(nn.Identity)(4, 1)
    for layer in (net.value, net.open, net.read):
        nn.init.zeros_(layer.bias)
    x = torch.randn(6, 4)
    assert torch.allclose(net(2 * x), 4 * net(x), atol=1e-5)


def test_an_instance_is_copied_for_every_fit():
    given = nn.Linear(3, 1)
    first, second = user_net(given)(3, 1), user_net(given)(3, 1)
    assert first is not given
    assert first is not second
    assert torch.equal(first.weight, given.weight)


@pytest.mark.parametrize(
    "factory",
    [lambda: nn.Linear(3, 2), lambda d: nn.Linear(d, 2), lambda d, out: nn.Linear(d, out)],
)
def test_a_factory_may_take_the_sizes_it_needs(factory):
    assert user_net(factory)(3, 2)(torch.zeros(5, 3)).shape == (5, 2)


def test_a_factory_with_three_required_arguments_is_refused():
    with pytest.raises(BadSpec, match="needs 3 arguments"):
        user_net(lambda d, out, width: nn.Linear(d, out))


def tokens(*lengths: int, d: int = 4) -> RaggedTokens:
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    values = torch.randn(int(offsets[-1]), d, generator=torch.Generator().manual_seed(0))
    return RaggedTokens(values, offsets)


def test_an_untrained_attention_probe_is_mean_pooling():
    texts, probe = tokens(1, 3, 5), AttentionProbe(4, 2)
    bounds = texts.offsets.tolist()
    means = torch.stack([texts.values[a:b].mean(0) for a, b in pairwise(bounds)])
    assert torch.allclose(probe(texts), probe.read(means), atol=1e-6)


def test_attention_weights_sum_to_one_and_ignore_the_other_texts():
    texts, probe = tokens(2, 4, 3), AttentionProbe(4, 1)
    with torch.no_grad():
        probe.query.copy_(torch.randn(4) * 50)
    weights = probe.weights(texts)
    sums = torch.zeros(3).index_add(0, texts.owner, weights.detach())
    assert torch.allclose(sums, torch.ones(3))
    alone = texts.take(torch.tensor([1]))
    assert torch.allclose(probe.weights(alone), weights[2:6], atol=1e-6)


def test_texts_are_taken_in_any_order():
    texts = tokens(2, 1, 3)
    taken = texts.take(torch.tensor([2, 0]))
    assert taken.offsets.tolist() == [0, 3, 5]
    assert torch.equal(taken.values, torch.cat([texts.values[3:], texts.values[:2]]))
    assert len(taken) == 2


@pytest.mark.parametrize("offsets", [[0, 2], [1, 3], [0, 2, 1, 3]])
def test_offsets_that_do_not_cover_the_tokens_are_refused(offsets):
    with pytest.raises(Mismatch, match="Offsets must rise from 0 to 3"):
        RaggedTokens(torch.zeros(3, 2), torch.tensor(offsets))
