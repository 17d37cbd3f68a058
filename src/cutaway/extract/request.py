"""What one pass over the texts should give: layers, poolers, and how the texts are fed."""

from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Literal

from cutaway.core.digest import digest_rows
from cutaway.core.textset import TextSet
from cutaway.models.lm import LM

InputMode = Literal["plain", "cut", "mask"]


@dataclass(frozen=True)
class ExtractionRequest:
    """Everything a pass should keep, and everything that can change its numbers.

    feed: `plain` reads the texts as they are; `cut` marks seeded random positions (causal
    models: the state there is that of the prefix cut after it); `mask` puts [MASK] at them.
    heads: `final` (the vector that meets the output embedding), `logz` (log-partition),
    `next` (likeliest next token, its probability, the entropy), taken at each pooled position.
    """

    layers: tuple[int, ...]
    pools: tuple[str, ...] = ("last",)
    heads: tuple[str, ...] = ()
    prompt: str = ""
    max_tokens: int | None = None
    truncation: Literal["right", "left"] = "right"
    input_mode: InputMode = "plain"
    positions: int = 1
    seed: int = 0
    stored_dtype: str = "float32"
    window: int | None = None
    notes: dict[str, Any] = field(default_factory=dict, compare=False)

    def columns(self) -> dict[str, tuple[str, str]]:
        """Stored name -> (layer or head, pooler), for everything asked for."""
        sources = [*map(str, self.layers), *self.heads]
        return {f"{source}/{pool}": (source, pool) for source in sources for pool in self.pools}

    def key(self, lm: LM, texts: TextSet) -> dict[str, Any]:
        """The identity of the stored rows: all that can change a number, nothing else.

        Layers, heads and poolers are columns on the same shelf, so they are not part of it.
        """
        return {
            "model": lm.name,
            "weights": lm.digest,
            "family": lm.family,
            "dtype": str(lm.dtype),
            "attention": lm.attention,
            "tokenizer": lm.tokenizer_digest,
            "prompt": self.prompt,
            "max_tokens": min(self.max_tokens or lm.context, lm.context),
            "cut": self.truncation,
            "window": self.window,
            "feed": self.input_mode,
            "positions": self.positions if self.input_mode != "plain" else 0,
            "seed": self.seed if self.input_mode != "plain" else 0,
            "keep": self.stored_dtype,
            "rows": digest_rows([*texts.texts, *(texts.pairs or ())]),
            "paired": texts.pairs is not None,
            "transformers": version("transformers"),
            "layout": 2,
        }
