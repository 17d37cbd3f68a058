"""`cutaway shortcut generate`: text with early exit or verified drafts, beside plain `generate`."""

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from cutaway.console import Console
from cutaway.core.errors import BadData, BadSpec
from cutaway.methods.shortcut.decode import (
    DecodeResult,
    TokenPicker,
    early_exit_decode,
    speculative_decode,
)
from cutaway.methods.shortcut.draft_choice import (
    DRAFT_LENGTHS,
    MIN_SPEEDUP,
    Continuation,
    DraftSetting,
    choose_draft,
    make_drafter,
)
from cutaway.methods.shortcut.draft_maps import AHEAD, draft_map_layers
from cutaway.methods.shortcut.exit_timing import default_exit_layers
from cutaway.methods.shortcut.fit import logits_fn
from cutaway.methods.shortcut.maps import ShortcutMaps, load_maps
from cutaway.methods.shortcut.maths.fit import IDENTITY
from cutaway.methods.shortcut.plain_generate import plain_generate, stop_token_ids
from cutaway.methods.shortcut.segments import check_exit_layers, segmented
from cutaway.methods.shortcut.spec import GenerateSpec
from cutaway.models.lm import LM
from cutaway.models.small_matmul import measure_variants, tuned_small_matmuls
from cutaway.models.tokens import tokenize
from cutaway.recipe.objects import Objects
from cutaway.recipe.open_for_spec import open_spec_model

# The most tokens that are verified at once, and the one before them.
MAX_VERIFIED_TOKENS = max(DRAFT_LENGTHS) + 1


@dataclass(frozen=True)
class Generation:
    """What was written for one prompt, and plain `generate` beside it."""

    prompt: str
    text: str
    tokens: list[int]
    layers_mean: float
    """Layers behind a token on average: where it left the model."""
    accepted: float
    """Share of the drafted tokens that the full model kept; 0 without drafts."""
    seconds: float
    plain_tokens: list[int]
    plain_seconds: float
    identical: bool


@dataclass(frozen=True)
class Generations:
    """All texts, the setting they were written with, and the verdict."""

    texts: tuple[Generation, ...]
    setting: DraftSetting | None
    """None when drafting would not pay, or in mode exit."""
    verdict: tuple[str, ...]

    def plain(self) -> list[dict[str, Any]]:
        """JSON-ready values, one per prompt."""
        return [asdict(text) for text in self.texts]

    def show(self) -> None:
        """Print the texts and the verdict on stdout."""
        for one in self.texts:
            whole = one.text if one.text.startswith(one.prompt) else one.prompt + one.text
            sys.stdout.write(whole + "\n")
        sys.stdout.write("\n".join(self.verdict) + "\n")


def run(
    spec: GenerateSpec, *, console: Console | None = None, objects: Objects | None = None
) -> Generations:
    """A text for each prompt; greedy self-speculation gives exactly what `generate` gives."""
    console, lm = console or Console(quiet=True), open_spec_model(spec, objects)
    return generate_texts(lm, load_maps(spec.shortcut, lm), spec, console)


def generate_texts(lm: LM, maps: ShortcutMaps, spec: GenerateSpec, console: Console) -> Generations:
    """As `run`, with a model and maps that are open already."""
    prompts = [_prompt_ids(lm, text, spec) for text in spec.prompt]
    stops, jumps = stop_token_ids(lm), _candidate_maps(lm, maps, spec)
    plains = []
    with console.progress("plain generate", len(prompts)) as advance:
        for prompt in prompts:
            plains.append(_plain_tokens(lm, prompt, stops, spec))
            advance()
    with tuned_small_matmuls(lm, measure_variants(lm, MAX_VERIFIED_TOKENS)):
        setting = _draft_setting(lm, maps, jumps, prompts, plains, spec)
        if spec.mode == "speculative" and setting is None:
            return _plain_fallback(lm, spec, prompts, plains)
        texts: list[Generation] = []
        with console.progress(spec.mode, len(prompts)) as advance:
            for text, prompt, (tokens, seconds) in zip(spec.prompt, prompts, plains, strict=True):
                start = time.perf_counter()
                written = _decode_prompt(lm, maps, jumps, setting, prompt, stops, spec)
                took = time.perf_counter() - start
                texts.append(_generation(lm, text, prompt, written, took, tokens, seconds))
                # The measurement was a forecast; the first text is the proof.
                if (
                    setting
                    and not draft_is_given(spec)
                    and len(texts) == 1
                    and texts[0].seconds >= seconds
                ):
                    return _plain_fallback(lm, spec, prompts, plains)
                advance()
    return Generations(tuple(texts), setting, tuple(_verdict(texts, setting, spec, lm)))


