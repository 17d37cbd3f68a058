"""The skill of one task in a sequence: the weights that hold it, and the metadata of its file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from cutaway.console import Console
from cutaway.core.spec import build_spec
from cutaway.methods.graft.mask_search import MaskSearch
from cutaway.methods.graft.maths.select import Params, mask_size
from cutaway.methods.graft.maths.soft_mask import assign_weights
from cutaway.methods.graft.model_pair import ModelPair
from cutaway.methods.graft.skill import Skill
from cutaway.methods.graft.spec import ContinualSpec, LearnSpec
from cutaway.methods.graft.summary import skill_metadata
from cutaway.methods.graft.task_evaluator import make_evaluator
from cutaway.models.digests import checksum
from cutaway.models.lm import LM
from cutaway.models.start_token import tokens_in_front
from cutaway.recipe.result import Row
from cutaway.training.task_model import TaskModel
from cutaway.training.task_split import TaskSplit

# The names of the kinds of rows in a skill file.
SKILL_KINDS = {"base": "base", "outside": "tuned", "graft": "learned"}


@dataclass(frozen=True, eq=False)
class ContinualTask:
    """One task of the sequence: the model with the task's examples, and their split."""

    model: TaskModel
    split: TaskSplit

    @property
    def name(self) -> str:
        """The task's name."""
        return self.split.task.name


@dataclass(frozen=True, eq=False)
class LearnedTaskSkill:
    """A skill, and the search that found it."""

    skill: Skill
    search: MaskSearch
    split: TaskSplit

    def with_metadata(self, rows: Sequence[Row], earlier: Sequence[str]) -> Skill:
        """The skill with the metadata of `graft learn`, and the tasks that were learned before."""
        spec, pair, skill = self.search.spec, self.search.pair, self.skill
        share = skill.size / pair.total
        cell = {"step": None, "sparsity": share}
        renamed = [{**row, "kind": SKILL_KINDS[row["kind"]], **cell} for row in rows]
        meta = skill_metadata(
            spec, pair, self.split, skill, renamed, share=share, seeds=(spec.seed,)
        )
        return Skill(skill.patch, skill.shapes, {**meta, "after": list(earlier)})


def learn_task_skill(
    spec: ContinualSpec,
    lm: LM,
    task: ContinualTask,
    params: Mapping[str, nn.Parameter],
    before: Params,
    base: str,
    console: Console,
    folder: Path | None = None,
) -> LearnedTaskSkill:
    """The few weights that hold what the task changed; `params` are those of `before` afterwards.

    `base` is the checksum of the model before the first task. The unfinished mask is saved in
    `folder`.
    """
    facts: dict[str, Any] = {
        "base": {
            "name": lm.name,
            "digest": lm.digest,
            "checksum": base,
            "start_tokens": tokens_in_front(lm.tokenizer),
        },
        "tuned": {"name": f"{lm.name} after {task.name}", "checksum": checksum(lm.params())},
    }
    tuned = {name: value.detach().clone() for name, value in params.items()}
    assign_weights(params, before)
    pair = ModelPair(task.model, params, before, tuned, {}, facts)
    wanted = _learn_spec(spec, task.name)
    evaluator = make_evaluator(task.model, task.split, wanted, None)
    search = MaskSearch(wanted, pair, evaluator, task.split.train, console, folder)
    trained = sum(value.numel() for value in params.values())
    size = min(mask_size(spec.sparsity, trained), pair.total)
    search.rank_by_gradients([size])
    skill = search.skill(search.patch(search.learn(size, spec.seed).mask))
    return LearnedTaskSkill(skill, search, task.split)


def _learn_spec(spec: ContinualSpec, task: str) -> LearnSpec:
    return build_spec(
        LearnSpec,
        {
            "base": spec.base,
            "tuned": spec.base,
            "task": task,
            "sparsity": spec.sparsity,
            "optimizer": spec.mask_optimizer,
            "steps": spec.mask_steps,
            "step_examples": spec.step_examples,
            "baselines": "none",
            "seed": spec.seed,
        },
    )
