"""The tokenizer of a checkpoint; texts to rows of token ids, and rows to padded batches.

Special tokens are those that the tokenizer adds to a text by default; with bos='add' the model's
tokenizer adds the start token too (`models/start_token.py`). Pairs use the tokenizer's
pair format in masked models; causal models were trained on none, so the two texts are joined by a
line break. A prompt is tokenised together with the text before it and is never truncated: a text
that is too long loses its beginning.

A model with a chat format reads every text in its chat template: a plain text is one message of the
user, a prompt is the beginning of the assistant's reply. The template writes the special tokens, so
the tokenizer adds none. A conversation that is too long loses content, never the template.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from cutaway.core.errors import BadData, BadModel, BadSpec
from cutaway.core.messages import Conversation, conversation_from_lines, user_message
from cutaway.models.chat import RenderedChat, message_of_tokens, place_codes, render_chat

if TYPE_CHECKING:
    from cutaway.models.lm import LM

TruncationSide = Literal["right", "left"]
PAIR_SEPARATOR = "\n"
TOKENIZE_BATCH = 512
"""Texts per call of the fast tokenizer, which needs about 300 bytes per token during a call."""
CHARACTERS_PER_TOKEN, MIN_CHARACTERS = 64, 100_000
"""How much of a long text is tokenised, as few tokens are longer than 64 characters: what lies
further beyond the limit would be dropped."""


@dataclass(frozen=True)
class Tokenized:
    """Token ids per text, how many tokens were cut off, and which texts were empty."""

    rows: list[list[int]]
    truncated: NDArray[np.int64]
    """Of very long texts, which are not tokenised as a whole, a lower bound."""
    empty: NDArray[np.bool_]
    """Texts without any token; their row is the model's start or end token."""
    places: list[NDArray[np.int8]] | None = None
    """Of each token of each conversation, the message it belongs to (see `pool.PLACE_CODES`)."""
    uncertain: list[frozenset[str]] | None = None
    """Of each conversation, the roles of messages whose place in it isn't certain."""
    offsets: list[list[tuple[int, int]]] | None = None
    """Start and end character of each token, if asked for; (0, 0) for special tokens."""


def tokenize(
    lm: LM,
    texts: Sequence[str],
    *,
    pairs: Sequence[str] | None = None,
    messages: Sequence[Conversation | None] | None = None,
    prompt: str = "",
    limit: int | None = None,
    truncation: TruncationSide = "right",
    with_offsets: bool = False,
) -> Tokenized:
    """One row of ids per text, at most `limit` long (default: the model's context).

    `messages` has the conversation that replaces a text, where there is one; it needs a model with
    a chat format. `truncation` is the side where long texts lose tokens; with a prompt it is always
    the left.
    """
    limit = lm.context if limit is None else limit
    if truncation not in ("right", "left"):
        raise BadSpec(f"truncation must be 'right' or 'left', got {truncation!r}.")
    if lm.chat is not None:
        plain, _ = _tokenizer_inputs(lm, texts, pairs, "")
        side: TruncationSide = "left" if prompt else truncation
        return _tokenize_chat(lm, _conversations(plain, messages), prompt, limit, side)
    if messages is not None and any(messages):
        raise BadSpec("Messages are read with the chat template: open the model with chat=True.")
    firsts, seconds = _tokenizer_inputs(lm, texts, pairs, prompt)
    offsets: list[list[tuple[int, int]]] | None = [] if with_offsets else None
    if not with_offsets:
        end: TruncationSide = "left" if prompt else truncation
        firsts = [_shorten(lm, text, limit, end) for text in firsts]
        seconds = seconds and [_shorten(lm, text, limit, end) for text in seconds]
    rows = _encode(lm, firsts, seconds, offsets) if firsts else []
    lost = np.array([max(len(row) - limit, 0) for row in rows], dtype=np.int64)
    for i in np.flatnonzero(lost):
        second = None if seconds is None else seconds[i]
        rows[i], kept = _truncate(lm, firsts[i], second, len(prompt), limit, truncation)
        if offsets is not None:
            offsets[i] = kept
    empty = np.array([not row for row in rows], dtype=np.bool_)
    for i in np.flatnonzero(empty):
        rows[i] = [_empty_text_token(lm, int(i))]
        if offsets is not None:
            offsets[i] = [(0, 0)]
    return Tokenized(rows, lost, empty, offsets=offsets)


