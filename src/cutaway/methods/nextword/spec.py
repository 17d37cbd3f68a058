"""The specs of `cutaway nextword` and `cutaway quad`."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from cutaway.core.lookup import suggestion
from cutaway.core.model_size import ModelSize
from cutaway.recipe.options import ChatOptions, Names, RunOptions, SamplesOption, SomeNames

FEATURES = ("f", "phi_p", "subset", "classwords", "posneg", "projection", "p", "zeroshot")
TEXT_BASELINES = ("majority", "bow", "tfidf")


def _check_known(value: tuple[str, ...], known: tuple[str, ...], kind: str) -> tuple[str, ...]:
    for name in value:
        if name not in known:
            raise ValueError(
                f"Unknown {kind} {name!r}. {suggestion(name, known)}Known: {', '.join(known)}."
            )
    return value


def _split_words(value: Any) -> Any:
    """Words from `bad,good` or from a list; surrounding spaces are removed."""
    parts = value if isinstance(value, list | tuple) else [value]
    return tuple(w.strip() for part in parts for w in str(part).split(",") if w.strip())


WordListField = Annotated[tuple[str, ...], BeforeValidator(_split_words)]


class NextwordSpec(ChatOptions, SamplesOption):
    """Measure how well features of the next-word distribution solve a classification task."""

    REPLY: ClassVar[bool] = True

    model: SomeNames
    """Models: bundled names, hub ids, folders, GGUF files, base+adapter. Several make a grid."""
    task: Names = ()
    """Tasks: known names, or your own TOML files. Without a task, give --data and --prompt-text."""
    data: Names = ()
    """Data: files, folders, hf:ID, gen:NAME, one for each task; default: the task's own data."""
    revision: str | None = None
    """Branch, tag or commit of a hub model."""
    prompt: bool | None = None
    """Append the task's prompt to each text, or don't; default: measure both."""
    prompt_text: str | None = None
    """Your own prompt instead of the task's."""
    features: SomeNames = ("auto",)
    """f phi_p subset classwords posneg projection p zeroshot; auto: all except p for which the task
    has words; all: p too."""
    kind: Literal["logits", "probs"] = "logits"
    """Values of the features subset, classwords and posneg: logits or probabilities."""
    class_words: WordListField = ()
    """A word for each class, in class order, instead of the task's."""
    subset_words: WordListField = ()
    """Words whose scores are the subset features, instead of the task's."""
    zeroshot_words: Literal["auto", "class_words", "label_words", "posneg"] = "auto"
    """The task's word list for zero-shot; auto: the first with a word for each class, all single
    tokens of the model."""
    position: Literal["auto", "last", "cls", "mask"] = "auto"
    """Position of the answer: the last token (causal models), [CLS] or [MASK] (masked models)."""
    template: str | None = None
    """Template with {text} and {mask} for --position mask, instead of the task's."""
    text_column: str | None = None
    """Column with the text, when not one of the usual names or of the task's."""
    label_column: str | None = None
    """Column with the label, when not one of the usual names or of the task's."""
    metric: str = "auto"
    """The main metric; auto: accuracy, balanced accuracy if classes are unequal, average precision
    if positives are rare."""
    limit: int | None = Field(default=None, ge=10)
    """Use at most this many rows of each data set, sampled with the seed in proportion to the
    classes; rare classes keep the rows that the folds need."""
    max_tokens: int | None = Field(default=512, ge=2)
    """Truncate texts to this many tokens, prompt included; the prompt is never truncated."""
    folds: int = Field(default=5, ge=2)
    """Cross-validation folds for choosing C, the inverse regularisation strength."""
    repeats: int | None = Field(default=None, ge=1)
    """Number of random splits instead of the task's own protocol."""
    test_share: float | None = Field(default=None, gt=0, lt=1)
    """Share of test rows in a random split; default: the task's."""
    multinomial: bool = False
    """Multinomial logistic regression instead of one-vs-rest."""
    standardise: bool = True
    """Scale features to unit variance; the reference doesn't."""
    p_steps: int = Field(default=200, ge=1)
    """Maximum number of solver iterations on the full p, when it is streamed."""
    baselines: Names = TEXT_BASELINES
    """Baselines: majority bow tfidf | none."""
    diagnostics: bool = True
    """Measure how linear phi_p is in f, and how quadratic the log-partition is."""
    tokens: int = Field(default=10, ge=0, le=1000)
    """Number of top tokens listed for each class."""
    save_p: bool = False
    """Save the full p as half-precision shards in the run's folder; its size is reported first."""

    def work_bytes(self, size: ModelSize) -> int:
        """Those of a forward pass, and two copies of the output embeddings."""
        return size.reading() + 2 * 4 * size.largest

    @field_validator("features")
    @classmethod
    def _known_features(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return _check_known(value, (*FEATURES, "auto", "all"), "feature kind")

    @field_validator("baselines")
    @classmethod
    def _known_baselines(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return () if value == ("none",) else _check_known(value, TEXT_BASELINES, "baseline")

    @model_validator(mode="after")
    def _enough(self) -> "NextwordSpec":
        if not self.task and not self.data:
            raise ValueError("Neither task nor data was given. Give --task or --data.")
        if self.task and self.data and len(self.task) != len(self.data):
            raise ValueError(
                f"data has {len(self.data)} entries for {len(self.task)} tasks: give one for "
                "each task, or none."
            )
        if self.template is not None and self.position != "mask":
            raise ValueError(
                f"template {self.template!r} is for masked models read at [MASK]: add "
                "--position mask, or use --prompt-text."
            )
        return self


class QuadSpec(RunOptions):
    """Train a small language model with the Quad objective or with cross-entropy."""

    changes_weights: ClassVar[bool] = True

    model: str
    """The causal model to start from, or whose tokenizer and architecture are used."""
    revision: str | None = None
    """Branch, tag or commit of a hub model."""
    objective: Literal["quad", "ce"] = "quad"
    """quad: the paper's loss, for which f is linear in Phi p; ce: cross-entropy."""
    start: Literal["model", "fresh", "small"] = "model"
    """Start from the model's weights, from random weights, or from a small new model with its
    tokenizer."""
    untie: bool = False
    """Untie the output embedding from the input embedding."""
    width: int = Field(default=128, ge=8, multiple_of=8)
    """Width of a small new model."""
    depth: int = Field(default=4, ge=1)
    """Layers of a small new model."""
    text: str = "docs"
    """Training texts: the bundled docs, a file, a folder, hf:ID."""
    text_column: str | None = None
    """Column of the texts, when it has an unusual name."""
    limit: int | None = Field(default=12_000, ge=20)
    """Use at most this many texts, sampled with the seed."""
    held_out: float = Field(default=0.1, gt=0, lt=1)
    """Share of held-out texts."""
    max_tokens: int = Field(default=64, ge=4)
    """Truncate texts to this many tokens."""
    steps: int = Field(default=300, ge=1)
    """Training steps."""
    batch: int = Field(default=16, ge=1)
    """Texts per step."""
    lr: float = Field(default=1e-3, gt=0)
    """Learning rate of AdamW; use about 1e-5 to continue training a trained model."""
    warmup: int = Field(default=20, ge=0)
    """Warm-up steps of the learning rate; cosine decay to 0 follows."""
    every: int = Field(default=50, ge=1)
    """Steps between evaluations on held-out texts; a checkpoint is saved at each."""
    task: str | None = None
    """Measure next-word features on this task before and after training."""
    data: str | None = None
    """Data for the task instead of its own; without a task, a labelled data set."""
    out: str | None = None
    """Folder for the trained model; default: the run's folder."""
