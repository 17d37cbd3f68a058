"""`cutaway inject`: train a skill in, hold the rest, and say what both cost."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cutaway.core.errors import BadSpec
from cutaway.core.spec import address, build
from cutaway.methods.inject.maps import Way, flat_map
from cutaway.methods.inject.penalty import normalised
from cutaway.models.lm import LM
from cutaway.run.inject.cells import Work, carry_out, cells_of, sample_rows, skill_rows
from cutaway.run.inject.clash import Clash, clash, retained_fisher
from cutaway.run.inject.cost import Cost, cost_of
from cutaway.run.inject.files import load_fisher
from cutaway.run.inject.fisher import METHOD
from cutaway.run.inject.front import points_of, verdict
from cutaway.run.inject.retain import Kept, ledger_of, read_retained
from cutaway.run.inject.rows import Where, frame
from cutaway.run.inject.skill import Skill, read_skill
from cutaway.run.objects import Objects, name_objects
from cutaway.run.opened import model_of
from cutaway.run.record import Meter, measured, provenance
from cutaway.run.result import Result
from cutaway.run.screen import Screen
from cutaway.run.shortcut.maps import model_facts
from cutaway.run.specs.inject import InjectSpec
from cutaway.run.table import Row
from cutaway.store import files
from cutaway.store.results import Progress, find, progress, save

DETAILS = "inject.json"
WAYS: tuple[Way, ...] = ("pca", "tsne")


def inject(*, quiet: bool = False, **options: Any) -> Result:
    """Teach a model a skill; `model`, `data` and `retain` may be given as objects."""
    fields = [name for name in ("model", "data", "retain") if options.get(name) is not None]
    named, objects = name_objects(options, fields)
    single = {name: named[name][0] for name in fields if name != "retain"}
    return run(build(InjectSpec, named | single), screen=Screen(quiet=quiet), objects=objects)


def run(
    spec: InjectSpec, *, screen: Screen | None = None, objects: Objects | None = None
) -> Result:
    """Every cell of the sweep trained, measured and kept; the model itself stays as it was."""
    screen = screen or Screen(quiet=True)
    lm = model_of(spec, objects)
    need_trainable(lm, spec)
    skill, kept = read_skill(lm, spec, objects), read_retained(lm, spec, objects)
    given = None if spec.fisher is None else load_fisher(spec.fisher, lm)
    name = address(
        spec,
        model=lm.digest,
        data=[skill.digest, *(one.digest for one in kept)],
        fisher=None if given is None else given.digest,
    )
    done = find(spec.runs, METHOD, name)
    if done is not None and there(spec, done.summary):
        return Result(done)
    pieces = progress(spec.runs, METHOD, name)
    with measured() as meter:
        work, found = prepare(spec, name, lm, skill, kept, pieces, screen)
        sweep(work, pieces, screen)
    return finish(work, pieces, found, meter)


def need_trainable(lm: LM, spec: InjectSpec) -> None:
    """BadSpec for what can't be trained."""
    lm.need_head()
    if lm.dtype != "float32":
        raise BadSpec(f"dtype {lm.dtype!r} loses small gradients: inject trains in float32.")
    if spec.out is not None and Path(spec.out).is_file():
        raise BadSpec(f"out must be a folder for the checkpoints, {spec.out!r} is a file.")


def there(spec: InjectSpec, summary: Mapping[str, Any]) -> bool:
    """Whether the checkpoints of a finished run are where they should be."""
    if not spec.checkpoints or spec.out is None:
        return True
    return all((Path(spec.out) / name).is_dir() for name in summary["cells"])


def prepare(
    spec: InjectSpec,
    name: str,
    lm: LM,
    skill: Skill,
    kept: list[Kept],
    pieces: Progress,
    screen: Screen,
) -> tuple[Work, Clash | None]:
    """What was there before any training: scores, ledger, Fishers."""
    for one in kept:
        if one.left_out:
            screen.say(f"{one.left_out} texts of {one.name} have less than two tokens: left out.")
    before = ledger_of(lm, kept, spec.seed)
    ewc = "ewc" in spec.regulariser
    fisher = retained_fisher(lm, spec, kept, screen) if ewc or spec.clash else None
    found = clash(lm, spec, skill, fisher, screen) if spec.clash and fisher is not None else None
    if fisher is not None and spec.fisher_scale == "mean":
        fisher = normalised(fisher)
    folder = Path(pieces.folder)
    work = Work(spec, name, lm, skill, kept, before, fisher if ewc else None, folder)
    if "before" not in pieces.done():
        where = Where(lm.name, spec.skill, "-", None, None)
        rows = skill_rows(lm, skill, where, "before", spec.seed)
        for one in kept:
            metrics = before.metrics(one.name)
            rows += [where.row("before", one.name, metric, v) for metric, v in metrics.items()]
        pieces.put("before", rows)
        files.write_json(folder / "weights" / "base.json", sample_rows(lm, lm.params()))
    return work, found


