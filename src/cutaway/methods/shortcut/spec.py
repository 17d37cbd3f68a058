"""The specs of `cutaway shortcut fit | eval | exit | generate | lens`."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from cutaway.core.model_size import ModelSize
from cutaway.recipe.options import ChatOptions, Names, SamplesOption


def _as_tuple(value: Any) -> Any:
    """One text or several; prompts are not split at commas."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _layer_numbers(value: Any) -> Any:
    """Layer numbers from `6,12`, from a list, or from one number."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    pieces = [piece.strip() for part in parts for piece in str(part).split(",")]
    wrong = [piece for piece in pieces if piece and not piece.isdecimal()]
    if wrong:
        raise ValueError(f"exit_layers must be numbers such as 6,12, got {wrong[0]!r}.")
    return tuple(sorted({int(piece) for piece in pieces if piece}))


PromptTexts = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]
LayerNumbers = Annotated[tuple[int, ...], BeforeValidator(_layer_numbers)]
BUFFER_ROWS = 4096
"""Rows of every layer that a fit holds; the same as in its products."""


class ShortcutSpec(ChatOptions):
    """The options of every verb of shortcut."""

    model: str
    """The model: a bundled name, a hub id, a folder, a GGUF file, or base+adapter."""
    revision: str | None = None
    """Branch, tag or commit of a hub model."""


class TextSampleSpec(ShortcutSpec):
    """Texts, and how examples are sampled from them."""

    text: str = "docs"
    """Texts: the bundled docs, a file, a folder, hf:ID."""
    text_column: str | None = None
    """Column with the text, when not one of the usual names."""
    limit: int | None = Field(default=12_000, ge=2)
    """Use at most this many texts, drawn with the seed."""
    positions_per_text: int = Field(default=1, ge=1)
    """Random token positions sampled from each text (the paper: 1)."""
    max_tokens: int | None = Field(default=None, ge=2)
    """Truncate texts to this many tokens; to the model's context otherwise."""
    held_out: float = Field(default=0.25, gt=0, lt=1)
    """Share of the texts held out for measuring."""


class FitSpec(TextSampleSpec):
    """Fit linear maps between all layers of a model, in one streaming pass over the texts."""

    layers: Literal["all", "to-final", "final-and-next"] = "all"
    """Every pair of layers i < j, only those that end in the last layer, or those and the
    neighbours."""
    intercept: bool = False
    """Also fit maps with an intercept (kind affine)."""
    ridge: Literal["auto"] | float | None = None
    """Also fit maps with this ridge penalty (kind ridge); auto chooses by cross-validation."""
    rank: int | None = Field(default=None, ge=1)
    """Also fit maps of this rank (kind lowrank)."""
    tuned: int = Field(default=0, ge=0)
    """Also train maps on the final distribution (kind tuned, the tuned lens), N steps each."""
    drafts: int = Field(default=0, ge=0)
    """Also fit maps that draft tokens (kind ahead), on the model's continuations of N texts."""
    parts: bool = False
    """Also fit one map per part of each block: norm1, attn, norm2, mlp."""
    precise: bool = False
    """Compute all products in float64: twice the time, for ill-conditioned layers."""
    out: str | None = None
    """File to write the maps to (FILE.safetensors); the run's folder otherwise."""

    def work_bytes(self, size: ModelSize) -> int:
        """Those of a forward pass, and the products of all pairs of layers with their rows."""
        every = size.layers * (size.layers + 1) // 2
        pairs = {"all": every, "to-final": size.layers}.get(self.layers, 2 * size.layers - 1)
        rows = min((self.limit or BUFFER_ROWS) * self.positions_per_text, BUFFER_ROWS)
        buffer = 4 * rows * size.width * (size.layers + 3)
        return size.reading() + 8 * (pairs + size.layers + 2) * size.width**2 + buffer


class EvalSpec(TextSampleSpec, SamplesOption):
    """How close each layer is to the final prediction, through each kind of map."""

    shortcut: str
    """The maps: a file written by `shortcut fit`."""
    kinds: Names = ("all",)
    """Kinds of maps: id mat affine ridge lowrank tuned, or all that the file has."""
    parts: bool = True
    """Also measure blocks with norms, attention or MLP replaced by maps (if the file has parts)."""
    schedules: bool = False
    """Also measure schedules that run some blocks and skip the others."""


class ExitSpec(TextSampleSpec, SamplesOption):
    """How many layers an early exit saves, and how often it agrees with the full model."""

    shortcut: str
    """The maps: a file written by `shortcut fit`."""
    kinds: Names = ("id", "mat")
    """Kinds of maps to predict with: id mat affine ridge lowrank tuned, or all."""
    confidence: Names = ("gap", "max", "entropy")
    """Confidence measures: gap (of the top two probabilities), max (the top one), entropy."""
    agreement: float | None = Field(default=None, gt=0, lt=1)
    """Calibrate lambda so that this share of tokens agrees with the full model."""
    risk: float = Field(default=0.05, gt=0, lt=1)
    """Probability that the guarantee of --agreement fails."""


class GenerateSpec(ShortcutSpec):
    """Generate text with early exit, or with lossless self-speculation."""

    REPLY: ClassVar[bool] = True

    shortcut: str
    """The maps: a file written by `shortcut fit`."""
    prompt: PromptTexts
    """Text to continue; several prompts are allowed. With --chat the model answers it; lines that
    begin with `user:`, `assistant:` or `system:` make a conversation."""
    max_new_tokens: int = Field(default=64, ge=1)
    """Maximum number of new tokens."""
    mode: Literal["exit", "speculative"] = "speculative"
    """exit: stop at a confident layer; speculative: draft early, verify with the full model."""
    kind: str = "auto"
    """Kind of map: id mat affine ridge lowrank tuned, or ahead to draft; auto: the best."""
    exit_layers: LayerNumbers = ()
    """Layers to exit at (default: after half and three quarters of the blocks), or to draft from
    (default: chosen by measurement)."""
    draft: int | None = Field(default=None, ge=1, le=32)
    """Tokens drafted before each verification (default: chosen by measurement)."""
    lambda_value: float = 0.9
    """Threshold of an exit: the lambda of the paper (mode exit)."""
    sample: bool = False
    """Sample from the model's distribution instead of taking the most likely token."""
    temperature: float = Field(default=1.0, gt=0)
    """Sampling temperature (with --sample)."""
    compare: bool = False
    """Also generate each text with transformers' generate, in turn, to compare text and speed."""


class LensSpec(ShortcutSpec):
    """The prediction of every layer at every token of a text."""

    REPLY: ClassVar[bool] = True

    model: str = "smollm2-135m"
    """The model: a bundled name, a hub id, a folder, a GGUF file, or base+adapter."""

    shortcut: str | None = None
    """The maps: a file written by `shortcut fit`; without it only the logit lens (id)."""
    text: str
    """The text. With --chat, lines that begin with `user:`, `assistant:` or `system:` make a
    conversation."""
    kinds: Names = ("id", "mat")
    """Kinds of maps to predict with."""
    layers: str = "all"
    """Layers to show: all, or 0,6,12."""
    top: int = Field(default=10, ge=1, le=100)
    """How many tokens to list per cell."""
    html: str | None = None
    """Write the grid as a web page to this file."""
