"""`cutaway shortcut generate`: text with early exit or verified drafts."""

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
    plain_generate,
    speculative_decode,
    stop_token_ids,
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
from cutaway.methods.shortcut.maps import ShortcutMaps, load_maps
from cutaway.methods.shortcut.maths.fit import IDENTITY
from cutaway.methods.shortcut.predictions import logits_fn
from cutaway.methods.shortcut.segments import check_exit_layers, segmented
from cutaway.methods.shortcut.spec import GenerateSpec
from cutaway.methods.shortcut.verdict import PLAIN_FALLBACK, generate_verdict
from cutaway.models.lm import LM
from cutaway.models.small_matmul import measure_variants, tuned_small_matmuls
from cutaway.models.tokens import tokenize
from cutaway.recipe.life_cycle import Context
from cutaway.recipe.open_for_spec import open_spec_model

# The longest draft and the token before it.
MAX_VERIFIED_TOKENS = max(DRAFT_LENGTHS) + 1


@dataclass(frozen=True)
class Generation:
    """The text generated for one prompt, with plain `generate`'s for comparison."""

    prompt: str
    text: str
    tokens: list[int]
    layers_mean: float
    """Mean number of layers after which tokens exited."""
    accepted: float
    """Share of the drafted tokens that the full model accepted; 0 without drafts."""
    seconds: float
    plain_tokens: list[int]
    plain_seconds: float
    identical: bool


@dataclass(frozen=True)
class Generations:
    """All generated texts, the draft setting, and the verdict."""

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
            text = one.text if one.text.startswith(one.prompt) else f"{one.prompt}{one.text}"
            sys.stdout.write(f"{text}\n")
        sys.stdout.write("\n".join(self.verdict) + "\n")


@dataclass(frozen=True)
class GenerateRequest:
    """The model, its maps, the prompts as token ids, and the maps to exit or draft with."""

    spec: GenerateSpec
    lm: LM
    maps: ShortcutMaps
    prompts: list[Tensor]
    candidates: list[tuple[str, int]]
    """Kinds and layers of maps: those requested, or all that may pay."""

    @property
    def draft_is_given(self) -> bool:
        """Whether the user has fixed where and how far to draft."""
        return self.spec.draft is not None and len(self.spec.exit_layers) == 1


def resolve(spec: GenerateSpec, context: Context) -> GenerateRequest:
    """The model, its maps and the prompts; what can't be generated is refused here."""
    lm = open_spec_model(spec, context.objects)
    maps = load_maps(spec.shortcut, lm)
    prompts = [_prompt_ids(lm, text, spec) for text in spec.prompt]
    return GenerateRequest(spec, lm, maps, prompts, _candidate_maps(lm, maps, spec))


def perform(request: GenerateRequest, context: Context) -> Generations:
    """A text for each prompt; greedy self-speculation gives exactly what `generate` gives."""
    lm, spec, prompts = request.lm, request.spec, request.prompts
    plain = _plain_generations(request, context.console)
    with tuned_small_matmuls(lm, measure_variants(lm, MAX_VERIFIED_TOKENS)):
        setting = _draft_setting(request, plain)
        if spec.mode == "speculative" and setting is None:
            return Generations(tuple(plain), None, (PLAIN_FALLBACK,))
        texts: list[Generation] = []
        with context.console.progress(spec.mode, len(prompts)) as advance:
            for prompt, baseline in zip(prompts, plain, strict=True):
                start = time.perf_counter()
                decoded = _decode_prompt(request, setting, prompt)
                seconds = time.perf_counter() - start
                own = (baseline.plain_tokens, baseline.plain_seconds)
                texts.append(_generation(lm, baseline.prompt, prompt, decoded, seconds, own))
                # The measurement was a forecast; the first text checks it.
                slower = len(texts) == 1 and seconds >= baseline.plain_seconds
                if setting and not request.draft_is_given and slower:
                    return Generations(tuple(plain), None, (PLAIN_FALLBACK,))
                advance()
    verdict = generate_verdict(texts, setting, layers=lm.layers, sample=spec.sample)
    return Generations(tuple(texts), setting, tuple(verdict))


def _prompt_ids(lm: LM, text: str, spec: GenerateSpec) -> Tensor:
    if lm.kind != "causal":
        raise BadSpec(f"{lm.name!r} is a masked model: only causal models generate text.")
    row = tokenize(lm, [text]).rows[0]
    if not row:
        raise BadData(f"The prompt {text!r} has no tokens: give at least one word.")
    if len(row) + spec.max_new_tokens > lm.context:
        raise BadData(
            f"The prompt {text[:30]!r} has {len(row)} tokens; with {spec.max_new_tokens} new ones "
            f"that is more than the context of {lm.context}. Shorten it or lower --max-new-tokens."
        )
    return torch.tensor([row], device=lm.device)


def _plain_generations(request: GenerateRequest, console: Console) -> list[Generation]:
    """What transformers' `generate` gives for each prompt."""
    lm, spec, stops = request.lm, request.spec, stop_token_ids(request.lm)
    sampling = {"do_sample": True, "temperature": spec.temperature, "top_k": 0, "top_p": 1.0}
    texts = []
    with console.progress("plain generate", len(request.prompts)) as advance:
        for text, prompt in zip(spec.prompt, request.prompts, strict=True):
            with torch.random.fork_rng(enabled=spec.sample):
                if spec.sample:
                    torch.manual_seed(spec.seed)
                options = sampling if spec.sample else {}
                [tokens], seconds = plain_generate(
                    lm, prompt, spec.max_new_tokens, stops, **options
                )
            own = DecodeResult(tokens, [lm.layers] * len(tokens))
            texts.append(_generation(lm, text, prompt, own, seconds, (tokens, seconds)))
            advance()
    return texts