def draft_is_given(spec: GenerateSpec) -> bool:
    """Whether the user has settled where and how far to draft."""
    return spec.draft is not None and len(spec.exit_layers) == 1


def _plain_fallback(
    lm: LM, spec: GenerateSpec, prompts: list[Tensor], plains: list[tuple[list[int], float]]
) -> Generations:
    """Plain generate's texts, with the reason."""
    texts = []
    for text, prompt, (tokens, seconds) in zip(spec.prompt, prompts, plains, strict=True):
        written = DecodeResult(list(tokens), [lm.layers] * len(tokens))
        texts.append(_generation(lm, text, prompt, written, seconds, tokens, seconds))
    return Generations(tuple(texts), None, (FALLBACK_VERDICT,))


FALLBACK_VERDICT = (
    "A short measurement says that drafting would not be faster than plain generate here, so the "
    "text is plain generate's. Give --exit-layers and --draft to draft all the same."
)


def _prompt_ids(lm: LM, text: str, spec: GenerateSpec) -> Tensor:
    if lm.kind != "causal":
        raise BadSpec(f"{lm.name!r} is a masked model: only causal models write text.")
    row = tokenize(lm, [text]).rows[0]
    if not row:
        raise BadData(f"The prompt {text!r} has no tokens: give at least a word to go on from.")
    if len(row) + spec.max_new_tokens > lm.context:
        raise BadData(
            f"The prompt {text[:30]!r} has {len(row)} tokens; with {spec.max_new_tokens} new ones "
            f"that is more than the context of {lm.context}. Shorten it or lower --max-new-tokens."
        )
    return torch.tensor([row], device=lm.device)


def _plain_tokens(
    lm: LM, prompt: Tensor, stops: frozenset[int], spec: GenerateSpec
) -> tuple[list[int], float]:
    if not spec.sample:
        return plain_generate(lm, prompt, spec.max_new_tokens, stops)
    with torch.random.fork_rng():
        torch.manual_seed(spec.seed)
        sampling = {"do_sample": True, "temperature": spec.temperature, "top_k": 0, "top_p": 1.0}
        return plain_generate(lm, prompt, spec.max_new_tokens, stops, **sampling)


def _map_kind(maps: ShortcutMaps, spec: GenerateSpec) -> str:
    """The kind of map that goes from any layer to the end."""
    if spec.kind in ("auto", AHEAD):
        return "tuned" if "tuned" in maps.kinds else "mat"
    return maps.chosen([spec.kind])[0]


def _candidate_maps(lm: LM, maps: ShortcutMaps, spec: GenerateSpec) -> list[tuple[str, int]]:
    """The kinds and layers to exit at or to draft from: those asked for, or all that may pay.

    What the model or the file does not have is refused here, before anything is written.
    """
    check_exit_layers(lm, spec.exit_layers)
    ahead = _candidate_draft_maps(maps, spec) if spec.mode == "speculative" else []
    if ahead and spec.kind == AHEAD:
        return ahead
    # The first layers are nearly free to run, so even a weak draft from there may pay.
    try_out = {1, 2, *(round(lm.layers * k / 8) for k in range(1, 8))}
    default = (
        default_exit_layers(lm) if spec.mode == "exit" else sorted(try_out & {*range(1, lm.layers)})
    )
    kind, layers = _map_kind(maps, spec), spec.exit_layers or default
    for layer in layers:
        maps.jump(layer, lm.layers, kind)
    return ahead + [(kind, layer) for layer in layers]


def _candidate_draft_maps(maps: ShortcutMaps, spec: GenerateSpec) -> list[tuple[str, int]]:
    """The maps that draft, from the layers asked for if any were."""
    if spec.kind not in ("auto", AHEAD):
        return []
    has = draft_map_layers(maps)
    found = [(AHEAD, n) for n in has if not spec.exit_layers or n in spec.exit_layers]
    if spec.kind == AHEAD and not found:
        raise BadSpec(
            f"No maps of kind ahead from layer {spec.exit_layers[0]}: the file has them from "
            f"{list(has)}. Give one of these with --exit-layers."
            if has
            else "The file has no maps of kind ahead: fit it with --drafts 200, or take another "
            "--kind."
        )
    return found


