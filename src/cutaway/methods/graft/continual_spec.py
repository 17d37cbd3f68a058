"""The spec of `cutaway graft continual`."""

from typing import Literal

from pydantic import Field

from cutaway.recipe.options import Names, SomeNames
from cutaway.training.options import TrainingSpec


class ContinualSpec(TrainingSpec):
    """Tasks one after the other, each outside the earlier ones' grafts, against plain training."""

    base: str
    """The model to start from: a bundled name, a hub id, a folder."""
    revision: str | None = None
    """Branch, tag or commit of a hub model."""
    task: SomeNames
    """The tasks in the order they are learned: names, or .toml files; at least two."""
    data: Names = ()
    """Labelled rows for each task, in the same order; the tasks' own when not given."""
    sparsity: float = Field(default=1e-3, gt=0, le=1)
    """Share of the trained weights that each skill keeps."""
    mask_optimizer: Literal["mirror", "sgd", "adam"] = "mirror"
    """How a skill's mask is learned."""
    mask_steps: int = Field(default=60, ge=0)
    """Gradient steps on each mask; 0 keeps the weights that moved most."""
    step_examples: int = Field(default=64, ge=1)
    """Training examples per step of a mask."""