def tokenize_typed(lm: LM, text: str, **options: Any) -> Tokenized:
    """One text that someone typed; with a chat format it may be a conversation, whose lines begin
    with the role (see `conversation_from_lines`)."""
    messages = None if lm.chat is None else [conversation_from_lines(text)]
    return tokenize(lm, [text], messages=messages, **options)


def _conversations(
    texts: Sequence[str], messages: Sequence[Conversation | None] | None
) -> list[Conversation]:
    """Every row as a conversation; a plain text is one message of the user."""
    return [
        given or user_message(text)
        for text, given in zip(texts, messages or [None] * len(texts), strict=True)
    ]


def _tokenize_chat(
    lm: LM, conversations: list[Conversation], prompt: str, limit: int, side: TruncationSide
) -> Tokenized:
    """Conversations in the model's template, with the message that each token belongs to."""
    conversations = [
        tuple(one._replace(content=_shorten(lm, one.content, limit, side)) for one in conversation)
        for conversation in conversations
    ]
    chats = [
        render_chat(lm, one, prompt, where=f"row {row}")
        for row, one in enumerate(conversations, start=1)
    ]
    rows: list[list[int]] = []
    places: list[NDArray[np.int8]] = []
    spans: list[list[tuple[int, int]]] = []
    lost = np.zeros(len(chats), np.int64)
    for start in range(0, len(chats), TOKENIZE_BATCH):
        some = [chat.text for chat in chats[start : start + TOKENIZE_BATCH]]
        encoded = lm.tokenizer(
            some, add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )
        _need_known_tokens(lm, some, encoded["input_ids"])
        for ids, offsets in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
            number = len(rows)
            owner = message_of_tokens(offsets, chats[number].spans)
            if len(ids) > limit:
                lost[number] = len(ids) - limit
                kept = _positions_in_limit(chats[number], owner, limit, side, number + 1)
                ids, owner = [ids[i] for i in kept], owner[kept]
                offsets = [offsets[i] for i in kept]
            rows.append(ids)
            spans.append([tuple(span) for span in offsets])
            places.append(place_codes(owner, chats[number].roles))
    uncertain = [
        frozenset(r for r, span in zip(chat.roles, chat.spans, strict=True) if span is None)
        for chat in chats
    ]
    return Tokenized(rows, lost, np.zeros(len(rows), np.bool_), places, uncertain, spans)


def _positions_in_limit(
    chat: RenderedChat, owner: NDArray[np.int64], limit: int, side: TruncationSide, row: int
) -> NDArray[np.int64]:
    """The tokens that stay: all of the template, and at least one of every message."""
    sides = [np.flatnonzero(owner == number).tolist() for number in range(len(chat.roles))]
    # The token that is kept is at the end that isn't cut.
    loose = [s[1:] if side == "right" else s[:-1] for s in sides]
    drop = _positions_to_drop(loose, len(owner) - limit, side)
    if len(owner) - len(drop) > limit:
        raise BadSpec(
            f"max_tokens {limit} is too small for row {row}: the chat template and one token of "
            f"each of its {len(sides)} messages take {len(owner) - sum(map(len, loose))} tokens."
        )
    return np.array([i for i in range(len(owner)) if i not in drop], np.int64)


