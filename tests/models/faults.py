"""Faults of the kind that tools of this field have had, injected into a model or into its reading.

A fault is a context manager: within it, `lm` is read wrongly, or is wrong itself. `absent` is the
rule by which a family can't have the fault; it returns the reason, or "" if it can.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from unittest.mock import patch

import torch
from torch import nn

from cutaway.models import consistency, hooks
from cutaway.models.lm import LM, optional_module
from cutaway.models.sites import Site, add_forward_hook, output_state, replace_output_state

Broken = Callable[[LM], Iterator[LM]]


@dataclass(frozen=True)
class Fault:
    """A way to be wrong, and the rule for families that can't have it."""

    inject: Callable
    absent: Callable[[LM], str]
    at_opening: bool
    """Whether the quick checks find it."""


FAULTS: dict[str, Fault] = {}


def fault(name: str, absent: Callable[[LM], str] = lambda lm: "", *, at_opening: bool = True):
    def add(inject: Broken) -> Broken:
        FAULTS[name] = Fault(contextmanager(inject), absent, at_opening)
        return inject

    return add


# Rules for families that can't have a fault.


def no_final_norm(lm: LM) -> str:
    there = [name for name in lm.anatomy.final if optional_module(lm.module, name) is not None]
    return "" if there else "no module between the last block and the head"


def unnamed_parts(lm: LM) -> str:
    return "" if lm.anatomy.mlp else "the parts of its blocks are not named"


def not_resumable(lm: LM) -> str:
    return "" if lm.anatomy.resumable else "never run from a layer on"


def norms_without_weights(lm: LM) -> str:
    if unnamed_parts(lm):
        return unnamed_parts(lm)
    norm = lm.blocks[0].get_submodule(lm.anatomy.norm1)
    return "" if list(norm.parameters()) else "all norms are the same function"


def no_logit_operation(lm: LM) -> str:
    values = [getattr(lm.module.config, name, None) for _, name in lm.anatomy.logit_operations]
    return (
        "" if any(value not in (None, 1.0) for value in values) else "logits are left as they are"
    )


def embedding_rows(lm: LM, ids: torch.Tensor) -> torch.Tensor:
    """The rows of the embedding matrix, without scale, positions or norm."""
    return nn.functional.embedding(ids, lm.module.get_submodule(lm.anatomy.embeddings).weight)


def embeddings_enter_unchanged(lm: LM) -> str:
    ids = torch.arange(8, 14)[None]
    with torch.no_grad():
        layer0 = hooks.collect_states(lm, ids, torch.ones_like(ids).bool(), [0]).layers[0]
    same = torch.equal(embedding_rows(lm, ids), layer0)
    return "layer 0 is the token embedding" if same else ""


def no_position_ids(lm: LM) -> str:
    taken = inspect.signature(lm.body.forward).parameters
    return "" if "position_ids" in taken else "takes no position ids"


def only_distances_matter(lm: LM) -> str:
    """Rotary and relative positions: a shift of all positions changes nothing."""
    names = [n for n, m in lm.module.named_modules() if isinstance(m, nn.Embedding)]
    tables = ("position_embeddings", "wpe", "embed_positions")
    absolute = any(name.rpartition(".")[2] in tables for name in names)
    return "" if absolute else "only distances between positions matter"


def no_dropout(lm: LM) -> str:
    rates = [m.p for m in lm.module.modules() if isinstance(m, nn.Dropout)]
    return "" if any(rates) else "its config has no dropout"


def no_token_types(lm: LM) -> str:
    return "" if lm.token_types else "no token types"


# Wrong anatomies.


@fault("final norm skipped", no_final_norm)
def skipped_norm(lm: LM) -> Iterator[LM]:
    yield replace(lm, anatomy=replace(lm.anatomy, final=()))


@fault("wrong final norm", norms_without_weights)
def wrong_norm(lm: LM) -> Iterator[LM]:
    norm = f"{lm.anatomy.blocks}.0.{lm.anatomy.norm1}"
    yield replace(lm, anatomy=replace(lm.anatomy, final=(norm,)))


@fault("logit soft cap or scale missing", no_logit_operation)
def no_cap(lm: LM) -> Iterator[LM]:
    yield replace(lm, anatomy=replace(lm.anatomy, logit_operations=()))


@fault("wrong layout of the block", unnamed_parts, at_opening=False)
def wrong_layout(lm: LM) -> Iterator[LM]:
    other = {"pre": "inner", "parallel": "pre", "post": "pre", "inner": "pre"}[lm.anatomy.layout]
    yield replace(lm, anatomy=replace(lm.anatomy, layout=other))


@fault("attention and mlp swapped", unnamed_parts, at_opening=False)
def swapped_parts(lm: LM) -> Iterator[LM]:
    row = lm.anatomy
    yield replace(lm, anatomy=replace(row, attn=row.mlp, mlp=row.attn))


@fault("token types lost", no_token_types, at_opening=False)
def no_types(lm: LM) -> Iterator[LM]:
    yield replace(lm, token_types=False)


class OtherVocabulary(LM):
    """The unembedding with its rows off by one, as after an added token."""

    def unembed(self, normed):
        return super().unembed(normed).roll(1, -1)


@fault("wrong unembedding")
def wrong_unembedding(lm: LM) -> Iterator[LM]:
    yield OtherVocabulary(**{one.name: getattr(lm, one.name) for one in fields(lm)})


# Wrong readings: what Cutaway calls is replaced.


