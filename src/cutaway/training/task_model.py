"""A model with a task to train on: its prompts, its class logits, its checkpoint.

prompt           a masked model fills the template's mask with a label word
autoregressive   a causal model predicts the label word that follows the template
head             a classifier on top of the text: the family's own classification head, or
                 with `at` a linear one on the first, the last or the mask token
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

from cutaway.console import quiet_transformers
from cutaway.core.errors import BadSpec
from cutaway.models.digests import checksum
from cutaway.models.hooks import forward_kwargs
from cutaway.models.lm import LM
from cutaway.models.loss import LinearHead, head_logits
from cutaway.models.tokens import pad, tokenize
from cutaway.store.artefacts import save_artefact
from cutaway.training.prompting import (
    PromptedExamples,
    PromptFormat,
    batched_proba,
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
    """A model and its examples; `logits(rows)` are (rows, cls), differentiable in the weights."""

    lm: LM
    mode: str
    module: Any
    """What is trained and saved; its trunk has the language model's own weights."""
    examples: PromptedExamples
    logits: Callable[[Rows], Tensor]
    head_params: Mapping[str, nn.Parameter] = field(default_factory=dict)
    """Weights of a linear head that is saved beside the model."""
    at: HeadPosition = "auto"

    def params(self) -> dict[str, nn.Parameter]:
        """Every weight by name; tied ones once."""
        return {**dict(self.module.named_parameters()), **self.head_params}

    def losses(self, rows: Rows) -> Tensor:
        """Cross-entropy per row between targets and predictions."""
        return self.examples.losses(rows, self.logits(rows))

    def predict_proba(self, rows: Rows) -> NDArray[np.float64]:
        """(rows, cls) probabilities, in the order of `rows`, without dropout."""
        index, training = np.asarray(rows), self.module.training
        self.module.eval()
        try:
            token_rows, classes = self.examples.rows, self.examples.targets.shape[1]
            return batched_proba(
                lambda some: self.logits(index[some]), [token_rows[i] for i in index], classes,
                what=[self.mode, self.at, self.examples.word_ids.tolist()],
                weights=lambda: checksum(self.params()),
            )  # fmt: skip
        finally:
            self.module.train(training)

    def save(self, folder: Path) -> None:
        """Write a checkpoint that transformers loads, its tokenizer, and a linear head."""
        with quiet_transformers():
            self.module.save_pretrained(folder)
            self.lm.tokenizer.save_pretrained(folder)
        if self.head_params:
            words = self.examples.format.words
            save_linear_head(folder, self.head_params, self.at, words, self.lm.name)


def save_linear_head(
    folder: Path, head: Mapping[str, Tensor], at: HeadPosition, classes: Sequence[str], base: str
) -> None:
    """Write a linear head to its file, beside the model it belongs to."""
    tensors = {name.removeprefix("head."): value.data for name, value in head.items()}
    save_artefact(folder / HEAD_FILE, tensors, {"at": at, "classes": list(classes), "base": base})


def finetune_mode(lm: LM, mode: str | None) -> str:
    """The mode, by default the one for this kind of model; BadSpec for one it can't do."""
    default = {"masked": "prompt", "causal": "autoregressive"}[lm.kind]
    if mode in (None, "head", default):
        return mode or default
    needs = {"prompt": "a masked model: it fills a mask", "autoregressive": "a causal model"}
    raise BadSpec(
        f"mode {mode!r} needs {needs[mode]}, and {lm.name!r} is a {lm.kind} model. Use --mode "
        f"{default} or --mode head."
    )


def make_task_model(
    lm: LM,
    split: TaskSplit,
    mode: str,
    *,
    template: str | None = None,
    words: Sequence[str] = (),
    at: HeadPosition = "auto",
    max_tokens: int | None = None,
    seed: int = 0,
) -> TaskModel:
    """The model with the task's prompts; a new head is initialised from the seed."""
    if lm.dtype == "float16":
        raise BadSpec("dtype 'float16' loses small gradients. Train in float32 or bfloat16.")
    if mode == "head" and at != "mask":
        examples = make_plain_examples(lm, split, max_tokens)
    else:
        lm.need_head()
        examples = make_prompted_examples(
            lm, split.task, split.texts, template=template, words=words, max_tokens=max_tokens
        )
    if mode != "head":
        return TaskModel(
            lm, mode, lm.module, examples, lambda rows: prompt_logits(lm, examples, rows)
        )
    if at == "auto":
        return _family_head_model(lm, examples, seed)
    return _linear_head_model(lm, examples, at, seed)


