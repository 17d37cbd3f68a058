"""Options that all verbs share, and the field types of specs."""

import math
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from cutaway.core.device_name import need_device_name
from cutaway.core.errors import CutawayError
from cutaway.core.model_size import NO_COPIES, ModelSize, WeightCopies
from cutaway.core.spec import Spec
from cutaway.engine import find_engine
from cutaway.store.remote import check_url, is_url


def _parse_names(value: Any) -> Any:
    """Names from `a,b`, from a list, or from one value; empty ones are dropped."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    said = [
        piece for part in parts for piece in (part.split(",") if _is_comma_list(part) else [part])
    ]
    named = (piece.strip() if isinstance(piece, str) else piece for piece in said)
    return tuple(piece for piece in named if piece != "")


def _is_comma_list(part: Any) -> bool:
    """Whether a string is a comma-separated list; `gen:x?n=1,m=2` is one name."""
    return isinstance(part, str) and "?" not in part


def _parse_numbers(value: Any) -> Any:
    """Numbers from `100,1000`, from a list, or from one number."""
    return tuple(_parse_number(piece) for piece in _parse_names(value))


def _parse_number(said: Any) -> int | float:
    """An integer, or a fraction such as 0.5."""
    try:
        number = float(said) if "." in str(said) or "e" in str(said) else int(said)
    except (TypeError, ValueError, OverflowError):
        number = math.inf
    if not abs(number) < 1e18:
        raise ValueError(f"Numbers such as 100,1000 or 0.5 are expected, got {said!r}.")
    return number


def _parse_layer_choices(value: Any) -> Any:
    """Layer choices: each entry of a list is one choice."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    return tuple(str(p).strip() for p in parts if str(p).strip() != "")


def _check_engine(text: str) -> str:
    """A valid engine; whether its cluster can be reached is checked when the work starts."""
    try:
        find_engine(text)
    except CutawayError as error:
        raise ValueError(str(error)) from None
    return text


def _check_device(text: str) -> str:
    """A device's name; whether this machine has it is checked when a model is opened."""
    try:
        return need_device_name(text)
    except CutawayError as error:
        raise ValueError(str(error)) from None


def _check_runs_folder(text: str) -> str:
    """A folder, or a URL without secrets, since it is written into every result."""
    try:
        return check_url(text) if is_url(text) else text
    except CutawayError as error:
        raise ValueError(str(error)) from None


SomeNames = Annotated[tuple[str, ...], BeforeValidator(_parse_names), Field(min_length=1)]
Names = Annotated[tuple[str, ...], BeforeValidator(_parse_names)]
LayerChoices = Annotated[tuple[str, ...], BeforeValidator(_parse_layer_choices)]
Sizes = Annotated[tuple[int | float, ...], BeforeValidator(_parse_numbers)]


MAX_SEED = 2**31 - 1
"""scikit-learn takes seeds below 2**32, and repeats count on from the seed."""


class RunOptions(Spec):
    """The options of every verb."""

    runs: Annotated[str, AfterValidator(_check_runs_folder)] = "runs"
    """Folder for the results, or a URL that fsspec supports (s3://bucket/runs)."""
    engine: Annotated[str, AfterValidator(_check_engine)] = "local"
    """Where the pieces run: local, local:N (processes), ray, or the address of a Ray cluster."""
    device: Annotated[str, AfterValidator(_check_device)] = "auto"
    """Where the model runs: auto (a GPU if there is one), cpu, cuda, cuda:N, mps, or map
    (distributed over all GPUs, the CPU and the disk)."""
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    """Precision of weights and activations; auto is the checkpoint's own on a GPU, float32 on a
    CPU."""
    quantise: Literal["none", "int8", "int4"] = "none"
    """Precision of the linear layers' weights, with bitsandbytes; for verbs that change no
    weights."""
    bos: Literal["auto", "add", "keep"] = "auto"
    """Start token: auto leaves special tokens to the tokenizer and warns if the model needs a start
    token that is missing, keep does the same without the warning, add puts it before every text."""
    seed: int = Field(default=0, ge=0, le=MAX_SEED)
    """Random seed of all splits, initialisations and samples."""
    offline: bool = False
    """Never use the network, only what is on this machine."""
    changes_weights: ClassVar[bool] = False
    """Whether the verb changes or differentiates weights, which quantised ones don't allow."""

    @property
    def weight_copies(self) -> WeightCopies:
        """Copies of the weights that the verb holds in addition to the model, about."""
        return NO_COPIES

    def work_bytes(self, size: ModelSize) -> int:
        """Memory of activations and of the method's tables, with a model of this size; about."""
        return size.reading()

    @model_validator(mode="after")
    def _can_be_quantised(self) -> Self:
        if self.changes_weights and self.quantise != "none":
            raise ValueError(
                f"quantise {self.quantise!r} is not possible here: the verb changes or "
                "differentiates weights, which must not be quantised. Leave it at none."
            )
        return self


class SamplesOption(RunOptions):
    """The option of verbs that can keep one row per sample."""

    samples: bool = False
    """Also keep every single sample or prediction, in samples.parquet beside the rows."""


class ChatOptions(RunOptions):
    """The options of verbs that can read texts in the model's chat template."""

    REPLY: ClassVar[bool] = False
    """Whether the model reads a conversation up to where the assistant's reply begins."""

    chat: bool = False
    """Read texts in the model's chat template; rows may be messages with role and content."""
    system: str | None = None
    """System message of conversations that have none (with --chat)."""

    @model_validator(mode="after")
    def _system_needs_chat(self) -> "ChatOptions":
        if self.system is not None and not self.chat:
            raise ValueError("system is for conversations: add --chat (chat=True).")
        if self.system is not None and not self.system.strip():
            raise ValueError("system is empty: give some text, or leave it out.")
        return self
