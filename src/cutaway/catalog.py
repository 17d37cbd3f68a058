"""The catalog: one row per verb, naming the folder of its method.

The command line, the Python functions, the app's pages and forms, the figures, the engine support
and the generated docs all derive from this table. A row holds only strings, so reading it loads
nothing: a verb's module and its spec are imported when the verb is used.

To add a method, add a folder under `methods/` and its rows here (docs/howto/add-a-method.md).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cutaway.core.spec import Spec


@dataclass(frozen=True)
class Verb:
    """One command: its words, where its recipe and its spec are, and how it is offered."""

    words: str
    """As typed after `cutaway`: "probe", "graft learn"."""
    recipe: str
    """The recipe's module below `cutaway.methods` (or `package`): "graft.learn"."""
    spec: str
    """The spec's class in the `spec` module of that folder: "LearnSpec"."""
    help: str
    """One line for `cutaway --help`."""
    form: tuple[str, ...] = ()
    """The fields on top of the app's form; the others are folded away."""
    objects: tuple[str, ...] = ()
    """Fields that accept Python objects as well as names."""
    first: str = ""
    """The field that the first word without a flag fills."""
    parallel: str = ""
    """What `--engine` distributes; empty when the verb runs in one process."""
    distributed: bool = False
    """Whether several processes started by accelerate or torchrun train together."""
    python: str = ""
    """The Python name where it isn't the words with a dot: `cutaway.graft.finetune`."""
    package: str = "methods"
    """Where its folder is: `methods`, or `studies` for a verb that uses several of them."""

    @property
    def method(self) -> str:
        """The method's folder, which is also where its runs are kept."""
        return self.recipe.partition(".")[0]

    @property
    def name(self) -> str:
        """The name as a Python attribute: "graft.learn"."""
        return self.python or self.words.replace(" ", ".")

    def load(self) -> ModuleType:
        """The recipe's module."""
        return import_module(f"cutaway.{self.package}.{self.recipe}")

    @property
    def spec_class(self) -> "type[Spec]":
        """The spec's class; loads pydantic but not torch."""
        module = import_module(f"cutaway.{self.package}.{self.method}.spec")
        found: type[Spec] = getattr(module, self.spec)
        return found


