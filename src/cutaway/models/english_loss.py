"""The loss on a few plain English sentences: does the model work as it is used here?

Two faults show in it. A missing start token: the loss of the same tokens is much lower with the
token before each sentence. Weights that are not the trained ones: the loss is higher than that of
guessing every token by its frequency, without any context.
"""

import math
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version

import numpy as np
import torch
from torch import Tensor

from cutaway.console import show_message
from cutaway.core.digest import digest_json
from cutaway.core.errors import CutawayError
from cutaway.home import read_memo, write_memo
from cutaway.models.lm import LM
from cutaway.models.loss import IGNORE_INDEX, mask_tokens, mlm_loss
from cutaway.models.model_warnings import ModelWarning
from cutaway.models.start_token import start_token_id, tokens_in_front
from cutaway.models.tokens import pad, tokenize

ENGLISH = (
    "The old clock in the hall struck nine, and the children went up the stairs to their beds.",
    "It had rained all night, but by the morning the roads were dry and the sky was blue again.",
)
MAX_TOKENS = 32
LARGE_GAIN = 0.5
"""Nats per token. Measured gains: SmolLM2-135M -0.1, a 15 M story model -0.1; Gemma-3-270M, which
needs its start token, 4.9."""
MAX_UNKNOWN = 0.5
"""With more unknown tokens than this, English says nothing about the model."""
MIN_CHARACTERS = 1.5
"""Characters per token: below, the tokenizer wasn't made for English. Measured: English models 4.1
to 4.4, a Korean one 2.6; byte-level tokenizers of molecules or proteins read letter by letter."""
MASKED_SHARE = 0.15


@dataclass(frozen=True)
class EnglishLoss:
    """Losses in nats per token."""

    loss: float
    with_start: float | None
    """The loss of the same tokens after the start token, if the tokenizer doesn't add it."""
    unigram: float
    """About the loss of guessing each token by its frequency in English."""
    uniform: float
    """The loss of guessing all tokens with the same probability."""
    unknown: float
    """The share of tokens that the tokenizer has no word for."""
    characters: float
    """Characters per token."""

    @property
    def says_something(self) -> bool:
        """Whether the tokenizer reads English, so that the loss can be judged."""
        return self.unknown <= MAX_UNKNOWN and self.characters >= MIN_CHARACTERS


def show_warnings(lm: LM) -> LM:
    """Show each warning as one line on stderr; returns the model."""
    for one in lm.warnings:
        show_message(f"Warning: {lm.name}: {one.message}")
    return lm


def with_loss_warnings(lm: LM, *, remember: bool = True) -> LM:
    """The model with the warnings that follow from its loss on English."""
    measured = english_loss(lm, remember=remember)
    found = () if measured is None else loss_warnings(lm, measured)
    others = [one for one in lm.warnings if one.name not in ("start_token", "loss_too_high")]
    return replace(lm, warnings=(*others, *found))


def english_loss(lm: LM, *, remember: bool = True) -> EnglishLoss | None:
    """The measured losses, remembered for this model; None for a model without logits."""
    if not lm.has_head:
        return None
    versions = [version("torch"), version("transformers")]
    start = start_token_id(lm.tokenizer, lm.module.config)
    fields = list(EnglishLoss.__dataclass_fields__)
    key = digest_json([lm.identity, start, ENGLISH, fields, *versions])
    known = read_memo("losses", key)
    if isinstance(known, dict):
        return EnglishLoss(**known)
    try:
        with torch.no_grad():
            measured = _measure(lm, start)
    except CutawayError:
        # A tokenizer for which these sentences have no tokens.
        return None
    if remember:
        write_memo("losses", key, asdict(measured))
    return measured


def loss_warnings(lm: LM, measured: EnglishLoss) -> tuple[ModelWarning, ...]:
    """A warning for a missing start token, or else for a loss that no trained model has."""
    best = measured.loss
    if measured.with_start is not None and measured.loss - measured.with_start > LARGE_GAIN:
        best = measured.with_start
    if measured.says_something and not best <= measured.unigram:
        return (ModelWarning("loss_too_high", _loss_message(measured)),)
    if best < measured.loss and lm.bos != "keep":
        return (ModelWarning("start_token", _start_message(lm, measured)),)
    return ()


