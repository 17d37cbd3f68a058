"""The specs of `cutaway fisher` and `cutaway inject`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from cutaway.core.lookup import lookup
from cutaway.core.model_size import READ_TOKENS, ModelSize, WeightCopies
from cutaway.recipe.options import ChatOptions, Names, SamplesOption

REGULARISERS = {
    "none": "plain training",
    "ewc": "keeps each weight near its start, weighted by its Fisher information",
    "l2sp": "keeps all weights near their start equally",
    "kl": "keeps predictions on the retained texts near those of the base model",
    "replay": "trains on the retained texts too",
}


@dataclass(frozen=True)
class KnownSkill:
    """A skill by name."""

    source: str
    """Its questions and answers, unless others are given as data."""
    needs: tuple[str, ...]
    """The facts by row that its data must have."""
    data: str
    """The data it takes, for messages."""


SKILLS = {
    "arithmetic": KnownSkill(
        "gen:arithmetic?n=2000,ops=+-,digits=1-2",
        ("op", "result"),
        "gen:arithmetic?..., or a file of lines such as 12 + 34 = 46 (or columns a, op, b, result)",
    ),
}


def _split_list(value: Any) -> list[str]:
    """The parts of `a,b`, of a list of such strings, or of one value, stripped and not empty."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    return [piece.strip() for part in parts for piece in str(part).split(",") if piece.strip()]


def _regularisers(value: Any) -> Any:
    """Names from `none,ewc` or `ewc=0.1:1` or a list, each known, its strengths 0 or more."""
    pieces = _split_list(value)
    for piece in pieces:
        name, equals, strengths = piece.partition("=")
        lookup(REGULARISERS, name, kind="regulariser")
        if equals and name == "none":
            raise ValueError(f"none has no strength, got {piece!r}. Give none alone.")
        if equals:
            _parse_strengths(strengths.split(":"), piece)
    return tuple(dict.fromkeys(pieces))


def _strengths(value: Any) -> Any:
    """Numbers from `0.1,1,10` or a list, none below 0."""
    return _parse_strengths(_split_list(value), value)


def _parse_strengths(pieces: Sequence[str], given: Any) -> tuple[float, ...]:
    """The numbers without repeats; ValueError for anything that is not 0 or more."""
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
    """Ranks of adapters from `0,8`, a number or a list; 0 means the weights themselves."""
    pieces = _split_list(value)
    if not all(piece.isascii() and piece.isdigit() for piece in pieces):
        raise ValueError(f"lora must be ranks of 0 or more, such as 8 or 0,8: got {value!r}.")
    return tuple(dict.fromkeys(int(piece) for piece in pieces))


RegulariserNames = Annotated[tuple[str, ...], BeforeValidator(_regularisers), Field(min_length=1)]
Strengths = Annotated[tuple[float, ...], BeforeValidator(_strengths), Field(min_length=1)]
DigitCounts = Annotated[tuple[int, ...], BeforeValidator(_digit_counts)]
Ranks = Annotated[tuple[int, ...], BeforeValidator(_lora_ranks), Field(min_length=1)]


GRADIENT_COPIES = 3
"""Copies of the trained weights in addition to the model: gradients, two of the optimizer."""
ADAPTED_COPIES = 2
"""Copies of the weights that adapters change: their sum with the adapters, and its gradient."""
EMBEDDING_GRADIENTS = 3
"""Gradients of the embeddings that are in memory before they are added: of the lookup, the head and
the regulariser."""
FISHER_COPIES = 1.5
"""Copies of the weights in a pass of `fisher`: the sums, and the gradients of a batch."""
FISHER_TOKENS = 512
"""Tokens in a batch of that pass, at most."""

QUESTION_TOKENS = 32
"""Tokens of a question with its answer, about, when memory is estimated before they are read."""


