"""`cutaway shortcut fit`: all maps of a model from one pass over the texts."""

from pathlib import Path
from typing import Any

import torch

from cutaway.console import Console
from cutaway.core.errors import BadSpec
from cutaway.core.float64 import to_float64
from cutaway.measure.conclusions import Conclusion
from cutaway.methods.shortcut.block_parts import fit_parts
from cutaway.methods.shortcut.comparisons import conclude_over_texts, explained_variance_gain
from cutaway.methods.shortcut.cross_products import gather_moments
from cutaway.methods.shortcut.draft_maps import fit_draft_maps
from cutaway.methods.shortcut.held_out_r2 import r2_on_texts
from cutaway.methods.shortcut.maps import (
    load_unfinished,
    save_maps,
    save_unfinished,
    text_fingerprints,
)
from cutaway.methods.shortcut.maths.fit import IDENTITY, Shortcut, check_fit_options, fit_shortcuts
from cutaway.methods.shortcut.maths.moments import layer_pairs
from cutaway.methods.shortcut.maths.tune import train_tuned_map
from cutaway.methods.shortcut.memory import estimate_sample, fit_bytes, maps_bytes
from cutaway.methods.shortcut.predictions import logits_fn
from cutaway.methods.shortcut.rows import ShortcutCoordinates, r2_rows, shortcut_outcome
from cutaway.methods.shortcut.sample import (
    SampleRequest,
    StateSample,
    load_sample_texts,
    take_sample,
)
from cutaway.methods.shortcut.samples import examples_of
from cutaway.methods.shortcut.spec import FitSpec
from cutaway.methods.shortcut.verdict import fit_verdict
from cutaway.models.lm import LM, model_facts
from cutaway.recipe.cost import Estimate
from cutaway.recipe.life_cycle import Context, Outcome, Run
from cutaway.recipe.open_for_spec import open_spec_model
from cutaway.recipe.output import ArtefactFile
from cutaway.store.snapshots import Snapshots

FittedMaps = dict[tuple[str, int, int], Shortcut]
"""By kind, source layer and target layer."""
OUTPUT = ArtefactFile("shortcut.safetensors")
MAX_DRAFT_TOKENS = 4096
"""Tokens that a draft chooses from."""


def resolve(spec: FitSpec, context: Context) -> SampleRequest:
    """The model and the texts; BadSpec for maps that this model can't have."""
    lm = open_spec_model(spec, context.objects)
    check_fit_options(spec.ridge or 0.0, spec.rank, lm.width)
    if spec.drafts and lm.kind != "causal":
        raise BadSpec(
            f"drafts: {lm.name!r} is a masked model, and only causal models generate text. "
            "Leave --drafts out."
        )
    if spec.tuned or spec.drafts:
        lm.need_head()
    return SampleRequest(spec, lm, *load_sample_texts(lm, spec, context.objects))


def estimate(request: SampleRequest) -> list[Estimate]:
    """The cost of reading the texts and of the fit."""
    lm, spec = request.lm, request.spec
    return estimate_sample(request, fit_bytes(lm, spec), maps_bytes(lm, spec))


