"""The start token: which one a model has, whether its tokenizer adds it, and adding it.

`auto` and `keep` leave the tokenizer as it is; with `auto` the loss with and without the start
token is compared when the model is opened (`models/warnings.py`). `add` changes the tokenizer
itself, so that every text gets the token wherever it is tokenised, the tokenizer's digest (which
is part of every address and cache key) changes, and a checkpoint saved with it adds the token too.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from cutaway.console import show_message
from cutaway.core.errors import BadSpec

BosMode = Literal["auto", "add", "keep"]
BOS_MODES: tuple[BosMode, ...] = ("auto", "add", "keep")


def start_token_id(tokenizer: Any, config: Any) -> int | None:
    """The start token that the tokenizer names, or else the config; None if neither does."""
    named = (tokenizer.bos_token_id, getattr(config, "bos_token_id", None))
    ids = [one[0] if isinstance(one, list) and one else one for one in named]
    return next((int(one) for one in ids if isinstance(one, int) and one >= 0), None)


def tokens_in_front(tokenizer: Any) -> list[str]:
    """The special tokens that the tokenizer puts before a text."""
    encoded = tokenizer("a", return_special_tokens_mask=True)
    special = encoded["special_tokens_mask"]
    start = special.index(0) if 0 in special else len(special)
    names: list[str] = tokenizer.convert_ids_to_tokens(encoded["input_ids"][:start])
    return names


def set_start_token(
    tokenizer: Any, config: Any, mode: str, *, kind: str, name: str
) -> tuple[str, ...]:
    """Make the tokenizer add the start token if the mode is `add`; returns notes for the user.

    BadSpec for a causal model without a start token, and for a tokenizer that can't be changed.
    """
    if mode not in BOS_MODES:
        raise BadSpec(f"bos must be one of {', '.join(BOS_MODES)}, got {mode!r}.")
    if mode != "add":
        return ()
    front = tokens_in_front(tokenizer)
    if kind == "masked":
        first = f"it adds {front[0]!r} to every text" if front else "its tokenizer adds none"
        return (f"bos='add' changes nothing: a masked model has no start token ({first}).",)
    start = start_token_id(tokenizer, config)
    token = None if start is None else tokenizer.convert_ids_to_tokens(start)
    if token is None:
        raise BadSpec(
            f"bos='add' needs a start token, and neither the tokenizer nor the config of {name!r} "
            "names one (bos_token, bos_token_id). Use bos='auto'."
        )
    if front[:1] == [token]:
        return (f"bos='add' changes nothing: the tokenizer adds {token!r} to every text itself.",)
    if front:
        raise BadSpec(
            f"bos='add' would put {token!r} before {front[0]!r}: the tokenizer of {name!r} puts "
            f"{front[0]!r} before every text. Use bos='auto'."
        )
    before, bare = (tokenizer("a", add_special_tokens=s)["input_ids"] for s in (True, False))
    if before == [*bare, tokenizer.eos_token_id]:
        tokenizer.add_eos_token = True
    if tokenizer.bos_token is None:
        tokenizer.bos_token = token
    tokenizer.add_bos_token = True
    if tokenizer("a")["input_ids"] != [start, *before]:
        raise BadSpec(
            f"The tokenizer of {name!r} ({type(tokenizer).__name__}) can't be changed to add "
            f"{token!r}. Save one that does (tokenizer.add_bos_token = True) with the weights."
        )
    return (f"bos='add': {token!r} is put before every text.",)


def with_bos(lm: Any, mode: str) -> Any:
    """The open model with the start token before every text if the mode is `add`.

    It gets its own copy of the tokenizer; the given model stays as it is.
    """
    if mode != "add" or lm.bos == "add":
        return lm
    from cutaway.models.digests import tokenizer_digest

    own = deepcopy(lm.tokenizer)
    set_start_token(own, lm.module.config, mode, kind=lm.kind, name=lm.name)
    others = tuple(one for one in lm.warnings if one.name != "start_token")
    return replace(
        lm, tokenizer=own, tokenizer_digest=tokenizer_digest(own), bos=mode, warnings=others
    )


def report_other_start(path: Path | str, made: Mapping[str, Any], lm: Any) -> None:
    """A message if an artefact was made with other tokens before each text than the model adds.

    `made` are the facts of its model; files of older versions don't record the tokens.
    """
    then, now = made.get("start_tokens"), tokens_in_front(lm.tokenizer)
    if then is None or list(then) == now:
        return
    show_message(
        f"Warning: {path} was made with {' '.join(then) or 'nothing'} before every text, and "
        f"{lm.name!r} now has {' '.join(now) or 'nothing'} there. Use "
        f"{'--bos add' if then else '--bos auto'}, or make it again."
    )


def need_same_bos(lm: Any, mode: str) -> None:
    """BadSpec if `add` is asked for and the open model doesn't add the start token."""
    if mode == "add" and lm.kind == "causal":
        start = start_token_id(lm.tokenizer, lm.module.config)
        if start is None or lm.tokenizer("a")["input_ids"][:1] != [start]:
            raise BadSpec(
                f"{lm.name!r} was opened with bos={lm.bos!r}, so bos='add' can't be applied to it. "
                "Open it with cutaway.open(..., bos='add')."
            )
