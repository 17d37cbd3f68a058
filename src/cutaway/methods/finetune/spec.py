"""The spec of `cutaway finetune`."""

from typing import ClassVar, Literal

from cutaway.recipe.options import SamplesOption
from cutaway.training.options import LabelWords, TrainingSpec


class FinetuneSpec(TrainingSpec, SamplesOption):
    """Fine-tune a model on a task and keep the checkpoint that is best on the dev rows."""

    # Its columns have always been part of the address.
    outside_address: ClassVar[frozenset[str]] = frozenset()

    model: str
    """The model to start from: a bundled name, a hub id, a folder, a GGUF file, or base+adapter."""
    revision: str | None = None
    """Branch, tag or commit of a hub model."""
    mode: Literal["head", "prompt", "autoregressive"] | None = None
    """head: a classification head; prompt: a masked model fills a template; autoregressive: a
    causal model predicts the label word. Default: prompt or autoregressive, as the model is."""
    task: str | None = None
    """A task by name or .toml file: template, label words, metric. Default: the data's own task."""
    data: str | None = None
    """Labelled rows: a file, a folder, hf:ID, gen:NAME. Default: the task's own rows."""
    template: str | None = None
    """Prompt template with {text}, {pair}, {mask}, instead of the task's."""
    words: LabelWords = ()
    """One label word per class, in class order, instead of the task's."""
    at: Literal["auto", "first", "last", "mask"] = "auto"
    """Token that a linear head reads; auto is the family's own classification head."""
    out: str | None = None
    """Folder for the checkpoint. Default: the run's own folder."""
