"""A model of transformers in memory is read like its checkpoint and left as it was."""

import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer
from transformers import AutoModelForSequenceClassification as Classifier

import cutaway
from cutaway.core.errors import BadModel, BadSpec, CheckFailed, Missing
from cutaway.models.load import open_model

TEXTS = ["The quick brown fox", "Yes.", "It rained all day, and the river rose"]


def objects(folder, auto=AutoModelForCausalLM):
    from cutaway.console import quiet_transformers

    with quiet_transformers():
        return auto.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize(
    ("family", "auto", "head"),
    [
        ("gpt2", AutoModelForCausalLM, True),
        ("bert", AutoModelForMaskedLM, True),
        ("bert", AutoModel, False),
        ("llama", AutoModel, False),
        ("gpt2", Classifier, False),
    ],
)
def test_the_states_are_those_of_the_checkpoint(folder_of, family, auto, head) -> None:
    lm = cutaway.open(*objects(folder_of(family), auto))
    ours = lm.read(TEXTS, pool="mean")
    theirs = open_model(folder_of(family)).read(TEXTS, pool="mean")
    assert all(torch.equal(ours[layer], theirs[layer]) for layer in theirs)
    assert lm.has_head == head
    if not head:
        with pytest.raises(Missing, match="no language-model head"):
            lm.unembed(ours[0])


def test_the_callers_objects_stay_as_they_were(folder_of) -> None:
    model, tokenizer = objects(folder_of("gpt2"))
    model.train()
    lm = open_model((model, tokenizer))
    assert model.training
    assert all(p.requires_grad for p in model.parameters())
    assert tokenizer.pad_token is None
    assert not lm.module.training
    # The weights are shared, not copied: what the caller trains is what is read.
    shared = {p.data_ptr() for p in model.parameters()}
    assert {p.data_ptr() for p in lm.module.parameters()} == shared
    assert lm.tied


def test_the_digest_follows_the_weights_the_config_and_the_tokenizer(folder_of) -> None:
    model, tokenizer = objects(folder_of("llama"))
    first = open_model({"model": model, "tokenizer": tokenizer})
    again = open_model({"model": model, "tokenizer": tokenizer})
    assert again.identity == first.identity
    with torch.no_grad():
        model.model.norm.weight[0] += 1
    changed = open_model((model, tokenizer))
    assert changed.digest != first.digest
    assert first.refresh_digest().digest != again.digest
    with torch.no_grad():
        model.model.norm.weight[0] -= 1
    model.config.rms_norm_eps *= 10
    assert open_model((model, tokenizer)).digest not in {changed.digest, again.digest}
    model.config.rms_norm_eps /= 10
    tokenizer.add_tokens(["fox"])
    assert open_model((model, tokenizer), check=False).identity != again.identity


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (lambda m, t: (m,), BadSpec, "got tuple"),
        (lambda m, t: m, BadSpec, "needs its tokenizer"),
        (lambda m, t: {"model": m}, BadSpec, "needs its tokenizer"),
        (lambda m, t: 12, BadSpec, "got int"),
        (lambda m, t: (torch.nn.Linear(2, 2), t), BadModel, "not a model of transformers"),
        (lambda m, t: (m, "gpt2"), BadModel, "not a fast tokenizer"),
        (lambda m, t: (m.to("meta"), t), BadModel, "meta device"),
    ],
)  # fmt: skip
def test_what_is_no_model_is_refused_in_a_short_sentence(folder_of, given, error, words) -> None:
    with pytest.raises(error, match=words) as caught:
        open_model(given(*objects(folder_of("gpt2"))))
    assert len(str(caught.value)) < 300


def test_a_model_that_mixes_padding_in_is_refused(folder_of) -> None:
    """A hook of the caller is part of the model as it is."""
    model, tokenizer = objects(folder_of("gpt2"))

    def mix(block, args, output):
        if isinstance(output, tuple):
            return (mix(block, args, output[0]), *output[1:])
        return output + output.mean(dim=1, keepdim=True)

    model.transformer.h[1].register_forward_hook(mix)
    with pytest.raises(CheckFailed, match="padding"):
        open_model((model, tokenizer))
