"""Which weights are trained: by where they are, by name pattern, biases only."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from cutaway.core.errors import BadSpec
from cutaway.models.lm import LM
from cutaway.training.task_model import TaskModel


def parameter_groups(lm: LM, names: Sequence[str]) -> dict[str, str]:
    """Where each weight belongs: blocks, final (norm), embeddings, head, or new.

    `new` are weights that the language model hasn't: those of a classification head.
    """
    known = set(lm.params())
    final = tuple(f"{part.removesuffix('?')}." for part in lm.anatomy.final)
    body, blocks = f"{lm.module.base_model_prefix}.", f"{lm.anatomy.blocks}."

    def where(name: str) -> str:
        if name not in known:
            return "new"
        if name.startswith(blocks):
            return "blocks"
        if final and name.startswith(final):
            return "final"
        return "embeddings" if name.startswith(body) else "head"

    return {name: where(name) for name in names}


def select_trainable_params(
    pupil: TaskModel,
    *,
    fixed_embeddings: bool = True,
    fixed_head: bool | None = None,
    biases_only: bool = False,
    patterns: Sequence[str] = (),
) -> dict[str, nn.Parameter]:
    """The weights to train, by name. Only `fixed_head` keeps a new head from learning."""
    every = pupil.params()
    where = parameter_groups(pupil.lm, list(every))
    resting = {"embeddings"} if fixed_embeddings else set()
    resting |= set() if fixed_head is False else {"head"}
    resting |= {"new"} if fixed_head else set()

    def wanted(name: str) -> bool:
        if where[name] in resting or where[name] == "new":
            return where[name] not in resting
        fits = not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
        return fits and (not biases_only or name.endswith("bias"))

    found = {name: parameter for name, parameter in every.items() if wanted(name)}
    if not found or (patterns and not any(where[name] != "new" for name in found)):
        raise BadSpec(_nothing_to_train(pupil.lm, patterns, biases_only, list(every)))
    return found


def _nothing_to_train(lm: LM, patterns: Sequence[str], biases_only: bool, names: list[str]) -> str:
    """Why no weight is left to train."""
    if patterns:
        asked = " ".join(patterns) + (", biases only" if biases_only else "")
        example = names[len(names) // 2]
        return f"No weight that may be trained fits {asked!r}. A name looks like {example!r}."
    if biases_only:
        return f"{lm.name!r} has no biases to train: its blocks go without. Leave out biases_only."
    return f"No weight of {lm.name!r} is left to train: widen the choice."