def _draft_setting(
    lm: LM,
    maps: ShortcutMaps,
    drafts: Sequence[tuple[str, int]],
    prompts: Sequence[Tensor],
    plains: Sequence[tuple[list[int], float]],
    spec: GenerateSpec,
) -> DraftSetting | None:
    """How to draft: as given, or the best by measurement, None if nothing pays."""
    if spec.mode == "exit":
        return None
    if spec.draft is not None and draft_is_given(spec):
        return DraftSetting(*drafts[0], spec.draft, 0.0, float("nan"))
    own = [
        Continuation(prompt[0].tolist() + tokens, len(tokens))
        for prompt, (tokens, _) in zip(prompts, plains, strict=True)
        if tokens
    ]
    if not drafts or not own:
        return None
    lengths = DRAFT_LENGTHS if spec.draft is None else (spec.draft,)
    best = choose_draft(lm, maps, own, drafts, lengths)
    return best if best.expected >= MIN_SPEEDUP else None


def _decode_prompt(
    lm: LM,
    maps: ShortcutMaps,
    exits: Sequence[tuple[str, int]],
    setting: DraftSetting | None,
    prompt: Tensor,
    stops: frozenset[int],
    spec: GenerateSpec,
) -> DecodeResult:
    rng = torch.Generator().manual_seed(spec.seed) if spec.sample else None
    chance, head = TokenPicker(rng, spec.temperature), logits_fn(lm)
    shared: dict[str, Any] = {"limit": spec.max_new_tokens, "stops": stops, "chance": chance}
    with torch.inference_mode():
        if setting is not None:
            drafter = make_drafter(
                lm, maps, setting.kind, setting.layer, setting.length, setting.floor,
                prompt[0].tolist(),
            )  # fmt: skip
            with segmented(lm, [setting.layer]) as cut:
                return speculative_decode(cut, prompt, drafter, head, **shared)
        jumps = {layer: maps.jump(layer, lm.layers, kind) for kind, layer in exits}
        with segmented(lm, list(jumps)) as cut:
            jumps[lm.layers] = IDENTITY
            return early_exit_decode(cut, prompt, jumps, head, lambda_=spec.lambda_value, **shared)


def _generation(
    lm: LM,
    prompt: str,
    row: Tensor,
    written: DecodeResult,
    seconds: float,
    plain: list[int],
    plain_seconds: float,
) -> Generation:
    return Generation(
        prompt=prompt,
        text=decode_continuation(lm, row[0].tolist(), written.tokens),
        tokens=written.tokens,
        layers_mean=sum(written.layers) / max(len(written.layers), 1),
        accepted=written.accepted / max(written.drafted, 1),
        seconds=seconds,
        plain_tokens=plain,
        plain_seconds=plain_seconds,
        identical=written.tokens == plain,
    )


def decode_continuation(lm: LM, row: list[int], tokens: list[int]) -> str:
    """The new tokens as they read behind the row; some tokenizers eat a space at the start."""
    before, both = (
        lm.tokenizer.decode(ids, skip_special_tokens=True) for ids in (row, row + tokens)
    )
    if both.startswith(before):
        return str(both[len(before) :])
    return str(lm.tokenizer.decode(tokens, skip_special_tokens=True))


def _verdict(
    texts: list[Generation], setting: DraftSetting | None, spec: GenerateSpec, lm: LM
) -> list[str]:
    ours, plain = (sum(getattr(t, name) for t in texts) for name in ("seconds", "plain_seconds"))
    same = sum(text.identical for text in texts)
    said = [f"{plain / ours:.2f} times the speed of plain generate ({ours:.2f} s, {plain:.2f} s)."]
    if setting is not None:
        kept = sum(text.accepted for text in texts) / len(texts)
        said.append(
            f"Drafts of up to {setting.length} of kind {setting.kind} from layer {setting.layer} "
            f"of {lm.layers}, at least {setting.floor:.0%} sure; {kept:.0%} of the drafted tokens "
            "were kept."
        )
    else:
        mean = sum(text.layers_mean for text in texts) / len(texts)
        said.append(f"Tokens left the model after {mean:.1f} of {lm.layers} layers on average.")
    if not spec.sample:
        said.append(f"{same} of {len(texts)} texts are the same as plain generate's.")
    return said
