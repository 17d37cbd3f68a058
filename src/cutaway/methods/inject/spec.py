"""The specs of `cutaway fisher` and `cutaway inject`."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from cutaway.core.lookup import lookup
from cutaway.recipe.options import Names, RunOptions

REGULARISERS = {
    "none": "plain training",
    "ewc": "holds weights near their start, each as hard as its Fisher says",
    "l2sp": "holds all weights near their start alike",
    "kl": "holds what is said about the retained texts near what the base says",
    "replay": "goes on learning the retained texts",
}


def _split_list(value: Any) -> list[str]:
    """`a,b`, a list of them or one value: the pieces, without spaces and empty ones."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    return [piece.strip() for part in parts for piece in str(part).split(",") if piece.strip()]


def _regularisers(value: Any) -> Any:
    """Names from `none,ewc` or `ewc=0.1:1` or a list, each known, its strengths 0 or more."""
    pieces = _split_list(value)
    for piece in pieces:
        name, said, own = piece.partition("=")
        lookup(REGULARISERS, name, kind="regulariser")
        if said and name == "none":
            raise ValueError(f"none has no strength, got {piece!r}. Give none alone.")
        if said:
            _parse_strengths(own.split(":"), piece)
    return tuple(dict.fromkeys(pieces))


def _strengths(value: Any) -> Any:
    """Numbers from `0.1,1,10` or a list, none below 0."""
    return _parse_strengths(_split_list(value), value)


def _parse_strengths(pieces: Sequence[str], given: Any) -> tuple[float, ...]:
    """Each of them once; ValueError for what is no number of 0 or more."""
    try:
        numbers = [float(piece) for piece in pieces]
    except ValueError:
        raise ValueError(f"strength must be numbers such as 0.1,1,10, got {given!r}.") from None
    for number in numbers:
        if not 0 <= number < float("inf"):
            raise ValueError(f"strength must be 0 or more, got {number!r}.")
    return tuple(dict.fromkeys(numbers))


def _digit_counts(value: Any) -> Any:
    """Whole numbers from `3,4` or a list."""
    pieces = _split_list(value)
    if not all(piece.isdecimal() and 1 <= int(piece) <= 9 for piece in pieces):
        raise ValueError(
            f"beyond must be numbers of digits within 1-9, such as 3,4: got {value!r}."
        )
    return tuple(int(piece) for piece in pieces)


def _lora_ranks(value: Any) -> Any:
    """Ranks of adapters from `0,8`, a number or a list; 0 stands for the weights themselves."""
    pieces = _split_list(value)
    if not all(piece.isascii() and piece.isdigit() for piece in pieces):
        raise ValueError(f"lora must be ranks of 0 or more, such as 8 or 0,8: got {value!r}.")
    return tuple(dict.fromkeys(int(piece) for piece in pieces))


RegulariserNames = Annotated[tuple[str, ...], BeforeValidator(_regularisers), Field(min_length=1)]
Strengths = Annotated[tuple[float, ...], BeforeValidator(_strengths), Field(min_length=1)]
DigitCounts = Annotated[tuple[int, ...], BeforeValidator(_digit_counts)]
Ranks = Annotated[tuple[int, ...], BeforeValidator(_lora_ranks), Field(min_length=1)]


class FisherSpec(RunOptions):
    """Which weights matter: the mean squared gradient of each, example by example."""

    model: str
    """The model: a bundled name, a hub id, a folder, or base+adapter."""
    revision: str | None = None
    """Branch, tag or commit of a hub model."""
    text: str | None = None
    """Plain texts: the bundled docs, a file, a folder, hf:ID. This or --data."""
    data: str | None = None
    """Labelled texts: a known task, a file, a folder, hf:ID, gen:NAME. This or --text."""
    text_column: str | None = None
    """Column with the text, when not one of the usual names."""
    pair_column: str | None = None
    """Column with the second text, when not one of the usual names."""
    label_column: str | None = None
    """Column with the label, when not one of the usual names."""
    part: Literal["all", "train", "dev", "test"] = "all"
    """Which part of the data, where it has parts."""
    objective: Literal["lm", "task"] = "lm"
    """lm: next words (causal) or 15 % hidden words (masked); task: the right answer."""
    task: str | None = None
    """The known task that --data belongs to (objective task); its own name unless given."""
    labels: Literal["empirical", "sampled"] = "empirical"
    """The right answers of the data, or answers drawn from the model's own distribution."""
    limit: int | None = Field(default=None, ge=1)
    """Use at most this many texts, drawn with the seed."""
    max_tokens: int | None = Field(default=None, ge=2)
    """Cut texts to this many tokens; the model's context otherwise."""
    top: int = Field(default=800, ge=1)
    """How many of the largest entries are compared and drawn."""
    against: Names = ()
    """Other Fishers of this model (FILE.safetensors) to compare this one with."""
    out: str | None = None
    """Where to write the Fisher (FILE.safetensors); the run's own folder otherwise."""