def pad(
    rows: Sequence[Sequence[int]], pad_id: int, side: Literal["right", "left"] = "right"
) -> tuple[Int[Tensor, "batch seq"], Bool[Tensor, "batch seq"]]:
    """The rows as one padded tensor of ids, and the mask of real tokens."""
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    width = int(lengths.max(initial=0))
    place = np.arange(width)[None, :]
    mask = place < lengths[:, None] if side == "right" else place >= width - lengths[:, None]
    ids = np.full(mask.shape, pad_id, dtype=np.int64)
    ids[mask] = np.fromiter((token for row in rows for token in row), np.int64, lengths.sum())
    return torch.from_numpy(ids), torch.from_numpy(mask)


def make_token_type_ids(
    lm: LM, ids: Int[Tensor, "batch seq"], mask: Bool[Tensor, "batch seq"]
) -> Int[Tensor, "batch seq"]:
    """Token types: 1 after the first separator, 0 elsewhere, as the tokenizer gives them for pairs.

    They are computed from the ids, so that a row of ids is all a batch needs. A text that contains
    the separator token counts as two texts.
    """
    separator: Tensor = (ids == lm.tokenizer.sep_token_id) & mask
    behind = separator.cumsum(dim=1) - separator.long()
    return ((behind > 0) & mask).long()


def _tokenizer_inputs(
    lm: LM, texts: Sequence[str], pairs: Sequence[str] | None, prompt: str
) -> tuple[list[str], list[str] | None]:
    """First and second texts for the tokenizer; the prompt is appended to the last of them."""
    texts = [without_start_token(lm, text) for text in texts]
    if pairs is None:
        return [text + prompt for text in texts], None
    if len(pairs) != len(texts):
        raise BadData(f"{len(texts)} texts but {len(pairs)} second texts: one each is needed.")
    if lm.kind == "causal":
        joined = zip(texts, pairs, strict=True)
        return [f"{one}{PAIR_SEPARATOR}{two}{prompt}" for one, two in joined], None
    return list(texts), [pair + prompt for pair in pairs]


def _shorten(lm: LM, text: str, limit: int, cut: TruncationSide) -> str:
    """The text, or, if it is far too long, without most of what the limit will drop."""
    size = max(MIN_CHARACTERS, CHARACTERS_PER_TOKEN * limit)
    if len(text) <= size:
        return text
    short = text[:size] if cut == "right" else text[-size:]
    # Long runs of spaces or an unusual vocabulary may give fewer tokens: then all is needed.
    count = len(lm.tokenizer(short, add_special_tokens=False, verbose=False)["input_ids"])
    return short if count > limit else text


def without_start_token(lm: LM, text: str) -> str:
    """The text; one that spells out the start token doesn't get it twice with bos='add'."""
    token = lm.tokenizer.bos_token if lm.bos == "add" and lm.kind == "causal" else None
    return text.removeprefix(token) if token else text


def _encode(
    lm: LM,
    firsts: list[str],
    seconds: list[str] | None,
    offsets: list[list[tuple[int, int]]] | None = None,
) -> list[list[int]]:
    """Ids of all texts, special tokens included; their offsets are appended to `offsets`."""
    rows: list[list[int]] = []
    for start in range(0, len(firsts), TOKENIZE_BATCH):
        some = slice(start, start + TOKENIZE_BATCH)
        encoded = lm.tokenizer(
            firsts[some], None if seconds is None else seconds[some], padding=False,
            truncation=False, return_attention_mask=False, return_token_type_ids=False,
            return_offsets_mapping=offsets is not None, verbose=False,
        )  # fmt: skip
        rows += encoded["input_ids"]
        if offsets is not None:
            offsets += [[(int(a), int(b)) for a, b in row] for row in encoded["offset_mapping"]]
    _need_known_tokens(lm, firsts, rows)
    return rows


def _need_known_tokens(lm: LM, texts: list[str], rows: list[list[int]]) -> None:
    """BadData for a text with a token that the model has no embedding for."""
    known = lm.module.get_submodule(lm.anatomy.embeddings).weight.shape[0]
    for text, row in zip(texts, rows, strict=True):
        if row and max(row) >= known:
            token = lm.tokenizer.convert_ids_to_tokens(max(row))
            raise BadData(
                f"The text {text[:60]!r} has the token {token!r} ({max(row)}), but {lm.name!r} has "
                f"only {known:,} embeddings. Remove it from the text."
            )


