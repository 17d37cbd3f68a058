"""Poolers: many token vectors in, one vector per text out.

A pooler takes the hidden states of a batch, the mask of its real tokens and, if its row `needs`
them, marks or attention weights per token. The result doesn't depend on the padding side, the
batch size or the order of the rows, and values at padded positions (NaN included) never reach it.
Everything the rest of the package must know about a pooler is in its row of `POOLERS`.

`NAME@PLACE` pools only the tokens of some messages of a conversation: `last@user`,
`mean@assistant`, `first@system`, `max@content` (all messages), never those of the chat template.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cutaway.core.errors import BadData, BadSpec, Mismatch, UnknownName
from cutaway.core.float64 import to_float64
from cutaway.core.lookup import suggestion

Hidden = Float[Tensor, "batch seq d"]
Mask = Bool[Tensor, "batch seq"]
Extra = Float[Tensor, "batch seq"] | None
Pooled = Float[Tensor, "batch d"]
Places = Int[Tensor, "batch seq"] | None
PLACE_CODES = {"system": 1, "user": 2, "assistant": 3}
"""The number of a token of such a message; 0 for a token of the chat template."""
ALL_CONTENT = "content"
WindowRule = Callable[[Float[Tensor, "windows d"], Float[Tensor, " windows"]], Float[Tensor, " d"]]


@dataclass(frozen=True)
class Pooler:
    """A rule that makes one vector of a text's token vectors."""

    name: str
    function: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    """(hidden, mask, extra) -> pooled; may rely on every row having a real token."""
    needs: Literal["marks", "attention"] | None = None
    """What `extra` is: 1.0 at marked tokens, or one attention weight per token. A pooler that needs
    attention weights is run with the eager attention kernel."""
    head: int | None = None
    """For `needs="attention"`: the attention head to use; None averages over the heads."""
    single_token: bool = False
    """Whether the result is the state of one token, so that the final norm and the output head can
    be applied after pooling."""
    window_rule: WindowRule | None = None
    """(pooled windows, tokens counted in each) -> the vector of the long text that was cut into
    these windows; None when that can't be computed from the windows' vectors."""
    place: str | None = None
    """The messages whose tokens count: those of a role, or `content` for all; None for every token
    that the model reads."""

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles whose messages the pooler reads; none for one without a place."""
        if self.place is None:
            return ()
        return tuple(PLACE_CODES) if self.place == ALL_CONTENT else (self.place,)

    def tokens(self, mask: Mask, places: Places) -> Mask:
        """The real tokens that count, given the place of each."""
        if self.place is None:
            return mask
        if places is None:
            raise BadSpec(
                f"Pooler {self.name!r} names a place in a conversation, and plain text has none: "
                "read it with --chat (chat=True)."
            )
        codes = torch.tensor([PLACE_CODES[role] for role in self.roles], device=places.device)
        return mask & torch.isin(places, codes)

    def __call__(
        self,
        hidden: Hidden,
        mask: Bool[Tensor, "batch seq"] | Int[Tensor, "batch seq"],
        extra: Extra = None,
    ) -> Pooled:
        """One vector per row; BadData if a row has no real token."""
        if hidden.shape[:2] != mask.shape:
            raise Mismatch(
                f"Pooler {self.name!r}: the mask has shape {tuple(mask.shape)}, expected "
                f"{tuple(hidden.shape[:2])} for hidden states of shape {tuple(hidden.shape)}."
            )
        if self.needs is not None and extra is None:
            raise BadSpec(f"Pooler {self.name!r} needs {self.needs} per token as `extra`.")
        real = mask.bool()
        _no_empty_rows(real.any(dim=1), "real token; drop empty texts first")
        return self.function(hidden, real, extra)


def pooler(name: str | Pooler) -> Pooler:
    """The pooler called `name`: a row of POOLERS, `q0.4` for a quantile, `attn:3` for a head."""
    if isinstance(name, Pooler):
        return name
    if name in POOLERS:
        return POOLERS[name]
    if "@" in name:
        return _at_place(name)
    if name.startswith("attn:"):
        return _attention_head(name)
    if name[:1] == "q" and (q := _number(name[1:])) is not None:
        return _quantile(name, q)
    raise UnknownName(
        f"Unknown pooler {name!r}. {suggestion(name, POOLERS)}Known: {', '.join(sorted(POOLERS))}, "
        "a quantile from q0 to q1 (as q0.4), one attention head (as attn:3), and a place in a "
        "conversation (as last@user)."
    )


def needs_attention(names: Iterable[str | Pooler]) -> bool:
    """Whether a pooler needs attention weights; names that are no poolers need none."""
    for name in names:
        try:
            if pooler(name).needs == "attention":
                return True
        except UnknownName:
            continue
    return False


def _first(hidden: Hidden, mask: Mask, _: Extra) -> Pooled:
    """The first real token."""
    # argmax gives the first of equal values; it isn't defined for bool on every device.
    return _at(hidden, mask.to(torch.uint8).argmax(dim=1))


def _last(hidden: Hidden, mask: Mask, _: Extra) -> Pooled:
    """The last real token."""
    return _at(hidden, mask.shape[1] - 1 - mask.flip(1).to(torch.uint8).argmax(dim=1))


def _at_quantile(hidden: Hidden, mask: Mask, _: Extra, *, q: float) -> Pooled:
    """Real token number round(q * (length - 1)); halves are rounded to the even number."""
    number = mask.cumsum(dim=1)
    # torch.round rounds halves as Python's round does only in double precision.
    target = torch.round(q * to_float64(number[:, -1:] - 1)).long().to(mask.device) + 1
    return _at(hidden, ((number == target) & mask).to(torch.uint8).argmax(dim=1))


def _mean(hidden: Hidden, mask: Mask, _: Extra) -> Pooled:
    """The mean over real tokens."""
    return _weighted(hidden, mask, mask.float())


def _mean_of_marks(hidden: Hidden, mask: Mask, extra: Extra) -> Pooled:
    """The mean over marked real tokens; BadData where a row has none."""
    assert extra is not None
    marked = (extra > 0) & mask
    _no_empty_rows(marked.any(dim=1), "marked token; every text needs one in its prompt")
    return _weighted(hidden, marked, marked.float())


def _attention(hidden: Hidden, mask: Mask, extra: Extra) -> Pooled:
    """The mean over real tokens, weighted by the attention they receive."""
    assert extra is not None
    weights = extra.masked_fill(~mask, 0.0)
    _no_empty_rows(weights.sum(dim=1) > 0, "token with a positive attention weight")
    return _weighted(hidden, mask, weights)


def _max(hidden: Hidden, mask: Mask, _: Extra) -> Pooled:
    """The largest value of each dimension over real tokens."""
    highest = torch.minimum(hidden, _bound(mask, hidden, -torch.inf)).amax(dim=1)
    # minimum() is three times as fast as masked_fill() but propagates NaN.
    if bool(highest.isnan().any()):
        highest = hidden.masked_fill(~mask[:, :, None], -torch.inf).amax(dim=1)
    return highest


def _min(hidden: Hidden, mask: Mask, _: Extra) -> Pooled:
    """The smallest value of each dimension over real tokens."""
    lowest = torch.maximum(hidden, _bound(mask, hidden, torch.inf)).amin(dim=1)
    if bool(lowest.isnan().any()):
        lowest = hidden.masked_fill(~mask[:, :, None], torch.inf).amin(dim=1)
    return lowest


def _mean_of_windows(values: Tensor, tokens: Tensor) -> Tensor:
    return (values * tokens[:, None]).sum(0) / tokens.sum()


def _first_window(values: Tensor, _: Tensor) -> Tensor:
    return values[0]


_pick = partial(Pooler, single_token=True)
POOLERS: dict[str, Pooler] = {
    "first": _pick("first", _first, window_rule=_first_window),
    "last": _pick("last", _last, window_rule=lambda values, _: values[-1]),
    "mean": Pooler("mean", _mean, window_rule=_mean_of_windows),
    "max": Pooler("max", _max, window_rule=lambda values, _: values.amax(0)),
    "min": Pooler("min", _min, window_rule=lambda values, _: values.amin(0)),
    # The sentence token of encoders is their first token; the name says what the user means.
    "cls": _pick("cls", _first, window_rule=_first_window),
    "mask": _pick("mask", _mean_of_marks, needs="marks"),
    "attn": Pooler("attn", _attention, needs="attention"),
}


def _at(hidden: Hidden, index: Int[Tensor, " batch"]) -> Pooled:
    """The token vector at `index` of each row."""
    return hidden[torch.arange(len(hidden), device=hidden.device), index]


def _bound(mask: Mask, like: Hidden, padding: float) -> Float[Tensor, "batch seq 1"]:
    """Bounds that move padded positions to `padding` and leave real ones as they are."""
    return torch.where(mask, -padding, padding).to(like.dtype)[:, :, None]


def _weighted(hidden: Hidden, keep: Mask, weights: Float[Tensor, "batch seq"]) -> Pooled:
    """The weighted mean of the kept tokens, summed in float32 or wider."""
    wide = torch.promote_types(hidden.dtype, torch.float32)
    values, rows = hidden.to(wide), weights.to(wide)[:, None, :]
    total = torch.bmm(rows, values)
    # 0 * NaN is NaN. A finite sum proves that no padding value leaked, so the batch is copied
    # only when it has to be.
    if not bool(total.isfinite().all()):
        total = torch.bmm(rows, values.masked_fill(~keep[:, :, None], 0.0))
    return (total / rows.sum(dim=2, keepdim=True))[:, 0].to(hidden.dtype)


def _no_empty_rows(filled: Bool[Tensor, " batch"], lack: str) -> None:
    if not bool(filled.all()):
        empty = torch.nonzero(~filled)[:, 0].tolist()
        raise BadData(f"{len(empty)} of {len(filled)} rows (first: row {empty[0]}) have no {lack}.")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _quantile(name: str, q: float) -> Pooler:
    if not 0.0 <= q <= 1.0:
        raise BadSpec(
            f"Pooler {name!r}: a quantile is from 0 (first token) to 1 (last token), got {q}."
        )
    return _pick(name, partial(_at_quantile, q=q))


def _attention_head(name: str) -> Pooler:
    head = name.removeprefix("attn:")
    if not head.isdecimal():
        raise BadSpec(f"Pooler {name!r}: a head is a number from 0, as in 'attn:3', got {head!r}.")
    return replace(POOLERS["attn"], name=name, head=int(head))


def _at_place(name: str) -> Pooler:
    base, _, place = name.partition("@")
    row, places = pooler(base), (*PLACE_CODES, ALL_CONTENT)
    if place not in places:
        raise UnknownName(
            f"Pooler {name!r}: unknown place {place!r}. {suggestion(place, places)}Known: "
            f"{', '.join(f'{base}@{one}' for one in places)}."
        )
    if row.needs == "marks":
        raise BadSpec(f"Pooler {name!r}: the mask token has its own place. Use {base!r}.")
    # The windows of a long text can't tell how many tokens of the place each of them has.
    return replace(row, name=name, place=place, window_rule=None)
