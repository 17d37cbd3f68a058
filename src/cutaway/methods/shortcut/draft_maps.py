"""Maps that draft: they foresee the last layer, fitted on what the model itself writes.

A draft from layer i alone knows little but the last token. The full model's last state before
that token is there too, for it has just been verified, and holds what the model made of all the
text so far. From both together one matrix foresees the next last state:

    (h_L of the token before, h_i of this token) -> h_L of this token

and a second drafted token stands on the foreseen state of the first. Fitted by least squares, then
trained until the distribution over the frequent words comes out right.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cutaway.console import Console
from cutaway.methods.shortcut.maps import ShortcutMaps
from cutaway.methods.shortcut.maths.fit import Shortcut
from cutaway.methods.shortcut.maths.fit import fit_shortcuts as solve
from cutaway.methods.shortcut.maths.lens import LogitsFn
from cutaway.methods.shortcut.maths.moments import MomentAccumulator
from cutaway.methods.shortcut.maths.tune import train_tuned_map
from cutaway.methods.shortcut.plain_generate import stop_token_ids
from cutaway.models.lm import LM
from cutaway.models.read import collect_states

AHEAD = "ahead"
NEW_TOKENS = 64
"""Tokens that the model adds to each text."""
TRAINING_STEPS = 300
BATCH_TEXTS = 32


@dataclass(frozen=True)
class DraftStates:
    """States at every token of some texts but their first."""

    before: Tensor
    """(n, d): the last layer, one token earlier."""
    here: dict[int, Tensor]
    final: Tensor


def draft_map_layers(maps: ShortcutMaps) -> tuple[int, ...]:
    """The layers from which the file can look ahead."""
    named = (name.split("/") for name in maps.artefact.names)
    return tuple(sorted(int(n[1]) for n in named if n[0] == AHEAD and len(n) == 3))


def load_draft_map(maps: ShortcutMaps, layer: int) -> Shortcut:
    """The map from (last state before, state at `layer`) to the last state."""
    name = f"{AHEAD}/{layer}/{maps.layers}"
    return Shortcut((maps.artefact.tensor(name),), maps.artefact.tensor(f"{name}/bias"))


def candidate_layers(lm: LM) -> list[int]:
    """None of the blocks, or a few: each block costs its time for every drafted token."""
    return sorted({0, 1, round(lm.layers / 10), round(lm.layers / 5)} - {lm.layers})


def fit_draft_maps(
    lm: LM, rows: Sequence[Sequence[int]], words: Tensor, console: Console, *, seed: int
) -> dict[tuple[str, int, int], Shortcut]:
    """The maps, from texts that go on from the beginnings of these rows of tokens."""
    layers = candidate_layers(lm)
    with console.progress("own text", len(rows)) as advance:
        own = []
        for batch in _prompt_batches(rows):
            own += continue_texts(lm, batch)
            advance(len(batch))
    seen = collect_draft_states(lm, own, layers)
    head, found = subset_logits_fn(lm, words), {}
    with console.progress("looking ahead", len(layers)) as advance:
        for layer in layers:
            both = torch.cat([seen.before, seen.here[layer]], dim=1)
            rng = torch.Generator().manual_seed(seed + layer)
            found[AHEAD, layer, lm.layers] = fit_draft_map(both, seen.final, head, rng)
            advance()
    return found


def _prompt_batches(rows: Sequence[Sequence[int]], most: int = 24) -> Iterator[list[list[int]]]:
    """Beginnings of equal length, so that no row needs padding."""
    ordered = sorted((list(row) for row in rows), key=len)
    for start in range(0, len(ordered), BATCH_TEXTS):
        batch = ordered[start : start + BATCH_TEXTS]
        # Half of the shortest: the model shall go on from the middle of a text.
        length = min(max(1, len(batch[0]) // 2), most)
        yield [row[:length] for row in batch]


@torch.inference_mode()
def continue_texts(lm: LM, rows: Sequence[Sequence[int]], new: int = NEW_TOKENS) -> list[list[int]]:
    """Each row with what the model writes next, up to the end of the text."""
    ids = torch.tensor(rows, device=lm.device)
    room = min(new, lm.context - ids.shape[1])
    stops = stop_token_ids(lm)
    out = lm.module.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=room,
        do_sample=False,
        pad_token_id=lm.pad_id,
        eos_token_id=sorted(stops) or None,
    )
    return [_cut_at_stop(row, ids.shape[1], stops) for row in out.tolist()]


def _cut_at_stop(row: list[int], start: int, stops: frozenset[int]) -> list[int]:
    """The row up to the first stop behind its beginning."""
    ends = [place for place in range(start, len(row)) if row[place] in stops]
    return row[: ends[0] + 1] if ends else row


@torch.inference_mode()
def collect_draft_states(
    lm: LM, rows: Sequence[Sequence[int]], layers: Sequence[int]
) -> DraftStates:
    """The states of the rows, one row at a time."""
    found: list[dict[int, Tensor]] = []
    for row in rows:
        ids = torch.tensor([row], device=lm.device)
        mask = torch.ones_like(ids, dtype=torch.bool)
        shown = collect_states(lm, ids, mask, {*layers, lm.layers}).layers
        found.append({layer: value[0].float().cpu() for layer, value in shown.items()})
    final = [one[lm.layers] for one in found]
    return DraftStates(
        before=torch.cat([rows[:-1] for rows in final]),
        here={layer: torch.cat([one[layer][1:] for one in found]) for layer in layers},
        final=torch.cat([rows[1:] for rows in final]),
    )


def subset_logits_fn(lm: LM, words: Tensor) -> LogitsFn:
    """From last states to logits of these words only: what a draft chooses from."""
    weight, bias = lm.output_embedding
    few = weight.detach()[words.to(weight.device)].float().T.contiguous()
    more = None if bias is None else bias.detach()[words.to(weight.device)].float()

    def head(hidden: Tensor) -> Tensor:
        logits = lm.head_features(hidden.to(lm.device, weight.dtype)).float() @ few
        return logits if more is None else logits + more

    return head


def fit_draft_map(both: Tensor, final: Tensor, head: LogitsFn, rng: torch.Generator) -> Shortcut:
    """Least squares with a penalty, then trained on the distribution of the words."""
    gatherer = MomentAccumulator([(AHEAD, "last")])
    gatherer.add({AHEAD: both, "last": final})
    start = solve(gatherer.moments(), AHEAD, ["last"], ridge="auto", intercept=True)["last"]
    return train_tuned_map(start, both, final, head, rng=rng, steps=TRAINING_STEPS, batch=256)