class FisherSpec(ChatOptions):
    """Estimate how important each weight is: its mean squared gradient over the examples."""

    changes_weights: ClassVar[bool] = True
    outside_address: ClassVar[frozenset[str]] = frozenset({"file"})

    model: str
    """The model: a bundled name, a hub id, a folder, a GGUF file, or base+adapter."""
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
    """lm: next words (causal) or 15 % masked words (masked); task: the correct answer."""
    task: str | None = None
    """The known task that --data belongs to (objective task); by default the name of the data."""
    labels: Literal["empirical", "sampled"] = "empirical"
    """empirical: the labels of the data; sampled: labels sampled from the model's predictions."""
    limit: int | None = Field(default=None, ge=1)
    """Use at most this many texts, drawn with the seed."""
    max_tokens: int | None = Field(default=None, ge=2)
    """Truncate texts to this many tokens; by default to the model's context."""
    top: int = Field(default=800, ge=1)
    """How many of the largest entries to compare and plot."""
    against: Names = ()
    """Other Fishers of this model (FILE.safetensors) to compare this one with."""
    file: bool = True
    """Keep the Fisher, which is as large as the model; otherwise only its shares by layer and
    module."""
    out: str | None = None
    """Where to write the Fisher (FILE.safetensors); by default the run's folder."""

    @model_validator(mode="after")
    def _out_needs_a_file(self) -> Self:
        if self.out is not None and not self.file:
            raise ValueError(f"out {self.out!r} is for the file that file=False leaves out.")
        return self

    @property
    def weight_copies(self) -> WeightCopies:
        """The sums and the gradients."""
        return WeightCopies(FISHER_COPIES)

    def work_bytes(self, size: ModelSize) -> int:
        """Those of a backward pass."""
        return size.training(self.max_tokens or READ_TOKENS)


