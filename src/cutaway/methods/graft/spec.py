"""The specs of `cutaway graft`."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from cutaway.core.model_size import ModelSize, WeightCopies
from cutaway.recipe.options import MAX_SEED, Names, RunOptions, SamplesOption, SomeNames
from cutaway.training.options import LabelledDataSpec, LabelWords, TrainingSpec

BASELINES = (
    "random", "movement", "grad_movement", "fisher", "uniform", "biases", "ties", "dare",
)  # fmt: skip
# Tokens per backward pass: a GPU is faster with many, a CPU needs less memory with few.
BACKWARD_TOKENS = {"cpu": 256, "cuda": 2048}


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
            raise ValueError(f"seeds must be integers within 0-{MAX_SEED}, got {seed}.")
    return seeds


Sparsities = Annotated[tuple[float, ...], BeforeValidator(_parse_sparsities), Field(min_length=1)]
Seeds = Annotated[tuple[int, ...], BeforeValidator(_parse_seeds)]


class TaskDataSpec(LabelledDataSpec):
    """A task's rows and prompts."""

    data: str | None = None
    """Labelled rows: a file, a folder, hf:ID, gen:NAME. Default: the task's own rows."""
    template: str | None = None
    """Prompt template with {text}, {pair}, {mask}, instead of the task's."""
    words: LabelWords = ()
    """One label word per class, in class order, instead of the task's."""
    shots: int | None = Field(default=None, ge=1)
    """Training rows per class, and as many dev rows. Default: all rows."""
    data_seed: int = Field(default=13, ge=0, le=MAX_SEED)
    """Seed of the split into train, dev and test: give the seed of the fine-tuning."""
    test_limit: int | None = Field(default=None, ge=1)
    """Test on at most this many rows, drawn with the data seed."""
    max_tokens: int | None = Field(default=None, ge=4)
    """Truncate texts to prompts of at most this many tokens. Default: the model's context."""


