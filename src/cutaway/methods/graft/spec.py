"""The specs of `cutaway graft learn | attach | detach | eval | stack | overlap | export`."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from cutaway.recipe.options import MAX_SEED, Names, RunOptions, SomeNames
from cutaway.training.options import LabelledDataSpec, LabelWords, TrainingSpec

BASELINES = (
    "random", "movement", "grad_movement", "fisher", "uniform", "biases", "ties", "dare",
)  # fmt: skip


def _split_commas(value: Any) -> list[Any]:
    """The pieces of `1e-4,1e-3`, of a list, or of one value."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    return [piece for part in parts for piece in str(part).split(",") if piece.strip()]


def _parse_sparsities(value: Any) -> Any:
    return tuple(float(piece) for piece in _split_commas(value))


def _parse_seeds(value: Any) -> Any:
    seeds = tuple(int(piece) for piece in _split_commas(value))
    for seed in seeds:
        if not 0 <= seed <= MAX_SEED:
            raise ValueError(f"seeds must be whole numbers within 0-{MAX_SEED}, got {seed}.")
    return seeds


Sparsities = Annotated[tuple[float, ...], BeforeValidator(_parse_sparsities), Field(min_length=1)]
Seeds = Annotated[tuple[int, ...], BeforeValidator(_parse_seeds)]


class TaskDataSpec(LabelledDataSpec):
    """How a model is asked about a task."""

    data: str | None = None
    """Labelled rows: a file, a folder, hf:ID, gen:NAME; the task's own when not given."""
    template: str | None = None
    """How the model is asked, with {text}, {pair}, {mask}, instead of the task's."""
    words: LabelWords = ()
    """One answer word per class, in class order, instead of the task's."""
    shots: int | None = Field(default=None, ge=1)
    """Rows per class to learn from, as many again to tune on; all rows when not given."""
    data_seed: int = Field(default=13, ge=0, le=MAX_SEED)
    """Decides which rows are learned from: give the seed that fine-tuning had."""
    test_limit: int | None = Field(default=None, ge=1)
    """Test on at most this many rows, drawn with the data seed."""
    max_tokens: int | None = Field(default=None, ge=4)
    """Cut texts so that a question has at most this many tokens; the model's context otherwise."""


