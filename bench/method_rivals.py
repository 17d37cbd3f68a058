"""Methods beside the tools people use for them: tuned-lens, Avalanche's EWC, mergekit and peft.

Each rival has its own environment and its own process and does one job on the bundled model; ours
does the same job in this process, before and after it, so that both meet the same machine.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import cutaway
from bench.extract_setup import bundled_folder, fresh_home
from bench.inject_fisher import add_all, worst_of
from bench.report import row
from bench.rivals.environment import Unusable, environment
from bench.rivals.job import MARK
from cutaway.console import Console
from cutaway.core.textset import TextSet
from cutaway.data.load import load_text_set
from cutaway.extract.activations import extract
from cutaway.extract.request import ExtractionRequest
from cutaway.methods.graft.maths.patch import Patch
from cutaway.methods.graft.maths.select import Mask
from cutaway.methods.graft.skill import Skill, checksum
from cutaway.methods.inject.examples import lm_examples
from cutaway.methods.inject.fisher_sums import choose_method, zero_sums
from cutaway.methods.shortcut.maps import load_maps
from cutaway.methods.shortcut.predictions import logits_fn
from cutaway.models.load import open_model

SCRIPTS = Path(__file__).parent / "rivals"
MINUTES = 8
LAYERS = (3, 9, 15, 21, 27)
DENSITY = 1e-3


def run(quick: bool, keep_envs: bool = False) -> dict[str, Any]:
    """A line or more for each rival; the reason for one that can't run here."""
    table: list[dict[str, Any]] = []
    measured = {}
    with tempfile.TemporaryDirectory(prefix="cutaway-methods-") as work, fresh_home():
        for name, (package, more, compare) in RIVALS.items():
            print(f"   {name}", file=sys.stderr)
            folder = Path(work) / name
            folder.mkdir()
            try:
                with environment(package, *more, keep=keep_envs) as python:
                    script = SCRIPTS / f"with_{name}.py"
                    lines, measured[name] = compare(Rival(python, script), folder, quick)
                table += lines
            except Unusable as error:
                table.append(row(name, "-", f"not run: {error}"))
                measured[name] = {"missing": str(error)}
    return {
        "title": "Methods beside other tools",
        "text": [
            "The bundled model from a local folder, each rival in a process and an environment of "
            "its own. tuned-lens: translators of layers "
            f"{', '.join(map(str, LAYERS))} trained by its own recipe (KL, SGD with momentum) for "
            "as many steps as the line says; its default is 250 steps of 262,144 tokens, far "
            "beyond this machine. Ours is `shortcut fit` of every layer to the last on the same "
            "sentences, reading included. Both are scored on sentences that neither saw: KL from "
            "the model's own distribution, and how often the most likely word is the model's.",
            "Avalanche: `EWCPlugin.compute_importances`, batches of one; ours sums the same "
            "squares. Processor time, one thread. mergekit (`ties`, by magnitude) and peft (a "
            "low-rank adapter of every projection, as many numbers as the skill has or more) make "
            "a checkpoint with a skill in it; ours is `graft attach`, which checks before that "
            "every weight of the base is the one the skill was made for.",
        ],
        "table": table,
        "measured": measured,
    }


class Rival:
    """A script and the Python that can run it."""

    def __init__(self, python: Path, script: Path) -> None:
        """Nothing is started yet."""
        self.python, self.script = python, script

    def __call__(self, folder: Path, **args: Any) -> dict[str, Any]:
        """What it answers; Unusable with its last words when it fails."""
        asked = folder / "args.json"
        asked.write_text(json.dumps({**args, "out": str(folder / "theirs")}))
        words = [str(self.python), str(self.script), str(asked)]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=60 * MINUTES)
        except subprocess.TimeoutExpired:
            raise Unusable(f"it took more than {MINUTES} minutes") from None
        for line in done.stdout.splitlines():
            if line.startswith(MARK):
                return json.loads(line.removeprefix(MARK))
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise Unusable(f"it failed: {said[-1][:200] if said else 'without a word'}")


Lines = tuple[list[dict[str, Any]], dict[str, Any]]


