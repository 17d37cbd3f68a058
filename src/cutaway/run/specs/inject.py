"""The specs of `cutaway fisher` and `cutaway inject`."""

from typing import Literal

from pydantic import Field

from cutaway.run.specs.common import Common, Names


class FisherSpec(Common):
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


INJECT: dict[str, type[Common]] = {"fisher": FisherSpec}
"""The verbs, by their words on the command line."""