def measure(request: SampleRequest, run: Run) -> Outcome:
    """The maps in their file, and their r2 on held-out text."""
    lm, spec, console = request.lm, request.spec, run.console
    sample = take_sample(request, run.context)
    report_memory(lm, spec, console)
    frequent = frequent_tokens(sample) if lm.kind == "causal" else None
    fitted = fit_all_maps(sample, spec, console, run.folder)
    drafts: FittedMaps = {}
    if spec.drafts and frequent is not None:
        prompts = [sample.full.rows[i] for i in sample.train[: spec.drafts]]
        kept = Snapshots(run.folder / "drafts", console)
        drafts = fit_draft_maps(lm, prompts, frequent, console, seed=spec.seed, kept=kept)
    parts: dict[str, Shortcut] = {}
    if spec.parts:
        train = sample.train.tolist()
        parts = fit_parts(lm, sample.inputs, train, console, run.folder / "parts")
    r2 = held_out_r2(sample, fitted, console, run.folder / "r2")
    notes = sorted({jump.note for jump in fitted.values() if jump.note})
    for note in notes:
        console.print(note)
    meta = maps_metadata(sample, spec, r2, notes) | {"run": run.address}
    path = OUTPUT.path(spec, run.scratch)
    save_maps(path, fitted | drafts, parts, meta, extra_tensors(sample, frequent))
    return shortcut_outcome(
        "fit",
        sample,
        summary=fit_summary(sample, spec, r2, notes, middle_map_gain(sample, fitted)),
        baselines={"id": {"r2_to_final": r2_to_final(r2, "id", lm.layers)}},
        rows=r2_rows(ShortcutCoordinates(lm.name, sample.texts.name, sample.texts.name), r2),
        parts={"fit": sample.train, "held_out": sample.held_out},
        files=OUTPUT.files(spec, run.scratch),
    )


def report_memory(lm: LM, spec: FitSpec, console: Console) -> None:
    """Print how much memory the fit will need."""
    pairs = layer_pairs(lm.layers, spec.layers)
    size = fit_bytes(lm, spec) / 2**20
    console.print(f"{len(pairs)} maps: about {size:,.0f} MB of memory in addition to the model.")


def fit_all_maps(
    sample: StateSample, spec: FitSpec, console: Console, folder: Path | None = None
) -> FittedMaps:
    """Every requested map, one source layer after the other; used products are freed.

    Unfinished sums and maps are saved in `folder`.
    """
    last, kept = sample.lm.layers, Snapshots(folder and folder / "maps", console)
    fitted: FittedMaps = load_unfinished(kept)
    todo = [source for source in range(last) if ("mat", source, last) not in fitted]
    if todo:
        moments = gather_moments(sample, spec, console, folder and folder / "cross-products")
        with console.progress("fitting", len(todo)) as advance:
            for source in todo:
                targets = [int(target) for start, target in moments.pairs if start == source]
                maps = fit_shortcuts(moments, source, targets)
                fitted |= {("mat", source, target): maps[target] for target in targets}
                for kind, options in extra_kinds(spec).items():
                    one = fit_shortcuts(moments, source, [last], **options)[last]
                    fitted[kind, source, last] = one
                for target in [source, *targets]:
                    del moments.grams[source, target]
                save_unfinished(kept, fitted, at_end=source == todo[-1])
                advance()
    if spec.tuned:
        add_tuned_maps(sample, spec, fitted, console, kept)
    return fitted


def extra_kinds(spec: FitSpec) -> dict[str, dict[str, Any]]:
    """Fit options of the other requested least-squares maps, which all end in the last layer."""
    requested = {
        "affine": {"intercept": True} if spec.intercept else None,
        "ridge": {"ridge": spec.ridge} if spec.ridge is not None else None,
        "lowrank": {"rank": spec.rank} if spec.rank is not None else None,
    }
    return {kind: options for kind, options in requested.items() if options is not None}


def add_tuned_maps(
    sample: StateSample, spec: FitSpec, fitted: FittedMaps, console: Console, kept: Snapshots
) -> None:
    """Add maps trained on the final distribution, starting from the least-squares maps."""
    last, head = sample.lm.layers, logits_fn(sample.lm)
    final = torch.cat([states[last] for _, states in sample.states(sample.train, [last])])
    with console.progress("training", last) as advance:
        for source in range(last):
            if ("tuned", source, last) not in fitted:
                hidden = torch.cat([s[source] for _, s in sample.states(sample.train, [source])])
                rng = torch.Generator().manual_seed(spec.seed + source)
                fitted["tuned", source, last] = train_tuned_map(
                    fitted["mat", source, last], hidden, final, head, rng=rng, steps=spec.tuned
                )
                save_unfinished(kept, fitted, at_end=source == last - 1)
            advance()


