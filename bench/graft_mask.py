"""Mask learning: what a step costs beside a plain forward and backward pass, and what it holds.

The memory is measured in fresh processes on a model of SmolLM2's shape, as the highest resident
memory during the work minus what the process had after the same work with a tiny model. Ours takes
the batch in pieces, as `graft learn` does. The reference's way is a literal port of its loop: base,
tuned and grafted model whole, mask, scores and their gradient as full copies, the batch at once.
"""

import json
import subprocess
import sys
import time
from typing import Any

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from bench.report import row, spread, told
from cutaway.methods.graft.mask_search import BACKWARD_TOKENS
from cutaway.methods.graft.maths.learn_mask import learn_mask
from cutaway.methods.graft.maths.masks import MASKS, MaskInputs
from cutaway.methods.graft.maths.patch import make_patch
from cutaway.methods.graft.maths.select import random_mask, top_mask
from cutaway.methods.graft.maths.soft_mask import (
    MaskPlan,
    SoftMask,
    assign_weights,
    gradients_enabled,
)
from cutaway.methods.graft.skill import Skill, checksum
from cutaway.recipe.result import process_peak_mb

SIZES = {
    True: {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128},
    False: {"hidden_size": 576, "num_hidden_layers": 6, "intermediate_size": 1536},
}
TOKENS = (16, 64)
KEEP = 8_500
# The shape of SmolLM2-135M, for memory, attach and detach.
LARGE = {"hidden_size": 576, "num_hidden_layers": 30, "intermediate_size": 1536}
HUNDRED = 100_000_000


def run(quick: bool, rounds: int = 5) -> dict[str, Any]:
    """Step cost, memory, selection, attaching, and whether a planted skill is found."""
    # A step is short and its ratio close to its bar: more turns than elsewhere.
    rounds = 2 if quick else 3 * rounds
    # Memory first: a child's highest mark begins at what its parent holds.
    memory = memories(quick)
    step = steps(quick, rounds)
    size = 1_000_000 if quick else HUNDRED
    chosen, on, off = selection(size), *attaching(quick)
    found = planted()
    ratios = {way: step[f"{way} / at once"]["median"] for way in ("sgd", "mirror")}
    trained = memory["trained_mb"]
    limit = memory["model_mb"] + 4.5 * trained
    return {
        "title": "Learning a graft",
        "text": "Steps: a Llama of 6 layers of 576; memory: one of "
        f"{memory['parameters'] / 1e6:.0f} M "
        f"weights in SmolLM2's shape ({trained:.0f} MB of them trained); batches of {TOKENS[0]} x "
        f"{TOKENS[1]} tokens, {torch.get_num_threads()} threads. The rival of the memory line is a "
        "literal port of the reference's loop (three models, six copies). Ratios of steps are "
        f"medians of {rounds} turns, each against the whole batch of the same turn: "
        + ", ".join(f"{way} {told(step[f'{way} / at once'], 'x')}" for way in ratios)
        + ".",
        "table": [
            row(f"one mask step, {way}, against forward + backward of the whole batch",
                _seconds(step[way]), _seconds(step["at once"]), ratios[way], "<= 1.3x",
                ratios[way] <= 1.3)
            for way in ("sgd", "mirror")
        ] + [
            row("the same forward + backward in the pieces that a mask step takes",
                _seconds(step["plain"])),
            row("peak memory of mask learning", f"{memory['ours_mb']:.0f} MB",
                f"{memory['reference_mb']:.0f} MB", memory["reference_mb"] / memory["ours_mb"],
                f"<= model + 4.5x trained = {limit:.0f} MB", memory["ours_mb"] <= limit),
            row(f"exact top {KEEP:,} of {size / 1e6:.0f} M", f"{chosen:.2f} s", bar="< 5 s",
                met=chosen < 5),
            row(f"attach {KEEP:,} weights, base checked", f"{on:.2f} s", bar="< 1 s", met=on < 1),
            row(f"detach {KEEP:,} weights, base checked", f"{off:.2f} s", bar="< 1 s", met=off < 1),
            row("planted skill: weights found", f"{found} of 10", bar="10", met=found == 10),
        ],
        "measured": {"step": step, "memory": memory},
    }  # fmt: skip


def _seconds(values: dict[str, Any]) -> str:
    return f"{values['median']:.3f} s"


