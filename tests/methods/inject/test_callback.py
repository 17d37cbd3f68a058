"""`cutaway.EWCCallback`: whose Fisher it takes, what it logs, and trainings taken up again."""

import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

import cutaway
from cutaway.core.errors import BadSpec, Mismatch, Missing
from cutaway.core.textset import TextSet
from cutaway.models.load import open_model
from tests.methods.inject.toys import Rows
from tests.tiny import SENTENCES, tiny


@pytest.fixture
def ones(toys) -> dict[str, torch.Tensor]:
    return {n: torch.ones_like(p) for n, p in open_model(toys["causal"]).params().items()}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A model, another of the same shape, and the Fisher of the first."""
    root = tmp_path_factory.mktemp("made")
    one, other = tiny("llama", root / "one"), tiny("llama", root / "other", seed=1)
    out = str(root / "f.safetensors")
    texts = TextSet("t", SENTENCES)
    cutaway.fisher(model=str(one), text=texts, out=out, runs=str(root / "runs"), quiet=True)
    return str(one), str(other), out


def trainer(folder: str, out, *callbacks, lora: bool = False, **options) -> Trainer:
    model = AutoModelForCausalLM.from_pretrained(folder)
    if lora:
        from peft import LoraConfig, get_peft_model

        torch.manual_seed(0)
        model = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    defaults = {
        "max_steps": 6, "learning_rate": 0.05, "optim": "sgd", "report_to": [], "save_steps": 3,
        "per_device_train_batch_size": 2, "disable_tqdm": True, "use_cpu": True, "logging_steps": 2,
    }  # fmt: skip
    arguments = TrainingArguments(str(out), **{**defaults, **options})
    return Trainer(model, arguments, train_dataset=Rows(), callbacks=list(callbacks))


def train_toy(toys, out, *callbacks, lora: bool = False, rate: float = 0.1) -> Trainer:
    """Five steps on a trained toy, without checkpoints."""
    options = {"lr_scheduler_type": "constant", "save_strategy": "no", "logging_steps": 5}
    run = trainer(
        toys["causal"], out, *callbacks, lora=lora, learning_rate=rate, max_steps=5,
        per_device_train_batch_size=8, **options,
    )  # fmt: skip
    run.train()
    return run


def weights_of(run: Trainer) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in run.model.named_parameters()}


@pytest.mark.parametrize("lora", [False, True])
@pytest.mark.parametrize("given", ["file", "tensors"])
def test_a_training_taken_up_again_ends_in_the_same_weights(given, lora, made, tmp_path) -> None:
    ones = {n: torch.ones_like(p) for n, p in open_model(made[0], check=False).params().items()}

    def run():
        fisher, strength = made[2] if given == "file" else ones, 0.1 if lora else 2.0
        held = cutaway.EWCCallback(fisher, strength, normalise=True)
        return trainer(made[0], tmp_path, held, lora=lora)

    whole, again = run(), run()
    whole.train()
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    plain = trainer(made[0], tmp_path / "plain", lora=lora)
    plain.train()
    expected, found, free = weights_of(whole), weights_of(again), weights_of(plain)
    assert again.state.global_step == 6
    assert all(bool(value.isfinite().all()) for value in expected.values())
    assert all(torch.equal(value, found[name]) for name, value in expected.items())
    assert not all(torch.equal(value, free[name]) for name, value in expected.items())


def test_a_training_whose_start_is_lost_is_not_taken_up(made, tmp_path) -> None:
    trainer(made[0], tmp_path / "a", cutaway.EWCCallback(made[2], 1.0)).train()
    last = tmp_path / "a" / "checkpoint-3"
    with pytest.raises(Missing, match="Copy it and ewc-start-"):
        trainer(made[0], tmp_path / "b", cutaway.EWCCallback(made[2], 1.0)).train(
            resume_from_checkpoint=str(last)
        )
    for path in (tmp_path / "a").glob("ewc-start-*"):
        shutil.copy(path, tmp_path / "b")
    trainer(made[0], tmp_path / "b", cutaway.EWCCallback(made[2], 1.0)).train(
        resume_from_checkpoint=str(last)
    )


def test_a_start_that_was_half_written_is_written_again(made, tmp_path) -> None:
    trainer(made[0], tmp_path, cutaway.EWCCallback(made[2], 1.0)).train()
    (described,) = tmp_path.glob("ewc-start-*.json")
    described.unlink()
    trainer(made[0], tmp_path, cutaway.EWCCallback(made[2], 1.0)).train()
    assert described.is_file()


def test_a_checkpoint_of_a_training_without_the_callback_has_no_start(made, tmp_path) -> None:
    trainer(made[0], tmp_path).train()
    with pytest.raises(Missing, match="without EWCCallback"):
        trainer(made[0], tmp_path, cutaway.EWCCallback(made[2], 1.0)).train(
            resume_from_checkpoint=str(tmp_path / "checkpoint-3")
        )


@pytest.mark.parametrize("lora", [False, True])
def test_the_fisher_of_other_weights_is_refused_and_both_are_named(lora, made, tmp_path) -> None:
    run = trainer(made[1], tmp_path, cutaway.EWCCallback(made[2], 1.0), lora=lora)
    with pytest.raises(Mismatch) as told:
        run.train()
    assert made[2] in str(told.value)
    assert made[0] in str(told.value)
    assert made[1] in str(told.value)
    assert not list(tmp_path.glob("ewc-start-*"))


def test_tensors_of_some_weights_hold_these_and_no_others(made, tmp_path) -> None:
    params = open_model(made[0], check=False).params()
    some = {n: torch.ones_like(p) for n, p in params.items() if "layers.1" in n}
    held = cutaway.EWCCallback(some, 1.0)
    trainer(made[0], tmp_path, held).train()
    assert set(held.anchor) == set(some)


def test_a_file_for_some_weights_is_refused_unless_it_is_asked_for(made, tmp_path) -> None:
    run = trainer(made[0], tmp_path)
    run.model.more = torch.nn.Linear(2, 2)
    run.add_callback(cutaway.EWCCallback(made[2], 1.0))
    with pytest.raises(Mismatch, match="partial=True"):
        run.train()
    held = cutaway.EWCCallback(made[2], 1.0, partial=True)
    run = trainer(made[0], tmp_path, held)
    run.model.more = torch.nn.Linear(2, 2)
    run.train()
    assert "more.weight" not in held.anchor


def test_a_fisher_of_another_shape_is_refused(made, tmp_path) -> None:
    params = open_model(made[0], check=False).params()
    wrong = {n: torch.ones_like(p) for n, p in params.items()}
    wrong["model.norm.weight"] = torch.ones(3)
    with pytest.raises(Mismatch, match="shape"):
        trainer(made[0], tmp_path, cutaway.EWCCallback(wrong, 1.0)).train()


def test_the_penalty_stands_in_the_log_history(made, tmp_path) -> None:
    run = trainer(made[0], tmp_path, cutaway.EWCCallback(made[2], 1.0), save_strategy="no")
    run.train()
    logged = [entry for entry in run.state.log_history if "loss" in entry]
    assert [entry["step"] for entry in logged] == [2, 4, 6]
    assert all(entry["ewc_penalty"] > 0 for entry in logged)
    assert not list(tmp_path.glob("ewc-start-*"))


def test_the_callback_holds_weights_of_the_train_toy(toys, tmp_path, ones) -> None:
    start = open_model(toys["causal"], check=False).params()
    nothing = train_toy(toys, tmp_path)
    zero = train_toy(toys, tmp_path, cutaway.EWCCallback(ones, 0.0))
    holder = cutaway.EWCCallback(ones, 8.0)
    held = train_toy(toys, tmp_path, holder)

    def far(run) -> float:
        found = dict(run.model.named_parameters())
        return sum(float((found[n].detach() - w).square().sum()) for n, w in start.items())

    for name, value in nothing.model.named_parameters():
        assert torch.equal(value, dict(zero.model.named_parameters())[name])
    assert 0 < far(held) < 0.7 * far(nothing)
    assert holder.penalty > 0


def test_the_callback_holds_adapters_too(toys, tmp_path, ones) -> None:
    def far(run) -> float:
        return sum(
            float(part.get_delta_weight("default").detach().square().sum())
            for part in run.model.modules()
            if hasattr(part, "get_delta_weight")
        )

    plain = train_toy(toys, tmp_path, lora=True, rate=0.05)
    held = train_toy(toys, tmp_path, cutaway.EWCCallback(ones, 0.5), lora=True, rate=0.05)
    assert 0 < far(held) < far(plain)


def test_the_callback_refuses_another_models_fisher(toys, tmp_path) -> None:
    with pytest.raises(Mismatch, match="another model's"):
        train_toy(toys, tmp_path, cutaway.EWCCallback({"x": torch.ones(1)}, 1.0))
    with pytest.raises(BadSpec, match="0 or more"):
        cutaway.EWCCallback({}, -1.0)