class LearnSpec(TaskDataSpec, SamplesOption):
    """Find the few weights that hold a fine-tuned skill, and compare with baseline masks."""

    changes_weights: ClassVar[bool] = True

    base: str
    """The model before fine-tuning: a bundled name, a hub id, or a folder."""
    tuned: str
    """The model after fine-tuning: a folder, a hub id, or base+adapter (LoRA is merged)."""
    task: str
    """The task it was fine-tuned on: a name, or a .toml file."""
    mode: Literal["head", "prompt", "autoregressive"] | None = None
    """The mode of fine-tuning. Default: prompt or autoregressive, as the model is. head keeps the
    tuned head and masks only the trunk."""
    at: Literal["auto", "first", "last", "mask"] = "auto"
    """Token that a linear head reads (mode head), as in finetune."""
    sparsity: Sparsities = (1e-4,)
    """Share of the changed weights to keep. Several give a curve; the first skill is saved."""
    keep_gain: float | None = Field(default=None, gt=0, le=1)
    """Find the smallest part of the mask learned at the largest sparsity that keeps this share of
    the fine-tuning gain."""
    params: Names = ()
    """Choose only weights whose names match one of these patterns. Default: all that changed."""
    precision: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    """Weights that are equal in this precision have not moved. auto: the coarser of the precisions
    in which both checkpoints are stored; bfloat16 at most for an adapter."""
    start: str = "best"
    """The mask to start from: best (of movement and grad_movement), movement (as in the paper), any
    other baseline, or a skill file (warm start)."""
    optimizer: Literal["mirror", "sgd", "adam"] = "mirror"
    """Optimizer of the mask: mirror descent, SGD as in the paper, or Adam."""
    lr: float | None = Field(default=None, gt=0)
    """Learning rate of the mask. Default: 30 for mirror (the first step changes a typical logit by
    30; logits start at +-10), 1e7 for sgd, 0.5 for adam."""
    steps: int = Field(default=60, ge=0)
    """Gradient steps on the mask; 0 keeps the starting mask."""
    step_examples: int = Field(default=64, ge=1)
    """Training examples per step (the paper: up to 1,024)."""
    every: int = Field(default=5, ge=1)
    """Steps between evaluations on train and dev rows; the best mask is kept."""
    judge_examples: int = Field(default=256, ge=1)
    """Maximum number of dev rows, and of train rows, that evaluate a mask during learning."""
    slope_examples: int = Field(default=64, ge=1)
    """Training examples whose gradients rank the weights of grad_movement and fisher."""
    baselines: Names = BASELINES
    """Baseline masks of the same size: random movement grad_movement fisher uniform biases ties
    dare, or none."""
    seeds: Seeds = ()
    """Learn one mask per seed (initial logits, order of examples); intervals are over seeds."""
    text: str = "docs"
    """Held-out text for the language-model loss, or none."""
    text_limit: int = Field(default=64, ge=1)
    """Maximum number of held-out texts."""
    out: str | None = None
    """Where to write the skill (FILE.safetensors). Default: the run's own folder."""

    @property
    def mask_copies(self) -> int:
        """Copies of the changed weights: base, tuned, mask, gradients, one more that the measured
        peak has, and the states of the optimizer."""
        return 6 if self.optimizer == "adam" else 5

    @property
    def weight_copies(self) -> WeightCopies:
        """Those of the changed weights; an adapter may change few."""
        return WeightCopies(1.0 if "+" in self.tuned else float(self.mask_copies))

    def work_bytes(self, size: ModelSize) -> int:
        """Those of a backward pass."""
        return size.training(BACKWARD_TOKENS["cpu"])

    @field_validator("baselines")
    @classmethod
    def _known_baselines(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        named = () if value == ("none",) else BASELINES if value == ("all",) else value
        unknown = [name for name in named if name not in BASELINES]
        if unknown:
            raise ValueError(
                f"Unknown baseline {unknown[0]!r}. Known: {', '.join(BASELINES)}, all, none."
            )
        return named

    @field_validator("sparsity")
    @classmethod
    def _positive_shares(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        wrong = [share for share in value if not 0 < share <= 1]
        if wrong:
            raise ValueError(f"sparsity must be in (0, 1], got {wrong[0]!r}.")
        return value

    @model_validator(mode="after")
    def _skill_file_name(self) -> "LearnSpec":
        if self.out is not None and not self.out.endswith(".safetensors"):
            raise ValueError(f"--out is a skill file that ends in .safetensors, got {self.out!r}.")
        return self


class SkillFileSpec(RunOptions):
    """Verbs with one skill file."""

    changes_weights: ClassVar[bool] = True

    skill: str
    """The skill: a file written by `graft learn` or `graft stack`."""


class AttachSpec(SkillFileSpec):
    """Write a checkpoint of the base model with a skill added."""

    base: str
    """The model that the skill was learned from; any other is refused."""
    out: str
    """Folder for the checkpoint, in the format of transformers."""


class DetachSpec(SkillFileSpec):
    """Write a checkpoint with a skill removed: the base, bit for bit."""

    model: str
    """The model that has the skill."""
    out: str
    """Folder for the checkpoint, in the format of transformers."""


class GraftEvalSpec(LabelledDataSpec, SamplesOption):
    """Evaluate skills on their own task and on other sets with the same labels."""

    changes_weights: ClassVar[bool] = True

    skill: SomeNames
    """Skills to evaluate: files written by `graft learn`."""
    base: str
    """The model that the skills were learned from."""
    tuned: str | None = None
    """The fine-tuned model, to compare the skills with and to remove them from."""
    data: SomeNames
    """Labelled sets, evaluated with the skill's own prompts; several give a matrix."""
    task: Names = ()
    """Use the prompts of these tasks instead, one for each --data: for sets with other labels and
    for stacked skills."""
    test_limit: int | None = Field(default=None, ge=1)
    """Use at most this many rows of each set, drawn with the seed."""
    max_tokens: int | None = Field(default=None, ge=4)
    """Truncate texts to prompts of at most this many tokens. Default: the model's context."""
    text: str = "docs"
    """Held-out text for the language-model loss, or none."""
    text_limit: int = Field(default=64, ge=1)
    """Maximum number of held-out texts."""


class StackSpec(RunOptions):
    """Combine several skills of the same base into one."""

    changes_weights: ClassVar[bool] = True

    skill: SomeNames
    """Skill files to combine."""
    rule: Literal["sum", "mean", "first"] = "sum"
    """For weights that several skills change: add the changes, average them, or keep the first."""
    out: str
    """Where to write the skill (FILE.safetensors)."""


class OverlapSpec(RunOptions):
    """Measure which weights skills share."""

    skill: SomeNames
    """Skill files to compare, all of the same base."""


class ExportSpec(SkillFileSpec):
    """Write a skill as plain tensors by weight name, for other programs."""

    out: str
    """Folder for skill.safetensors and a README that explains how to use it."""


class ContinualSpec(TrainingSpec):
    """Learn several tasks in sequence with grafts, and compare with sequential training."""

    base: str
    """The model to start from: a bundled name, a hub id, a folder, a GGUF file."""
    revision: str | None = None
    """Branch, tag or commit of a hub model."""
    task: SomeNames
    """The tasks in the order they are learned: names, or .toml files; at least two."""
    data: Names = ()
    """Labelled rows for each task, in the same order. Default: the tasks' own rows."""
    sparsity: float = Field(default=1e-3, gt=0, le=1)
    """Share of the trained weights that each skill keeps."""
    mask_optimizer: Literal["mirror", "sgd", "adam"] = "mirror"
    """Optimizer of the masks."""
    mask_steps: int = Field(default=60, ge=0)
    """Gradient steps on each mask; 0 keeps the starting mask."""
    step_examples: int = Field(default=64, ge=1)
    """Training examples per gradient step on a mask."""
