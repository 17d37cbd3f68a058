"""An open language model: what it is, and the few things every method asks of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cutaway.core.digest import digest_json
from cutaway.core.errors import Missing
from cutaway.models.anatomy import Anatomy, ModelKind


class _DecoderReached(Exception):
    """Carries the vector that reached the output embedding out of the head."""

    def __init__(self, vector: Tensor) -> None:
        super().__init__()
        self.vector = vector


@dataclass(frozen=True, eq=False)
class LM:
    """A language model with its tokenizer, opened by `open_model`.

    Layers: 0 is what enters the first block, `layers` (= L) what leaves the last one, before
    the final norm. `unembed(final_norm(h[L]))` are the model's logits.
    """

    name: str
    family: str
    kind: ModelKind
    layers: int
    width: int
    vocab: int
    parameters: int
    digest: str
    """Identity of the weights, adapter included."""
    tokenizer_digest: str
    context: int
    """The longest row of tokens it takes."""
    tied: bool
    """Input and output embedding are one matrix."""
    dtype: str
    attention: str
    """The attention kernel in use: sdpa or eager."""
    device: str
    anatomy: Anatomy
    module: Any
    tokenizer: Any
    has_head: bool = True
    """False when the checkpoint has no trained head: its logits would be noise."""
    token_types: bool = False
    """The tokenizer gives the second text of a pair token type 1, and the model reads it."""
    notes: tuple[str, ...] = ()
    """What the user should know about how it was opened."""
    opened: tuple[str, str] | None = None
    """Digest and print of its weights when it was opened; None when no print was made."""

    @property
    def identity(self) -> dict[str, Any]:
        """All of a model that can change a number; part of every run's address."""
        return {
            "weights": self.digest,
            "tokenizer": self.tokenizer_digest,
            "dtype": self.dtype,
            "attention": self.attention,
            "context": self.context,
            "segments": self.token_types,
        }

    @property
    def short_id(self) -> str:
        """The identity as one word, for keys of pieces and names of objects."""
        return digest_json(self.identity)[:16]

    def refresh_digest(self) -> "LM":
        """The model, known by what it is now: skills and users change weights in place.

        The digest is the opened one while weights are as they were opened, and again when they are
        so again; otherwise it is made of their bits. Nothing else of an LM ever changes but the
        names of the tokenizer and of the attention kernel, looked at here too.
        """
        from cutaway.models.digests import tokenizer_digest
        from cutaway.models.weight_checksum import module_checksum

        digest, opened = self.opened or (self.digest, "")
        found = module_checksum(self.module)
        now = digest if found == opened else digest_json({"opened": digest, "weights": found})
        for name, value in {
            "opened": (digest, opened),
            "digest": now,
            "tokenizer_digest": tokenizer_digest(self.tokenizer),
            "attention": str(self.module.config._attn_implementation),
        }.items():
            object.__setattr__(self, name, value)
        return self

    @property
    def pad_id(self) -> int:
        """The token that fills padded places; never seen by the model."""
        return int(self.tokenizer.pad_token_id)

    @property
    def body(self) -> nn.Module:
        """The model without its head."""
        body: nn.Module = self.module.base_model
        return body

    @cached_property
    def blocks(self) -> tuple[nn.Module, ...]:
        """The distinct blocks; a family that shares weights has fewer of them than layers."""
        return tuple(self.module.get_submodule(self.anatomy.blocks))

    @cached_property
    def decoder(self) -> nn.Module:
        """The last linear map, whose weight is the output embedding."""
        found: nn.Module = self.module.get_submodule(self.anatomy.decoder)
        return found

    def params(self) -> dict[str, Tensor]:
        """The weights by name; tied ones once."""
        return dict(self.module.named_parameters())

    def read(self, texts: Sequence[str], **options: Any) -> Any:
        """{layer: (n, d)} of pooled states; see `cutaway.models.read_texts.read_pooled_states` for the options."""
        from cutaway.models.read_texts import read_pooled_states

        return read_pooled_states(self, texts, **options)

    def final_norm(self, hidden: Float[Tensor, "... d"]) -> Float[Tensor, "... e"]:
        """What the body makes of layer L before it meets the head."""
        return self._chain(self.anatomy.final, hidden)

    def unembed(self, normed: Float[Tensor, "... e"]) -> Float[Tensor, "... vocab"]:
        """The logits of states that went through `final_norm`."""
        self.need_head()
        logits = self._chain(self.anatomy.head, normed)
        for operation, field in self.anatomy.logit_operations:
            logits = LOGIT_OPERATIONS[operation](logits, getattr(self.module.config, field, None))
        return logits

    def head_features(self, hidden: Float[Tensor, "... d"]) -> Float[Tensor, "... e"]:
        """The vector that meets the output embedding, from layer L.

        Causal models: after the final norm. Masked models: after the transform of the masked-LM
        head too.
        """
        normed = self.final_norm(hidden)
        if self.anatomy.head == (self.anatomy.decoder,):
            return normed
        self.need_head()
        return self._before_decoder(normed)

    @property
    def output_embedding(self) -> tuple[Float[Tensor, "vocab e"], Float[Tensor, " vocab"] | None]:
        """Phi and its bias: logits are Phi f + bias, but for what `anatomy.logit_operations` adds."""
        self.need_head()
        decoder: Any = self.decoder
        return decoder.weight, getattr(decoder, "bias", None)

    def need_head(self) -> None:
        """Missing unless the checkpoint came with a trained head."""
        if not self.has_head:
            raise Missing(
                f"{self.name!r} has no language-model head in its weights, so it has no logits. "
                "Use probe on its layers, or open the checkpoint it was made from."
            )

    def _chain(self, names: Sequence[str], state: Tensor) -> Tensor:
        """The state after each named module in turn; absent optional ones are skipped."""
        for name in names:
            module = optional_module(self.module, name)
            state = state if module is None else module(state)
        return state

    def _before_decoder(self, normed: Tensor) -> Tensor:
        """Run the head until it reaches the decoder, and take what would go in."""

        def meet(_: nn.Module, args: tuple[Tensor, ...]) -> None:
            raise _DecoderReached(args[0])

        handle = self.decoder.register_forward_pre_hook(meet)
        try:
            self._chain(self.anatomy.head, normed)
        except _DecoderReached as met:
            return met.vector
        finally:
            handle.remove()
        raise Missing(f"The head of {self.name!r} never calls {self.anatomy.decoder!r}.")


def optional_module(root: nn.Module, name: str) -> nn.Module | None:
    """The named module; a name ending in `?` may be absent or None."""
    if not name.endswith("?"):
        return root.get_submodule(name)
    parent, _, leaf = name.removesuffix("?").rpartition(".")
    return getattr(root.get_submodule(parent), leaf, None)


def _softcap(logits: Tensor, cap: float | None) -> Tensor:
    return logits if cap is None else torch.tanh(logits / cap) * cap


def _multiply(logits: Tensor, factor: float | None) -> Tensor:
    return logits if factor is None else logits * factor


def _divide(logits: Tensor, factor: float | None) -> Tensor:
    return logits if factor is None else logits / factor


LOGIT_OPERATIONS: dict[str, Callable[[Tensor, float | None], Tensor]] = {
    "softcap": _softcap,
    "multiply": _multiply,
    "divide": _divide,
}


def model_facts(lm: LM) -> dict[str, Any]:
    """What identifies the model in results and artefacts."""
    return {
        "name": lm.name,
        "family": lm.family,
        "layers": lm.layers,
        "width": lm.width,
        "parameters": lm.parameters,
        "digest": lm.digest,
    }