def _loss_message(measured: EnglishLoss) -> str:
    return (
        f"The loss on plain English is {measured.loss:.1f} nats per token. Guessing every token by "
        f"its frequency gives about {measured.unigram:.1f}, guessing blindly "
        f"{measured.uniform:.1f}. The weights may not be loaded right or not be trained, unless "
        "the model is for something else than English (code, proteins, another language)."
    )


def _start_message(lm: LM, measured: EnglishLoss) -> str:
    start = lm.tokenizer.convert_ids_to_tokens(start_token_id(lm.tokenizer, lm.module.config))
    front = tokens_in_front(lm.tokenizer)
    now = f"puts {' '.join(front)} before a text" if front else "puts nothing before a text"
    return (
        f"The start token {start!r} is missing: the tokenizer {now}, and the loss on plain English "
        f"is {measured.loss:.2f}, with {start!r} {measured.with_start:.2f}. Use --bos add "
        "(bos='add' in Python), or --bos keep to go on without this warning."
    )


def _measure(lm: LM, start: int | None) -> EnglishLoss:
    rows = tokenize(lm, ENGLISH, limit=min(lm.context, MAX_TOKENS)).rows
    unknown = [token == lm.tokenizer.unk_token_id for row in rows for token in row]
    with_start = None
    if lm.kind == "masked":
        loss = _masked_loss(lm, rows)
    else:
        loss = _next_token_loss(lm, rows, first=0)
        absent = start is not None and all(row[0] != start for row in rows)
        known = lm.module.get_submodule(lm.anatomy.embeddings).weight.shape[0]
        if start is not None and absent and start < known:
            rows = [[start, *row[: lm.context - 1]] for row in rows]
            with_start = _next_token_loss(lm, rows, first=1)
    return EnglishLoss(
        loss,
        with_start,
        unigram_loss(lm.vocab),
        math.log(lm.vocab),
        float(np.mean(unknown)),
        sum(map(len, ENGLISH)) / max(sum(len(lm.tokenizer.tokenize(one)) for one in ENGLISH), 1),
    )


def _next_token_loss(lm: LM, rows: list[list[int]], first: int) -> float:
    """Mean loss of the tokens after the first two, or of the same ones after a start token."""
    ids, mask = (x.to(lm.device) for x in pad(rows, lm.pad_id))
    labels = ids.roll(-1, dims=1).masked_fill(~mask.roll(-1, dims=1), IGNORE_INDEX)
    labels[:, :first], labels[:, -1] = IGNORE_INDEX, IGNORE_INDEX
    return _mean_loss(lm, ids, mask, labels)


def _masked_loss(lm: LM, rows: list[list[int]]) -> float:
    ids, mask = (x.to(lm.device) for x in pad(rows, lm.pad_id))
    rng = np.random.default_rng(0)
    inputs, labels = mask_tokens(lm, ids, mask, rng=rng, share=MASKED_SHARE, style="mask")
    return _mean_loss(lm, inputs, mask, labels)


def _mean_loss(lm: LM, ids: Tensor, mask: Tensor, labels: Tensor) -> float:
    """The mean over all labelled tokens; one row at a time, since logits are large."""
    total = 0.0
    for i in range(len(ids)):
        here = slice(i, i + 1)
        count = int((labels[here] != IGNORE_INDEX).sum())
        total += float(mlm_loss(lm, ids[here], mask[here], labels[here])) * count
    return total / max(int((labels != IGNORE_INDEX).sum()), 1)


def unigram_loss(vocab: int) -> float:
    """The entropy of Zipf's law (the token of rank r has probability ~ 1 / (r + 2.7)) over the
    vocabulary: about what a model gives that knows only how frequent tokens are."""
    weights = 1 / (np.arange(1, vocab + 1) + 2.7)
    share = weights / weights.sum()
    return float(-(share * np.log(share)).sum())
