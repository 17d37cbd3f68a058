"""An open language model: its facts, its head, its weights."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from cutaway.core.digest import digest_json
from cutaway.core.errors import Missing
from cutaway.models.anatomy import Anatomy, ModelKind
from cutaway.models.chat import ChatFormat
from cutaway.models.model_warnings import ModelWarning
from cutaway.models.placement import materialise
from cutaway.models.start_token import tokens_in_front
from cutaway.pool import Pooler

if TYPE_CHECKING:
    from cutaway.models.token_states import SiteChoice


class _DecoderReached(Exception):
    """Carries the input of the output embedding out of the head."""

    def __init__(self, vector: Tensor) -> None:
        super().__init__()
        self.vector = vector


@dataclass(frozen=True, eq=False)
class LM:
    """A language model with its tokenizer, opened by `open_model`.

    Layer 0 is the input of the first block, layer `layers` (= L) the output of the last one, before
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
    """Digest of the weights, adapter included."""
    tokenizer_digest: str
    context: int
    """The context length in tokens."""
    tied: bool
    """Whether input and output embedding are one matrix."""
    dtype: str
    attention: str
    """The attention kernel in use: sdpa or eager."""
    device: str
    """The device that takes the token ids, and to which all states are gathered."""
    anatomy: Anatomy
    module: Any
    tokenizer: Any
    bos: str = "auto"
    """How the start token is treated: auto, add or keep; what `add` changes is in the tokenizer."""
    device_map: Mapping[str, str] = field(default_factory=dict)
    """The device of each part, when the model is distributed over several."""
    quantise: str = "none"
    """Precision of the linear layers' weights when it isn't `dtype`: int8 or int4."""
    has_head: bool = True
    """False when the checkpoint has no trained head: its logits would be noise."""
    token_types: bool = False
    """Whether the second text of a pair has token type 1."""
    notes: tuple[str, ...] = ()
    """Anything unusual about how it was opened, for the user."""
    warnings: tuple[ModelWarning, ...] = ()
    """What the user should know before trusting a number."""
    opened: tuple[str, str] | None = None
    """Digest, and checksum of the weights when it was opened; None when changes aren't tracked."""
    chat: ChatFormat | None = None
    """How texts and conversations are put into the chat template; None reads plain text."""

    @property
    def identity(self) -> dict[str, Any]:
        """Everything about the model that can change a number; part of every run's address."""
        return {
            "weights": self.digest,
            "tokenizer": self.tokenizer_digest,
            "dtype": self.dtype,
            "attention": self.attention,
            "context": self.context,
            "segments": self.token_types,
            **self.reading_identity,
        }

    @property
    def reading_identity(self) -> dict[str, Any]:
        """What quantised layers and a chat template add to an identity; nothing without them."""
        quantised = {} if self.quantise == "none" else {"quantise": self.quantise}
        return quantised | ({} if self.chat is None else {"chat": self.chat.identity})

    @property
    def short_id(self) -> str:
        """The identity as a short digest, for keys of pieces and names of objects."""
        return digest_json(self.identity)[:16]

    def refresh_digest(self) -> "LM":
        """Update the digests after weights were changed in place, by a skill or by the user.

        While the weights are as they were when opened, the digest is that of the checkpoint;
        otherwise it is computed from their bits. The tokenizer's digest and the attention kernel
        are updated too.
        """
        from cutaway.models.digests import module_checksum, tokenizer_digest

        digest, opened = self.opened or (self.digest, "")
        current = module_checksum(self.module)
        changed = digest_json({"opened": digest, "weights": current})
        for name, value in {
            "opened": (digest, opened),
            "digest": digest if current == opened else changed,
            "tokenizer_digest": tokenizer_digest(self.tokenizer),
            "attention": str(self.module.config._attn_implementation),
        }.items():
            object.__setattr__(self, name, value)
        return self

    @property
    def pad_id(self) -> int:
        """The token used for padding; always masked."""
        return int(self.tokenizer.pad_token_id)

    @property
    def body(self) -> nn.Module:
        """The model without its head."""
        return model_body(self.module, self.anatomy.blocks)

    @cached_property
    def blocks(self) -> tuple[nn.Module, ...]:
        """The distinct blocks; fewer than layers in a family that shares weights."""
        return tuple(self.module.get_submodule(self.anatomy.blocks))

    @cached_property
    def decoder(self) -> nn.Module:
        """The last linear layer, whose weight is the output embedding."""
        decoder: nn.Module = self.module.get_submodule(self.anatomy.decoder)
        return decoder

    def params(self) -> dict[str, Tensor]:
        """The weights by name; tied ones once."""
        return dict(self.module.named_parameters())

    def read(
        self,
        texts: str | Sequence[Any],
        *,
        layers: str | int | Sequence[int] = "all",
        pool: str | Pooler | Sequence[str | Pooler] | None = "last",
        sites: "SiteChoice" = (),
        pairs: str | Sequence[str] | None = None,
        prompt: str = "",
        limit: int | None = None,
        batch_tokens: int = 1024,
    ) -> Any:
        """Pooled hidden states {layer: (n, d)}; for several poolers {pooler: {layer: (n, d)}}.

        With `pool=None` the states of every token, as `TokenStates`.

        Parameters
        ----------
        texts
            The texts to read; a single string is one text. For a model opened with `chat=True` also
            conversations, each a list of `{"role": ..., "content": ...}`.
        layers
            "all", a number, numbers, or "0,6,12".
        pool
            A pooler such as "last", "mean", "q0.4" or "attn", a `Pooler`, several,
            or None for every token.
        sites
            With `pool=None`, places inside the blocks of the layers: "attn", "mlp", "norm1",
            "norm2" (outputs), "mlp.in" (an input), "6.attn" (one block), or `Site` objects.
        pairs
            The second text of each row.
        prompt
            Text appended to every text.
        limit
            Truncate to this many tokens; default: the context length.
        batch_tokens
            About this many tokens run through the model together.
        """
        from cutaway.models.read_texts import read_states

        return read_states(
            self, texts, layers=layers, pool=pool, sites=sites, pairs=pairs, prompt=prompt,
            limit=limit, batch_tokens=batch_tokens,
        )  # fmt: skip

    def final_norm(self, hidden: Float[Tensor, "... d"]) -> Float[Tensor, "... e"]:
        """The input of the head from layer L: the final norm, and what else the body does there."""
        return self._chain(self.anatomy.final, hidden)

    def unembed(self, normed: Float[Tensor, "... e"]) -> Float[Tensor, "... vocab"]:
        """The logits of states after `final_norm`."""
        self.need_head()
        return self.transform_logits(self._chain(self.anatomy.head, self._for_head(normed)))

    def transform_logits(self, logits: Float[Tensor, "... vocab"]) -> Float[Tensor, "... vocab"]:
        """What the family does to the logits after the decoder: soft-capping, scaling."""
        for operation, name in self.anatomy.logit_operations:
            value = getattr(self.module.config.get_text_config(), name, None)
            logits = logits if value is None else LOGIT_OPERATIONS[operation](logits, value)
        return logits

    def head_features(self, hidden: Float[Tensor, "... d"]) -> Float[Tensor, "... e"]:
        """The input of the output embedding, from layer L.

        Causal models: after the final norm. Masked models: also after the transform of the
        masked-LM head.
        """
        normed = self._for_head(self.final_norm(hidden))
        if self.anatomy.head == (self.anatomy.decoder,):
            return normed
        self.need_head()
        return self._before_decoder(normed)

    @property
    def output_embedding(self) -> tuple[Float[Tensor, "vocab e"], Float[Tensor, " vocab"] | None]:
        """Phi and its bias: logits are Phi f + bias, before `anatomy.logit_operations`."""
        self.need_head()
        weight, bias = (materialise(self.decoder, name, self.device) for name in ("weight", "bias"))
        if self.anatomy.decoder_rest is not None:
            rest = self.module.get_submodule(self.anatomy.decoder_rest)
            weight = torch.cat([weight, materialise(rest, "weight", self.device).T], dim=1)
        if self.anatomy.decoder_bias is not None:
            holder, _, name = self.anatomy.decoder_bias.rpartition(".")
            bias = materialise(self.module.get_submodule(holder), name, self.device)
        return weight, bias

    def need_head(self) -> None:
        """Missing unless the checkpoint has a trained head."""
        if not self.has_head:
            raise Missing(
                f"{self.name!r} has no language-model head in its weights, so it has no logits. "
                "Use probe on its layers, or open the checkpoint it was made from."
            )

    def _for_head(self, normed: Tensor) -> Tensor:
        """The states in the decoder's precision: some families (mamba) keep theirs in float32."""
        dtype = self.decoder.weight.dtype
        return (
            normed.to(dtype)
            if isinstance(dtype, torch.dtype) and dtype.is_floating_point
            else normed
        )

    def _chain(self, names: Sequence[str], state: Tensor) -> Tensor:
        """The state after each named module in turn; absent optional ones are skipped."""
        here = state.device
        for name in names:
            module = optional_module(self.module, name)
            state = state if module is None else module(state)
        return state.to(here)

    def _before_decoder(self, normed: Tensor) -> Tensor:
        """Run the head up to the decoder and return the decoder's input."""

        def stop(_: nn.Module, args: tuple[Tensor, ...]) -> None:
            raise _DecoderReached(args[0])

        def stop_after(_: nn.Module, args: Any, output: Tensor) -> None:
            raise _DecoderReached(output)

        if self.anatomy.features is None:
            handle = self.decoder.register_forward_pre_hook(stop)
        else:
            last = self.module.get_submodule(self.anatomy.features)
            handle = last.register_forward_hook(stop_after)
        try:
            self._chain(self.anatomy.head, normed)
        except _DecoderReached as reached:
            return reached.vector.to(normed.device)
        finally:
            handle.remove()
        raise Missing(f"The head of {self.name!r} never calls {self.anatomy.decoder!r}.")


def model_body(module: Any, blocks: str) -> nn.Module:
    """The module that computes the hidden states; `blocks` is the name of its list of blocks.

    Where transformers names no body (llama4's text model), it is the child that has the blocks.
    """
    body: nn.Module = module.base_model
    return body if body is not module else module.get_submodule(blocks.split(".")[0])


def optional_module(root: nn.Module, name: str) -> nn.Module | None:
    """The named module; a name ending in `?` may be absent or None."""
    if not name.endswith("?"):
        return root.get_submodule(name)
    parent, _, leaf = name.removesuffix("?").rpartition(".")
    return getattr(root.get_submodule(parent), leaf, None)


LOGIT_OPERATIONS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "softcap": lambda logits, cap: torch.tanh(logits / cap) * cap,
    "multiply": lambda logits, factor: logits * factor,
    "divide": lambda logits, factor: logits / factor,
}


def model_facts(lm: LM) -> dict[str, Any]:
    """The model as results and artefacts record it."""
    names = ("name", "family", "layers", "width", "parameters", "digest", "bos")
    return {name: getattr(lm, name) for name in names} | {
        "start_tokens": tokens_in_front(lm.tokenizer),
        "warnings": [asdict(one) for one in lm.warnings],
        **lm.reading_identity,
    }
