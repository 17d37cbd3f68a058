"""The word that each layer predicts after a sentence, or at its mask."""

import torch

from cutaway.core.errors import BadData
from cutaway.methods.nextword.output_head import token_text
from cutaway.methods.shortcut.maps import ShortcutMaps
from cutaway.methods.shortcut.predictions import logits_fn
from cutaway.models.hooks import collect_states
from cutaway.models.lm import LM
from cutaway.models.tokens import tokenize
from cutaway.report.drawing.values import LayerWord

SENTENCES = {
    "causal": "The capital of France is",
    "masked": "The capital of France is {mask}.",
}
"""The default sentence of each kind of model."""
MASK_SIGN = "{mask}"


def sentence_of(lm: LM, given: str | None) -> str:
    """The sentence to read; for a masked model it has its mask token, at the end if none is given.

    BadData for a sentence without words.
    """
    text = SENTENCES[lm.kind] if given is None else given
    if not text.strip():
        raise BadData("The sentence is empty: give --sentence some words.")
    if lm.kind == "causal":
        return text
    mask = lm.tokenizer.mask_token
    text = text.replace(MASK_SIGN, mask)
    return text if mask in text else f"{text.rstrip()} {mask}"


@torch.inference_mode()
def layer_words(lm: LM, maps: ShortcutMaps | None, sentence: str) -> tuple[LayerWord, ...]:
    """Each layer's most likely word, through the fitted maps if there are any.

    A long text is cut at its start. BadData if the mask is lost or the text has no tokens.
    """
    got = tokenize(lm, [sentence], limit=lm.context, truncation="left")
    if got.empty[0]:
        raise BadData(f"The sentence {sentence[:40]!r} has no tokens for {lm.name!r}.")
    row = got.rows[0]
    place = _position(lm, row, sentence)
    ids = torch.tensor([row], device=lm.device)
    states = collect_states(lm, ids, torch.ones_like(ids, dtype=torch.bool)).layers
    head, words = logits_fn(lm), []
    for layer in range(lm.layers + 1):
        hidden = states[layer][0, place][None]
        moved = hidden if maps is None else maps.jump(layer, lm.layers, "mat")(hidden)
        chance, token = head(moved).double().softmax(dim=-1)[0].max(dim=-1)
        words.append((int(token), float(chance)))
    final = words[-1][0]
    return tuple(
        LayerWord(token_text(lm, token), round(chance, 4), token == final)
        for token, chance in words
    )


def _position(lm: LM, row: list[int], sentence: str) -> int:
    if lm.kind == "causal":
        return len(row) - 1
    mask = lm.tokenizer.mask_token_id
    if mask not in row:
        raise BadData(f"The mask of {sentence[:40]!r} was cut off: give a shorter sentence.")
    return row.index(mask)
