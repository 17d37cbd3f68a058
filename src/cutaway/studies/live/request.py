"""What is asked about one sentence."""

from typing import Any

from pydantic import Field, field_validator

from cutaway.core.spec import Spec

MAX_TEXT_LENGTH = 200_000
"""Characters of a text that are looked at; the rest could not change what is shown."""


class LiveSpec(Spec):
    """One sentence and what to look at it with."""

    text: str
    """The sentence."""
    shortcut: str | None = None
    """Maps fitted on this model; without them a layer is read as it is."""
    task: str | None = None
    """The task whose prompt and class words are used."""
    prompt: str = ""
    """What is appended before the answer is read, when no task is named."""
    words: tuple[str, ...] = ()
    """One word for each answer, when no task is named."""
    run: str | None = None
    """The folder of a probe run: its probes are fitted again and read the sentence."""
    data: str | None = None
    """Which of the run's sets; the first unless given."""
    pool: str | None = None
    """Which of the run's poolers; the first unless given."""
    top: int = Field(default=5, ge=1, le=100)
    """How many words of each cell are told."""

    @field_validator("text")
    @classmethod
    def _something(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("text is empty: type a sentence.")
        return value[:MAX_TEXT_LENGTH]

    @field_validator("words", mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        parts = value.split(",") if isinstance(value, str) else value
        return tuple(str(word).strip() for word in parts if str(word).strip())