class InjectSpec(RunOptions):
    """Train a skill in, hold the rest, and measure what both cost."""

    model: str
    """The model: a bundled name, a hub id, a folder, or base+adapter."""
    revision: str | None = None
    """Branch, tag or commit of a hub model."""
    skill: Literal["arithmetic"] = "arithmetic"
    """What is taught."""
    data: str = "gen:arithmetic?n=2000,ops=+-,digits=1-2"
    """Its problems: gen:arithmetic?..., or a file of lines A op B = C (or columns)."""
    beyond: DigitCounts = ()
    """Digits of further test problems, outside the range of training, such as 3,4."""
    masks: int | None = Field(default=None, ge=1)
    """Mask tokens behind each question (masked models); enough for every answer unless given."""
    regression: float = Field(default=0.0, ge=0)
    """Weight of a second loss on the number that is meant, on a log scale."""
    regulariser: RegulariserNames = ("none", "ewc")
    """What holds the rest: none, ewc, l2sp, kl, replay; several are compared. ewc=0.1:1 has
    strengths of its own."""
    strength: Strengths = (1.0,)
    """How hard it holds; several make the Pareto curve."""
    retain: Names = ("docs",)
    """Texts to keep the language of: the bundled docs, files, folders, hf:ID. Labelled sets are
    probed too."""
    text_column: str | None = None
    """Column with the text of --retain, when not one of the usual names."""
    label_column: str | None = None
    """Column with the label of --retain, when not one of the usual names."""
    retain_limit: int = Field(default=600, ge=10)
    """Use at most this many texts of each retained set, drawn with the seed."""
    max_tokens: int = Field(default=64, ge=4)
    """Cut retained texts to this many tokens."""
    retain_tasks: Names = ()
    """Labelled sets the model is fine-tuned on before and after, each time from the same start: a
    file, a folder, hf:ID, gen:NAME, a known task, or TASK=FILE for its metric."""
    task_steps: int = Field(default=200, ge=1)
    """Steps of such a fine-tune."""
    task_batch: int = Field(default=16, ge=1)
    """Its rows in a step."""
    task_lr: float = Field(default=5e-5, gt=0)
    """Its learning rate (AdamW, falling linearly)."""
    task_shots: int | None = Field(default=None, ge=1)
    """Its rows per class, as many again to tune on; all rows when not given."""
    fisher: str | None = None
    """A Fisher of this model (FILE.safetensors) for ewc; made on the retained texts otherwise."""
    fisher_examples: int = Field(default=200, ge=1)
    """Texts the Fisher is made on, when it isn't given."""
    fisher_scale: Literal["mean", "raw"] = "mean"
    """mean: over its mean, so that a strength holds as hard as in l2sp; raw: as in the paper."""
    lora: Ranks = (0,)
    """Train low-rank adapters of this rank instead of the weights; 0 trains the weights, 0,8 both
    ways on one Pareto plot."""
    weights: Literal["all", "blocks", "last"] = "all"
    """Which weights are trained: all, those of the blocks, or of the last quarter of the blocks."""
    steps: int = Field(default=400, ge=1)
    """Training steps."""
    batch: int = Field(default=32, ge=1)
    """Problems in a step."""
    retain_batch: int = Field(default=8, ge=1)
    """Retained texts in a step (kl, replay)."""
    lr: float = Field(default=1e-4, gt=0)
    """Learning rate of AdamW."""
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    """How the learning rate falls."""
    warmup: int = Field(default=20, ge=0)
    """Steps over which the learning rate rises."""
    every: int = Field(default=100, ge=1)
    """Steps between evaluations and checkpoints."""
    patience: int | None = Field(default=None, ge=1)
    """Evaluations without a better exact match before it stops."""
    stop_loss: float | None = Field(default=None, gt=0)
    """Stop when the language loss on retained dev texts has risen by more than this (nats)."""
    repeats: int = Field(default=1, ge=1)
    """Trainings of each cell, with seeds seed, seed + 1, ..."""
    clash: bool = True
    """Measure where the skill's Fisher and that of the retained texts overlap, and map weights."""
    checkpoints: bool = True
    """Keep a checkpoint folder of each training, which transformers loads."""
    out: str | None = None
    """Folder for the checkpoints; the run's own folder otherwise."""

    @property
    def held(self) -> dict[str, tuple[float, ...]]:
        """The strengths of each regulariser; plain training has none, which is 0."""
        found: dict[str, tuple[float, ...]] = {}
        for piece in self.regulariser:
            name, _, own = piece.partition("=")
            mine = tuple(float(number) for number in own.split(":")) if own else self.strength
            mine = (0.0,) if name == "none" else mine
            found[name] = tuple(dict.fromkeys((*found.get(name, ()), *mine)))
        return found
