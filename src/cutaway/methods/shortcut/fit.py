"""`cutaway shortcut fit`: one pass over the texts, all maps of a model."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from cutaway.console import Console
from cutaway.core.errors import BadSpec
from cutaway.extract.estimate import estimate_pass
from cutaway.methods.shortcut.block_parts import fit_parts
from cutaway.methods.shortcut.cross_products import gather_moments
from cutaway.methods.shortcut.draft_maps import fit_draft_maps
from cutaway.methods.shortcut.maps import save_maps, text_fingerprints
from cutaway.methods.shortcut.maths.fidelity import StreamingR2
from cutaway.methods.shortcut.maths.fit import IDENTITY, Shortcut, check_fit_options
from cutaway.methods.shortcut.maths.fit import fit_shortcuts as solve
from cutaway.methods.shortcut.maths.moments import layer_pairs
from cutaway.methods.shortcut.maths.tune import train_tuned_map
from cutaway.methods.shortcut.memory import fit_bytes, maps_bytes, plus_memory
from cutaway.methods.shortcut.rows import ShortcutCoordinates, r2_rows
from cutaway.methods.shortcut.sample import (
    StateSample,
    load_sample_texts,
    sample_request,
    take_sample,
)
from cutaway.methods.shortcut.save import find_finished, run_address, save_shortcut_run
from cutaway.methods.shortcut.spec import FitSpec
from cutaway.models.lm import LM, model_facts
from cutaway.recipe.cost import Estimate
from cutaway.recipe.objects import Objects
from cutaway.recipe.open_for_spec import open_spec_model
from cutaway.recipe.output import attach_artefact, restore_artefact
from cutaway.recipe.provenance import measure_cost
from cutaway.recipe.result import Result
from cutaway.store.artefacts import check_output_free

FittedMaps = dict[tuple[str, int, int], Shortcut]
MAPS_FILE = "shortcut.safetensors"


def run(spec: FitSpec, *, console: Console | None = None, objects: Objects | None = None) -> Result:
    """The fitted maps on disk, and how well each explains its target on held-out text."""
    console, lm = console or Console(quiet=True), open_spec_model(spec, objects)
    check_fit_request(lm, spec)
    with measure_cost() as meter:
        sample = take_sample(lm, spec, console, objects)
        name = run_address(spec, lm, sample)
        done = find_finished(spec, name)
        if (
            done is not None
            and (again := restore_artefact(done.record, spec.out, MAPS_FILE)) is not None
        ):
            return Result(again)
        report_memory(lm, spec, console)
        words = frequent_tokens(sample) if lm.kind == "causal" else None
        fitted = fit_all_maps(sample, spec, console)
        ahead = fit_drafts(sample, spec, words, console)
        parts = fit_parts(lm, sample.seen, sample.train.tolist(), console) if spec.parts else {}
        r2 = held_out_r2(sample, fitted, console)
    notes = sorted({jump.note for jump in fitted.values() if jump.note})
    for note in notes:
        console.print(note)
    with TemporaryDirectory() as folder:
        path = Path(spec.out) if spec.out else Path(folder) / MAPS_FILE
        beside = extra_tensors(sample, words)
        told = maps_metadata(sample, spec, r2, notes) | {"run": name}
        save_maps(path, fitted | ahead, parts, told, beside)
        kept = {} if spec.out else {p.name: p for p in (path, path.with_suffix(".json"))}
        result = save_shortcut_run(
            "fit",
            spec,
            name,
            sample,
            meter,
            summary=fit_summary(sample, spec, r2, notes),
            baselines={"id": {"r2_to_final": to_final(r2, "id", lm.layers)}},
            rows=r2_rows(ShortcutCoordinates(lm.name, sample.texts.name, sample.texts.name), r2),
            files=kept,
        )
        return Result(attach_artefact(result.record, spec.out, MAPS_FILE, path))


def check_fit_request(lm: LM, spec: FitSpec) -> None:
    """BadSpec for what can't be, before any work is done."""
    check_fit_options(spec.ridge or 0.0, spec.rank, lm.width)
    if spec.drafts and lm.kind != "causal":
        raise BadSpec(f"drafts: {lm.name!r} is a masked model, only causal models write.")
    if spec.tuned or spec.drafts:
        lm.need_head()
    if spec.out is not None:
        check_output_free(Path(spec.out))


