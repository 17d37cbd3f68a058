"""The spec of `cutaway finetune`."""

from typing import Literal

from cutaway.training.options import LabelWords, TrainingSpec


class FinetuneSpec(TrainingSpec):
    """Teach a model a task, and keep the checkpoint that did best on held-out rows."""

    model: str
    """The model to start from: a bundled name, a hub id, a folder, or base+adapter."""
    revision: str | None = None
    """Branch, tag or commit of a hub model."""
    mode: Literal["head", "prompt", "autoregressive"] | None = None
    """head: a linear head; prompt: a masked model fills a template; autoregressive: a causal model
    says the answer. By default what the model is made for: prompt or autoregressive."""
    task: str | None = None
    """A task by name or .toml file: template, label words, metric. The data's own if it has one."""
    data: str | None = None
    """Labelled rows: a file, a folder, hf:ID, gen:NAME; the task's own when not given."""
    template: str | None = None
    """How the model is asked, with {text}, {pair}, {mask}, instead of the task's."""
    words: LabelWords = ()
    """One answer word per class, in class order, instead of the task's."""
    text_column: str | None = None
    """Column with the text, for data without a task."""
    pair_column: str | None = None
    """Column with the second text of a pair, for data without a task."""
    label_column: str | None = None
    """Column with the label, for data without a task."""
    at: Literal["auto", "first", "last", "mask"] = "auto"
    """Where a linear head reads: auto is the family's own classification head."""
    out: str | None = None
    """Folder for the checkpoint; inside the run's own folder otherwise."""