def model_of(shape: dict[str, int]) -> nn.Module:
    """A Llama of this shape, evaluation mode."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = LlamaConfig(vocab_size=4096, num_attention_heads=8, num_key_value_heads=4, **shape)
        return LlamaForCausalLM(config).eval().requires_grad_(False)


def pair_of(model: nn.Module) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The blocks' live weights, their copies, and copies that moved."""
    live = {n: p for n, p in model.named_parameters() if ".layers." in n}
    rng = torch.Generator().manual_seed(1)
    base = {n: p.data.clone() for n, p in live.items()}
    tuned = {n: v + 1e-3 * torch.randn(v.shape, generator=rng) for n, v in base.items()}
    return live, base, tuned


def loss_of(model: nn.Module) -> Any:
    ids = torch.randint(4096, TOKENS, generator=torch.Generator().manual_seed(2))
    return lambda: model(input_ids=ids, labels=ids).loss


def pieces_of(model: nn.Module) -> list[Any]:
    """The same loss in the pieces that `graft learn` would take on a processor."""
    ids = torch.randint(4096, TOKENS, generator=torch.Generator().manual_seed(2))
    parts = ids.split(BACKWARD_TOKENS["cpu"] // TOKENS[1])
    return [
        lambda part=part: model(input_ids=part, labels=part).loss * len(part) / len(ids)
        for part in parts
    ]


def steps(quick: bool, rounds: int) -> dict[str, Any]:
    """Seconds of a plain pass and of mask steps, taking turns."""
    model = model_of(SIZES[quick])
    live, base, tuned = pair_of(model)
    loss = loss_of(model)
    start = MASKS["movement"](MaskInputs(base, tuned), 1_000, torch.Generator())
    soft = SoftMask(live, base, tuned, start, rng=torch.Generator().manual_seed(0))
    plans = {"sgd": MaskPlan(lr=1.0), "mirror": MaskPlan(lr=1.0, optimizer="mirror", budget=True)}

    pieces = pieces_of(model)

    def plain(parts: list[Any]) -> None:
        for part in parts:
            part().backward()
        for parameter in live.values():
            parameter.grad = None

    def step(name: str) -> None:
        soft.step(pieces, plans[name])
        if plans[name].budget:
            soft.write(start.size)

    ways = {
        "plain": lambda: plain(pieces),
        "at once": lambda: plain([loss]),
        **{n: lambda n=n: step(n) for n in plans},
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with gradients_enabled(live, base):
        soft.write()
        for turn in range(rounds + 1):
            for name, way in ways.items():
                begin = time.perf_counter()
                way()
                if turn:
                    seconds[name].append(time.perf_counter() - begin)
    # The machine's mood changes from turn to turn, not within one.
    for name in plans:
        turns = zip(seconds[name], seconds["at once"], strict=True)
        seconds[f"{name} / at once"] = [mine / theirs for mine, theirs in turns]
    return {name: spread(values) for name, values in seconds.items()}


def memories(quick: bool) -> dict[str, float]:
    """Peak memory above the start, of ours and of the reference's way, each in its own process."""
    found: dict[str, float] = {}
    for way in WAYS:
        words = [sys.executable, "-m", "bench.graft_mask", way, str(int(quick))]
        out = subprocess.run(words, check=True, capture_output=True, text=True, timeout=600)
        found |= json.loads(out.stdout.splitlines()[-1])
    return found


def ours(model: nn.Module) -> None:
    live, base, tuned = pair_of(model)
    start = MASKS["movement"](MaskInputs(base, tuned), 1_000, torch.Generator())
    pieces = pieces_of(model)
    learn_mask(
        live, base, tuned, start, lambda step: pieces, lambda: 0.0,
        MaskPlan(steps=3, lr=1.0, optimizer="mirror", budget=True), rng=torch.Generator(),
    )  # fmt: skip


def reference(model: nn.Module) -> None:
    """The reference's loop: three models; delta, mask, scores, sigmoid, and gradient as copies."""
    from copy import deepcopy

    pretrained, tuned = deepcopy(model), deepcopy(model)
    names = [n for n, _ in model.named_parameters() if ".layers." in n]
    live, before, after = (dict(m.named_parameters()) for m in (model, pretrained, tuned))
    for name in names:
        after[name].data.add_(1e-3 * torch.randn_like(after[name]))
    delta = {n: (after[n] - before[n]).detach() for n in names}
    flat = torch.cat([d.abs().reshape(-1) for d in delta.values()])
    border = flat.sort(descending=True).values[1_000]
    mask = {n: (delta[n].abs() > border).float() for n in names}
    scores = {n: torch.rand_like(delta[n]) for n in names}
    loss = loss_of(model)
    for _ in range(3):
        soft = {n: torch.sigmoid(scores[n] - 10) for n in names}
        for name in names:
            gamma = mask[name] + (1 - 2 * mask[name]) * soft[name]
            live[name].data = before[name] + gamma * delta[name]
            live[name].requires_grad_(True)
        loss().backward()
        grads = {n: live[n].grad * delta[n] * (1 - 2 * mask[n]) for n in names}
        for name in names:
            scores[name] -= 1.0 * grads[name] * soft[name] * (1 - soft[name])
            live[name].grad = None


WAYS = {"ours": ours, "reference": reference}


def selection(size: int) -> float:
    """Seconds to choose the top of this many deltas."""
    scores = {f"w{i}": torch.randn(size // 10) for i in range(10)}
    begin = time.perf_counter()
    mask = top_mask(list(scores), lambda name: scores[name].abs(), min(KEEP, size // 10))
    assert mask.size == min(KEEP, size // 10)
    return time.perf_counter() - begin


def attaching(quick: bool) -> tuple[float, float]:
    """Seconds to attach and to detach a skill, the base's checksum taken each time."""
    model = model_of(SIZES[True] if quick else LARGE)
    params = dict(model.named_parameters())
    sizes = {n: p.numel() for n, p in params.items() if ".layers." in n}
    keep = min(KEEP, sum(sizes.values()) // 10)
    rng = torch.Generator().manual_seed(0)
    mask = random_mask(sizes, keep, rng=rng)
    tuned = {n: params[n].data + 1 for n in mask.indices}
    patch = make_patch(params, tuned, mask)
    meta = {"base": {"name": "bench", "checksum": checksum(params)}, "task": {"name": "bench"}}
    skill = Skill(patch, {n: tuple(params[n].shape) for n in mask.indices}, meta)
    seconds = []
    for verb in (skill.attach, skill.detach):
        begin = time.perf_counter()
        verb(model)
        seconds.append(time.perf_counter() - begin)
    return seconds[0], seconds[1]


def planted() -> int:
    """Ten weights matter, all others moved further and for nothing: how many are found."""
    rng = torch.Generator().manual_seed(0)
    model = nn.Linear(200, 2, bias=False)
    x = torch.randn(256, 200, generator=rng)
    matter = torch.randperm(200, generator=rng)[:5]
    y = (x[:, matter].sum(1) > 0).long()
    quiet = torch.tensor([i for i in range(200) if i not in set(matter.tolist())])
    x[:, quiet] *= 0.01
    base = {"weight": torch.zeros(2, 200)}
    tuned = {"weight": torch.zeros(2, 200)}
    tuned["weight"][:, quiet] = 2.0 * torch.randn(2, 195, generator=rng).sign()
    tuned["weight"][1, matter], tuned["weight"][0, matter] = 1.0, -1.0
    live = dict(model.named_parameters())
    assign_weights(live, base)
    start = MASKS["movement"](MaskInputs(base, tuned), 10, rng)
    learned = learn_mask(
        live, base, tuned, start,
        lambda step: [lambda: nn.functional.cross_entropy(model(x), y)],
        lambda: float((model(x).argmax(1) == y).float().mean()),
        MaskPlan(steps=40, lr=300.0, optimizer="mirror", every=1, budget=True), rng=rng,
    )  # fmt: skip
    there = torch.cat([matter, 200 + matter])
    return int(torch.isin(learned.mask.indices["weight"], there).sum())


def child(way: str, quick: bool) -> dict[str, float]:
    """What one way holds at most, above what the process had after the same with a tiny model."""
    torch.set_num_threads(1)
    # What libraries load at first use is theirs, whatever is learned.
    WAYS[way](model_of(SIZES[True]))
    before = process_peak_mb()
    model = model_of(SIZES[True] if quick else LARGE)
    facts = {
        "parameters": float(sum(p.numel() for p in model.parameters())),
        "model_mb": sum(p.nbytes for p in model.parameters()) / 2**20,
        "trained_mb": sum(p.nbytes for n, p in model.named_parameters() if ".layers." in n) / 2**20,
    }
    WAYS[way](model)
    return facts | {f"{way}_mb": process_peak_mb() - before}


if __name__ == "__main__":
    print(json.dumps(child(sys.argv[1], bool(int(sys.argv[2])))))