def fit_all_maps(sample: StateSample, spec: FitSpec, console: Console) -> FittedMaps:
    """Every map the spec asks for, source by source, products dropped once used."""
    last = sample.lm.layers
    fitted: FittedMaps = {}
    moments = gather_moments(sample, spec, console)
    with console.progress("fitting", last) as advance:
        for source in range(last):
            targets = [int(target) for start, target in moments.pairs if start == source]
            found = solve(moments, source, targets)
            fitted |= {("mat", source, target): found[target] for target in targets}
            for kind, options in extra_kinds(spec).items():
                fitted[kind, source, last] = solve(moments, source, [last], **options)[last]
            for target in [source, *targets]:
                del moments.grams[source, target]
            advance()
    return fitted | (tuned_maps(sample, spec, fitted, console) if spec.tuned else {})


def extra_kinds(spec: FitSpec) -> dict[str, dict[str, Any]]:
    """Options of the other least-squares maps that were asked for; all of them to the end."""
    asked = {
        "affine": {"intercept": True} if spec.intercept else None,
        "ridge": {"ridge": spec.ridge} if spec.ridge is not None else None,
        "lowrank": {"rank": spec.rank} if spec.rank is not None else None,
    }
    return {kind: options for kind, options in asked.items() if options is not None}


def tuned_maps(
    sample: StateSample, spec: FitSpec, fitted: FittedMaps, console: Console
) -> FittedMaps:
    """Maps trained on the final distribution, from the least-squares ones on."""
    lm, head = sample.lm, logits_fn(sample.lm)
    last = lm.layers
    final = torch.cat([states[last] for _, states in sample.states(sample.train, [last])])
    tuned: FittedMaps = {}
    with console.progress("training", last) as advance:
        for source in range(last):
            hidden = torch.cat([s[source] for _, s in sample.states(sample.train, [source])])
            rng = torch.Generator().manual_seed(spec.seed + source)
            start = fitted["mat", source, last]
            tuned["tuned", source, last] = train_tuned_map(
                start, hidden, final, head, rng=rng, steps=spec.tuned
            )
            advance()
    return tuned


def fit_drafts(
    sample: StateSample, spec: FitSpec, words: torch.Tensor | None, console: Console
) -> FittedMaps:
    """Maps that draft, fitted on what the model makes of some of the texts; none if not asked."""
    if not spec.drafts or words is None:
        return {}
    rows = [sample.fed.rows[i] for i in sample.train[: spec.drafts]]
    return fit_draft_maps(sample.lm, rows, words, console, seed=spec.seed)


def frequent_tokens(sample: StateSample, most: int = 4096) -> torch.Tensor:
    """The most frequent tokens of the texts, sorted by number: what a draft chooses from."""
    counts = torch.bincount(
        torch.tensor([token for row in sample.fed.rows for token in row]),
        minlength=sample.lm.vocab,
    )
    # Every token counts a little, so that a short text still gives a full list.
    return (counts + 1).topk(min(most, len(counts))).indices.sort().values


