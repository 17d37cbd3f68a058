"""The training loop: a killed training that is resumed ends in the same bits."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from cutaway.console import Console
from cutaway.core.errors import BadSpec, Mismatch, RunError, UnknownName
from cutaway.training.gradients import frozen_others
from cutaway.training.loop import train
from cutaway.training.plan import (
    OPTIMIZERS,
    TrainingPlan,
)

PLAN = TrainingPlan(steps=12, lr=0.05, every=4, seed=3)
TEXT = torch.randn(40, 5, generator=torch.Generator().manual_seed(1))
TRUTH = TEXT @ torch.randn(5, 1, generator=torch.Generator().manual_seed(2))


def net() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.Dropout(0.2), nn.Linear(8, 1))


def loss_of(module: nn.Module, *, die_at: int | None = None):
    def loss(step: int) -> dict[str, torch.Tensor]:
        if step == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        rows = torch.randint(40, (8,), generator=torch.Generator().manual_seed(step))
        fit = (module(TEXT[rows]) - TRUTH[rows]).square().mean()
        return {"loss": fit, "fit": fit}

    return loss


def held_out(module: nn.Module):
    def evaluate() -> dict[str, float]:
        with torch.no_grad():
            return {"score": -float((module.eval()(TEXT) - TRUTH).square().mean())}

    def look() -> dict[str, float]:
        try:
            return evaluate()
        finally:
            module.train()

    return look


def run(
    module: nn.Module, folder, plan: TrainingPlan = PLAN, *, die_at: int | None = None, **options
):
    params = dict(module.named_parameters())
    options = {
        "identity": {"base": "net"},
        "evaluate": held_out(module),
        "score": "score",
    } | options
    return train(params, loss_of(module, die_at=die_at), plan, folder=folder, **options)


def same(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("die_at", [3, 4, 9, 11])
def test_a_killed_training_ends_in_the_same_bits(tmp_path, optimizer, die_at) -> None:
    plan = replace(PLAN, optimizer=optimizer, momentum=0.9, schedule="cosine", warmup=2)
    whole, again = net(), net()
    expected = run(whole, tmp_path / "whole", plan)
    child = os.fork()
    if child == 0:
        run(net(), tmp_path / "killed", plan, die_at=die_at)
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    got = run(again, tmp_path / "killed", plan)
    assert same(whole, again)
    assert (got.curve, got.best_step, got.best) == (
        expected.curve,
        expected.best_step,
        expected.best,
    )


def test_a_finished_training_is_not_done_again(tmp_path) -> None:
    first, second = net(), net()
    expected = run(first, tmp_path)
    got = run(second, tmp_path, die_at=0)
    assert same(first, second)
    assert got == expected


def test_a_damaged_checkpoint_counts_as_none(tmp_path) -> None:
    first, second = net(), net()
    run(first, tmp_path)
    (file,) = tmp_path.glob("step-*/state.safetensors")
    file.write_bytes(file.read_bytes()[:-8])
    run(second, tmp_path)
    assert same(first, second)


def test_one_checkpoint_is_left_and_nothing_beside_it(tmp_path) -> None:
    run(net(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000012"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"identity": {"base": "other"}}, "'net' there and 'other' here"),
        ({"lr": 0.1}, "lr is 0.05"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(tmp_path, change, said) -> None:
    run(net(), tmp_path)
    options = {k: v for k, v in change.items() if k == "identity"}
    plan = replace(PLAN, **{k: v for k, v in change.items() if k != "identity"})
    with pytest.raises(Mismatch, match=said):
        run(net(), tmp_path, plan, **options)


def test_the_best_weights_are_left_and_the_first_of_equals_is_best(tmp_path) -> None:
    module, seen = net(), []
    scores = iter([9.0, 1.0, 3.0, 3.0])

    def evaluate() -> dict[str, float]:
        seen.append([p.detach().clone() for p in module.parameters()])
        return {"score": next(scores)}

    got = run(module, tmp_path, evaluate=evaluate)
    assert (got.best_step, got.best, got.stopped) == (8, 3.0, "steps")
    assert [row["step"] for row in got.curve] == [0, 4, 8, 12]
    assert all(torch.equal(a, b) for a, b in zip(seen[2], module.parameters(), strict=True))


def test_the_best_weights_survive_a_stop_after_them(tmp_path) -> None:
    first, second = net(), net()
    scores = iter([0.0, 5.0, 1.0, 2.0])
    expected = run(first, tmp_path, evaluate=lambda: {"score": next(scores)})
    assert expected.best_step == 4
    assert run(second, tmp_path).best_step == 4
    assert same(first, second)


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="Linux counts memory there")
def test_the_best_weights_take_no_memory(tmp_path) -> None:
    module = nn.Linear(4096, 4096, bias=False)
    scores, used = iter([0.0, 2.0, 1.0, 1.0]), []

    def evaluate() -> dict[str, float]:
        used.append(anonymous_memory())
        return {"score": next(scores)}

    plan = TrainingPlan(steps=3, lr=0.1, every=1, optimizer="sgd")
    params = dict(module.named_parameters())
    train(
        params,
        lambda step: {"loss": module.weight.square().mean()},
        plan,
        folder=tmp_path,
        identity={},
        evaluate=evaluate,
        score="score",
    )
    assert used[-1] - used[0] < 0.5 * module.weight.nbytes


def anonymous_memory() -> int:
    """Bytes of this process that are in no file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def test_without_a_score_the_last_weights_count(tmp_path) -> None:
    got = run(net(), tmp_path, score=None)
    assert (got.best_step, got.best) == (12, None)


