"""A model that is being taught a task: how it is asked, what it answers, how it is kept.

prompt           a masked model fills the template's mask with a label word
autoregressive   a causal model says the label word that follows the template
head             a classifier on top of the text: the family's own classification head, or
                 with `at` a plain linear one on the first, the last or the mask token
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cutaway.core.errors import BadSpec
from cutaway.models.batches import TokenBudget, batches_by_length
from cutaway.models.lm import LM
from cutaway.models.loss import LinearHead, head_logits
from cutaway.models.quiet import quiet
from cutaway.models.read import forward_kwargs
from cutaway.models.tokens import pad, tokenize
from cutaway.store.artefacts import save_artefact
from cutaway.training.prompting import (
    EVAL_BATCH_TOKENS,
    PromptedExamples,
    PromptFormat,
    make_prompted_examples,
    prompt_logits,
    target_distribution,
)
from cutaway.training.task_split import TaskSplit

HEAD_FILE = "head.safetensors"
HeadPosition = Literal["auto", "first", "last", "mask"]
Rows = Sequence[int] | NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class TaskModel:
    """A model and its questions; `say` gives (rows, cls) logits, differentiable in the weights."""

    lm: LM
    mode: str
    module: Any
    """What is trained and saved; its trunk is the language model's own, weight for weight."""
    examples: PromptedExamples
    logits: Callable[[Rows], Tensor]
    head_params: Mapping[str, nn.Parameter] = field(default_factory=dict)
    """Weights of a linear head that is kept beside the model."""
    at: HeadPosition = "auto"

    def params(self) -> dict[str, nn.Parameter]:
        """Every weight by name; tied ones once."""
        return {**dict(self.module.named_parameters()), **self.head_params}

    def losses(self, rows: Rows) -> Tensor:
        """Cross-entropy per row between what should be answered and what is."""
        said = self.logits(rows).float().log_softmax(dim=1)
        return -(self.examples.targets[torch.as_tensor(np.asarray(rows))] * said).sum(dim=1)

    @torch.inference_mode()
    def predict_proba(self, rows: Rows) -> NDArray[np.float64]:
        """(rows, cls) probabilities, in the order of `rows`, without dropout."""
        index = np.asarray(rows)
        found = np.zeros((len(index), self.examples.targets.shape[1]))
        training = self.module.training
        self.module.eval()
        try:
            lengths = [len(self.examples.rows[i]) for i in index]
            for batch, _ in batches_by_length(lengths, TokenBudget(fixed=EVAL_BATCH_TOKENS)):
                said = self.logits(index[batch.rows]).double().softmax(dim=1)
                found[batch.rows] = said.cpu().numpy()
        finally:
            self.module.train(training)
        return found

    def save(self, folder: Path) -> None:
        """A checkpoint that transformers loads, its tokenizer, and a linear head beside it."""
        with quiet():
            self.module.save_pretrained(folder)
            self.lm.tokenizer.save_pretrained(folder)
        if self.head_params:
            save_linear_head(
                folder, self.head_params, self.at, self.examples.format.words, self.lm.name
            )


def save_linear_head(
    folder: Path, head: Mapping[str, Tensor], at: HeadPosition, classes: Sequence[str], base: str
) -> None:
    """A linear head in its file, beside the model it stands on."""
    tensors = {name.removeprefix("head."): value.data for name, value in head.items()}
    save_artefact(folder / HEAD_FILE, tensors, {"at": at, "classes": list(classes), "base": base})


def finetune_mode(lm: LM, mode: str | None) -> str:
    """The mode, by default what the model is made for; BadSpec for one it can't do."""
    made_for = {"masked": "prompt", "causal": "autoregressive"}[lm.kind]
    if mode in (None, "head", made_for):
        return mode or made_for
    needs = {"prompt": "a masked model: it fills a mask", "autoregressive": "a causal model"}
    raise BadSpec(
        f"mode {mode!r} needs {needs[mode]}, and {lm.name!r} is a {lm.kind} one. Use --mode "
        f"{made_for} or --mode head."
    )


def make_task_model(
    lm: LM,
    lesson: TaskSplit,
    mode: str,
    *,
    template: str | None = None,
    words: Sequence[str] = (),
    at: HeadPosition = "auto",
    max_tokens: int | None = None,
    seed: int = 0,
) -> TaskModel:
    """The model with the lesson's questions; a new head starts from the seed."""
    if lm.dtype == "float16":
        raise BadSpec("dtype 'float16' loses small gradients. Train in float32 or bfloat16.")
    if mode != "head" or at == "mask":
        lm.need_head()
        form: dict[str, Any] = {"template": template, "words": words, "max_tokens": max_tokens}
        asked = make_prompted_examples(lm, lesson.task, lesson.texts, **form)
        if mode != "head":
            return TaskModel(
                lm, mode, lm.module, asked, lambda rows: prompt_logits(lm, asked, rows)
            )
        return _linear_head_model(lm, asked, at, seed)
    asked = make_plain_examples(lm, lesson, max_tokens)
    return (
        _family_head_model(lm, asked, seed)
        if at == "auto"
        else _linear_head_model(lm, asked, at, seed)
    )