VERBS: dict[str, Verb] = {
    verb.words: verb
    for verb in (
        Verb(
            "probe", "probe.recipe", "ProbeSpec",
            "What information do the hidden states encode?",
            form=("model", "data", "layers", "pool", "classifier", "protocol", "repeats", "limit"),
            objects=("model", "data", "classifier"),
            parallel="extraction, cells of the grid",
        ),
        Verb(
            "nextword", "nextword.recipe", "NextwordSpec",
            "Does next-word prediction already solve the task, and through which words?",
            form=("model", "task", "data", "features", "prompt_text", "limit"),
            objects=("model", "task", "data"),
            parallel="extraction, feature kinds",
        ),
        Verb(
            "quad", "nextword.quad", "QuadSpec",
            "Train a small language model with the Quad objective or with cross-entropy.",
            form=("text", "objective", "steps"),
            objects=("model", "text", "data"),
            distributed=True,
        ),
        Verb(
            "shortcut fit", "shortcut.fit", "FitSpec",
            "Fit linear maps between layers.",
            form=("model", "text", "layers", "limit", "positions_per_text"),
            objects=("model", "text"),
            parallel="extraction, cross-products",
        ),
        Verb(
            "shortcut eval", "shortcut.eval", "EvalSpec",
            "Measure how close each layer is to the final prediction.",
            form=("model", "shortcut", "text", "limit"),
            objects=("model", "text"),
            parallel="extraction",
        ),
        Verb(
            "shortcut exit", "shortcut.exit", "ExitSpec",
            "Measure what an early exit saves and what it costs.",
            form=("model", "shortcut", "text", "limit", "agreement"),
            objects=("model", "text"),
            parallel="extraction",
        ),
        Verb(
            "shortcut generate", "shortcut.generate", "GenerateSpec",
            "Generate text with early exit or lossless self-speculation.",
            form=("model", "shortcut", "prompt", "mode", "max_new_tokens"),
            objects=("model",),
        ),
        Verb(
            "shortcut lens", "shortcut.lens", "LensSpec",
            "Show each layer's prediction at each token.",
            form=("model", "text", "shortcut"),
            objects=("model",),
            first="text",
        ),
        Verb(
            "finetune", "finetune.recipe", "FinetuneSpec",
            "Fine-tune a model on a task and keep the best checkpoint.",
            form=("model", "task", "data", "shots", "steps", "optimizer", "lr", "test_limit"),
            objects=("model", "data"),
            distributed=True,
            python="graft.finetune",
        ),
        Verb(
            "graft learn", "graft.learn", "LearnSpec",
            "Find the few weights that hold a fine-tuned skill.",
            form=("base", "tuned", "task", "data", "sparsity", "steps"),
            objects=("base", "tuned", "data", "text"),
            parallel="masks: sparsities, seeds, baselines",
        ),
        Verb(
            "graft attach", "graft.attach", "AttachSpec",
            "Write a checkpoint of the base model with a skill added.",
            objects=("base", "skill"),
            first="skill",
        ),
        Verb(
            "graft detach", "graft.detach", "DetachSpec",
            "Write a checkpoint with a skill removed.",
            objects=("model", "skill"),
            first="skill",
        ),
        Verb(
            "graft eval", "graft.eval", "GraftEvalSpec",
            "Evaluate skills on their own task and on others.",
            objects=("base", "tuned", "data", "skill", "text"),
            first="skill",
        ),
        Verb(
            "graft stack", "graft.stack", "StackSpec",
            "Combine several skills into one.",
            objects=("skill",),
            first="skill",
        ),
        Verb(
            "graft overlap", "graft.overlap", "OverlapSpec",
            "Measure which weights skills share.",
            objects=("skill",),
            first="skill",
        ),
        Verb(
            "graft export", "graft.export", "ExportSpec",
            "Write a skill as plain tensors for other programs.",
            objects=("skill",),
            first="skill",
        ),
        Verb(
            "graft continual", "graft.continual", "ContinualSpec",
            "Learn several tasks in sequence without forgetting.",
            form=("base", "task", "data", "sparsity", "steps"),
            objects=("base", "data"),
            parallel="the two ways of training",
        ),
        Verb(
            "fisher", "inject.fisher", "FisherSpec",
            "Estimate the diagonal Fisher information of each weight.",
            form=("model", "text", "data", "limit"),
            objects=("model", "text", "data"),
            parallel="sums over the examples",
        ),
        Verb(
            "inject", "inject.recipe", "InjectSpec",
            "Train a skill in and measure what it costs the others.",
            form=("model", "skill", "regulariser", "strength", "retain", "retain_tasks", "steps"),
            objects=("model", "skill", "data", "retain", "retain_tasks"),
            parallel="cells of the sweep, Fisher information",
            distributed=True,
        ),
        Verb(
            "draw", "draw.recipe", "DrawSpec",
            "Draw a model, cut open: what each layer knows and says, in one picture.",
            form=("model", "data", "sentence", "tuned", "quick"),
            objects=("model",),
            first="model",
            parallel="the runs that it makes",
            package="studies",
        ),
    )
}  # fmt: skip

GROUPS = {
    "graft": "Find, move, combine and remove the few weights that hold a skill.",
    "shortcut": "Replace blocks by one linear map: how linear is the model, how early can it stop?",
}
"""Methods whose verbs have two words, with the help of the first."""


def methods() -> tuple[str, ...]:
    """The methods' folders, in the order of the table."""
    own = (verb for verb in VERBS.values() if verb.package == "methods")
    return tuple(dict.fromkeys(verb.method for verb in own))


def verbs_of(method: str) -> Iterator[Verb]:
    """The verbs of one method, in the order of the table."""
    return (verb for verb in VERBS.values() if verb.method == method)


def method_module(method: str, part: str) -> Any:
    """A part of a method's folder: its `figures`, `page`, `table`, `spec`."""
    return import_module(f"cutaway.methods.{method}.{part}")