def extra_tensors(sample: StateSample, words: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """What the file keeps besides maps: the draft's words, and which texts were fitted on."""
    marks = text_fingerprints(sample.texts.texts[i] for i in sample.train)
    return {"fitted": torch.tensor(marks)} | ({} if words is None else {"words": words})


def logits_fn(lm: LM) -> Callable[[torch.Tensor], torch.Tensor]:
    """From states of the last layer to logits."""
    lm.need_head()
    dtype = getattr(torch, lm.dtype)
    return lambda hidden: lm.unembed(lm.final_norm(hidden.to(lm.device, dtype))).float().cpu()


def held_out_r2(sample: StateSample, fitted: FittedMaps, console: Console) -> dict[Any, float]:
    """r2 of every map, and of the identity on the same pairs, on the held-out part."""
    fidelity = StreamingR2()
    maps: dict[str, dict[tuple[int, int], Shortcut]] = {}
    for (kind, source, target), jump in fitted.items():
        maps.setdefault(kind, {})[source, target] = jump
    maps["id"] = dict.fromkeys(maps["mat"], IDENTITY)
    with console.progress("measuring", len(sample.held)) as advance:
        for part, states in sample.states(sample.held, range(sample.lm.layers + 1)):
            fidelity.add(states, maps)
            advance(len(part))
    return fidelity.all()


def to_final(r2: dict[Any, float], kind: str, last: int) -> list[float]:
    """r2 to the last layer from each layer, in order."""
    return [r2[kind, (source, last)] for source in range(last)]


def maps_metadata(
    sample: StateSample, spec: FitSpec, r2: dict[Any, float], notes: list[str]
) -> dict[str, Any]:
    """What the artefact says about itself."""
    lm = sample.lm
    return {
        "model": model_facts(lm) | {"tokenizer_digest": lm.tokenizer_digest, "dtype": lm.dtype},
        "text": {
            "name": sample.texts.name,
            "digest": sample.texts.digest,
            "fitted_rows": len(sample.train),
            "held_out_rows": len(sample.held),
        },
        "sample": {
            name: getattr(spec, name)
            for name in ("positions_per_text", "held_out", "limit", "max_tokens", "seed")
        },
        "pairs": spec.layers,
        "parts": spec.parts,
        "r2_to_final": {
            kind: to_final(r2, kind, lm.layers) for kind in dict.fromkeys(k for k, _ in r2)
        },
        "notes": notes,
    }


def fit_summary(
    sample: StateSample, spec: FitSpec, r2: dict[Any, float], notes: list[str]
) -> dict[str, Any]:
    """The findings of a fit."""
    last = sample.lm.layers
    half = last // 2
    mat, base = r2["mat", (half, last)], r2["id", (half, last)]
    return {
        "kinds": list(dict.fromkeys(kind for kind, _ in r2)),
        "pairs": sum(kind == "mat" for kind, _ in r2),
        "fitted_rows": len(sample.train),
        "held_out_rows": len(sample.held),
        "skipped": sample.skipped,
        "out": spec.out or MAPS_FILE,
        "r2_to_final": to_final(r2, "mat", last),
        "notes": notes,
        "verdict": [
            f"From layer {half} of {last} one matrix explains {format_r2(mat)} of the last layer's "
            f"variance on held-out text; the identity explains {format_r2(base)}."
        ],
    }


def format_r2(r2: float) -> str:
    """A share of variance for people; below 0 a guess of the mean would be better."""
    return f"{r2:.0%}" if r2 > 0 else "nothing"


def report_memory(lm: LM, spec: FitSpec, console: Console) -> None:
    """Say what the fit will hold before it starts."""
    pairs = layer_pairs(lm.layers, to_final=spec.layers == "to-final")
    size = fit_bytes(lm, spec) / 2**20
    console.print(f"{len(pairs)} maps: about {size:,.0f} MB of memory besides the model.")


def estimate(spec: FitSpec, *, console: Console | None = None) -> list[Estimate]:
    """What the pass and the fit will cost, before they start."""
    lm = open_spec_model(spec)
    texts, _ = load_sample_texts(lm, spec)
    reading = estimate_pass(lm, texts, sample_request(lm, spec))
    return [plus_memory(reading, fit_bytes(lm, spec), maps_bytes(lm, spec))]
