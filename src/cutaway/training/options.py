"""Options of every verb that trains on a task."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from cutaway.core.model_size import NO_COPIES, ModelSize, WeightCopies
from cutaway.recipe.options import MAX_SEED, Names, RunOptions


def _split_words(value: Any) -> Any:
    """Label words from `terrible,great` or from a list, in class order."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    return tuple(word.strip() for part in parts for word in str(part).split(",") if word.strip())


LabelWords = Annotated[tuple[str, ...], BeforeValidator(_split_words)]


TEXT_TOKENS = 64
"""Tokens of a training text, about, when memory is estimated before the data are read."""
COLUMN_OPTIONS = ("text_column", "pair_column", "label_column")


class LabelledDataSpec(RunOptions):
    """Options of every verb that reads labelled rows."""

    outside_address: ClassVar[frozenset[str]] = frozenset(COLUMN_OPTIONS)

    text_column: str | None = None
    """Column with the text, when not one of the usual names or of the task's."""
    pair_column: str | None = None
    """Column with the second text, when not one of the usual names or of the task's."""
    label_column: str | None = None
    """Column with the label, when not one of the usual names or of the task's."""
    drop_empty: bool = False
    """Drop rows without text or label (and count them) instead of refusing the data."""


class TrainingSpec(LabelledDataSpec):
    """Options of every verb that trains on a task."""

    changes_weights: ClassVar[bool] = True

    shots: int | None = Field(default=None, ge=1)
    """Training rows per class, and as many dev rows; all rows when not given."""
    data_seed: int = Field(default=13, ge=0, le=MAX_SEED)
    """Seed that selects the training rows (the paper: 13 21 42 87 100)."""
    test_limit: int | None = Field(default=None, ge=1)
    """Test on at most this many rows, sampled with the data seed."""
    max_tokens: int | None = Field(default=None, ge=4)
    """Truncate texts so that a prompt has at most this many tokens; default: the context length."""
    steps: int = Field(default=1000, ge=1)
    """Training steps."""
    batch: int = Field(default=16, ge=1)
    """Examples per step."""
    lr: float = Field(default=1e-3, gt=0)
    """Learning rate; 1e-3 suits sgd, about 2e-5 suits adamw."""
    optimizer: Literal["sgd", "adamw"] = "sgd"
    """The optimizer."""
    momentum: float = Field(default=0.0, ge=0, lt=1)
    """Momentum of sgd."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Learning-rate schedule after the warm-up."""
    warmup: int = Field(default=0, ge=0)
    """Steps over which the learning rate rises from 0."""
    weight_decay: float = Field(default=1e-4, ge=0)
    """Weight decay; never on biases and norms."""
    clip: float = Field(default=1.0, ge=0)
    """Maximum gradient norm; 0 disables clipping."""
    l1: float = Field(default=0.0, ge=0)
    """L1 penalty on each weight's distance from its start (1e-3 localises changes with adamw)."""
    l1_way: Literal["gradient", "threshold"] = "gradient"
    """gradient: l1 is a loss term (as in the paper). threshold: a proximal step of lr x l1 after
    each step, so that most weights stay exactly at their start (for sgd)."""
    dropout: bool = True
    """Train with the model's dropout."""
    every: int = Field(default=100, ge=1)
    """Steps between evaluations on dev; the best weights are kept."""
    patience: int | None = Field(default=None, ge=1)
    """Stop after this many evaluations without an improvement."""
    fixed_embeddings: bool = True
    """Freeze token and position embeddings."""
    fixed_head: bool | None = None
    """Freeze the head; by default a language-model head is frozen, a new linear head is trained."""
    biases_only: bool = False
    """Train biases only (BitFit)."""
    params: Names = ()
    """Train only weights whose names match a pattern, as `*.attn.*` or `*layer.1?.*`."""

    @property
    def optimizer_copies(self) -> int:
        """Copies of the trained weights: gradients, states of the optimizer, their start."""
        states = 2 if self.optimizer == "adamw" else bool(self.momentum)
        return 1 + states + bool(self.l1)

    @property
    def weight_copies(self) -> WeightCopies:
        """Those of the trained weights; the best ones are in a file."""
        if self.biases_only or self.params:
            return NO_COPIES
        return WeightCopies(self.optimizer_copies, not self.fixed_embeddings, in_files=1.0)

    def work_bytes(self, size: ModelSize) -> int:
        """Those of a training step."""
        return size.training(self.batch * min(self.max_tokens or TEXT_TOKENS, TEXT_TOKENS))
