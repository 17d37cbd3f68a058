"""The request of the Live page."""

from typing import Any, Literal

from pydantic import Field, field_validator

from cutaway.core.spec import Spec

MAX_TEXT_LENGTH = 200_000
"""Maximum length of a text in characters; longer ones are truncated."""


class LiveSpec(Spec):
    """One sentence, and the shortcut, question and probe to apply."""

    text: str
    """The sentence; with `chat`, lines that begin with `user:`, `assistant:` or `system:` make a
    conversation."""
    chat: bool = False
    """Read the text in the model's chat template, up to where the assistant's reply begins."""
    system: str | None = None
    """System message of a conversation that has none."""
    bos: Literal["auto", "add"] = "auto"
    """Start token: auto leaves it to the tokenizer, add puts it before the text."""
    shortcut: str | None = None
    """Maps fitted on this model; without them the logit lens is used."""
    task: str | None = None
    """The task whose prompt and class words are used."""
    prompt: str = ""
    """The prompt after the sentence, if no task is given."""
    words: tuple[str, ...] = ()
    """One word per answer, if no task is given."""
    run: str | None = None
    """The folder of a probe run, whose probes are fitted again and applied."""
    data: str | None = None
    """Which of the run's data sets; default: the first."""
    pool: str | None = None
    """Which of the run's poolers; default: the first."""
    top: int = Field(default=5, ge=1, le=100)
    """Number of words per cell."""

    @field_validator("text")
    @classmethod
    def _not_empty(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("text is empty: type a sentence.")
        return value[:MAX_TEXT_LENGTH]

    @field_validator("words", mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        parts = value.split(",") if isinstance(value, str) else value
        return tuple(str(word).strip() for word in parts if str(word).strip())
