import pytest
import torch

from cutaway.core.errors import BadSpec, CutawayError
from cutaway.core.spec import build_spec
from cutaway.methods.shortcut.predictions import logits_fn
from cutaway.models.hooks import collect_states
from cutaway.models.tokens import tokenize
from cutaway.studies.live.request import LiveSpec
from cutaway.studies.live.words import class_word_probabilities

TEXT = " the film is lovely , so i love it ."
ASK = {"prompt": " so i", "words": ("love", "hate")}


def test_words_at_the_last_layer_are_the_models_own_probabilities(toy) -> None:
    told = class_word_probabilities(
        toy, None, ("id",), build_spec(LiveSpec, {"text": " the film is fine ,", **ASK})
    )
    row = torch.tensor(tokenize(toy, [" the film is fine , so i"]).rows)
    logits = collect_states(toy, row, torch.ones_like(row, dtype=torch.bool), logits=True).logits
    chance = logits[0, -1].double().softmax(-1)
    for place, word in enumerate(ASK["words"]):
        ids = toy.tokenizer(f" {word}", add_special_tokens=False)["input_ids"]
        assert told["probs"]["id"][-1][place] == pytest.approx(float(chance[ids[0]]), rel=1e-4)
    assert told["probs"]["id"][-1][0] > told["probs"]["id"][-1][1], "fine things are loved"
    assert len(told["probs"]["id"]) == toy.layers + 1


def test_masked_models_answer_at_the_mask(masked) -> None:
    spec = build_spec(LiveSpec, {"text": "the film is dull , so i", "words": ("love", "hate")})
    told = class_word_probabilities(masked, None, ("id",), spec)
    assert "[MASK]" in told["asked"]
    head = logits_fn(masked)
    ids = torch.tensor([masked.tokenizer(told["asked"], add_special_tokens=False)["input_ids"]])
    seen = collect_states(masked, ids, torch.ones_like(ids, dtype=torch.bool)).layers[masked.layers]
    place = ids[0].tolist().index(masked.tokenizer.mask_token_id)
    chance = head(seen[0, place][None]).double().softmax(-1)[0]
    word = masked.tokenizer("love", add_special_tokens=False)["input_ids"][0]
    assert told["probs"]["id"][-1][0] == pytest.approx(float(chance[word]), rel=1e-3)


@pytest.mark.parametrize("words", [(), ("love",), ("love", "love"), ("love", "qqqqzzzz")])
def test_words_that_can_not_be_told_apart_are_refused(toy, words) -> None:
    with pytest.raises(CutawayError):
        class_word_probabilities(
            toy, None, ("id",), build_spec(LiveSpec, {"text": TEXT, "words": words})
        )


def test_tasks_about_pairs_are_refused_with_the_reason(toy) -> None:
    with pytest.raises(BadSpec, match="two texts"):
        class_word_probabilities(
            toy, None, ("id",), build_spec(LiveSpec, {"text": TEXT, "task": "mnli"})
        )
