"""`cutaway shortcut generate`: text with early exit or verified drafts."""

from collections.abc import Sequence
from dataclasses import asdict, replace

import torch
from torch import Tensor

from cutaway.core.digest import digest_json
from cutaway.core.errors import BadData, BadSpec
from cutaway.methods.shortcut.decode import DecodeResult, plain_generate, stop_token_ids
from cutaway.methods.shortcut.draft_maps import AHEAD, draft_map_layers
from cutaway.methods.shortcut.exit_timing import default_exit_layers
from cutaway.methods.shortcut.generations import Generation, Generations, generation_rows
from cutaway.methods.shortcut.maps import ShortcutMaps, load_maps
from cutaway.methods.shortcut.rows import SCHEMA
from cutaway.methods.shortcut.segments import check_exit_layers
from cutaway.methods.shortcut.spec import GenerateSpec
from cutaway.methods.shortcut.step_timing import TimeSpent
from cutaway.methods.shortcut.text_writer import GenerateRequest, TextWriter
from cutaway.methods.shortcut.verdict import generate_verdict
from cutaway.models.lm import LM, model_facts
from cutaway.models.tokens import tokenize_typed
from cutaway.recipe.life_cycle import Context, Outcome, Run
from cutaway.recipe.open_for_spec import open_spec_model
from cutaway.recipe.result import table
from cutaway.store.progress import Progress

RESULT = Generations


def resolve(spec: GenerateSpec, context: Context) -> GenerateRequest:
    """The model, its maps and the prompts; what can't be generated is refused here."""
    lm = open_spec_model(spec, context.objects)
    maps = load_maps(spec.shortcut, lm)
    prompts = [_prompt_ids(lm, text, spec) for text in spec.prompt]
    return GenerateRequest(spec, lm, maps, prompts, _candidate_maps(lm, maps, spec))


def measure(request: GenerateRequest, run: Run) -> Outcome:
    """A text for each prompt; greedy self-speculation gives exactly what `generate` gives."""
    spec, writer = request.spec, TextWriter(request)
    texts = _finished_texts(writer, run.progress)
    with run.console.progress(spec.mode, len(request.prompts)) as advance:
        advance(len(texts))
        prompts = zip(spec.prompt, request.prompts, strict=True)
        for number, (text, prompt) in list(enumerate(prompts))[len(texts) :]:
            plain: tuple[list[int], TimeSpent] | None = None
            # Interleaved, each first in turn: a change of the machine's load affects both.
            if spec.compare and number % 2 == 0:
                plain = _plain_text(request, prompt)
            decoded, watch = writer.write(prompt)
            if spec.compare and number % 2:
                plain = _plain_text(request, prompt)
            texts.append(_generation(request.lm, text, prompt, decoded, watch, plain))
            kept = {"text": asdict(texts[-1]), "writer": writer.state()}
            run.progress.put(_key(number), [], [kept])
            advance()
    return _outcome(request, writer, texts)


def _finished_texts(writer: TextWriter, progress: Progress) -> list[Generation]:
    """The texts of a killed run, in order; the writer goes on as it was after them."""
    done, count = progress.done(), 0
    while _key(count) in done:
        count += 1
    kept = progress.details([_key(number) for number in range(count)])
    if kept:
        writer.restore(kept[-1]["writer"])
    return [Generation(**one["text"]) for one in kept]


def _key(number: int) -> str:
    return f"text {number:06d}"


def _outcome(request: GenerateRequest, writer: TextWriter, texts: Sequence[Generation]) -> Outcome:
    lm, spec, setting = request.lm, request.spec, writer.setting
    kind = "exit" if spec.mode == "exit" else "full model" if setting is None else setting.kind
    verdict = generate_verdict(
        texts, setting, writer.setup, layers=lm.layers, mode=spec.mode, sample=spec.sample
    )
    return Outcome(
        rows=table(generation_rows(lm.name, request.maps.fitted_on, texts, kind, setting), SCHEMA),
        summary={
            "verb": "generate",
            "texts": [asdict(text) for text in texts],
            "setting": None if setting is None else asdict(setting),
            "setup_seconds": writer.setup.seconds,
            "setup_processor_seconds": writer.setup.processor_seconds,
            "verdict": verdict,
        },
        baselines={},
        model=model_facts(lm),
        data={
            "name": spec.prompt[0] if len(spec.prompt) == 1 else f"{len(spec.prompt)} prompts",
            "rows": len(spec.prompt),
            "digest": digest_json(list(spec.prompt)),
        },
    )


def _plain_text(request: GenerateRequest, prompt: Tensor) -> tuple[list[int], TimeSpent]:
    """The tokens of transformers' `generate`, and the time it takes."""
    lm, spec, watch = request.lm, request.spec, TimeSpent()
    sampling = {"do_sample": True, "temperature": spec.temperature, "top_k": 0, "top_p": 1.0}
    with torch.random.fork_rng(enabled=spec.sample), watch:
        if spec.sample:
            torch.manual_seed(spec.seed)
        options = sampling if spec.sample else {}
        [tokens], _ = plain_generate(lm, prompt, spec.max_new_tokens, stop_token_ids(lm), **options)
    return tokens, watch


def _prompt_ids(lm: LM, text: str, spec: GenerateSpec) -> Tensor:
    if lm.kind != "causal":
        raise BadSpec(f"{lm.name!r} is a masked model: only causal models generate text.")
    row = tokenize_typed(lm, text).rows[0]
    if not row:
        raise BadData(f"The prompt {text!r} has no tokens: give at least one word.")
    if len(row) + spec.max_new_tokens > lm.context:
        raise BadData(
            f"The prompt {text[:30]!r} has {len(row)} tokens; with {spec.max_new_tokens} new ones "
            f"that is more than the context of {lm.context}. Shorten it or lower --max-new-tokens."
        )
    return torch.tensor([row], device=lm.device)


def _candidate_maps(lm: LM, maps: ShortcutMaps, spec: GenerateSpec) -> list[tuple[str, int]]:
    """The kinds and layers to exit at or to draft from; BadSpec for maps the file lacks."""
    check_exit_layers(lm, spec.exit_layers)
    drafts = _candidate_draft_maps(maps, spec) if spec.mode == "speculative" else []
    if drafts:
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
    return [(kind, layer) for layer in layers]


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


def _generation(
    lm: LM,
    text: str,
    prompt: Tensor,
    decoded: DecodeResult,
    watch: TimeSpent,
    plain: tuple[list[int], TimeSpent] | None,
) -> Generation:
    ours = Generation(
        prompt=text,
        text=decode_continuation(lm, prompt[0].tolist(), decoded.tokens),
        tokens=decoded.tokens,
        layers_mean=sum(decoded.layers) / max(len(decoded.layers), 1),
        accepted=decoded.accepted / max(decoded.drafted, 1),
        seconds=watch.seconds,
        processor_seconds=watch.processor_seconds,
    )
    if plain is None:
        return ours
    tokens, clock = plain
    return replace(
        ours,
        plain_tokens=tokens,
        plain_seconds=clock.seconds,
        plain_processor_seconds=clock.processor_seconds,
        identical=decoded.tokens == tokens,
    )


def decode_continuation(lm: LM, row: list[int], tokens: list[int]) -> str:
    """The text of new tokens after a row; some tokenizers drop a space at the start of a text."""
    before, both = (
        lm.tokenizer.decode(ids, skip_special_tokens=True) for ids in (row, row + tokens)
    )
    if both.startswith(before):
        return str(both[len(before) :])
    return str(lm.tokenizer.decode(tokens, skip_special_tokens=True))
