"""Hidden states of every token of some texts: what `lm.read(texts, pool=None)` returns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cutaway.core.errors import BadSpec
from cutaway.models.block_layout import BLOCK_PARTS
from cutaway.models.hooks import collect_states
from cutaway.models.sites import Site, need_site
from cutaway.models.tokens import Tokenized, pad

if TYPE_CHECKING:
    from cutaway.models.lm import LM

SiteChoice = str | Site | Sequence[str | Site]
Offsets = tuple[int, int]


@dataclass(frozen=True)
class TokenStates:
    """States per token, one matrix (tokens, d) per text: ragged, because texts differ in length.

    `states[6]` are the matrices of layer 6, `states[6, "attn"]` those of the attention's output in
    block 6, `states.padded(6)` one tensor with a mask.
    """

    layers: dict[int, list[Float[Tensor, "tokens d"]]]
    """By layer: one matrix per text."""
    sites: dict[Site, list[Float[Tensor, "tokens d"]]]
    """By site inside the blocks: one matrix per text."""
    ids: list[list[int]]
    """The token ids of each text, special tokens included."""
    tokens: list[list[str]]
    """The tokens as the vocabulary writes them."""
    offsets: list[list[Offsets]]
    """Where each token is in its text: start and end character; (0, 0) for special tokens. With
    a prompt, or pairs in a causal model, the text is the joined one, with a chat format the
    rendered one; in a masked model the second text of a pair is counted from its own start."""

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, which: int | Site | tuple[Any, ...]) -> list[Tensor]:
        """The matrices of a layer, or of a site: `Site(6, "mlp")` or (6, "mlp", "in")."""
        found: dict[Any, list[Tensor]] = self.layers if isinstance(which, int) else self.sites
        key = Site(*which) if isinstance(which, tuple) else which
        if key not in found:
            known = ", ".join(map(repr, [*self.layers, *self.sites][:8]))
            raise BadSpec(f"{which!r} was not read. There are: {known}, ...")
        return found[key]

    def padded(
        self, which: int | Site | tuple[Any, ...]
    ) -> tuple[Float[Tensor, "texts tokens d"], Bool[Tensor, "texts tokens"]]:
        """One tensor, padded on the right with zeros, and the mask of the real tokens."""
        many = self[which]
        if not many:
            return torch.zeros(0, 0, 0), torch.zeros(0, 0, dtype=torch.bool)
        states = torch.nn.utils.rnn.pad_sequence(many, batch_first=True)
        lengths = torch.tensor([len(one) for one in many])
        return states, torch.arange(states.shape[1])[None, :] < lengths[:, None]


def read_token_states(
    lm: LM,
    read: Tokenized,
    numbers: list[int],
    batches: Iterable[list[int]],
    sites: SiteChoice = (),
) -> TokenStates:
    """The states of every token at the layers `numbers` and at the sites; see `LM.read`."""
    wanted = parse_sites(lm, sites, numbers)
    keys: list[int | Site] = [*numbers, *wanted]
    found: dict[int | Site, list[Any]] = {key: [None] * len(read.rows) for key in keys}
    # no_grad, not inference_mode: the states may be trained on.
    with torch.no_grad():
        for batch in batches:
            ids, mask = (x.to(lm.device) for x in pad([read.rows[i] for i in batch], lm.pad_id))
            out = collect_states(lm, ids, mask, numbers, wanted)
            for key in keys:
                states = (out.layers[key] if isinstance(key, int) else out.sites[key]).cpu()
                for place, i in enumerate(batch):
                    found[key][i] = states[place, : len(read.rows[i])].clone()
    return TokenStates(
        {layer: found[layer] for layer in numbers},
        {site: found[site] for site in wanted},
        read.rows,
        [lm.tokenizer.convert_ids_to_tokens(row) for row in read.rows],
        read.offsets or [],
    )


def parse_sites(lm: LM, sites: SiteChoice, layers: Sequence[int]) -> list[Site]:
    """Sites from "attn", "mlp.in" (in every requested block), "6.attn", or `Site` objects."""
    given = [sites] if isinstance(sites, str | Site) else list(sites)
    words = [w for one in given for w in (one.split(",") if isinstance(one, str) else [one])]
    found = [site for word in words for site in _sites_of(word, layers)]
    for site in found:
        need_site(lm, site)
    return list(dict.fromkeys(found))


def _sites_of(word: str | Site, layers: Sequence[int]) -> list[Site]:
    if isinstance(word, Site):
        return [word]
    name, side = word.strip(), "out"
    for end in (".in", ".out"):
        if name.endswith(end):
            name, side = name.removesuffix(end), end[1:]
    number, _, part = name.rpartition(".")
    if part not in BLOCK_PARTS or not (number == "" or number.isdecimal()):
        raise BadSpec(
            f"{word!r} is not a site: one of {', '.join(BLOCK_PARTS)}, with a block before it "
            "('6.attn') or a side after it ('mlp.in')."
        )
    blocks = [int(number)] if number else [layer for layer in layers if layer > 0]
    return [Site(one, part, side) for one in blocks]  # type: ignore[arg-type]