def _candidate_maps(lm: LM, maps: ShortcutMaps, spec: GenerateSpec) -> list[tuple[str, int]]:
    """The kinds and layers to exit at or to draft from; BadSpec for maps the file lacks."""
    check_exit_layers(lm, spec.exit_layers)
    drafts = _candidate_draft_maps(maps, spec) if spec.mode == "speculative" else []
    if drafts and spec.kind == AHEAD:
        return drafts
    kind = spec.kind
    if kind in ("auto", AHEAD):
        kind = "tuned" if "tuned" in maps.kinds else "mat"
    # The first layers are cheap to run, so even a weak draft from there may pay.
    early = {1, 2, *(round(lm.layers * k / 8) for k in range(1, 8))} & {*range(1, lm.layers)}
    default = default_exit_layers(lm) if spec.mode == "exit" else sorted(early)
    layers = spec.exit_layers or default
    for layer in layers:
        maps.jump(layer, lm.layers, kind)
    return drafts + [(kind, layer) for layer in layers]


def _candidate_draft_maps(maps: ShortcutMaps, spec: GenerateSpec) -> list[tuple[str, int]]:
    """The draft maps of the file, limited to the requested layers if there are any."""
    if spec.kind not in ("auto", AHEAD):
        return []
    layers = draft_map_layers(maps)
    chosen = [n for n in layers if not spec.exit_layers or n in spec.exit_layers]
    if spec.kind == AHEAD and not chosen:
        raise BadSpec(
            f"No maps of kind ahead from layer {spec.exit_layers[0]}: the file has them from "
            f"layers {list(layers)}. Give one of these with --exit-layers."
            if layers
            else "The file has no maps of kind ahead: fit it with --drafts 200, or choose another "
            "--kind."
        )
    return [(AHEAD, layer) for layer in chosen]


def _draft_setting(request: GenerateRequest, plain: Sequence[Generation]) -> DraftSetting | None:
    """How to draft: as given, or the best by measurement; None if nothing pays."""
    spec = request.spec
    if spec.mode == "exit":
        return None
    if spec.draft is not None and request.draft_is_given:
        return DraftSetting(*request.candidates[0], spec.draft, 0.0, float("nan"))
    texts = [
        Continuation(prompt[0].tolist() + one.tokens, len(one.tokens))
        for prompt, one in zip(request.prompts, plain, strict=True)
        if one.tokens
    ]
    if not request.candidates or not texts:
        return None
    lengths = DRAFT_LENGTHS if spec.draft is None else (spec.draft,)
    best = choose_draft(request.lm, request.maps, texts, request.candidates, lengths)
    return best if best.expected >= MIN_SPEEDUP else None


@torch.inference_mode()
def _decode_prompt(
    request: GenerateRequest, setting: DraftSetting | None, prompt: Tensor
) -> DecodeResult:
    lm, maps, spec, head = request.lm, request.maps, request.spec, logits_fn(request.lm)
    rng = torch.Generator().manual_seed(spec.seed) if spec.sample else None
    shared: dict[str, Any] = {
        "limit": spec.max_new_tokens, "stops": stop_token_ids(lm),
        "picker": TokenPicker(rng, spec.temperature),
    }  # fmt: skip
    if setting is not None:
        draft = (setting.kind, setting.layer, setting.length, setting.floor)
        drafter = make_drafter(lm, maps, *draft, prompt[0].tolist())
        with segmented(lm, [setting.layer]) as model:
            return speculative_decode(model, prompt, drafter, head, **shared)
    jumps = {layer: maps.jump(layer, lm.layers, kind) for kind, layer in request.candidates}
    with segmented(lm, list(jumps)) as model:
        jumps[lm.layers] = IDENTITY
        return early_exit_decode(model, prompt, jumps, head, lambda_=spec.lambda_value, **shared)


def _generation(
    lm: LM,
    text: str,
    prompt: Tensor,
    decoded: DecodeResult,
    seconds: float,
    plain: tuple[list[int], float],
) -> Generation:
    return Generation(
        prompt=text,
        text=decode_continuation(lm, prompt[0].tolist(), decoded.tokens),
        tokens=decoded.tokens,
        layers_mean=sum(decoded.layers) / max(len(decoded.layers), 1),
        accepted=decoded.accepted / max(decoded.drafted, 1),
        seconds=seconds,
        plain_tokens=plain[0],
        plain_seconds=plain[1],
        identical=decoded.tokens == plain[0],
    )


def decode_continuation(lm: LM, row: list[int], tokens: list[int]) -> str:
    """The text of new tokens after a row; some tokenizers drop a space at the start of a text."""
    before, both = (
        lm.tokenizer.decode(ids, skip_special_tokens=True) for ids in (row, row + tokens)
    )
    if both.startswith(before):
        return str(both[len(before) :])
    return str(lm.tokenizer.decode(tokens, skip_special_tokens=True))
