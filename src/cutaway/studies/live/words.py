"""The probability of each answer's word per layer, at the position of the answer."""

from dataclasses import dataclass
from typing import Any

import torch

from cutaway.core.errors import BadSpec
from cutaway.core.textset import TextSet
from cutaway.data.tasks import TaskFile, find_task
from cutaway.methods.nextword.maths.words import class_token_ids, find_word_tokens
from cutaway.methods.nextword.output_head import fill_task_template, make_encoder
from cutaway.methods.shortcut.maps import ShortcutMaps
from cutaway.methods.shortcut.predictions import logits_fn
from cutaway.models.hooks import collect_states
from cutaway.models.lm import LM
from cutaway.models.tokens import tokenize, tokenize_typed
from cutaway.studies.live.request import LiveSpec

MAX_PROMPT_TOKENS = 512
"""A longer text is truncated at its start; the prompt is kept."""


@dataclass(frozen=True)
class LiveQuestion:
    """A question: the prompt or template, and one word per answer."""

    prompt: str
    template: str
    edits: dict[Any, str]
    words: tuple[str, ...]
    classes: tuple[str, ...]


@torch.inference_mode()
def class_word_probabilities(
    lm: LM, maps: ShortcutMaps | None, kinds: tuple[str, ...], spec: LiveSpec
) -> Any:
    """The probability of each answer's word per layer and kind of map."""
    question = live_question(lm, spec)
    found = find_word_tokens(question.words, make_encoder(lm))
    groups = class_token_ids(question.words, found, question.classes)
    row, place, cut = _answer_position(lm, spec.text, question)
    ids = torch.tensor([row], device=lm.device)
    seen = collect_states(lm, ids, torch.ones_like(ids, dtype=torch.bool)).layers
    head = logits_fn(lm)
    probabilities: dict[str, list[list[float]]] = {}
    for kind in kinds:
        probabilities[kind] = []
        for layer in range(lm.layers + 1):
            hidden = seen[layer][0, place][None]
            moved = hidden if maps is None else maps.jump(layer, lm.layers, kind)(hidden)
            chance = head(moved).double().softmax(dim=-1)[0]
            probabilities[kind].append([float(chance[group].sum()) for group in groups])
    return {
        "model": lm.name,
        "task": spec.task,
        "asked": lm.tokenizer.decode(
            row, skip_special_tokens=lm.kind == "causal" and lm.chat is None
        ),
        "classes": question.classes,
        "words": question.words,
        "tokens": [[lm.tokenizer.decode([t]) for t in group] for group in groups],
        "layers": list(range(lm.layers + 1)),
        "probs": probabilities,
        "cut": cut,
    }


def live_question(lm: LM, spec: LiveSpec) -> LiveQuestion:
    """The task's question for this kind of model, or the given prompt and words."""
    if spec.task:
        return _task_question(lm, find_task(spec.task))
    if len(spec.words) < 2:
        raise BadSpec(f"Give at least two words to choose from, got {', '.join(spec.words)!r}.")
    return LiveQuestion(spec.prompt, f"{{text}}{spec.prompt} {{mask}}.", {}, spec.words, spec.words)


def _task_question(lm: LM, task: TaskFile) -> LiveQuestion:
    count = len(task.classes)
    lists = (task.class_words, task.label_words, task.posneg)
    order = lists if lm.kind == "causal" else (task.label_words, *lists)
    words = next((words for words in order if len(words) == count and count), None)
    if words is None or task.columns.pair:
        why = "it compares two texts" if task.columns.pair else "it has no word for each class"
        raise BadSpec(f"Task {task.name!r} can't be applied to one sentence: {why}.")
    template = task.template or f"{{text}}{task.prompt} {{mask}}."
    return LiveQuestion(task.prompt, template, dict(task.edits), words, task.classes)


def _answer_position(lm: LM, text: str, question: LiveQuestion) -> tuple[list[int], int, int]:
    """The token ids, the position of the answer, and the number of truncated tokens."""
    limit = min(MAX_PROMPT_TOKENS, lm.context)
    if lm.kind == "causal":
        got = tokenize_typed(lm, text, prompt=question.prompt, limit=limit, truncation="left")
        return got.rows[0], len(got.rows[0]) - 1, int(got.truncated[0])
    filled, tail = fill_task_template(
        TextSet("sentence", (text,)), question.template, lm.tokenizer.mask_token, question.edits
    )
    got = tokenize(lm, filled.texts, prompt=tail, limit=limit)
    row, mask = got.rows[0], lm.tokenizer.mask_token_id
    if mask not in row:
        raise BadSpec(
            f"The text is too long for {question.template!r}, its mask was truncated: shorten it."
        )
    # The template's mask: the last one, in case the sentence contains a mask.
    places = [i for i, token in enumerate(row) if token == mask]
    return row, places[-1] if tail else places[0], int(got.truncated[0])
