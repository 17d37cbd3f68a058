"""The spec of `cutaway probe`: one grid of models, data, layers, poolers and classifiers."""

from typing import Literal

from pydantic import Field, field_validator

from cutaway.core.model_size import WeightCopies
from cutaway.recipe.options import (
    ChatOptions,
    LayerChoices,
    Names,
    SamplesOption,
    Sizes,
    SomeNames,
)

TEXT_BASELINES = ("majority", "bow", "tfidf")
PROBE_BASELINES = (*TEXT_BASELINES, "twin", "control", "mdl")
LEARNED_POOLER = "learned"
"""The pooler that is trained: one query attends to all token vectors."""
VALIDATION_SUFFIX = "_val"
"""Ends the names of metrics on validation rows."""
TIE_METRIC = "auc"
"""The metric that chooses between cells with equal validation scores of the main metric."""


class ProbeSpec(ChatOptions, SamplesOption):
    """Probe a grid of layers, poolers and classifiers after one forward pass per model and set."""

    model: SomeNames
    """Models: bundled names, hub ids, folders, GGUF files, base+adapter. Several make a grid."""
    data: SomeNames
    """Labelled data: task names, files, folders, hf:ID, gen:NAME. Several make a grid."""
    revision: str | None = None
    """Branch, tag or commit of a hub model."""
    layers: LayerChoices = ("all",)
    """Layers 0..L (0 = embeddings): all | 0,6,12 | mean:all | max:1,2 | concat:8,9."""
    pool: SomeNames = ("last",)
    """How tokens become one vector: first last mean max min q0.4 cls mask attn attn:3 learned
    (trained with its own classifier, attention, in place of --classifier); with --chat also of some
    messages: last@user mean@assistant last@system last@content."""
    classifier: SomeNames = ("logistic",)
    """Classifiers: logistic ridge lda qda nb centroid pca knn forest linear mlp2 mlp3 glu ..."""
    protocol: Literal["repeats", "kfold", "fixed", "kshot", "curve"] = "repeats"
    """How rows are split into train, validation and test."""
    repeats: int = Field(default=10, ge=1)
    """Number of seeded splits (or seeds of a fixed split)."""
    folds: int = Field(default=5, ge=2)
    """Folds of the kfold protocol."""
    shots: int = Field(default=16, ge=1)
    """Training rows per class of the kshot protocol."""
    train_sizes: Sizes = (0.1, 0.2, 0.4, 0.7, 1.0)
    """Sizes of the curve protocol: row counts, or shares of the training part."""
    metric: str = "auto"
    """The main metric, by which cells are chosen and judged; auto: accuracy, balanced accuracy if
    classes are unequal, average precision if positives are rare, R2 for regression."""
    class_weight: Literal["none", "balanced"] = "none"
    """Class weights while fitting; balanced gives every class the same total weight."""
    baselines: Names = PROBE_BASELINES
    """Baselines and controls: majority bow tfidf twin control mdl | none."""
    text_column: str | None = None
    """Column with the text, if it has none of the usual names."""
    pair_column: str | None = None
    """Column with the second text of a pair."""
    label_column: str | None = None
    """Column with the label."""
    as_: Literal["classification", "regression", "binary", "multiclass", "multilabel"] | None = None
    """Task type of the labels; classification rounds regression targets."""
    drop_empty: bool = False
    """Drop rows without text or label instead of refusing the data."""
    limit: int | None = Field(default=None, ge=1)
    """Maximum number of rows per data set, sampled with the seed in proportion to the classes;
    rare classes keep the rows that the protocol needs."""
    max_tokens: int | None = Field(default=None, ge=2)
    """Truncate texts to this many tokens; default: the model's context length."""
    cut: Literal["right", "left"] = "right"
    """Side on which long texts are truncated."""
    keep: Literal["float32", "float16", "bfloat16"] = "float32"
    """Precision of the stored activations."""
    attention: Literal["auto", "sdpa", "eager"] = "auto"
    """Attention kernel; auto uses eager only if a pooler needs attention weights."""

    @property
    def weight_copies(self) -> WeightCopies:
        """The randomly initialised twin is a second model."""
        return WeightCopies(float("twin" in self.baselines))

    @field_validator("baselines")
    @classmethod
    def _known_baselines(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value == ("none",):
            return ()
        if value == ("all",):
            return PROBE_BASELINES
        unknown = [v for v in value if v not in PROBE_BASELINES]
        if unknown:
            raise ValueError(
                f"Unknown baseline {unknown[0]!r}. Known: {', '.join(PROBE_BASELINES)}, all, none."
            )
        return value
