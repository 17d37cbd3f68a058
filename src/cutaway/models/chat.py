"""The chat template of a tokenizer: conversations as text, and where each message is in it.

A message's place is found by comparing: the conversation is rendered again with two other contents
in its place. What these two renders share is the template's; the rest of the original is what the
template made of the content. Nothing here knows a family or a template.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cutaway.core.digest import digest_text
from cutaway.core.errors import BadData, BadSpec
from cutaway.core.messages import ROLES, Conversation, Message
from cutaway.pool import PLACE_CODES

if TYPE_CHECKING:
    from cutaway.models.lm import LM

Span = tuple[int, int]
TEMPLATE_DATE = datetime(2024, 7, 26)
"""The day on which every template is rendered. Templates that print today's date would make the
same command give other numbers tomorrow; this is the date that Llama's templates print when they
can't ask for today's."""
STAND_INS = ("\ue000\ue001", "\ue002\ue003")
"""Contents that no text has: private characters."""
_DATE_CALL = re.compile(r"strftime_now\(\s*(['\"])(.*?)\1\s*\)")
_ERROR_LENGTH = 200


@dataclass(frozen=True)
class ChatFormat:
    """How a model reads conversations: its template, and the system message put before them."""

    template: str
    """The template, its calls for today's date replaced by `TEMPLATE_DATE`."""
    system: str | None = None
    """The system message of conversations that have none."""
    reply: bool = False
    """Whether the text ends where the assistant's reply begins, or goes on."""
    dated: bool = False
    """Whether the template prints the date."""

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that can change a number."""
        return {
            "template": digest_text(self.template), "system": self.system, "reply": self.reply,
            **({"date": TEMPLATE_DATE.date().isoformat()} if self.dated else {}),
        }  # fmt: skip


@dataclass(frozen=True)
class RenderedChat:
    """A conversation as the model reads it, and where the content of each message is."""

    text: str
    roles: tuple[str, ...]
    spans: tuple[Span | None, ...]
    """From the first to after the last character, of each message; None where the template
    changes the content, so that its place isn't certain."""


def with_chat(lm: LM, *, system: str | None = None, reply: bool = False) -> LM:
    """The model with its tokenizer's chat template applied to everything that it reads."""
    if lm.kind != "causal":
        raise BadSpec(f"chat: {lm.name!r} is a masked model, which reads no conversations.")
    template = chat_template(lm.tokenizer)
    if template is None:
        raise BadSpec(
            f"chat: the tokenizer of {lm.name!r} has no chat template. Leave --chat out, or use "
            "the Instruct or chat version of the model."
        )
    pinned = _DATE_CALL.sub(lambda call: repr(TEMPLATE_DATE.strftime(call[2])), template)
    if "strftime_now(" in pinned or re.search(r"\|\s*random\b", pinned):
        raise BadSpec(
            f"chat: the chat template of {lm.name!r} changes from one time to the next (a date in "
            "a format that isn't written out, or a random choice): runs could not be repeated. "
            "Set another template in the tokenizer."
        )
    return replace(lm, chat=ChatFormat(pinned, system, reply, dated=pinned != template))


def chat_template(tokenizer: Any) -> str | None:
    """The text of the tokenizer's template, the one called `default` of several; None without."""
    try:
        return str(tokenizer.get_chat_template())
    except (ValueError, AttributeError):
        return None


def render_chat(
    lm: LM, conversation: Conversation, prompt: str = "", *, where: str = "The conversation"
) -> RenderedChat:
    """The conversation in the model's template; BadData, naming `where`, if that is refused.

    A prompt is the beginning of the assistant's reply: it continues a last message by the
    assistant, or begins a new one. With it, and for a format with `reply`, the text ends where the
    model goes on writing. With bos='add' a template that writes no start token gets it.
    """
    assert lm.chat is not None
    messages, prompt = list(conversation), prompt.rstrip()
    if lm.chat.system is not None and messages[0].role != "system":
        messages.insert(0, Message("system", lm.chat.system))
    own = len(messages)
    continued = (lm.chat.reply or bool(prompt)) and messages[-1].role == "assistant"
    if continued:
        messages[-1] = Message("assistant", messages[-1].content + prompt)
    elif prompt:
        messages.append(Message("assistant", prompt.lstrip()))
    ends_in_reply = continued or bool(prompt)
    template = _Template(lm, add_generation_prompt=lm.chat.reply and not ends_in_reply)
    text = template.render(messages, where)
    spans = [template.span(messages, i, text, where) for i in range(len(messages))]
    if ends_in_reply:
        if spans[-1] is None:
            raise BadData(
                f"{where}: the chat template of {lm.name!r} changes the assistant's reply "
                f"{messages[-1].content[:40]!r}, so that it can't be continued. Leave it out."
            )
        text = text[: spans[-1][1]]
    if continued and prompt:
        # The prompt is no part of the message.
        start, end = spans[-1] or (0, 0)
        spans[-1] = (start, max(end - len(prompt), start))
    front = _missing_start(lm, text)
    moved = [
        None if span is None else (span[0] + len(front), span[1] + len(front)) for span in spans
    ]
    return RenderedChat(front + text, tuple(m.role for m in messages[:own]), tuple(moved[:own]))