def sweep(work: Work, pieces: Progress, screen: Screen) -> None:
    """Every cell that isn't done yet."""
    done, cells = pieces.done(), cells_of(work.spec)
    for number, cell in enumerate(cells, 1):
        checkpoint = work.checkpoint(cell)
        if cell.name in done and (not work.spec.checkpoints or checkpoint.is_dir()):
            continue
        screen.say(f"Training {number} of {len(cells)}: {cell.name}")
        rows, sample = carry_out(work, cell, screen)
        files.write_json(work.folder / "weights" / f"{cell.name}.json", sample)
        pieces.put(cell.name, rows)


def finish(work: Work, pieces: Progress, found: Clash | None, meter: Meter) -> Result:
    """The run, saved whole."""
    spec, lm, cells = work.spec, work.lm, cells_of(work.spec)
    rows = pieces.rows(["before", *(cell.name for cell in cells)])
    rows += [] if found is None else found.rows
    kept: dict[str, Path | bytes] = {DETAILS: files.json_bytes(details(work, found))}
    if spec.checkpoints and spec.out is None:
        for cell in cells:
            for path in sorted(work.checkpoint(cell).iterdir()):
                kept[f"checkpoints/{cell.name}/{path.name}"] = path
    sets = [{"name": one.name, "rows": one.rows, "digest": one.digest} for one in work.kept]
    record = save(
        spec.runs,
        method=METHOD,
        address=work.name,
        spec=spec,
        summary=summarise(work, rows),
        baselines=baselines(work, rows),
        model=model_facts(lm),
        data={
            "name": work.skill.name,
            "rows": len(work.skill.train),
            "digest": work.skill.digest,
            "retained": sets,
        },
        **provenance("inject", spec, meter),
        rows=frame(rows),
        files=kept,
    )
    return Result(record)


def summarise(work: Work, rows: Sequence[Row]) -> dict[str, Any]:
    """The findings: the Pareto points, what is told about them, what was lost on the way."""
    spec = work.spec
    points, start = points_of(rows, spec.skill), base_score(rows, spec.skill)
    return {
        "verb": "inject",
        "skill": work.skill.name,
        "exact_match_before": start,
        "pareto": points,
        "cells": [cell.name for cell in cells_of(spec)],
        "checkpoints": (spec.out or "checkpoints") if spec.checkpoints else None,
        "train_rows": len(work.skill.train),
        "test_rows": len(work.skill.test),
        "masks": work.skill.spelling.masks,
        "left_out": {one.name: one.left_out for one in work.kept},
        "notes": list(work.skill.notes),
        "verdict": verdict(points, start, spec.skill),
    }


def base_score(rows: Sequence[Row], skill: str) -> float:
    """The exact match before any training."""
    asked = ("before", f"{skill} test", "exact_match")
    found = (r["value"] for r in rows if (r["stage"], r["probe"], r["metric"]) == asked)
    return float(next(found, 0.0))


def baselines(work: Work, rows: Sequence[Row]) -> dict[str, Any]:
    """The base model, and always saying the commonest answer."""
    common = Counter(work.skill.train.meta["result"].tolist()).most_common(1)[0][0]
    hits = work.skill.test.meta["result"] == common
    losses = {r["probe"]: r["value"] for r in rows
              if r["stage"] == "before" and r["metric"] == "lm_loss"}  # fmt: skip
    return {
        "base": {"exact_match": base_score(rows, work.spec.skill), "lm_loss": losses},
        "commonest answer": {"exact_match": float(np.mean(hits))},
    }


def details(work: Work, found: Clash | None) -> dict[str, Any]:
    """What figures need beyond one number per cell: Fishers at the top entries, weight maps."""
    samples = {
        path.stem: files.read_json(path)
        for path in sorted((work.folder / "weights").glob("*.json"))
    }
    base = samples.pop("base", {})
    maps = []
    for layer, rows in base.items() if work.spec.clash else ():
        several = {"base": np.array(rows)}
        several |= {name: np.array(s[layer]) for name, s in samples.items() if layer in s}
        for way in WAYS:
            points = flat_map(several, way, seed=work.spec.seed)
            shown = {name: p.round(4).tolist() for name, p in points.items()}
            maps.append({"layer": int(layer), "way": way, "points": shown})
    return {"top": {} if found is None else found.curves, "maps": maps}


def estimate(spec: InjectSpec, *, screen: Screen | None = None) -> list[Cost]:
    """What the sweep will cost, from a few steps."""
    lm = model_of(spec)
    need_trainable(lm, spec)
    return [cost_of(lm, spec, read_skill(lm, spec), read_retained(lm, spec))]