def lenses(rival: Rival, folder: Path, quick: bool) -> Lines:
    """Maps to the last layer: fitted by us, trained by tuned-lens."""
    steps, batch = (1, 2) if quick else (8, 12)
    lm = open_model("smollm2-135m", check=False)
    texts = load_text_set("docs", limit=steps * batch + (4 if quick else 40), seed=0)
    cut = [text[:300] for text in texts.texts]
    known, unseen = cut[: steps * batch], TextSet("unseen", tuple(cut[steps * batch :]))
    (folder / "known.txt").write_text("\n".join(" ".join(text.split()) for text in known))
    start = time.perf_counter()
    cutaway.shortcut.fit(
        model="smollm2-135m", text=str(folder / "known.txt"), layers="to-final", held_out=0.05,
        positions_per_text=32, out=str(folder / "maps.safetensors"), runs=str(folder / "runs"),
        quiet=True,
    )  # fmt: skip
    mine = time.perf_counter() - start
    rows = [ids for ids in lm.tokenizer(known)["input_ids"] if len(ids) > 1]
    theirs = rival(
        folder, model=str(bundled_folder()), layers=list(LAYERS), rows=rows, steps=steps,
        batch=batch,
    )  # fmt: skip
    found = scored(lm, unseen, folder)
    lines = [
        row(f"tuned-lens {theirs['version']}: making the maps ({steps} steps, "
            f"{theirs['tokens']:,} tokens)", f"{mine:.1f} s (30 layers)",
            f"{theirs['seconds']:.1f} s ({len(LAYERS)} layers)", theirs["seconds"] / mine),
        *(row(f"tuned-lens: {what}, mean over layers (as they are: {bare:.3g})",
              f"{ours:.3g}", f"{other:.3g}", bar=bar, met=sign * ours >= sign * other)
          for what, bar, sign, bare, ours, other in (
              ("KL in nats", "<= theirs", -1, found["id"][0], found["ours"][0], found["theirs"][0]),
              ("same word as the model", ">= theirs", 1, found["id"][1], found["ours"][1],
               found["theirs"][1]))),
    ]  # fmt: skip
    return lines, {"seconds": {"ours": mine, "theirs": theirs["seconds"]}, "scores": found}


@torch.no_grad()
def scored(lm: Any, texts: TextSet, folder: Path) -> dict[str, list[float]]:
    """Mean KL and agreement over some layers of unseen texts, by way."""
    read = extract(lm, texts, ExtractionRequest(layers=(*LAYERS, lm.layers), pools=("all",)))
    head, maps = logits_fn(lm), load_maps(folder / "maps.safetensors")
    theirs = load_file(folder / "theirs")
    final = head(read.tokens(lm.layers)[0]).log_softmax(-1)
    sums: dict[str, list[float]] = {"id": [0.0, 0.0], "ours": [0.0, 0.0], "theirs": [0.0, 0.0]}
    for layer in LAYERS:
        states = read.tokens(layer)[0].float()
        weight, bias = theirs[f"{layer}.weight"], theirs[f"{layer}.bias"]
        ways = {
            "id": states,
            "ours": maps.jump(layer, lm.layers)(states),
            "theirs": states + states @ weight.T + bias,
        }
        for way, moved in ways.items():
            said = head(moved).log_softmax(-1)
            sums[way][0] += float((final.exp() * (final - said)).sum(-1).mean()) / len(LAYERS)
            sums[way][1] += float((final.argmax(-1) == said.argmax(-1)).double().mean()) / len(
                LAYERS
            )
    return sums


def importances(rival: Rival, folder: Path, quick: bool) -> Lines:
    """The diagonal Fisher of the same examples."""
    lm = open_model("smollm2-135m", check=False)
    examples = lm_examples(lm, load_text_set("docs", limit=3 if quick else 16, seed=0))
    theirs = rival(folder, model=str(bundled_folder()), rows=examples.rows)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        total = zero_sums(lm)
        way = choose_method(lm, examples, total, Console(quiet=True)).way
        for value in total.values():
            value.zero_()
        start = time.process_time()
        add_all(lm, examples, total, way)
        mine = time.process_time() - start
    finally:
        torch.set_num_threads(threads)
    other = {n: v * len(examples) for n, v in load_file(folder / "theirs").items() if n in total}
    worst = worst_of(total, other)
    what = f"Avalanche {theirs['version']}, EWC: importances of {len(examples)} sentences"
    lines = [
        row(what, f"{mine:.1f} s", f"{theirs['seconds']:.1f} s", theirs["seconds"] / mine, "> 1x",
            theirs["seconds"] > mine),
        row("Avalanche: largest relative difference of a tensor", f"{worst:.1e}", bar="<= 1e-4",
            met=worst <= 1e-4),
    ]  # fmt: skip
    return lines, {"seconds": {"ours": mine, "theirs": theirs["seconds"]}, "worst": worst}


