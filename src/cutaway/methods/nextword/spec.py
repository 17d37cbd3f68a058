"""The specs of `cutaway nextword` and `cutaway quad`."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from cutaway.core.lookup import suggestion
from cutaway.recipe.options import Names, RunOptions, SomeNames

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
    """Words from `bad,good` or from a list; a space around a word is no part of it."""
    parts = value if isinstance(value, list | tuple) else [value]
    return tuple(w.strip() for part in parts for w in str(part).split(",") if w.strip())


WordListField = Annotated[tuple[str, ...], BeforeValidator(_split_words)]


class NextwordSpec(RunOptions):
    """Does predicting the next word already solve the task, linearly, and through which words?"""

    model: SomeNames
    """Models to open: bundled names, hub ids, folders, base+adapter. Several make a grid."""
    task: Names = ()
    """Tasks: known names, or TOML files of yours. Without one, --data and --prompt-text."""
    data: Names = ()
    """The rows: files, folders, hf:ID, gen:NAME, one for each task; the task's own otherwise."""
    revision: str | None = None
    """Branch, tag or commit of a hub model."""
    prompt: bool | None = None
    """Append the task's prompt to each text, or don't; both are measured when neither is said."""
    prompt_text: str | None = None
    """A prompt of your own instead of the task's."""
    features: SomeNames = ("auto",)
    """f phi_p subset classwords posneg projection p zeroshot; auto: all but p that have words;
    all: p too."""
    kind: Literal["logits", "probs"] = "logits"
    """What subset, classwords and posneg are made of: raw scores, or probabilities."""
    class_words: WordListField = ()
    """A word for each class, in class order, instead of the task's."""
    subset_words: WordListField = ()
    """Words whose scores make the subset features, instead of the task's."""
    zeroshot_words: Literal["auto", "class_words", "label_words", "posneg"] = "auto"
    """The task's words that zero-shot chooses between; auto: the first list that has one for each
    class, each a single token of the model."""
    position: Literal["auto", "last", "cls", "mask"] = "auto"
    """Where the answer is read: the last token (causal models), [CLS] or [MASK] (masked ones)."""
    template: str | None = None
    """With --position mask: the text around {text}, with {mask}, instead of the task's."""
    text_column: str | None = None
    """Column with the text, when there is no task and it has no usual name."""
    label_column: str | None = None
    """Column with the label, when there is no task and it has no usual name."""
    limit: int | None = Field(default=None, ge=10)
    """Use at most this many rows of each set, drawn with the seed."""
    max_tokens: int | None = Field(default=512, ge=2)
    """Cut texts to this many tokens, prompt included; the prompt itself is never cut."""
    folds: int = Field(default=5, ge=2)
    """Folds of the training rows that choose the classifier's strength C."""
    repeats: int | None = Field(default=None, ge=1)
    """Random splits, where the task has no fixed one or says so; the task's number otherwise."""
    test_share: float | None = Field(default=None, gt=0, lt=1)
    """Share of the rows tested on in a random split; the task's otherwise."""
    multinomial: bool = False
    """One softmax over several classes instead of one against the rest."""
    standardise: bool = True
    """Features of unit deviation before the classifier; the reference takes them as they are."""
    p_steps: int = Field(default=200, ge=1)
    """At most so many steps of the solver on the whole p, where it has to be streamed."""
    baselines: Names = TEXT_BASELINES
    """Measured beside each score: majority bow tfidf | none."""
    diagnostics: bool = True
    """Measure how linear phi_p is in f, and how quadratic the log-partition."""
    tokens: int = Field(default=10, ge=0, le=1000)
    """Telling tokens listed for each class."""
    save_p: bool = False
    """Write the whole p as half-precision shards into the run's folder; its size is told first."""

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
            raise ValueError("task or data is needed and neither was given.")
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
    """Continue or train a small language model with the Quad objective or with cross-entropy."""

    model: str
    """The causal model to start from, or whose tokenizer and shape are used."""
    revision: str | None = None
    """Branch, tag or commit of a hub model."""
    objective: Literal["quad", "ce"] = "quad"
    """quad: the paper's loss, under which f is linear in Phi p; ce: plain cross-entropy."""
    start: Literal["model", "fresh", "small"] = "model"
    """Go on from the model's weights, from random ones of its shape, or from a small new model
    with its tokenizer."""
    untie: bool = False
    """Give the output embedding weights of its own, where it shares those of the input."""
    width: int = Field(default=128, ge=8, multiple_of=8)
    """Width of a small new model."""
    depth: int = Field(default=4, ge=1)
    """Layers of a small new model."""
    text: str = "docs"
    """Sentences to learn from: the bundled docs, a file, a folder, hf:ID."""
    text_column: str | None = None
    """Column with the text, when not one of the usual names."""
    limit: int | None = Field(default=12_000, ge=20)
    """Use at most this many texts, drawn with the seed."""
    held_out: float = Field(default=0.1, gt=0, lt=1)
    """Share of the texts kept for measuring."""
    max_tokens: int = Field(default=64, ge=4)
    """Cut texts to this many tokens."""
    steps: int = Field(default=300, ge=1)
    """Training steps."""
    batch: int = Field(default=16, ge=1)
    """Texts per step."""
    lr: float = Field(default=1e-3, gt=0)
    """Learning rate of AdamW; go down to 1e-5 to continue a trained model."""
    warmup: int = Field(default=20, ge=0)
    """Steps over which the learning rate rises from 0; it falls to 0 along a cosine after."""
    every: int = Field(default=50, ge=1)
    """Steps between evaluations on the held-out texts; each is a checkpoint too."""
    task: str | None = None
    """Measure the features of nextword on this task before and after."""
    data: str | None = None
    """The task's rows, when not its own; a labelled set without a task."""
    out: str | None = None
    """Folder for the trained model; the run's own folder otherwise."""