class InjectSpec(SamplesOption):
    """Train a skill with different regularisers and measure what the model forgets."""

    changes_weights: ClassVar[bool] = True

    model: str
    """The model: a bundled name, a hub id, a folder, a GGUF file, or base+adapter."""
    revision: str | None = None
    """Branch, tag or commit of a hub model."""
    # The identity has the digest of the questions and answers that they choose.
    outside_address: ClassVar[frozenset[str]] = frozenset(
        {"prompt_column", "answer_column", "template"}
    )

    skill: str = "arithmetic"
    """The skill to train: arithmetic, or questions with answers: a file, a folder, hf:ID,
    gen:NAME."""
    data: str | None = None
    """The problems of arithmetic: gen:arithmetic?..., or a file of lines A op B = C (or
    columns)."""
    prompt_column: str | None = None
    """Column of --skill with the questions, when not one of the usual names."""
    answer_column: str | None = None
    """Column of --skill with the answers, when not one of the usual names."""
    template: str | None = None
    """The question, with columns of --skill in braces: 'Q: {question}\\nA:'."""
    beyond: DigitCounts = ()
    """Digits of additional arithmetic test problems outside the range of training, such as 3,4."""
    masks: int | None = Field(default=None, ge=1)
    """Mask tokens after each question (masked models); by default enough for every answer."""
    regression: float = Field(default=0.0, ge=0)
    """Weight of an additional regression loss on the predicted number, on a log scale."""
    regulariser: RegulariserNames = ("none", "ewc")
    """Regularisation: none, ewc, l2sp, kl, replay; several are compared. ewc=0.1:1 sets strengths
    for ewc alone."""
    strength: Strengths = (1.0,)
    """Regularisation strength; several give a Pareto curve."""
    retain: Names = ("docs",)
    """Texts on which forgetting is measured: the bundled docs, files, folders, hf:ID. Labelled
    sets are probed too."""
    text_column: str | None = None
    """Column with the text of --retain and --retain-tasks, when not one of the usual names."""
    label_column: str | None = None
    """Column with the label of --retain and --retain-tasks, when not one of the usual names."""
    retain_limit: int = Field(default=600, ge=10)
    """Use at most this many texts of each retained set, drawn with the seed."""
    max_tokens: int = Field(default=64, ge=4)
    """Truncate retained texts to this many tokens."""
    retain_tasks: Names = ()
    """Labelled sets to fine-tune on before and after the training, to measure forgetting: a file,
    a folder, hf:ID, gen:NAME, a known task, or TASK=FILE to use the task's metric."""
    task_steps: int = Field(default=200, ge=1)
    """Steps of a fine-tuning on --retain-tasks."""
    task_batch: int = Field(default=16, ge=1)
    """Batch size of a fine-tuning on --retain-tasks."""
    task_lr: float = Field(default=5e-5, gt=0)
    """Learning rate of a fine-tuning on --retain-tasks (AdamW, linear decay)."""
    task_shots: int | None = Field(default=None, ge=1)
    """Training rows per class of --retain-tasks, with as many dev rows; by default all rows."""
    fisher: str | None = None
    """A Fisher of this model (FILE.safetensors) for ewc; by default that of the retained texts."""
    fisher_examples: int = Field(default=200, ge=1)
    """Texts on which the Fisher is estimated when none is given."""
    fisher_scale: Literal["mean", "raw"] = "mean"
    """mean: divided by its mean, so that strengths compare with l2sp; raw: as in the paper."""
    lora: Ranks = (0,)
    """Train LoRA adapters of this rank instead of the weights; 0 trains the weights, 0,8 compares
    both in one Pareto plot."""
    weights: Literal["all", "blocks", "last"] = "all"
    """Which weights are trained: all, those of the blocks, or of the last quarter of the blocks."""
    steps: int = Field(default=400, ge=1)
    """Training steps."""
    batch: int = Field(default=32, ge=1)
    """Batch size: questions per step."""
    retain_batch: int = Field(default=8, ge=1)
    """Retained texts per step (kl, replay)."""
    lr: float = Field(default=1e-4, gt=0)
    """Learning rate of AdamW."""
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    """Learning rate schedule."""
    warmup: int = Field(default=20, ge=0)
    """Warm-up steps of the learning rate."""
    every: int = Field(default=100, ge=1)
    """Steps between evaluations and checkpoints."""
    patience: int | None = Field(default=None, ge=1)
    """Evaluations without improvement in exact match before early stopping."""
    stop_loss: float | None = Field(default=None, gt=0)
    """Stop when the loss on retained dev texts has risen by more than this (nats)."""
    repeats: int = Field(default=1, ge=1)
    """Trainings of each cell, with seeds seed, seed + 1, ..."""
    clash: bool = True
    """Measure how the Fishers of skill and retained texts overlap, and map weights."""
    checkpoints: bool = True
    """Keep a checkpoint folder of each training, which transformers loads."""
    out: str | None = None
    """Folder for the checkpoints; by default the run's folder."""

    @model_validator(mode="before")
    @classmethod
    def _skill_data(cls, values: Any) -> Any:
        """A known skill has default data; any other is its own data."""
        skill, data = values.get("skill", "arithmetic"), values.get("data")
        if isinstance(skill, str) and skill in SKILLS:
            return {**values, "data": data or SKILLS[skill].source}
        if data is not None:
            raise ValueError(
                f"data is for the problems of {', '.join(SKILLS)}; the skill {skill!r} is data "
                "itself. Leave --data out."
            )
        return values

    @property
    def weight_copies(self) -> WeightCopies:
        """Those of a training, or of the passes that estimate Fishers, which take all weights.

        Initial weights, best weights and the Fisher are in files.
        """
        share = {"all": 1.0, "blocks": 1.0, "last": 0.25}[self.weights] if 0 in self.lora else 0.0
        fishers = self.clash or "ewc" in self.strengths_by_regulariser
        other = (FISHER_COPIES + (len(self.retain) > 1)) * fishers
        if any(self.lora):
            other = max(other, ADAPTED_COPIES)
        if GRADIENT_COPIES * share >= other:
            whole = self.weights == "all"
            return WeightCopies(GRADIENT_COPIES * share, whole, 2 * share + fishers)
        return WeightCopies(other, True, 2 * share + fishers)

    def work_bytes(self, size: ModelSize) -> int:
        """Those of a training step, or of a pass that estimates Fishers."""
        questions, texts = self.batch * QUESTION_TOKENS, self.retain_batch * self.max_tokens
        examples = min(FISHER_TOKENS, self.fisher_examples * self.max_tokens)
        passes = size.training(max(questions, texts, examples))
        return passes + (EMBEDDING_GRADIENTS * 4 * size.largest if self.weights == "all" else 0)

    @property
    def strengths_by_regulariser(self) -> dict[str, tuple[float, ...]]:
        """The strengths of each regulariser; plain training has strength 0."""
        strengths: dict[str, tuple[float, ...]] = {}
        for piece in self.regulariser:
            name, _, own = piece.partition("=")
            values = tuple(float(number) for number in own.split(":")) if own else self.strength
            values = (0.0,) if name == "none" else values
            strengths[name] = tuple(dict.fromkeys((*strengths.get(name, ()), *values)))
        return strengths