def _missing_start(lm: LM, text: str) -> str:
    """The start token, if it is to be added (bos='add') and the template didn't write it."""
    token = lm.tokenizer.bos_token if lm.bos == "add" else None
    return "" if not token or text.startswith(token) else str(token)


@dataclass(frozen=True)
class _Template:
    """The template of a model with one choice of the generation prompt."""

    lm: LM
    add_generation_prompt: bool

    def render(self, messages: Sequence[Message], where: str) -> str:
        try:
            return self._text(messages)
        except Exception as error:  # a template can raise anything
            reason = " ".join(str(error).split())[:_ERROR_LENGTH].rstrip(".")
            reason = reason or type(error).__name__
            roles = ", ".join(message.role for message in messages)
            raise BadData(
                f"{where} (roles: {roles}) is refused by the chat template of {self.lm.name!r}: "
                f"{reason}. Change the messages, or leave --system out if that is the reason."
            ) from None

    def span(self, messages: Sequence[Message], number: int, text: str, where: str) -> Span | None:
        """Where the content of a message is in `text`; None if that isn't certain."""
        message, before, after = messages[number], messages[:number], messages[number + 1 :]
        try:
            one, two = (
                self._text([*before, Message(message.role, mark), *after]) for mark in STAND_INS
            )
        except Exception:  # the template looks at the content
            return None
        if one == two:
            raise BadData(
                f"{where}: the chat template of {self.lm.name!r} leaves out message {number + 1} "
                f"({message.role}, {message.content[:40]!r}), so the model would not read it. "
                "Remove it, or leave --system out if it comes from there."
            )
        before_it, _, after_it = one.partition(STAND_INS[0])
        start, end = len(before_it), len(text) - len(after_it)
        once = one.count(STAND_INS[0]) == 1 and one.replace(*STAND_INS) == two
        same = text.startswith(before_it) and text.endswith(after_it) and start < end
        found = text[start:end] if once and same else ""
        # Trimmed is fine, changed is not: something of the template could be among it.
        return (start, end) if found and found in message.content else None

    def _text(self, messages: Sequence[Message]) -> str:
        assert self.lm.chat is not None
        rendered: str = self.lm.tokenizer.apply_chat_template(
            [message._asdict() for message in messages],
            chat_template=self.lm.chat.template,
            tokenize=False,
            add_generation_prompt=self.add_generation_prompt,
        )
        return rendered


def message_of_tokens(offsets: Sequence[Span], spans: Sequence[Span | None]) -> NDArray[np.int64]:
    """The number of the message whose content each token has a character of; -1 for the template's.

    Some tokenizers give white space no characters; such a token has the gap between its neighbours.
    """
    owner = np.full(len(offsets), -1, np.int64)
    bounds = np.array(offsets, np.int64).reshape(-1, 2)
    for i in np.flatnonzero(bounds[:, 0] == bounds[:, 1]).tolist():
        later = (start for start, end in offsets[i + 1 :] if end > start)
        bounds[i] = (bounds[i - 1, 1] if i else 0, next(later, bounds[i, 1]))
    for number, span in enumerate(spans):
        if span is not None:
            owner[(bounds[:, 0] < span[1]) & (bounds[:, 1] > span[0])] = number
    return owner


def place_codes(owner: NDArray[np.int64], roles: Sequence[str]) -> NDArray[np.int8]:
    """The code of each token's place, as poolers name it."""
    codes = np.array([PLACE_CODES[role] for role in roles] + [0], np.int8)
    return codes[owner]


def template_facts(lm: LM) -> dict[str, Any] | None:
    """What `cutaway check` prints about the template; None for a tokenizer without one."""
    if chat_template(lm.tokenizer) is None or lm.kind != "causal":
        return None
    lm = with_chat(lm, reply=True)
    assert lm.chat is not None
    conversation = (Message("user", "a"),)
    facts: dict[str, Any] = {"digest": digest_text(lm.chat.template)}
    try:
        text = render_chat(lm, conversation).text
        ids = lm.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    except BadData as error:
        return {**facts, "error": str(error)}
    special = {*lm.tokenizer.all_special_ids, *lm.tokenizer.added_tokens_decoder}
    used = dict.fromkeys(token for token in ids if token in special)
    return {
        **facts,
        "special_tokens": lm.tokenizer.convert_ids_to_tokens(list(used)),
        "example": text,
        "roles": [role for role in ROLES if _reads_role(lm, role)],
        "date": TEMPLATE_DATE.date().isoformat() if lm.chat.dated else None,
    }


def _reads_role(lm: LM, role: str) -> bool:
    """Whether the template prints a message of this role."""
    asked = Message("user", "a")
    messages = {"system": (Message("system", "b"), asked), "user": (asked,)}
    try:
        render_chat(lm, messages.get(role, (asked, Message("assistant", "b"))))
    except BadData:
        return False
    return True