@contextmanager
def read_as(change: Callable) -> Iterator[None]:
    """Within it, states are read by change(collect_states, lm, ids, mask, ...)."""
    right = hooks.collect_states

    def wrong(lm, ids, mask, layers=None, sites=(), **options):
        return change(right, lm, ids, mask, layers, sites, options)

    with patch.object(consistency, "collect_states", wrong):
        yield


def rearranged(lm: LM, order: Callable[[int], int]) -> Iterator[LM]:
    def change(read, lm, ids, mask, layers, sites, options):
        got = read(lm, ids, mask, layers, sites, **options)
        states = {layer: got.layers[order(layer)] for layer in got.layers}
        return replace(got, layers=states)

    with read_as(change):
        yield lm


@fault("layer index off by one")
def off_by_one(lm: LM) -> Iterator[LM]:
    yield from rearranged(lm, lambda layer: min(layer + 1, lm.layers))


@fault("outputs of two blocks swapped")
def swapped_blocks(lm: LM) -> Iterator[LM]:
    yield from rearranged(lm, lambda layer: {1: 2, 2: 1}.get(layer, layer))


@fault("state read before the residual is added", unnamed_parts)
def before_residual(lm: LM) -> Iterator[LM]:
    def change(read, lm, ids, mask, layers, sites, options):
        mlp = [Site(n, "mlp") for n in range(1, lm.layers + 1)]
        got = read(lm, ids, mask, layers, [*sites, *mlp], **options)
        states = {n: got.sites[mlp[n - 1]] if n else state for n, state in got.layers.items()}
        return replace(got, layers=states)

    with read_as(change):
        yield lm


@fault("embedding scale, norm or positions missing in layer 0", embeddings_enter_unchanged)
def bare_embeddings(lm: LM) -> Iterator[LM]:
    def change(read, lm, ids, mask, layers, sites, options):
        got = read(lm, ids, mask, layers, sites, **options)
        rows = embedding_rows(lm, ids)
        return replace(got, layers={n: s if n else rows for n, s in got.layers.items()})

    with read_as(change):
        yield lm


@fault("states cast to half precision")
def half_states(lm: LM) -> Iterator[LM]:
    def change(read, lm, ids, mask, layers, sites, options):
        got = read(lm, ids, mask, layers, sites, **options)
        return replace(got, layers={n: s.bfloat16().to(s) for n, s in got.layers.items()})

    with read_as(change):
        yield lm


@fault("tokens shifted by one")
def shifted_tokens(lm: LM) -> Iterator[LM]:
    with read_as(
        lambda read, lm, ids, mask, layers, sites, o: read(
            lm, ids.roll(1, 1), mask, layers, sites, **o
        )
    ):
        yield lm


@fault("run_from starts a block too late", not_resumable, at_opening=False)
def late_start(lm: LM) -> Iterator[LM]:
    def wrong(lm, hidden, layer, ids, mask, **_):
        return hooks.run_from(lm, hidden, min(layer + 1, lm.layers), ids, mask)

    with patch.object(consistency, "run_from", wrong):
        yield lm


# Wrong calls of the model in padded batches.


@contextmanager
def called_with(change: Callable[[dict, torch.Tensor], dict]) -> Iterator[None]:
    right = hooks.forward_kwargs

    def wrong(lm, ids, mask):
        given = right(lm, ids, mask)
        return given if bool(mask.all()) else change(given, mask)

    with patch.object(hooks, "forward_kwargs", wrong):
        yield


@fault("attention mask ignored")
def no_mask(lm: LM) -> Iterator[LM]:
    with called_with(lambda given, mask: given | {"attention_mask": torch.ones_like(mask).long()}):
        yield lm


@fault("attention mask inverted")
def inverted_mask(lm: LM) -> Iterator[LM]:
    with called_with(lambda given, mask: given | {"attention_mask": (~mask).long()}):
        yield lm


@fault("position ids not passed", only_distances_matter)
def default_positions(lm: LM) -> Iterator[LM]:
    """They count the padding; families that count themselves are passed such numbers."""

    def change(given, mask):
        counted = torch.arange(mask.shape[1]).expand_as(mask)
        return given | {"position_ids": counted + lm.anatomy.first_position}

    with called_with(change):
        yield lm


@fault("all positions zero in padded batches", no_position_ids)
def zero_positions(lm: LM) -> Iterator[LM]:
    with called_with(
        lambda given, mask: (
            given | {"position_ids": torch.zeros_like(mask).long() + lm.anatomy.first_position}
        )
    ):
        yield lm


# Wrong models.


@fault("sentences of a batch leak into each other")
def cross_talk(lm: LM) -> Iterator[LM]:
    def leak(_, args, kwargs, output):
        state = output_state(output)
        return replace_output_state(
            output, state + 0.01 * state.mean(0, keepdim=True) * (len(state) > 1)
        )

    with ExitStack() as stack:
        add_forward_hook(stack, lm.blocks[0], leak)
        yield lm


@fault("later tokens are seen in padded batches")
def sees_future(lm: LM) -> Iterator[LM]:
    def leak(_, args, kwargs, output):
        state = output_state(output)
        later = state.roll(-1, 1) * (len(state) > 1)
        return replace_output_state(output, state + 0.01 * later)

    with ExitStack() as stack:
        add_forward_hook(stack, lm.blocks[0], leak)
        yield lm


@fault("dropout left on", no_dropout)
def dropout(lm: LM) -> Iterator[LM]:
    lm.module.train()
    try:
        yield lm
    finally:
        lm.module.eval()
