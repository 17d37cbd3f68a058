"""Reading by hooks: the same numbers for any batch, nothing kept, nothing left behind."""

import gc
import weakref

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cutaway.core.errors import BadSpec
from cutaway.models.anatomy import ANATOMIES
from cutaway.models.hooks import collect_states, run_from, visit_layers
from cutaway.models.read_texts import attention_per_token
from cutaway.models.tokens import pad, tokenize
from cutaway.pool import POOLERS, pooler
from tests.tiny import SENTENCES

ROWS = 4


def batch(lm, texts=SENTENCES[:ROWS], side="right"):
    return pad(tokenize(lm, texts, limit=30).rows, lm.pad_id, side)


def hook_count(module: torch.nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in module.modules())


def seen(lm, ids, mask, layers, **options) -> dict[int, torch.Tensor]:
    found: dict[int, torch.Tensor] = {}
    visit_layers(
        lm, ids, mask, layers, lambda layer, h, _: found.update({layer: h.clone()}), **options
    )
    return found


def pooled(lm, texts, side="right"):
    """Every layer of every text by every pooler (pooler, layer, text, d); texts in one batch."""
    ids, mask = batch(lm, texts, side)
    marks = (ids % 3 == 0).float().masked_fill(~mask, 0)
    found: list[torch.Tensor] = []

    def visit(layer, hidden, weights):
        extra = {
            None: None,
            "marks": marks,
            "attention": attention_per_token(lm, mask, weights, None),
        }
        chosen = [pooler(name) for name in [*POOLERS, "q0.4"]]
        found.append(torch.stack([p(hidden, mask, extra[p.needs]) for p in chosen]))

    with torch.no_grad():
        visit_layers(lm, ids, mask, range(lm.layers + 1), visit, attention=True)
    return torch.stack(found, dim=1)


@pytest.mark.parametrize("family", ANATOMIES)
def test_padding_batch_and_order_change_no_pooler_of_any_family(family, lm_of) -> None:
    lm, texts = lm_of(family, attention="sdpa"), SENTENCES[:3]
    alone = torch.cat([pooled(lm, [text]) for text in texts], dim=2)
    limit = 1e-5 * alone.abs().amax(dim=(1, 2, 3), keepdim=True)
    for side in ("left", "right"):
        many = pooled(lm, texts, side)
        turned = pooled(lm, [texts[i] for i in (2, 0, 1)], side)[:, :, [1, 2, 0]]
        assert bool(((many - alone).abs() <= limit).all())
        assert bool(((turned - alone).abs() <= limit).all())


def test_layers_come_in_order_and_only_those_asked_for(lm) -> None:
    order: list[int] = []
    visit_layers(lm, *batch(lm), [3, 0, 2], lambda layer, _, __: order.append(layer))
    assert order == [0, 2, 3]


def test_no_block_runs_behind_the_last_wanted_layer(lm_of) -> None:
    lm = lm_of("llama")
    ran: list[int] = []
    handles = [
        block.register_forward_hook(lambda *_, n=n: ran.append(n))
        for n, block in enumerate(lm.blocks)
    ]
    try:
        visit_layers(lm, *batch(lm), [1], lambda *_: None)
    finally:
        for handle in handles:
            handle.remove()
    assert ran == [0]


@pytest.mark.parametrize("family", ["gpt2", "albert", "bert", "mpnet"])
def test_a_visit_that_fails_leaves_no_hook_behind(family, lm_of) -> None:
    lm = lm_of(family)
    before = hook_count(lm.module)

    def fail(*_):
        raise KeyError("visit")

    with pytest.raises(KeyError, match="visit"):
        visit_layers(lm, *batch(lm), [0, 1], fail, attention=True)
    assert hook_count(lm.module) == before


def test_asking_for_attention_gives_the_kernel_back(lm_of) -> None:
    lm = lm_of("llama", attention="sdpa")
    collect_states(lm, *batch(lm), attention=True)
    assert lm.module.config._attn_implementation == "sdpa"


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(wanted=st.sets(st.integers(0, 3), min_size=1))
def test_any_set_of_layers_shows_what_all_layers_show(wanted, lm_of) -> None:
    lm = lm_of("gpt2")
    ids, mask = batch(lm)
    whole = collect_states(lm, ids, mask).layers
    some = seen(lm, ids, mask, wanted)
    assert set(some) == wanted
    for layer, hidden in some.items():
        assert torch.equal(hidden, whole[layer])


@pytest.mark.parametrize("layer", [-1, 4, 99])
def test_a_layer_out_of_range_is_refused(layer, lm) -> None:
    with pytest.raises(BadSpec, match=r"0\.\.3"):
        visit_layers(lm, *batch(lm), [layer], lambda *_: None)


@pytest.mark.parametrize("family", ANATOMIES)
@pytest.mark.parametrize("side", ["left", "right"])
def test_running_on_from_any_layer_reaches_the_last(family, side, lm_of) -> None:
    lm = lm_of(family)
    ids, mask = batch(lm, side=side)
    with torch.no_grad():
        whole = collect_states(lm, ids, mask).layers
        for layer in range(lm.layers + 1):
            ended = run_from(lm, whole[layer], layer, ids, mask)
            torch.testing.assert_close(ended[mask], whole[lm.layers][mask])


def test_running_on_can_stop_on_the_way(lm) -> None:
    ids, mask = batch(lm)
    whole = collect_states(lm, ids, mask).layers
    torch.testing.assert_close(run_from(lm, whole[1], 1, ids, mask, to=2)[mask], whole[2][mask])
    assert run_from(lm, whole[2], 2, ids, mask, to=2) is whole[2]
    with pytest.raises(BadSpec, match="forward"):
        run_from(lm, whole[2], 2, ids, mask, to=1)


def test_running_on_is_differentiable_and_leaves_the_blocks_alone(lm) -> None:
    ids, mask = batch(lm)
    forwards = [block.forward for block in lm.blocks]
    hidden = collect_states(lm, ids, mask).layers[1].requires_grad_(True)
    run_from(lm, hidden, 1, ids, mask)[mask].sum().backward()
    assert float(hidden.grad.abs().sum()) > 0
    assert [block.forward for block in lm.blocks] == forwards
    assert all("forward" not in vars(block) for block in lm.blocks)


def test_logits_come_from_the_same_forward(lm) -> None:
    ids, mask = batch(lm)
    got = collect_states(lm, ids, mask, logits=True)
    ours = lm.unembed(lm.final_norm(got.layers[lm.layers]))
    torch.testing.assert_close(ours[mask], got.logits[mask])
    assert collect_states(lm, ids, mask).logits is None


def test_nothing_is_kept_of_a_forward(lm) -> None:
    alive: list[weakref.ref] = []
    visit_layers(lm, *batch(lm), range(4), lambda _, h, __: alive.append(weakref.ref(h)))
    gc.collect()
    assert [ref() for ref in alive] == [None] * 4


def test_no_layers_means_no_forward(lm_of) -> None:
    lm = lm_of("gpt2")
    visit_layers(
        lm, torch.full((1, 1), 10**6), torch.ones(1, 1, dtype=torch.bool), [], lambda *_: None
    )
