"""Options."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from cutaway.recipe.options import MAX_SEED, Names, RunOptions


def _split_words(value: Any) -> Any:
    """Label words from `terrible,great` or from a list, in class order."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    return tuple(word.strip() for part in parts for word in str(part).split(",") if word.strip())


LabelWords = Annotated[tuple[str, ...], BeforeValidator(_split_words)]


class LabelledDataSpec(RunOptions):
    """Labelled rows: shared by every verb that reads them for a task."""

    drop_empty: bool = False
    """Leave out rows without text or label, and count them, instead of refusing the set."""


class TrainingSpec(LabelledDataSpec):
    """What is learned from which rows: shared by every verb that trains on a task."""

    shots: int | None = Field(default=None, ge=1)
    """Rows per class to learn from, as many again to tune on; all rows when not given."""
    data_seed: int = Field(default=13, ge=0, le=MAX_SEED)
    """Decides which rows are learned from (the paper: 13 21 42 87 100)."""
    test_limit: int | None = Field(default=None, ge=1)
    """Test on at most this many rows, drawn with the data seed."""
    max_tokens: int | None = Field(default=None, ge=4)
    """Cut texts so that a question has at most this many tokens; the model's context otherwise."""
    steps: int = Field(default=1000, ge=1)
    """Training steps."""
    batch: int = Field(default=16, ge=1)
    """Examples per step."""
    lr: float = Field(default=1e-3, gt=0)
    """Learning rate; 1e-3 suits sgd, adamw wants about 2e-5."""
    optimizer: Literal["sgd", "adamw"] = "sgd"
    """How weights are moved."""
    momentum: float = Field(default=0.0, ge=0, lt=1)
    """Momentum of sgd."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How the learning rate changes after the warm-up."""
    warmup: int = Field(default=0, ge=0)
    """Steps over which the learning rate rises from 0."""
    weight_decay: float = Field(default=1e-4, ge=0)
    """Pull towards 0; never on biases and norms."""
    clip: float = Field(default=1.0, ge=0)
    """Longest gradient; 0 lets it be as long as it is."""
    l1: float = Field(default=0.0, ge=0)
    """Penalty on each weight's distance from where it started (1e-3 lets adamw localise)."""
    l1_way: Literal["gradient", "threshold"] = "gradient"
    """gradient: l1 is part of the loss (the paper's). threshold: after each step every weight goes
    lr x l1 back and stops at its start, so that most weights rest exactly there (for sgd)."""
    dropout: bool = True
    """Train with the model's own dropout."""
    every: int = Field(default=100, ge=1)
    """Steps between evaluations on dev; the best is kept."""
    patience: int | None = Field(default=None, ge=1)
    """Stop after so many evaluations without a better one."""
    fixed_embeddings: bool = True
    """Leave token and position embeddings as they are."""
    fixed_head: bool | None = None
    """Leave the head as it is; by default a language-model head rests, a new linear one learns."""
    biases_only: bool = False
    """Train biases only (BitFit)."""
    params: Names = ()
    """Train only weights whose names fit one of these patterns, as `*.attn.*` or `*layer.1?.*`."""