class LearnSpec(TaskDataSpec):
    """Which few weights hold what fine-tuning taught: a mask learned, others beside it."""

    base: str
    """The model before fine-tuning: a bundled name, a hub id, a folder."""
    tuned: str
    """The model after: a folder, a hub id, or base+adapter (LoRA is merged on the fly)."""
    task: str
    """What was taught: a task by name, or a .toml file."""
    mode: Literal["head", "prompt", "autoregressive"] | None = None
    """How it was taught; by default what the model is made for. head keeps the tuned head whole."""
    at: Literal["auto", "first", "last", "mask"] = "auto"
    """Where a linear head reads (mode head), as in finetune."""
    sparsity: Sparsities = (1e-4,)
    """Share of the trained weights to keep. Several make a curve; the first one's skill is kept."""
    keep_gain: float | None = Field(default=None, gt=0, le=1)
    """Search the smallest part of the mask learned at the largest sparsity that keeps this share
    of the gain."""
    params: Names = ()
    """Only weights whose name fits one of these patterns; by default every weight that moved."""
    start: str = "best"
    """The mask to start from: best (of movement and grad_movement, as judged), movement (the
    paper's), any other baseline, or a skill file (warm start)."""
    optimizer: Literal["mirror", "sgd", "adam"] = "mirror"
    """How the mask is learned: mirror descent, the paper's plain steps (sgd), or adam."""
    lr: float | None = Field(default=None, gt=0)
    """Step size; by default 30 for mirror (a typical weight's logit moves by 30 in the first step,
    the start lies at +-10), 1e7 for sgd, 0.5 for adam."""
    steps: int = Field(default=60, ge=0)
    """Gradient steps on the mask; 0 keeps the starting mask."""
    step_examples: int = Field(default=64, ge=1)
    """Training examples per step (the paper: up to 1,024)."""
    every: int = Field(default=5, ge=1)
    """Steps between judgements on train and dev rows; the best mask is kept."""
    judge_examples: int = Field(default=256, ge=1)
    """At most so many dev rows, and as many train rows, judge a mask on the way."""
    slope_examples: int = Field(default=64, ge=1)
    """Training examples whose gradients rank grad_movement and fisher."""
    baselines: Names = BASELINES
    """Masks of equal size beside it: random movement grad_movement fisher uniform biases ties dare
    | none."""
    seeds: Seeds = ()
    """Learn once per seed (start of the mask, order of the examples); intervals are over seeds."""
    text: str = "docs"
    """Held-out text for the language-model loss before and after; none leaves it out."""
    text_limit: int = Field(default=64, ge=1)
    """At most so many of its texts."""
    out: str | None = None
    """Where to write the skill (FILE.safetensors); the run's own folder otherwise."""

    @field_validator("baselines")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        named = () if value == ("none",) else BASELINES if value == ("all",) else value
        unknown = [name for name in named if name not in BASELINES]
        if unknown:
            raise ValueError(
                f"Unknown baseline {unknown[0]!r}. Known: {', '.join(BASELINES)}, all, none."
            )
        return named

    @field_validator("sparsity")
    @classmethod
    def _shares_of_one(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        wrong = [share for share in value if not 0 < share <= 1]
        if wrong:
            raise ValueError(f"sparsity must lie in (0, 1], got {wrong[0]!r}.")
        return value

    @model_validator(mode="after")
    def _ends_well(self) -> "LearnSpec":
        if self.out is not None and not self.out.endswith(".safetensors"):
            raise ValueError(f"--out is a skill file that ends in .safetensors, got {self.out!r}.")
        return self


class SkillFileSpec(RunOptions):
    """A verb about one skill file."""

    skill: str
    """The skill: a file written by `graft learn` or `graft stack`."""


class AttachSpec(SkillFileSpec):
    """A plain checkpoint of the base with the skill in it."""

    base: str
    """The model the skill was learned from; any other is refused."""
    out: str
    """Folder for the checkpoint; transformers loads it as it is."""


class DetachSpec(SkillFileSpec):
    """A plain checkpoint with the skill taken out again: the base, bit for bit."""

    model: str
    """The model that has the skill."""
    out: str
    """Folder for the checkpoint; transformers loads it as it is."""


class GraftEvalSpec(LabelledDataSpec):
    """What skills do on their own task and on others with the same labels."""

    skill: SomeNames
    """Skills to measure: files written by `graft learn`."""
    base: str
    """The model the skills were learned from."""
    tuned: str | None = None
    """The fine-tuned model, to hold the skills against, and to take them out of."""
    data: SomeNames
    """Labelled sets, each answered in the skill's own words; several make a matrix."""
    task: Names = ()
    """Ask each set in the words of a task instead, one task for each --data: for other labels,
    and for stacked skills."""
    test_limit: int | None = Field(default=None, ge=1)
    """Use at most this many rows of each set, drawn with the seed."""
    max_tokens: int | None = Field(default=None, ge=4)
    """Cut texts so that a question has at most this many tokens; the model's context otherwise."""
    text: str = "docs"
    """Held-out text for the language-model loss; none leaves it out."""
    text_limit: int = Field(default=64, ge=1)
    """At most so many of its texts."""


class StackSpec(RunOptions):
    """One skill made of several, all learned from the same base."""

    skill: SomeNames
    """Skills to put together: files."""
    rule: Literal["sum", "mean", "first"] = "sum"
    """Where several change a weight: add the changes, take their mean, or keep the first one's."""
    out: str
    """Where to write the skill (FILE.safetensors)."""


class OverlapSpec(RunOptions):
    """How much of each skill's weights every other skill has too."""

    skill: SomeNames
    """Skills to compare: files, learned from the same base."""


class ExportSpec(SkillFileSpec):
    """The skill as plain tensors by weight name, for programs that know nothing of Cutaway."""

    out: str
    """Folder for skill.safetensors, with a README that says how to use it."""


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
