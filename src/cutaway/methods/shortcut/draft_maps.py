"""Maps that draft: they predict the last layer's next state, fitted on the model's own text.

A draft from layer i alone knows little more than the last token. The full model's last state of
the previous token is available too, since that token has just been verified, and it summarises the
text so far. One matrix predicts the next last state from both:

    (h_L of the previous token, h_i of this token) -> h_L of this token

The second drafted token starts from the predicted state of the first. The map is fitted by least
squares, then trained on the distribution over the frequent tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cutaway.console import Console
from cutaway.core.digest import digest_json
from cutaway.methods.shortcut.decode import plain_generate, stop_token_ids
from cutaway.methods.shortcut.maps import ShortcutMaps, load_unfinished, save_unfinished
from cutaway.methods.shortcut.maths.fit import Shortcut, fit_shortcuts
from cutaway.methods.shortcut.maths.lens import LogitsFn
from cutaway.methods.shortcut.maths.moments import MomentAccumulator
from cutaway.methods.shortcut.maths.tune import train_tuned_map
from cutaway.models.digests import module_checksum
from cutaway.models.hooks import collect_states
from cutaway.models.lm import LM
from cutaway.store.row_passes import fill_rows
from cutaway.store.snapshots import Snapshots

AHEAD = "ahead"
"""The kind of these maps."""
NEW_TOKENS = 64
"""Tokens that the model adds to each text."""
MAX_PROMPT_TOKENS = 24
TRAINING_STEPS = 300
BATCH_TEXTS = 32


@dataclass(frozen=True)
class DraftStates:
    """States at every token of some texts except the first."""

    previous: Tensor
    """(n, d): the last layer, one token earlier."""
    layers: dict[int, Tensor]
    final: Tensor


def draft_map_layers(maps: ShortcutMaps) -> tuple[int, ...]:
    """The layers from which the file has draft maps."""
    return tuple(sorted(source for source, _ in maps.pairs(AHEAD)))


def load_draft_map(maps: ShortcutMaps, layer: int) -> Shortcut:
    """The map from (previous last state, state at `layer`) to the last state."""
    return maps.stored_map(f"{AHEAD}/{layer}/{maps.layers}")


def candidate_layers(lm: LM) -> list[int]:
    """No block, or a few: each block is run for every drafted token."""
    return sorted({0, 1, round(lm.layers / 10), round(lm.layers / 5)} - {lm.layers})


def fit_draft_maps(
    lm: LM,
    rows: Sequence[Sequence[int]],
    vocabulary: Tensor,
    console: Console,
    *,
    seed: int,
    kept: Snapshots | None = None,
) -> dict[tuple[str, int, int], Shortcut]:
    """The maps, fitted on the model's continuations of the beginnings of these token rows.

    Finished maps are saved in `kept`.
    """
    kept = kept or Snapshots(None, console)
    layers, maps = candidate_layers(lm), load_unfinished(kept)
    if len(maps) == len(layers):
        return maps
    texts = continue_prompts(lm, rows, console)
    states, head = collect_draft_states(lm, texts, layers), subset_logits_fn(lm, vocabulary)
    with console.progress("draft maps", len(layers)) as advance:
        for layer in layers:
            if (AHEAD, layer, lm.layers) not in maps:
                inputs = torch.cat([states.previous, states.layers[layer]], dim=1)
                rng = torch.Generator().manual_seed(seed + layer)
                maps[AHEAD, layer, lm.layers] = fit_draft_map(inputs, states.final, head, rng)
                save_unfinished(kept, maps, at_end=layer == layers[-1])
            advance()
    return maps


def continue_prompts(lm: LM, rows: Sequence[Sequence[int]], console: Console) -> list[list[int]]:
    """The beginnings of these token rows with the model's continuations."""
    batches = list(_prompt_batches(rows))
    prompts = [row for batch in batches for row in batch]
    ends = np.cumsum([len(batch) for batch in batches])
    added = np.full((len(prompts), NEW_TOKENS), -1)
    with console.progress("continuations", len(prompts)) as advance:

        def continued(some: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
            batch = [prompts[i] for i in some]
            new = [row[len(batch[0]) :] for row in continue_texts(lm, batch)]
            advance(len(batch))
            return {"added": np.array([row + [-1] * (NEW_TOKENS - len(row)) for row in new])}

        fill_rows(
            {"added": added},
            np.split(np.arange(len(prompts)), ends[:-1]),
            continued,
            inputs=lambda: digest_json(["continuations", prompts]),
            weights=lambda: module_checksum(lm.module),
        )
    pairs = zip(prompts, added.tolist(), strict=True)
    return [[*row, *(token for token in new if token >= 0)] for row, new in pairs]


def _prompt_batches(rows: Sequence[Sequence[int]]) -> Iterator[list[list[int]]]:
    """Beginnings of equal length per batch, so that no row needs padding."""
    ordered = sorted((list(row) for row in rows), key=len)
    for start in range(0, len(ordered), BATCH_TEXTS):
        batch = ordered[start : start + BATCH_TEXTS]
        # Half of the shortest: the model continues from the middle of a text.
        length = min(max(1, len(batch[0]) // 2), MAX_PROMPT_TOKENS)
        yield [row[:length] for row in batch]


def continue_texts(lm: LM, rows: Sequence[Sequence[int]], new: int = NEW_TOKENS) -> list[list[int]]:
    """Each row with the model's greedy continuation, up to the end of the text."""
    prompts, stops = torch.tensor(rows, device=lm.device), stop_token_ids(lm)
    tokens, _ = plain_generate(lm, prompts, min(new, lm.context - prompts.shape[1]), stops)
    return [[*row, *_cut_at_stop(added, stops)] for row, added in zip(rows, tokens, strict=True)]


def _cut_at_stop(tokens: list[int], stops: frozenset[int]) -> list[int]:
    """The tokens up to the first stop token."""
    ends = [i for i, token in enumerate(tokens) if token in stops]
    return tokens[: ends[0] + 1] if ends else tokens


@torch.inference_mode()
def collect_draft_states(
    lm: LM, rows: Sequence[Sequence[int]], layers: Sequence[int]
) -> DraftStates:
    """The states of the rows, one row at a time."""
    by_row: list[dict[int, Tensor]] = []
    for row in rows:
        ids = torch.tensor([row], device=lm.device)
        mask = torch.ones_like(ids, dtype=torch.bool)
        states = collect_states(lm, ids, mask, {*layers, lm.layers}).layers
        by_row.append({layer: value[0].float().cpu() for layer, value in states.items()})
    return DraftStates(
        previous=torch.cat([states[lm.layers][:-1] for states in by_row]),
        layers={layer: torch.cat([states[layer][1:] for states in by_row]) for layer in layers},
        final=torch.cat([states[lm.layers][1:] for states in by_row]),
    )


def subset_logits_fn(lm: LM, vocabulary: Tensor) -> LogitsFn:
    """The function from last states to the logits of some tokens only."""
    weight, bias = lm.output_embedding
    chosen = vocabulary.to(weight.device)
    columns = weight.detach()[chosen].float().T.contiguous()
    offset = 0.0 if bias is None else bias.detach()[chosen].float()

    def logits(hidden: Tensor) -> Tensor:
        return lm.head_features(hidden.to(lm.device, weight.dtype)).float() @ columns + offset

    return logits


def fit_draft_map(inputs: Tensor, final: Tensor, head: LogitsFn, rng: torch.Generator) -> Shortcut:
    """Ridge regression, then training on the distribution of the tokens."""
    accumulator = MomentAccumulator([(AHEAD, "last")])
    accumulator.add({AHEAD: inputs, "last": final})
    moments = accumulator.moments()
    start = fit_shortcuts(moments, AHEAD, ["last"], ridge="auto", intercept=True)["last"]
    return train_tuned_map(start, inputs, final, head, rng=rng, steps=TRAINING_STEPS, batch=256)
