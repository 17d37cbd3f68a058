"""Tracks about weights: where a skill's weights are, and what a tuned checkpoint moved."""

from collections import Counter
from collections.abc import Iterable

import polars as pl

from cutaway.core.errors import CutawayError
from cutaway.core.names import short_name
from cutaway.core.params import check_same_parameters, weight_drift
from cutaway.methods.graft.skill import load_skill
from cutaway.models.lm import LM
from cutaway.models.weight_location import weight_locator
from cutaway.recipe.open_for_spec import open_for_spec
from cutaway.report.drawing.values import Track
from cutaway.store.results import Record
from cutaway.studies.draw.spec import DrawSpec
from cutaway.studies.draw.tracks import movement_track, skill_track


def skill_file_track(lm: LM, path: str) -> Track:
    """Where the weights of a skill file are; Mismatch if it was made for another base."""
    skill, locate = load_skill(path), weight_locator(lm)
    skill.need_base(lm)
    counts: Counter[tuple[int, str]] = Counter()
    for name, indices in skill.patch.mask.indices.items():
        counts[locate(name)] += len(indices)
    return skill_track(
        counts, lm.layers, name=skill.label, trained=skill.meta.get("trained_layers")
    )


def skill_run_track(records: Iterable[Record], lm: LM) -> Track | None:
    """Where the weights of the newest learned skill of this model are; None without one."""
    for record in records:
        if record.method == "graft" and "trained_layers" in record.summary:
            try:
                return _run_track(record, lm)
            except CutawayError:
                continue
    return None


def _run_track(record: Record, lm: LM) -> Track:
    """The counts of the run's smallest skill, by the first part of each module's name."""
    rows = record.rows.filter(
        (pl.col("metric") == "weights") & (pl.col("kind") == "learned")
        & pl.col("layer").is_not_null()
    )  # fmt: skip
    locate, counts = weight_locator(lm), Counter[tuple[int, str]]()
    for row in rows.iter_rows(named=True):
        name = f"{lm.anatomy.blocks}.{row['layer'] - 1}.{row['part']}.weight"
        counts[locate(name)] += row["value"]
    return skill_track(
        counts, lm.layers, name=str(record.summary.get("task", "skill")),
        trained=record.summary["trained_layers"], run=record.address, command=record.command,
    )  # fmt: skip


def moved_track(lm: LM, spec: DrawSpec) -> Track:
    """How far each layer's weights moved from the model to a tuned checkpoint of it."""
    tuned = str(spec.tuned)
    other = open_for_spec(tuned, spec, check=False)
    check_same_parameters(lm.params(), tuned=other.params())
    locate = weight_locator(lm)
    drift = weight_drift(other.params(), lm.params(), lambda name: (locate(name)[0], ""))
    by_layer = {layer: value for (layer, _), value in drift.items()}
    return movement_track(by_layer, lm.layers, name=short_name(tuned), command="")
