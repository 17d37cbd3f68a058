"""Task models: every mode predicts, trains the right weights, and is saved completely."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerFast

from cutaway.core.errors import BadSpec
from cutaway.data.tasks import find_task, known_tasks
from cutaway.models.load import open_model
from cutaway.store.artefacts import load_artefact
from cutaway.training.options import TrainingSpec
from cutaway.training.task_model import finetune_mode, make_task_model
from cutaway.training.task_split import load_task_split
from cutaway.training.trainable_params import parameter_groups
from tests.tiny import FAMILIES, SENTENCES, tiny_model, tiny_tokenizer
from tests.training.tasks import task_file_rows, task_split

WITHOUT_HEAD = ("codegen", "cohere")


@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in WITHOUT_HEAD])
def test_a_family_head_uses_the_models_own_trunk_and_loads_in_transformers(
    family, tiny_lm, tmp_path
) -> None:
    lm = tiny_lm(family)
    task_model = make_task_model(lm, task_split(), "head")
    where = parameter_groups(lm, list(task_model.params()))
    assert {"blocks", "new"} <= set(where.values())
    trunk = {name: value for name, value in lm.params().items() if name in where}
    assert all(task_model.params()[name].data_ptr() == v.data_ptr() for name, v in trunk.items())
    expected = task_model.predict_proba(range(6))
    task_model.save(tmp_path / "kept")
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "kept").eval()
    # Not AutoTokenizer, which replaces the tokenizer of some families by one with other ids.
    words = PreTrainedTokenizerFast.from_pretrained(tmp_path / "kept")
    texts = list(task_split().texts.texts[:6])
    given = words(texts, padding=True, return_tensors="pt", truncation=True)
    with torch.no_grad():
        proba = plain(**given).logits.double().softmax(1).numpy()
    np.testing.assert_allclose(proba, expected, atol=2e-5)
    assert plain.config.id2label == {0: "no", 1: "yes"}
    again = open_model(tmp_path / "kept", check=False)
    assert (again.kind, again.layers) == (lm.kind, lm.layers)


@pytest.mark.parametrize("family", WITHOUT_HEAD)
def test_a_family_without_a_head_in_transformers_is_refused_with_an_alternative(
    family, tiny_lm
) -> None:
    with pytest.raises(BadSpec, match=f"{family!r}.*--at last"):
        make_task_model(tiny_lm(family), task_split(), "head")
    assert make_task_model(tiny_lm(family), task_split(), "head", at="last").predict_proba(
        [0, 1]
    ).shape == (
        2,
        2,
    )


@pytest.mark.parametrize(
    ("family", "at"),
    [("bert", "first"), ("bert", "mask"), ("llama", "last"), ("opt", "last"), ("electra", "first")],
)
def test_a_linear_head_is_saved_beside_the_model(family, at, tiny_lm, tmp_path) -> None:
    lm = tiny_lm(family)
    form = {"template": "{text} {mask}", "words": ("the", "a")} if at == "mask" else {}
    task_model = make_task_model(lm, task_split(), "head", at=at, **form)
    task_model.save(tmp_path / "kept")
    kept = load_artefact(tmp_path / "kept" / "head.safetensors")
    assert kept.meta["at"] == at
    assert torch.equal(kept.tensor("weight"), task_model.head_params["head.weight"])
    assert open_model(tmp_path / "kept", check=False).has_head


@pytest.mark.parametrize("family", ["bert", "llama", "gpt2", "roberta"])
@pytest.mark.parametrize("pairs", [False, True])
def test_predictions_depend_on_neither_batch_nor_order(family, pairs, tiny_lm) -> None:
    task_model = make_task_model(tiny_lm(family), task_split(pairs), "head")
    rows = np.arange(9)
    together = task_model.predict_proba(rows)
    alone = np.concatenate([task_model.predict_proba([i]) for i in rows])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    np.testing.assert_allclose(task_model.predict_proba(rows[::-1]), together[::-1], atol=1e-5)


def test_losses_are_the_cross_entropy_of_the_predictions(tiny_lm) -> None:
    task_model = make_task_model(tiny_lm("llama"), task_split(), "head")
    rows = [0, 1, 5]
    right = task_model.predict_proba(rows)[np.arange(3), task_model.examples.labels[rows]]
    np.testing.assert_allclose(task_model.losses(rows).numpy(), -np.log(right), rtol=1e-4)


def test_a_new_head_is_initialised_from_the_seed(tiny_lm) -> None:
    first, same, other = (
        make_task_model(tiny_lm("bert"), task_split(), "head", seed=s) for s in (1, 1, 2)
    )
    assert np.array_equal(first.predict_proba([0]), same.predict_proba([0]))
    assert not np.array_equal(first.predict_proba([0]), other.predict_proba([0]))


@pytest.mark.parametrize(("family", "mode"), [("bert", "autoregressive"), ("llama", "prompt")])
def test_a_mode_the_model_cannot_do_is_refused(family, mode, tiny_lm) -> None:
    with pytest.raises(BadSpec, match=f"{mode!r} needs a .*--mode head"):
        finetune_mode(tiny_lm(family), mode)


def test_the_default_mode_depends_on_the_kind_of_model(tiny_lm) -> None:
    assert finetune_mode(tiny_lm("bert"), None) == "prompt"
    assert finetune_mode(tiny_lm("llama"), None) == "autoregressive"
    assert finetune_mode(tiny_lm("llama"), "head") == "head"


@pytest.fixture(scope="module")
def wordy_lm(tmp_path_factory):
    """A causal and a masked tiny model that have every label word as one token."""
    words = {w for t in known_tasks().values() for w in t.label_words}
    words |= {w for t in known_tasks().values() if t.autoregressive for w in t.autoregressive.words}
    texts = [*SENTENCES, *(f"it is {word}, {word}: {word}" for word in sorted(words))] * 3
    folder = tmp_path_factory.mktemp("wordy")
    opened = {}
    for family in ("llama", "bert"):
        tokenizer = tiny_tokenizer(FAMILIES[family].style, texts, size=900)
        tiny_model(family, tokenizer).save_pretrained(folder / family)
        tokenizer.save_pretrained(folder / family)
        opened[family] = open_model(folder / family, check=False)
    return opened


@pytest.mark.parametrize("family", ["llama", "bert"])
@pytest.mark.parametrize("mode", ["head", "prompt", "autoregressive"])
@pytest.mark.parametrize("name", sorted(known_tasks()))
def test_every_task_runs_in_every_mode_that_the_model_has(
    name, mode, family, wordy_lm, tmp_path
) -> None:
    lm, task = wordy_lm[family], find_task(name)
    if mode not in ("head", {"llama": "autoregressive", "bert": "prompt"}[family]):
        with pytest.raises(BadSpec, match="--mode head"):
            finetune_mode(lm, mode)
        return
    rows = task_file_rows(task, tmp_path / f"{name}.csv")
    split = load_task_split(TrainingSpec(shots=1), task=name, data=rows)
    if mode != "head" and not task.template:
        assert task.autoregressive is None
        with pytest.raises(BadSpec, match=f"{name!r} has no template.*--template and --words"):
            make_task_model(lm, split, mode)
        return
    model = make_task_model(lm, split, mode)
    proba = model.predict_proba(split.test)
    assert proba.shape == (len(split.test), len(task.classes) or 2)
    targets = model.examples.targets[split.test].numpy()
    np.testing.assert_allclose(
        model.losses(split.test).numpy(), -(targets * np.log(proba)).sum(1), rtol=2e-3
    )
    if task.kind == "regression":
        low, high = task.labels.bounds
        share = (model.examples.labels[split.test] - low) / (high - low)
        np.testing.assert_allclose(targets, np.stack([1 - share, share], 1), atol=1e-6)


def test_half_precision_is_refused(tiny_lm) -> None:
    with pytest.raises(BadSpec, match="float16"):
        make_task_model(tiny_lm("llama", dtype="float16"), task_split(), "head")


def test_a_mask_needs_a_masked_model(tiny_lm) -> None:
    with pytest.raises(BadSpec, match="causal"):
        make_task_model(
            tiny_lm("llama"), task_split(), "head", at="mask", template="{text}", words=("the", "a")
        )
