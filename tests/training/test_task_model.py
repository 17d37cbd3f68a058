"""A model that is asked: every mode answers, learns what it should, and is kept whole."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from cutaway.core.errors import BadSpec
from cutaway.core.textset import TextSet
from cutaway.models.load import open_model
from cutaway.store.artefacts import load_artefact
from cutaway.training.options import TrainingSpec
from cutaway.training.task_model import finetune_mode, make_task_model
from cutaway.training.task_split import TaskSplit, split_task_rows, task_from_labels
from cutaway.training.trainable_params import parameter_groups, select_trainable_params
from tests.tiny import FAMILIES, SENTENCES

WITHOUT_HEAD = ("codegen", "cohere")


def lesson(pairs: bool = False) -> TaskSplit:
    texts = tuple(f"{one} {SENTENCES[i % 3]}" for i, one in enumerate(SENTENCES * 4))
    made = TextSet(
        "sentences",
        texts,
        np.arange(len(texts)) % 2,
        "binary",
        ("no", "yes"),
        pairs=texts[::-1] if pairs else None,
    )
    return TaskSplit(task_from_labels(made), made, *split_task_rows(made, TrainingSpec(shots=3)))


@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in WITHOUT_HEAD])
def test_a_family_head_stands_on_the_models_own_trunk_and_comes_back(
    family, tiny_lm, tmp_path
) -> None:
    lm = tiny_lm(family)
    pupil = make_task_model(lm, lesson(), "head")
    where = parameter_groups(lm, list(pupil.params()))
    assert {"blocks", "new"} <= set(where.values())
    trunk = {name: value for name, value in lm.params().items() if name in where}
    assert all(pupil.params()[name].data_ptr() == v.data_ptr() for name, v in trunk.items())
    expected = pupil.predict_proba(range(6))
    pupil.save(tmp_path / "kept")
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "kept").eval()
    words = AutoTokenizer.from_pretrained(tmp_path / "kept")
    texts = list(lesson().texts.texts[:6])
    given = words(texts, padding=True, return_tensors="pt", truncation=True)
    with torch.no_grad():
        said = plain(**given).logits.double().softmax(1).numpy()
    np.testing.assert_allclose(said, expected, atol=2e-5)
    assert plain.config.id2label == {0: "no", 1: "yes"}
    again = open_model(tmp_path / "kept", check=False)
    assert (again.kind, again.layers) == (lm.kind, lm.layers)


@pytest.mark.parametrize("family", WITHOUT_HEAD)
def test_a_family_without_a_head_in_transformers_is_told_what_to_do(family, tiny_lm) -> None:
    with pytest.raises(BadSpec, match=f"{family!r}.*--at last"):
        make_task_model(tiny_lm(family), lesson(), "head")
    assert make_task_model(tiny_lm(family), lesson(), "head", at="last").predict_proba(
        [0, 1]
    ).shape == (
        2,
        2,
    )


@pytest.mark.parametrize(
    ("family", "at"),
    [("bert", "first"), ("bert", "mask"), ("llama", "last"), ("opt", "last"), ("electra", "first")],
)
def test_a_linear_head_is_kept_beside_the_model(family, at, tiny_lm, tmp_path) -> None:
    lm = tiny_lm(family)
    form = {"template": "{text} {mask}", "words": ("the", "a")} if at == "mask" else {}
    pupil = make_task_model(lm, lesson(), "head", at=at, **form)
    pupil.save(tmp_path / "kept")
    kept = load_artefact(tmp_path / "kept" / "head.safetensors")
    assert kept.meta["at"] == at
    assert torch.equal(kept.tensor("weight"), pupil.head_params["head.weight"])
    assert open_model(tmp_path / "kept", check=False).has_head


@pytest.mark.parametrize("family", ["bert", "llama", "gpt2", "roberta"])
@pytest.mark.parametrize("pairs", [False, True])
def test_answers_depend_on_neither_batch_nor_order(family, pairs, tiny_lm) -> None:
    pupil = make_task_model(tiny_lm(family), lesson(pairs), "head")
    rows = np.arange(9)
    together = pupil.predict_proba(rows)
    alone = np.concatenate([pupil.predict_proba([i]) for i in rows])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    np.testing.assert_allclose(pupil.predict_proba(rows[::-1]), together[::-1], atol=1e-5)


def test_losses_are_the_cross_entropy_of_the_answers(tiny_lm) -> None:
    pupil = make_task_model(tiny_lm("llama"), lesson(), "head")
    rows = [0, 1, 5]
    right = pupil.predict_proba(rows)[np.arange(3), pupil.examples.labels[rows]]
    np.testing.assert_allclose(pupil.losses(rows).numpy(), -np.log(right), rtol=1e-4)


def test_the_seed_decides_where_a_new_head_starts(tiny_lm) -> None:
    first, same, other = (
        make_task_model(tiny_lm("bert"), lesson(), "head", seed=s) for s in (1, 1, 2)
    )
    assert np.array_equal(first.predict_proba([0]), same.predict_proba([0]))
    assert not np.array_equal(first.predict_proba([0]), other.predict_proba([0]))


@pytest.mark.parametrize(("family", "mode"), [("bert", "autoregressive"), ("llama", "prompt")])
def test_a_mode_the_model_cannot_do_is_refused(family, mode, tiny_lm) -> None:
    with pytest.raises(BadSpec, match=f"{mode!r} needs a .*--mode head"):
        finetune_mode(tiny_lm(family), mode)


def test_by_default_a_model_does_what_it_is_made_for(tiny_lm) -> None:
    assert finetune_mode(tiny_lm("bert"), None) == "prompt"
    assert finetune_mode(tiny_lm("llama"), None) == "autoregressive"
    assert finetune_mode(tiny_lm("llama"), "head") == "head"


def test_half_precision_is_refused(tiny_lm) -> None:
    with pytest.raises(BadSpec, match="float16"):
        make_task_model(tiny_lm("llama", dtype="float16"), lesson(), "head")


def test_a_mask_needs_a_masked_model(tiny_lm) -> None:
    with pytest.raises(BadSpec, match="causal"):
        make_task_model(
            tiny_lm("llama"), lesson(), "head", at="mask", template="{text}", words=("the", "a")
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_embeddings_and_head_rest_unless_told(family, tiny_lm) -> None:
    lm = tiny_lm(family)
    pupil = make_task_model(lm, lesson(), "head", at="last")
    names = set(lm.params())
    where = parameter_groups(lm, sorted(names))
    learning = set(select_trainable_params(pupil))
    assert learning - names == {"head.weight", "head.bias"}
    assert {where[n] for n in learning & names} <= {"blocks", "final"}
    assert {n for n in names if where[n] == "blocks"} <= learning
    assert f"{lm.anatomy.embeddings}.weight" not in learning
    assert f"{lm.anatomy.decoder}.weight" not in learning
    every = select_trainable_params(pupil, fixed_embeddings=False, fixed_head=False)
    assert set(every) == set(pupil.params())


def test_biases_and_patterns_narrow_the_choice_but_never_a_new_head(tiny_lm) -> None:
    pupil = make_task_model(tiny_lm("bert"), lesson(), "head")
    new = {
        name
        for name, place in parameter_groups(pupil.lm, list(pupil.params())).items()
        if place == "new"
    }
    assert all(
        name.endswith("bias") or name in new
        for name in select_trainable_params(pupil, biases_only=True)
    )
    last = select_trainable_params(pupil, patterns=("*.layer.2.*",))
    assert set(last) - new == {n for n in pupil.lm.params() if ".layer.2." in n}
    assert new <= set(last)
    assert not new & set(select_trainable_params(pupil, fixed_head=True))


def test_an_empty_choice_is_refused_with_a_name_to_go_by(tiny_lm) -> None:
    pupil = make_task_model(tiny_lm("bert"), lesson(), "head")
    with pytest.raises(BadSpec, match=r"fits '\*\.layers\.\*'.*bert\."):
        select_trainable_params(pupil, patterns=("*.layers.*",))
    bare = make_task_model(tiny_lm("llama"), lesson(), "head", at="last")
    with pytest.raises(BadSpec, match="no biases"):
        select_trainable_params(bare, biases_only=True, fixed_head=True)
