"""Self-speculative text: ours against plain `generate` and transformers' own early-exit drafts.

For each prompt all ways write in turn, so that a busy moment hits all alike: plain `generate`, the
drafts, and at every fourth prompt our own loop without drafts (with the same quick products, so
that what drafting itself gives can be told apart). The setting is chosen on other prompts.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.extract_setup import BUNDLED, sentences
from bench.report import row, spread, told
from cutaway.core.textset import TextSet
from cutaway.methods.shortcut import api as shortcut
from cutaway.methods.shortcut.decode import (
    DecodeResult,
    plain_decode,
    plain_generate,
    speculative_decode,
    stop_token_ids,
)
from cutaway.methods.shortcut.draft_choice import DraftSetting, make_drafter
from cutaway.methods.shortcut.maps import ShortcutMaps, load_maps
from cutaway.methods.shortcut.predictions import logits_fn
from cutaway.methods.shortcut.segments import segmented
from cutaway.methods.shortcut.text_writer import MAX_VERIFIED_TOKENS
from cutaway.models.lm import LM
from cutaway.models.load import open_model
from cutaway.models.small_matmul import measure_variants, tuned_small_matmuls

PROMPTS, NEW, TEXTS, TRIAL, LOOP = 100, 64, 400, 8, 4
Took = dict[str, list[float]]
"""Seconds by way and prompt; the loop's are those of every fourth prompt."""


def run(quick: bool, rows: int | None = None) -> dict[str, Any]:
    """The bundled model on sentences."""
    lm = open_model(BUNDLED)
    return compared(lm, sentences(needed(quick, rows)).texts, quick, rows)


def needed(quick: bool, rows: int | None) -> int:
    """How many texts `compared` takes: to fit on, to choose on, to measure on."""
    prompts, _, texts = sizes(quick, rows)
    return texts + TRIAL + prompts


def sizes(quick: bool, rows: int | None) -> tuple[int, int, int]:
    """Prompts, words of each answer, texts of the fit."""
    return (4, 8, 60) if quick else (rows or PROMPTS, NEW, TEXTS)


