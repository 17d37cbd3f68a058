"""`cutaway.graft`: find, move, combine and remove a skill.

    cutaway.graft.finetune(model="smollm2-135m", task="sst2", out="tuned")
    cutaway.graft.learn(base="smollm2-135m", tuned="tuned", task="sst2", out="skill.safetensors")
    skill = cutaway.graft.load("skill.safetensors")
    skill.attach(model); skill.detach(model)              # in place, bit for bit
    cutaway.graft.attach(skill, base="smollm2-135m", out="with-skill")
    cutaway.graft.overlap(["one.safetensors", "two.safetensors"]).figure("overlap")

The verbs are made from the catalog: keyword arguments are the flags of the command line, and
models, data and loaded skills may be given as objects.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutaway.recipe.python_api import group_function, group_functions

if TYPE_CHECKING:
    from cutaway.methods.graft.skill import Skill

__all__ = ["load", *group_functions("graft")]


def load(path: Path | str) -> "Skill":
    """Load a skill file; the skill has `attach(model)` and `detach(model)`."""
    from cutaway.methods.graft.skill import load_skill

    return load_skill(path)


def __getattr__(name: str) -> Callable[..., Any]:
    return group_function("graft", name)


def __dir__() -> list[str]:
    return __all__