def make_plain_examples(lm: LM, split: TaskSplit, max_tokens: int | None) -> PromptedExamples:
    """The texts without a template, for a classification head."""
    task, texts = split.task, split.texts
    limit = min(max_tokens or lm.context, lm.context)
    tokenized = tokenize(lm, texts.texts, pairs=texts.pairs, limit=limit)
    names = task.classes if task.kind != "regression" else ("low", "high")
    targets, bounds = target_distribution(task, texts, len(names))
    if task.kind == "regression":
        names = tuple(f"{bound:g}" for bound in bounds)
    return PromptedExamples(
        format=PromptFormat("", tuple(names), {}),
        rows=tokenized.rows,
        word_ids=torch.arange(len(names), device=lm.device),
        targets=targets.to(lm.device),
        labels=np.asarray(texts.labels),
        task=texts.task,
        metric=task.metric,
        bounds=bounds,
        truncated=int((tokenized.truncated > 0).sum()),
    )


def _padded(lm: LM, examples: PromptedExamples, rows: Rows) -> tuple[Tensor, Tensor]:
    ids, mask = pad([examples.rows[i] for i in rows], lm.pad_id)
    return ids.to(lm.device), mask.to(lm.device)


def _family_head_model(lm: LM, examples: PromptedExamples, seed: int) -> TaskModel:
    """The family's sequence classifier in transformers, on the model's own trunk."""
    module = sequence_classifier(lm, examples.format.words, seed)

    def logits(rows: Rows) -> Tensor:
        output: Tensor = module(**forward_kwargs(lm, *_padded(lm, examples, rows))).logits
        return output

    return TaskModel(lm, "head", module, examples, logits)


def sequence_classifier(lm: LM, classes: Sequence[str], seed: int) -> Any:
    """The family's classifier in transformers: the model's own trunk, a head from the seed."""
    from transformers import AutoModelForSequenceClassification

    config = deepcopy(lm.module.config)
    config.id2label = dict(enumerate(classes))
    config.label2id = {name: number for number, name in enumerate(classes)}
    config.pad_token_id = lm.pad_id
    with torch.random.fork_rng(devices=[]), quiet_transformers():
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


def _linear_head_model(
    lm: LM, examples: PromptedExamples, at: HeadPosition, seed: int
) -> TaskModel:
    """A new linear head on the final state of one token."""
    if at == "mask" and lm.kind != "masked":
        raise BadSpec(f"at 'mask' needs a masked model, and {lm.name!r} is causal. Use --at last.")
    rng = torch.Generator().manual_seed(seed)
    classes = examples.targets.shape[1]
    weight = 0.02 * torch.randn(classes, _state_width(lm, examples), generator=rng)
    dtype = getattr(torch, lm.dtype)
    head = LinearHead(
        nn.Parameter(weight.to(lm.device, dtype), requires_grad=False),
        nn.Parameter(torch.zeros(classes, device=lm.device, dtype=dtype), requires_grad=False),
    )
    position: Any = at

    def logits(rows: Rows) -> Tensor:
        return head_logits(lm, head, *_padded(lm, examples, rows), at=position)

    params: Any = {"head.weight": head.weight, "head.bias": head.bias}
    return TaskModel(lm, "head", lm.module, examples, logits, params, at)


@torch.inference_mode()
def _state_width(lm: LM, examples: PromptedExamples) -> int:
    """The width of the body's last hidden state."""
    kwargs = forward_kwargs(lm, *_padded(lm, examples, [0]))
    return int(lm.body(**kwargs).last_hidden_state.shape[-1])
