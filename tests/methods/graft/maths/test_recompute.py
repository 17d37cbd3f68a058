"""What the backward pass keeps: less under `remaking`, and every gradient the same."""

import gc
import weakref

import pytest
import torch
from torch.nn import functional

from cutaway.methods.graft.maths import recompute as remake
from cutaway.methods.graft.maths.recompute import RECOMPUTABLE_OPS, recompute_cheap_ops
from cutaway.models.anatomy import ANATOMIES
from cutaway.models.tokens import pad, tokenize
from tests.tiny import SENTENCES

ACTIVATIONS = {
    "MulBackward0": lambda x: x * x.exp(),
    "SiluBackward0": functional.silu,
    "GeluBackward0": lambda x: functional.gelu(x, approximate="tanh"),
}


@pytest.fixture
def open_lm(lm_of):
    """A model whose weights have gradients for the time of the test; others use it after it."""
    opened = []

    def make(family: str):
        lm = lm_of(family, attention="sdpa" if family == "llama" else "eager")
        opened.append(lm.module.requires_grad_(True))
        return lm

    yield make
    for module in opened:
        module.requires_grad_(False)


def gradients(lm, context) -> dict[str, torch.Tensor]:
    rows = tokenize(lm, SENTENCES[:3], limit=20).rows
    ids, mask = pad(rows, lm.pad_id)
    params = dict(lm.module.named_parameters())
    with context:
        loss = lm.module(input_ids=ids, attention_mask=mask).logits[mask].square().mean()
    found = torch.autograd.grad(loss, list(params.values()), allow_unused=True)
    return dict(zip(params, found, strict=True))


@pytest.mark.parametrize("family", ANATOMIES)
def test_every_gradient_keeps_every_bit(family, open_lm) -> None:
    lm = open_lm(family)
    plain, lean = gradients(lm, torch.enable_grad()), gradients(lm, recompute_cheap_ops())
    assert any(value is not None for value in plain.values())
    for name, value in plain.items():
        assert value is lean[name] is None or torch.equal(value, lean[name]), name


@pytest.mark.parametrize("name", RECOMPUTABLE_OPS)
def test_an_activation_is_made_again_through_views(name) -> None:
    x = torch.randn(3, 4, 64, requires_grad=True)
    weight = torch.randn(64, 8, requires_grad=True)

    def found(context):
        with context:
            middle = ACTIVATIONS[name](x * 1.0)
            # As models do it: the product of matrices sees a view.
            out = middle.view(-1, 64) @ weight
        assert middle.grad_fn.name() == name
        return torch.autograd.grad(out.square().sum(), [x, weight])

    for mine, theirs in zip(found(recompute_cheap_ops()), found(torch.enable_grad()), strict=True):
        assert torch.equal(mine, theirs)


def test_a_model_keeps_a_fifth_less_at_least(open_lm, monkeypatch) -> None:
    lm = open_lm("llama")
    own = {p.untyped_storage().data_ptr() for p in lm.module.parameters()}

    def kept(pack) -> int:
        held = {}

        def noting(tensor):
            packed = pack(tensor)
            if isinstance(packed, remake.SavedTensor):
                storage = packed.kept.untyped_storage()
                held[storage.data_ptr()] = storage
            return packed

        monkeypatch.setattr(remake, "_pack", noting)
        with recompute_cheap_ops():
            assert lm.module(input_ids=torch.ones(4, 16, dtype=torch.long)).logits.requires_grad
        return sum(storage.nbytes() for place, storage in held.items() if place not in own)

    lean = kept(remake._pack)
    assert 0 < lean < 0.8 * kept(lambda tensor: remake.SavedTensor(tensor.detach(), 0))


def test_what_was_changed_in_place_is_refused_as_autograd_does() -> None:
    a, b = (torch.randn(4, 4, requires_grad=True) for _ in range(2))
    with recompute_cheap_ops():
        middle = a.exp() * 1.0
        out = middle @ b
        middle.add_(100)
    with pytest.raises(RuntimeError, match="changed in place"):
        out.sum().backward()


def test_a_product_that_was_changed_before_its_use_is_kept_as_it_is() -> None:
    a, b = (torch.randn(4, 4, requires_grad=True) for _ in range(2))

    def gradient(context):
        with context:
            product = a * b
            with torch.no_grad():
                product.add_(1)
            return torch.autograd.grad((product @ b).sum(), b)[0]

    assert torch.equal(gradient(recompute_cheap_ops()), gradient(torch.enable_grad()))


def test_what_no_backward_pass_reaches_is_freed() -> None:
    x = torch.randn(3, requires_grad=True)
    with recompute_cheap_ops():
        y = x.tanh()
    alive = weakref.ref(y)
    del y
    gc.collect()
    assert alive() is None
