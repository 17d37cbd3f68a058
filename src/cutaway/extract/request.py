"""What one forward pass over the texts should return, and the key it is stored under."""

from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal

from cutaway.core.digest import digest_rows
from cutaway.core.textset import TextSet
from cutaway.models.lm import LM
from cutaway.pool import needs_attention
from cutaway.store.activations import ActivationTable

InputMode = Literal["plain", "cut", "mask"]


@dataclass(frozen=True)
class ExtractionRequest:
    """Everything a pass should store, and everything that can change its numbers.

    input_mode: `plain` reads the texts as they are; `cut` marks seeded random positions (in causal
    models the state there is that of the prefix that ends there); `mask` puts [MASK] at them.
    heads: `final` (the input of the output embedding), `logz` (log-partition), `next` (most likely
    next token, its probability, the entropy), each at the pooled position.
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

    def columns(self) -> dict[str, tuple[str, str]]:
        """Stored name -> (layer or head, pooler)."""
        sources = [*map(str, self.layers), *self.heads]
        return {f"{source}/{pool}": (source, pool) for source in sources for pool in self.pools}

    def missing_columns(self, table: ActivationTable) -> dict[str, tuple[str, str]]:
        """The columns that the table doesn't have yet."""
        there = table.columns()
        return {name: column for name, column in self.columns().items() if name not in there}

    def key(self, lm: LM, texts: TextSet) -> dict[str, Any]:
        """The identity of the stored rows: everything that can change a number.

        Layers, heads and poolers are columns of the same table, so they are no part of it, except
        that a pooler that needs attention weights makes the whole pass use the eager kernel.
        """
        marked = self.input_mode != "plain"
        return {
            "model": lm.name,
            "weights": lm.digest,
            "family": lm.family,
            "dtype": str(lm.dtype),
            "attention": "eager" if needs_attention(self.pools) else lm.attention,
            "tokenizer": lm.tokenizer_digest,
            "prompt": self.prompt,
            "max_tokens": min(self.max_tokens or lm.context, lm.context),
            "cut": self.truncation,
            "window": self.window,
            "feed": self.input_mode,
            "positions": self.positions if marked else 0,
            "seed": self.seed if marked else 0,
            "keep": self.stored_dtype,
            "rows": digest_rows([*texts.texts, *(texts.pairs or ())]),
            "paired": texts.pairs is not None,
            "transformers": version("transformers"),
            "layout": 2,
        }
