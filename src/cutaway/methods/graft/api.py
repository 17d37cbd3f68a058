"""`cutaway.graft`: find, move, combine and remove a skill.

    cutaway.graft.finetune(model="smollm2-135m", task="sst2", out="tuned")
    cutaway.graft.learn(base="smollm2-135m", tuned="tuned", task="sst2", out="skill.safetensors")
    skill = cutaway.graft.load("skill.safetensors")
    skill.attach(model); skill.detach(model)              # in place, bit for bit
    cutaway.graft.overlap(["one.safetensors", "two.safetensors"]).figure("overlap")

Keyword arguments are the flags of the command line; models and data may be given as objects.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cutaway.console import Console
from cutaway.core.spec import build_spec
from cutaway.methods.graft.spec import GRAFT
from cutaway.recipe.engine_support import warn_if_not_parallel
from cutaway.recipe.objects import name_objects

if TYPE_CHECKING:
    from cutaway.methods.graft.checkpoint import ActionResult
    from cutaway.methods.graft.skill import Skill
    from cutaway.recipe.result import Result

__all__ = [
    "attach",
    "continual",
    "detach",
    "eval",
    "export",
    "finetune",
    "learn",
    "load",
    "overlap",
    "stack",
]

# Fields that take one object, and fields that take several.
SINGLE_OBJECT_FIELDS, MULTI_OBJECT_FIELDS = ("base", "tuned", "model", "text"), ("data", "skill")
# Verbs whose fields of the second kind really take several.
LIST_FIELDS_BY_VERB: dict[str, tuple[str, ...]] = {
    "eval": ("data", "skill"),
    "stack": ("skill",),
    "overlap": ("skill",),
    "continual": ("data",),
}


def finetune(*, quiet: bool = False, **options: Any) -> "Result":
    """Teach a model a task: `cutaway finetune` from Python."""
    from cutaway.methods.finetune.recipe import finetune as teach

    return teach(quiet=quiet, **options)


def learn(*, quiet: bool = False, **options: Any) -> "Result":
    """A skill file, and how it does beside the base, the tuned model and other masks."""
    return cast("Result", _run("learn", options, quiet))


def eval(*, quiet: bool = False, **options: Any) -> "Result":  # safe: a verb, not the builtin
    """What skills do on their own task and on others with the same labels."""
    return cast("Result", _run("eval", options, quiet))


def overlap(skill: Sequence[Path | str], *, quiet: bool = False, **options: Any) -> "Result":
    """How much of each skill's weights every other skill has too."""
    return cast("Result", _run("overlap", {"skill": list(map(str, skill)), **options}, quiet))


def continual(*, quiet: bool = False, **options: Any) -> "Result":
    """Tasks one after the other, each outside the earlier ones' skills, against plain training."""
    return cast("Result", _run("continual", options, quiet))


def attach(*, quiet: bool = False, **options: Any) -> "ActionResult":
    """A plain checkpoint of the base with the skill in it."""
    return cast("ActionResult", _run("attach", options, quiet))


def detach(*, quiet: bool = False, **options: Any) -> "ActionResult":
    """A plain checkpoint with the skill taken out again."""
    return cast("ActionResult", _run("detach", options, quiet))


def stack(*, quiet: bool = False, **options: Any) -> "ActionResult":
    """One skill file made of several."""
    return cast("ActionResult", _run("stack", options, quiet))


def export(*, quiet: bool = False, **options: Any) -> "ActionResult":
    """The skill as plain tensors by weight name."""
    return cast("ActionResult", _run("export", options, quiet))


def load(path: Path | str) -> "Skill":
    """The skill in a file: it has `attach(model)` and `detach(model)`."""
    from cutaway.methods.graft.skill import load_skill

    return load_skill(path)


def _run(verb: str, options: Mapping[str, Any], quiet: bool) -> Any:
    """Run a verb's recipe; the science is loaded only now."""
    spec = GRAFT[f"graft {verb}"]
    fields, several = (
        (*SINGLE_OBJECT_FIELDS, *MULTI_OBJECT_FIELDS),
        LIST_FIELDS_BY_VERB.get(verb, ()),
    )
    single = [name for name in fields if name not in several]
    named, objects = name_objects(options, fields, single=single)
    recipe = import_module(f"cutaway.methods.graft.{verb}")
    built, console = build_spec(spec, named), Console(quiet=quiet)
    warn_if_not_parallel(f"graft {verb}", built.engine, console)
    return recipe.run(built, console=console, objects=objects)