def make_plain_examples(lm: LM, lesson: TaskSplit, max_tokens: int | None) -> PromptedExamples:
    """The texts as they are, without a template, for a head to read."""
    task, texts = lesson.task, lesson.texts
    limit = min(max_tokens or lm.context, lm.context)
    found = tokenize(lm, texts.texts, pairs=texts.pairs, limit=limit)
    names = task.classes if task.kind != "regression" else ("low", "high")
    targets, bounds = target_distribution(task, texts, len(names))
    if task.kind == "regression":
        names = tuple(f"{bound:g}" for bound in bounds)
    return PromptedExamples(
        format=PromptFormat("", tuple(names), {}),
        rows=found.rows,
        word_ids=torch.arange(len(names), device=lm.device),
        targets=targets.to(lm.device),
        labels=np.asarray(texts.labels),
        task=texts.task,
        metric=task.metric,
        bounds=bounds,
        truncated=int((found.truncated > 0).sum()),
    )


def _family_head_model(lm: LM, asked: PromptedExamples, seed: int) -> TaskModel:
    """The model as transformers classifies with its family; the trunk's weights are the model's."""
    module = sequence_classifier(lm, asked.format.words, seed)

    def say(rows: Rows) -> Tensor:
        ids, mask = pad([asked.rows[i] for i in rows], lm.pad_id)
        found: Tensor = module(**forward_kwargs(lm, ids.to(lm.device), mask.to(lm.device))).logits
        return found

    return TaskModel(lm, "head", module, asked, say)


def sequence_classifier(lm: LM, classes: Sequence[str], seed: int) -> Any:
    """The family's classifier in transformers: the model's own trunk, a head from the seed."""
    from transformers import AutoModelForSequenceClassification

    config = deepcopy(lm.module.config)
    config.id2label = dict(enumerate(classes))
    config.label2id = {name: number for number, name in enumerate(classes)}
    config.pad_token_id = lm.pad_id
    with torch.random.fork_rng(devices=[]), quiet():
        torch.manual_seed(seed)
        try:
            auto: Any = AutoModelForSequenceClassification
            module = auto.from_config(
                config, dtype=getattr(torch, lm.dtype), attn_implementation=lm.attention
            )
        except (ValueError, KeyError) as error:
            raise BadSpec(
                f"transformers has no classification head for the family {lm.family!r} "
                f"({str(error).splitlines()[0][:120]}). Use --at last, or --mode autoregressive."
            ) from None
    trunk = dict(lm.module.named_parameters(remove_duplicate=False))
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if name in trunk and parameter.shape == trunk[name].shape:
            parameter.data = trunk[name].data
    return module.to(lm.device).eval().requires_grad_(False)


def _linear_head_model(lm: LM, asked: PromptedExamples, at: HeadPosition, seed: int) -> TaskModel:
    """A linear head of our own on one token's final state."""
    if at == "mask" and lm.kind != "masked":
        raise BadSpec(f"at 'mask' needs a masked model, and {lm.name!r} is causal. Use --at last.")
    rng = torch.Generator().manual_seed(seed)
    many = asked.targets.shape[1]
    start = 0.02 * torch.randn(many, _state_width(lm, asked), generator=rng)
    dtype = getattr(torch, lm.dtype)
    own = {
        "head.weight": nn.Parameter(start.to(lm.device, dtype), requires_grad=False),
        "head.bias": nn.Parameter(torch.zeros(many, device=lm.device, dtype=dtype), False),
    }

    def say(rows: Rows) -> Tensor:
        ids, mask = pad([asked.rows[i] for i in rows], lm.pad_id)
        head = LinearHead(own["head.weight"], own["head.bias"])
        place: Any = at
        return head_logits(lm, None, head, ids.to(lm.device), mask.to(lm.device), at=place)

    return TaskModel(lm, "head", lm.module, asked, say, own, at)


@torch.inference_mode()
def _state_width(lm: LM, asked: PromptedExamples) -> int:
    """How wide the body's last state is."""
    ids, mask = pad([asked.rows[0]], lm.pad_id)
    given = forward_kwargs(lm, ids.to(lm.device), mask.to(lm.device))
    return int(lm.body(**given).last_hidden_state.shape[-1])