def test_patience_ends_after_that_many_evaluations_without_an_improvement(tmp_path) -> None:
    scores = iter([0.0, 5.0, 1.0, 2.0, 9.0])
    plan = replace(PLAN, every=2, patience=2)
    got = run(net(), tmp_path, plan, evaluate=lambda: {"score": next(scores)})
    assert (got.stopped, got.best_step, got.curve[-1]["step"]) == ("patience", 2, 6)


def test_stop_may_end_it_with_its_own_reason(tmp_path) -> None:
    got = run(net(), tmp_path, stop=lambda found: "good enough")
    assert (got.stopped, got.curve[-1]["step"]) == ("good enough", 4)


def test_a_score_that_is_no_number_never_wins(tmp_path) -> None:
    scores = iter([0.0, float("nan"), 1.0, float("nan")])
    got = run(net(), tmp_path, evaluate=lambda: {"score": next(scores)})
    assert (got.best_step, got.best) == (8, 1.0)
    assert got.curve[-1]["score"] is None


def test_project_holds_entries_still(tmp_path) -> None:
    module = net()
    weight = module[0].weight
    before = weight[0].detach().clone()
    run(module, tmp_path, replace(PLAN, weight_decay=0.1), project=lambda: weight[0].copy_(before))
    assert torch.equal(weight[0], before)
    assert not torch.equal(weight[1], net()[0].weight[1])


def test_only_the_given_parameters_move_or_gather_gradients(tmp_path) -> None:
    module = net()
    params = {"0.weight": module[0].weight}
    with frozen_others(module, params):
        assert [p.requires_grad for p in module.parameters()] == [True, *[False] * 5]
        train(params, loss_of(module), PLAN, folder=tmp_path, identity={})
    assert all(p.grad is None and p.requires_grad for p in module.parameters())
    untouched = dict(net().named_parameters())
    moved = [n for n, p in module.named_parameters() if not torch.equal(p, untouched[n])]
    assert moved == ["0.weight"]


def test_training_leaves_the_outer_randomness_alone(tmp_path) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        expected = torch.rand(3)
        torch.manual_seed(5)
        run(net(), tmp_path)
        assert torch.equal(torch.rand(3), expected)


def test_dropout_is_decided_by_the_seed(tmp_path) -> None:
    modules = []
    for number, seed in enumerate([1, 1, 2]):
        modules.append(net())
        run(modules[-1], tmp_path / str(number), replace(PLAN, seed=seed))
    assert same(modules[0], modules[1])
    assert not same(modules[0], modules[2])


def test_a_diverging_loss_is_reported_and_not_trained_on(tmp_path) -> None:
    params = {"w": nn.Parameter(torch.zeros(1))}

    def loss(step: int) -> dict[str, torch.Tensor]:
        return {"loss": params["w"].sum() / torch.zeros(())}

    with pytest.raises(RunError, match=r"nan at step 0.*lr=0.05"):
        train(params, loss, PLAN, folder=tmp_path, identity={})


def test_an_unknown_score_is_refused_with_a_suggestion(tmp_path) -> None:
    with pytest.raises(UnknownName, match=r"score.*acuracy"):
        run(net(), tmp_path, score="acuracy")


def test_the_console_shows_loss_and_speed(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("cutaway.console._PlainProgress.EVERY", 0.0)
    start = time.monotonic()
    got = run(net(), tmp_path, console=Console())
    assert got.seconds <= time.monotonic() - start + 0.01
    assert "steps/s" in capsys.readouterr().err


def test_a_name_can_not_be_both_a_loss_part_and_a_score(tmp_path) -> None:
    with pytest.raises(BadSpec, match="'fit' is both"):
        run(net(), tmp_path, evaluate=lambda: {"fit": 1.0}, score="fit")