def frequent_tokens(sample: StateSample) -> torch.Tensor:
    """The most frequent tokens of the texts, in increasing order of their ids."""
    tokens = torch.tensor([token for row in sample.full.rows for token in row])
    # One is added to every count, so that a short text still gives a full list.
    counts = torch.bincount(tokens, minlength=sample.lm.vocab) + 1
    return counts.topk(min(MAX_DRAFT_TOKENS, len(counts))).indices.sort().values


def extra_tensors(sample: StateSample, frequent: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """What the file has in addition to maps: draft tokens, and which texts were fitted on."""
    fingerprints = text_fingerprints(sample.texts.texts[i] for i in sample.train)
    tensors = {"fitted": torch.tensor(fingerprints)}
    return tensors if frequent is None else tensors | {"words": frequent}


def held_out_r2(
    sample: StateSample, fitted: FittedMaps, console: Console, folder: Path | None = None
) -> dict[Any, float]:
    """r2 of every map, and of the identity on the same pairs, on held-out texts."""
    maps: dict[str, dict[tuple[int, int], Shortcut]] = {}
    for (kind, source, target), jump in fitted.items():
        maps.setdefault(kind, {})[source, target] = jump
    maps["id"] = dict.fromkeys(maps["mat"], IDENTITY)
    return r2_on_texts(sample, sample.held_out, maps, console, folder)


def r2_to_final(r2: dict[Any, float], kind: str, last: int) -> list[float]:
    """r2 from each layer to the last layer."""
    return [r2[kind, (source, last)] for source in range(last)]


def maps_metadata(
    sample: StateSample, spec: FitSpec, r2: dict[Any, float], notes: list[str]
) -> dict[str, Any]:
    """The description of the file."""
    lm, kinds = sample.lm, dict.fromkeys(kind for kind, _ in r2)
    options = ("positions_per_text", "held_out", "limit", "max_tokens", "seed")
    return {
        "model": model_facts(lm) | {"tokenizer_digest": lm.tokenizer_digest, "dtype": lm.dtype},
        "text": {
            "name": sample.texts.name,
            "digest": sample.texts.digest,
            "fitted_rows": len(sample.train),
            "held_out_rows": len(sample.held_out),
        },
        "sample": {name: getattr(spec, name) for name in options},
        "pairs": spec.layers,
        "parts": spec.parts,
        "r2_to_final": {kind: r2_to_final(r2, kind, lm.layers) for kind in kinds},
        "notes": notes,
    }


def middle_map_gain(sample: StateSample, fitted: FittedMaps) -> Conclusion:
    """Whether the middle layer's map explains more of the last layer than the identity does."""
    last = sample.lm.layers
    half, rows = last // 2, sample.held_out
    pairs = [(one[half], one[last]) for _, one in sample.states(rows, [half, last])]
    source, target = (torch.cat([pair[i] for pair in pairs]) for i in (0, 1))
    mapped = fitted["mat", half, last](source)
    wanted, first, second = (to_float64(one).cpu().numpy() for one in (target, mapped, source))
    found = explained_variance_gain(wanted, first, second, examples_of(sample, rows).rows)
    return conclude_over_texts(found, len(rows))


def fit_summary(
    sample: StateSample, spec: FitSpec, r2: dict[Any, float], notes: list[str], gain: Conclusion
) -> dict[str, Any]:
    """The findings of a fit."""
    last = sample.lm.layers
    half = last // 2
    return {
        "kinds": list(dict.fromkeys(kind for kind, _ in r2)),
        "pairs": sum(kind == "mat" for kind, _ in r2),
        "fitted_rows": len(sample.train),
        "held_out_rows": len(sample.held_out),
        "skipped": sample.skipped,
        "out": spec.out or OUTPUT.name,
        "r2_to_final": r2_to_final(r2, "mat", last),
        "notes": notes,
        "verdict": fit_verdict(
            r2["mat", (half, last)], r2["id", (half, last)], half, last, gain, len(sample.held_out)
        ),
    }