def _truncate(
    lm: LM, first: str, second: str | None, prompt: int, limit: int, truncation: TruncationSide
) -> tuple[list[int], list[tuple[int, int]]]:
    """One row truncated to the limit, and its offsets; special and prompt tokens stay."""
    encoded = lm.tokenizer(first, second, return_offsets_mapping=True, verbose=False)
    ids, text_of = encoded["input_ids"], encoded.sequence_ids(0)
    sides = [
        [i for i, text in enumerate(text_of) if text == side]
        for side in range(1 if second is None else 2)
    ]
    if prompt:
        # A token across the border belongs to the prompt.
        border, spans = len(second or first) - prompt, encoded["offset_mapping"]
        sides[-1] = [i for i in sides[-1] if spans[i][1] <= border]
    drop = _positions_to_drop(sides, len(ids) - limit, "left" if prompt else truncation)
    if len(ids) - len(drop) > limit:
        raise BadSpec(
            f"max_tokens {limit} leaves no room: the prompt and special tokens alone take "
            f"{len(ids) - sum(map(len, sides))} tokens. Raise it or shorten the prompt."
        )
    kept = [i for i in range(len(ids)) if i not in drop]
    return [ids[i] for i in kept], [tuple(encoded["offset_mapping"][i]) for i in kept]


def _positions_to_drop(sides: list[list[int]], excess: int, cut: TruncationSide) -> set[int]:
    """The positions to drop: always from the longer text, at the chosen end."""
    keep = [len(side) for side in sides]
    for _ in range(min(excess, sum(keep))):
        keep[keep.index(max(keep))] -= 1
    dropped = [
        side[n:] if cut == "right" else side[: len(side) - n]
        for side, n in zip(sides, keep, strict=True)
    ]
    return {i for side in dropped for i in side}


def _empty_text_token(lm: LM, row: int) -> int:
    """The token used for an empty text."""
    for token in (lm.tokenizer.bos_token_id, lm.tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    raise BadData(
        f"Text {row} is empty, and the tokenizer of {lm.name!r} has no start or end token to "
        "use instead: leave out the text."
    )


def uses_token_types(tokenizer: Any, module: nn.Module) -> bool:
    """Whether the tokenizer gives the texts of a pair types 0 and 1, split at the first separator,
    and the model has embeddings for both types."""
    if getattr(module.config, "type_vocab_size", 0) < 2 or tokenizer.sep_token_id is None:
        return False
    pair = tokenizer("a", "b")
    if tokenizer.sep_token_id not in pair["input_ids"]:
        return False
    border = pair["input_ids"].index(tokenizer.sep_token_id) + 1
    ours = [0] * border + [1] * (len(pair["input_ids"]) - border)
    return bool(pair.get("token_type_ids") == ours)


def need_embedding_rows(name: str, tokenizer: Any, rows: int) -> tuple[str, ...]:
    """BadModel if words, padding or the special tokens of a text have no row in the embedding.

    A note if only added tokens have none, which some families share with related models.
    """
    used = [tokenizer.pad_token_id, *tokenizer("a", return_attention_mask=False)["input_ids"]]
    # Tokenizers written in Python have no backend; their ids are checked with each text.
    if len(tokenizer) > rows and hasattr(tokenizer, "backend_tokenizer"):
        used += tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False).values()
    if max(used) >= rows:
        raise BadModel(
            f"{name!r}: its tokenizer gives ids up to {max(used):,}, its embedding has {rows:,} "
            "rows. The tokenizer belongs to another model: save the right one with the weights."
        )
    if len(tokenizer) <= rows:
        return ()
    return (f"The tokenizer knows {len(tokenizer):,} tokens, the embedding has {rows:,} rows: a "
            "text with one of the added tokens beyond them is refused.",)  # fmt: skip