def _skill(folder: Path) -> tuple[Any, Skill]:
    """A skill of a thousandth of the weights: the largest of random changes, tensor by tensor."""
    lm = open_model("smollm2-135m", check=False)
    params = dict(lm.module.named_parameters())
    base = checksum(params)
    rng = torch.Generator().manual_seed(0)
    places, before, after = {}, {}, {}
    for name, value in params.items():
        if value.dim() < 2 or "embed" in name:
            continue
        change = 1e-2 * torch.randn(value.numel(), generator=rng)
        count = max(1, int(DENSITY * value.numel()))
        chosen = change.abs().topk(count).indices.sort().values
        flat = value.detach().reshape(-1)
        places[name], before[name] = chosen, flat[chosen].clone()
        after[name] = before[name] + change[chosen]
        flat += change
    lm.module.save_pretrained(folder / "tuned")
    lm.tokenizer.save_pretrained(folder / "tuned")
    shapes = {name: tuple(params[name].shape) for name in places}
    meta = {"base": {"name": "smollm2-135m", "checksum": base}, "task": {"name": "none"}}
    skill = Skill(Patch(Mask(places), before, after), shapes, meta)
    skill.save(folder / "skill.safetensors")
    return lm, skill


def _attached(folder: Path) -> tuple[float, int]:
    """Seconds of `graft attach`, and the bytes of the skill's file."""
    start = time.perf_counter()
    cutaway.graft.attach(
        skill=str(folder / "skill.safetensors"), base="smollm2-135m", out=str(folder / "ours"),
        quiet=True,
    )  # fmt: skip
    return time.perf_counter() - start, (folder / "skill.safetensors").stat().st_size


def merged(rival: Rival, folder: Path, quick: bool) -> Lines:
    """A thousandth of the changes of a tuned model put into the base, by mergekit."""
    _, skill = _skill(folder)
    mine, size = _attached(folder)
    theirs = rival(folder, base=str(bundled_folder()), tuned=str(folder / "tuned"), density=DENSITY)
    one, other = (load_file(folder / at / "model.safetensors") for at in ("ours", "theirs"))
    same = sum(int((one[n] == other[n]).sum()) for n in one) / sum(v.numel() for v in one.values())
    tuned = (folder / "tuned" / "model.safetensors").stat().st_size
    lines = [
        row(f"mergekit {theirs['version']}: {skill.size:,} weights of a tuned model into the base",
            f"{mine:.1f} s, from {size / 1e6:.1f} MB",
            f"{theirs['seconds']:.1f} s, from {tuned / 1e6:,.0f} MB", theirs["seconds"] / mine),
        row("mergekit: weights of both checkpoints that are equal to the last bit",
            f"{100 * same:.4f} %"),
    ]  # fmt: skip
    return lines, {"seconds": {"ours": mine, "theirs": theirs["seconds"]}, "same": same}


def adapted(rival: Rival, folder: Path, quick: bool) -> Lines:
    """A low-rank adapter merged into the base, by peft."""
    _, skill = _skill(folder)
    mine, size = _attached(folder)
    modules = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    theirs = rival(folder, base=str(bundled_folder()), rank=1, modules=modules)
    line = row(
        f"peft {theirs['version']}: a rank-1 adapter into the base, beside a skill of "
        f"{skill.size:,} weights", f"{mine:.1f} s, from {size / 1e6:.1f} MB",
        f"{theirs['seconds']:.1f} s, from {theirs['bytes'] / 1e6:.1f} MB",
        theirs["seconds"] / mine,
    )  # fmt: skip
    return [line], {"seconds": {"ours": mine, "theirs": theirs["seconds"]}}


Compare = Callable[[Rival, Path, bool], Lines]
# Script -> package as pip knows it, what it needs besides, how it is compared.
RIVALS: dict[str, tuple[str, tuple[str, ...], Compare]] = {
    "tuned_lens": ("tuned-lens", (), lenses),
    "avalanche": ("avalanche-lib", ("transformers",), importances),
    "mergekit": ("mergekit", (), merged),
    "peft": ("peft", (), adapted),
}
