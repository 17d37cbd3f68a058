"""The specs of `cutaway shortcut fit | eval | exit | generate | lens`."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from cutaway.recipe.options import Names, RunOptions


def _as_tuple(value: Any) -> Any:
    """One text or several; a prompt may have commas in it, so it is never split."""
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


class ShortcutSpec(RunOptions):
    """What every verb of shortcut shares: the model, and the file with its matrices."""

    model: str
    """The model: a bundled name, a hub id, a folder, or base+adapter."""
    revision: str | None = None
    """Branch, tag or commit of a hub model."""


class TextSampleSpec(ShortcutSpec):
    """How texts become examples."""

    text: str = "docs"
    """Sentences: the bundled docs, a file, a folder, hf:ID."""
    text_column: str | None = None
    """Column with the text, when not one of the usual names."""
    limit: int | None = Field(default=12_000, ge=2)
    """Use at most this many texts, drawn with the seed."""
    positions_per_text: int = Field(default=1, ge=1)
    """Random token positions looked at in each text (the paper: 1)."""
    max_tokens: int | None = Field(default=None, ge=2)
    """Cut texts to this many tokens; the model's context otherwise."""
    held_out: float = Field(default=0.25, gt=0, lt=1)
    """Share of the texts kept for measuring."""


class FitSpec(TextSampleSpec):
    """All layer-to-layer maps of a model, fitted in one streaming pass."""

    layers: Literal["all", "to-final"] = "all"
    """Every pair of layers i < j, or only those that end in the last layer."""
    intercept: bool = False
    """Fit also maps with an intercept (kind affine)."""
    ridge: Literal["auto"] | float | None = None
    """Fit also maps with this penalty (kind ridge); auto chooses by cross-validation."""
    rank: int | None = Field(default=None, ge=1)
    """Fit also maps of this rank (kind lowrank)."""
    tuned: int = Field(default=0, ge=0)
    """Fit also maps trained on the final distribution (kind tuned), with so many steps each."""
    drafts: int = Field(default=0, ge=0)
    """Fit also maps that draft (kind ahead), on the model's own continuations of so many texts."""
    parts: bool = False
    """Fit also one map per part of each block: norm1, attn, norm2, mlp."""
    precise: bool = False
    """Take all products in float64: twice the time, for badly conditioned layers."""
    out: str | None = None
    """Where to write the maps (FILE.safetensors); the run's own folder otherwise."""


class EvalSpec(TextSampleSpec):
    """How far the model would be from its answer if it jumped to the end from each layer."""

    shortcut: str
    """The maps: a file written by `shortcut fit`."""
    kinds: Names = ("all",)
    """Which maps to measure: id mat affine ridge lowrank tuned, or all the file has."""
    parts: bool = True
    """Measure also blocks whose norms, attention or mlp are replaced (if the file has parts)."""
    schedules: bool = False
    """Measure also schedules that run some blocks and jump over the others."""


class ExitSpec(TextSampleSpec):
    """How many layers an early exit saves, and what it costs in agreement."""

    shortcut: str
    """The maps: a file written by `shortcut fit`."""
    kinds: Names = ("id", "mat")
    """Through which maps a layer is read: id mat affine ridge lowrank tuned, or all."""
    confidence: Names = ("gap", "max", "entropy")
    """How sureness is measured: gap (top two), max (top one), entropy."""
    agreement: float | None = Field(default=None, gt=0, lt=1)
    """Calibrate: choose lambda so that this share of tokens keeps the full model's answer."""
    risk: float = Field(default=0.05, gt=0, lt=1)
    """Chance that the promise of --agreement does not hold."""


class GenerateSpec(ShortcutSpec):
    """Text with early exit, or with lossless self-speculation."""

    shortcut: str
    """The maps: a file written by `shortcut fit`."""
    prompt: PromptTexts
    """What to go on from; several prompts are allowed."""
    max_new_tokens: int = Field(default=64, ge=1)
    """How many tokens to write."""
    mode: Literal["exit", "speculative"] = "speculative"
    """exit: stop at a layer that is sure enough; speculative: draft early, verify, lose nothing."""
    kind: str = "auto"
    """Map to jump with: id mat affine ridge lowrank tuned, or ahead to draft; auto: the best."""
    exit_layers: LayerNumbers = ()
    """Layers to exit at (half and three quarters of the way when not given), or to draft from
    (the best by measurement when not given)."""
    draft: int | None = Field(default=None, ge=1, le=32)
    """Tokens drafted before each verification; chosen by measurement when not given."""
    lambda_value: float = 0.9
    """How sure an exit must be: the lambda of the paper (mode exit)."""
    sample: bool = False
    """Draw tokens from the model's distribution instead of taking the likeliest."""
    temperature: float = Field(default=1.0, gt=0)
    """Flatter above 1, sharper below (with --sample)."""


class LensSpec(ShortcutSpec):
    """What every layer would say at every token of a text."""

    model: str = "smollm2-135m"
    """The model: a bundled name, a hub id, a folder, or base+adapter."""

    shortcut: str | None = None
    """The maps: a file written by `shortcut fit`; without it the logit lens (id) alone."""
    text: str
    """The text to look at."""
    kinds: Names = ("id", "mat")
    """Through which maps a layer is read."""
    layers: str = "all"
    """Layers to show: all, or 0,6,12."""
    top: int = Field(default=10, ge=1, le=100)
    """How many tokens the hover shows."""
    html: str | None = None
    """Write the grid as a web page to this file."""