def compared(lm: LM, texts: Sequence[str], quick: bool, rows: int | None) -> dict[str, Any]:
    """Identity with greedy generate over many prompts, and the speed beside its rivals."""
    prompts, new, _ = sizes(quick, rows)
    cut = [text[:80] for text in texts[-prompts - TRIAL :]]
    trial, said = cut[:TRIAL], cut[TRIAL:]
    with tempfile.TemporaryDirectory(prefix="cutaway-bench-") as folder:
        file = str(Path(folder) / "maps.safetensors")
        fit = TextSet("fit", tuple(texts[: -prompts - TRIAL]))
        shortcut.fit(
            model=lm, text=fit, runs=folder, max_tokens=128, layers="to-final", out=file,
            drafts=len(fit), quiet=True,
        )  # fmt: skip
        chosen = shortcut.generate(
            model=lm, shortcut=file, prompt=trial, max_new_tokens=new, quiet=True,
        )  # fmt: skip
        setting = chosen.setting or DraftSetting("ahead", 0, 1, 0.3, float("nan"))
        maps = load_maps(file, lm)
        took, same, drafts = in_turn(lm, maps, said, new, setting)
    rival = early_exit(lm, said[:4], new, max(1, lm.layers // 3))
    return report(lm, took, same, drafts, rival, setting)


@torch.inference_mode()
def in_turn(
    lm: LM, maps: ShortcutMaps, prompts: list[str], new: int, setting: DraftSetting
) -> tuple[Took, int, DecodeResult]:
    """Seconds by way and prompt, how many drafted texts are generate's, and all drafts added up."""
    took: Took = {"generate": [], "loop": [], "drafts": []}
    same, drafts, stops = 0, DecodeResult(), stop_token_ids(lm)
    ways, head = measure_variants(lm, MAX_VERIFIED_TOKENS), logits_fn(lm)
    for number, text in enumerate(prompts):
        ids = torch.tensor([lm.tokenizer(text)["input_ids"]], device=lm.device)
        options: dict[str, Any] = {"limit": new, "stops": stops}
        [expected], seconds = plain_generate(lm, ids, new, stops)
        took["generate"].append(seconds)
        with tuned_small_matmuls(lm, ways):
            if number % LOOP == 0:
                with segmented(lm, []) as whole:
                    _timed(took["loop"], partial(plain_decode, whole, ids, head, **options))
            found = _timed(took["drafts"], partial(drafted, lm, maps, setting, ids, head, options))
        same += found.tokens == expected
        drafts.tokens += found.tokens
        for count in ("drafted", "accepted", "rounds"):
            setattr(drafts, count, getattr(drafts, count) + getattr(found, count))
    return took, same, drafts


def drafted(
    lm: LM,
    maps: ShortcutMaps,
    setting: DraftSetting,
    ids: Tensor,
    head: Any,
    options: dict[str, Any],
) -> DecodeResult:
    """One text, everything that it takes included."""
    chosen = (setting.kind, setting.layer, setting.length, setting.floor)
    drafter = make_drafter(lm, maps, *chosen, ids[0].tolist())
    with segmented(lm, [setting.layer]) as cut:
        return speculative_decode(cut, ids, drafter, head, **options)


def _timed(seconds: list[float], work: Callable[[], DecodeResult]) -> DecodeResult:
    start = time.perf_counter()
    found = work()
    seconds.append(time.perf_counter() - start)
    return found


def early_exit(lm: LM, prompts: list[str], new: int, layer: int) -> float | str:
    """Seconds of transformers' `assistant_early_exit` over plain's; the reason if it fails."""
    ours = plain = 0.0
    for text in prompts:
        ids = torch.tensor([lm.tokenizer(text)["input_ids"]], device=lm.device)
        _, seconds = plain_generate(lm, ids, new, stop_token_ids(lm))
        plain += seconds
        start = time.perf_counter()
        try:
            plain_generate(lm, ids, new, stop_token_ids(lm), assistant_early_exit=layer)
        except Exception as error:
            return f"{type(error).__name__}: {str(error).splitlines()[0][:80]}"
        ours += time.perf_counter() - start
    return plain / ours


def report(
    lm: LM, took: Took, same: int, drafts: DecodeResult, rival: float | str, setting: DraftSetting
) -> dict[str, Any]:
    """The bench's table."""
    tokens = max(len(drafts.tokens), 1)
    texts, looped = len(took["drafts"]), tokens * len(took["loop"]) / len(took["drafts"])
    each = {
        name: f"{1000 * sum(values) / (looped if name == 'loop' else tokens):.1f} ms a token"
        for name, values in took.items()
    }
    by_text = [one / other for one, other in zip(took["generate"], took["drafts"], strict=True)]
    part = {name: sum(took[name][::LOOP]) for name in ("generate", "drafts")}
    part["loop"] = sum(took["loop"])
    gain = sum(took["generate"]) / sum(took["drafts"])
    theirs = rival if isinstance(rival, str) else f"{rival:.2f}x the speed of generate"
    kept = drafts.accepted / max(drafts.drafted, 1)
    return {
        "title": f"Self-speculative generation, {Path(lm.name).name}",
        "text": f"{Path(lm.name).name}, {texts} prompts, {tokens:,} tokens; drafts of up to "
        f"{setting.length} of kind {setting.kind} from layer {setting.layer}, at least "
        f"{setting.floor:.0%} sure: "
        f"{drafts.drafted / max(drafts.rounds, 1):.2f} drafted a round, {kept:.0%} of them kept. "
        f"Ratio to generate by prompt: {told(spread(by_text), 'x')}. "
        f"Threads: {torch.get_num_threads()}.",
        "table": [
            row("texts identical to greedy generate", f"{same} of {texts}", bar="all",
                met=same == texts),
            row("drafts against plain generate", each["drafts"], each["generate"],
                gain, ">= 1.2x (goal)", gain >= 1.2),
            row("drafts against our own loop without them", each["drafts"], each["loop"],
                part["loop"] / part["drafts"]),
            row("our own loop without drafts against plain generate", each["loop"],
                each["generate"], part["generate"] / part["loop"]),
            row("transformers' assistant_early_exit against plain generate", "-", theirs),
        ],
        "measured": {
            "setting": str(setting),
            "seconds": {name: spread(values) for name, values in took.items()},
            "early_exit": str(rival),
        },
    }  # fmt: skip
