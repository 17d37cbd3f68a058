"""Which weights are trained: by their location, by name pattern, biases only."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from cutaway.core.errors import BadSpec
from cutaway.models.lm import LM
from cutaway.training.options import TrainingSpec
from cutaway.training.task_model import TaskModel


def trainable_params(task_model: TaskModel, spec: TrainingSpec) -> dict[str, nn.Parameter]:
    """The weights that the spec trains."""
    return select_trainable_params(
        task_model,
        fixed_embeddings=spec.fixed_embeddings,
        fixed_head=spec.fixed_head,
        biases_only=spec.biases_only,
        patterns=spec.params,
    )


def parameter_groups(lm: LM, names: Sequence[str]) -> dict[str, str]:
    """The group of each weight: blocks, final (norm), embeddings, head, or new.

    `new` are weights that the language model doesn't have: those of a classification head.
    """
    known = set(lm.params())
    final = tuple(f"{part.removesuffix('?')}." for part in lm.anatomy.final)
    body, blocks = f"{lm.module.base_model_prefix}.", f"{lm.anatomy.blocks}."

    def group(name: str) -> str:
        if name not in known:
            return "new"
        if name.startswith(blocks):
            return "blocks"
        if final and name.startswith(final):
            return "final"
        return "embeddings" if name.startswith(body) else "head"

    return {name: group(name) for name in names}


def select_trainable_params(
    task_model: TaskModel,
    *,
    fixed_embeddings: bool = True,
    fixed_head: bool | None = None,
    biases_only: bool = False,
    patterns: Sequence[str] = (),
) -> dict[str, nn.Parameter]:
    """The weights to train, by name. A new head is trained unless `fixed_head` is True."""
    params = task_model.params()
    group = parameter_groups(task_model.lm, list(params))
    frozen = {"embeddings"} if fixed_embeddings else set()
    frozen |= set() if fixed_head is False else {"head"}
    frozen |= {"new"} if fixed_head else set()

    def is_trained(name: str) -> bool:
        if group[name] in frozen or group[name] == "new":
            return group[name] not in frozen
        fits = not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
        return fits and (not biases_only or name.endswith("bias"))

    trained = {name: parameter for name, parameter in params.items() if is_trained(name)}
    if not trained or (patterns and not any(group[name] != "new" for name in trained)):
        raise BadSpec(_nothing_to_train(task_model.lm, patterns, biases_only, list(params)))
    return trained


def _nothing_to_train(lm: LM, patterns: Sequence[str], biases_only: bool, names: list[str]) -> str:
    """Why no weight is left to train."""
    if patterns:
        wanted = " ".join(patterns) + (", biases only" if biases_only else "")
        example = names[len(names) // 2]
        return f"No trainable weight matches {wanted!r}. A name looks like {example!r}."
    if biases_only:
        return f"The blocks of {lm.name!r} have no biases to train. Leave out biases_only."
    return f"Every weight of {lm.name!r} is frozen: train more of them."
