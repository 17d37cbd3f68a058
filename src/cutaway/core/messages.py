"""Conversations: messages with a role and a content."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cutaway.core.errors import BadData

ROLES = ("system", "user", "assistant")


class Message(NamedTuple):
    """What one participant says."""

    role: str
    content: str


Conversation = tuple[Message, ...]


def parse_conversation(value: Any, where: str) -> Conversation:
    """The messages of a row, given as `{"role": ..., "content": ...}`; BadData says what is wrong.

    A dict with a list of roles and a list of contents, which the `datasets` library may return,
    is read too.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping) and {"role", "content"} <= set(value):
        pairs = zip(_listed(value["role"]), _listed(value["content"]), strict=False)
        value = [{"role": role, "content": content} for role, content in pairs]
    if not isinstance(value, Sequence) or isinstance(value, str | bytes) or not value:
        raise BadData(f"{where}: {_short(value)} is not a list of messages. {_SHAPE}")
    return tuple(_message(one, f"{where}, message {i}") for i, one in enumerate(value, start=1))


def is_blank(value: Any) -> bool:
    """Whether there is no message, or one without content; other faults are not looked for."""
    if value is None or (isinstance(value, Sequence) and not value):
        return True
    if not isinstance(value, Sequence) or isinstance(value, str):
        return False
    contents = [one.get("content", "") for one in value if isinstance(one, Mapping)]
    return any(c is None or (isinstance(c, str) and not c.strip()) for c in contents)


def conversation_text(messages: Conversation) -> str:
    """The contents one below the other: what baselines that count words read."""
    return "\n".join(message.content for message in messages)


def user_message(text: str) -> Conversation:
    """A plain text as a conversation: one message of the user."""
    return (Message("user", text),)


def conversation_from_lines(text: str) -> Conversation:
    """A conversation typed as text: a line that begins with `user:`, `assistant:` or `system:`
    begins a message. A text whose first line doesn't is one message of the user."""
    messages: list[Message] = []
    for line in text.strip().split("\n"):
        role, colon, rest = line.partition(":")
        if colon and role.strip().lower() in ROLES:
            messages.append(Message(role.strip().lower(), rest.strip()))
        elif not messages:
            return user_message(text)
        else:
            last = messages[-1]
            messages[-1] = Message(last.role, f"{last.content}\n{line}".strip())
    for number, message in enumerate(messages, start=1):
        if not message.content:
            raise BadData(f"Message {number} ({message.role}) is empty: write something after it.")
    return tuple(messages)


_SHAPE = 'Expected: [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}].'


def _message(value: Any, where: str) -> Message:
    if isinstance(value, Message):
        value = value._asdict()
    if not isinstance(value, Mapping) or not {"role", "content"} <= set(value):
        raise BadData(f"{where}: {_short(value)} has no role and content. {_SHAPE}")
    role, content = value["role"], value["content"]
    if role not in ROLES:
        raise BadData(f"{where}: unknown role {_short(role)}. Known roles: {', '.join(ROLES)}.")
    content = "" if content is None else content
    if not isinstance(content, str):
        raise BadData(f"{where}: the content is {_short(content)}, expected text.")
    if not content.strip():
        raise BadData(
            f"{where} ({role}) has no content. Fill it in, or drop such rows with drop_empty "
            "(--drop-empty, where the command has it)."
        )
    if any("\ud800" <= letter <= "\udfff" for letter in content):
        raise BadData(f"{where}: the content has a lone surrogate. Save the text as UTF-8.")
    extra = sorted(key for key, given in value.items() if given and key in _CHANGES_THE_PROMPT)
    if extra:
        raise BadData(
            f"{where} has {extra[0]!r}, which is not read: only role and content are. Remove it."
        )
    return Message(role, content)


# Keys that templates print; leaving them out would change what the model reads.
_CHANGES_THE_PROMPT = frozenset(
    {"tool_calls", "tool_call_id", "function_call", "thinking", "reasoning", "reasoning_content"}
)


def _listed(value: Any) -> list[Any]:
    if hasattr(value, "tolist"):
        value = value.tolist()
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:59] + "…"
