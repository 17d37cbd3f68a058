"""Finished runs of a model that a drawing can use."""

from collections.abc import Iterable, Mapping
from typing import Any

from cutaway.core.errors import CutawayError
from cutaway.report.drawing.values import Track
from cutaway.report.records import fact_entries
from cutaway.store.results import Record
from cutaway.studies.draw.plan import Step

SAME_FACTS = ("digest", "start_tokens", "chat", "quantise")
"""Facts about a model that its numbers depend on; a run must have the same."""
SAME_OPTIONS = {"dtype": "auto", "quantise": "none", "chat": False}
"""Options that numbers depend on, with the value that a run without them has."""


def is_of_model(record: Record, facts: Mapping[str, Any]) -> bool:
    """Whether the run is about this model alone, as it is now."""
    models = fact_entries(record.model)
    return len(models) == 1 and all(models[0].get(key) == facts.get(key) for key in SAME_FACTS)


def has_options(record: Record, options: Mapping[str, Any]) -> bool:
    """Whether the run has the same options of precision and chat."""
    return all(
        record.spec.get(name, usual) == options.get(name, usual)
        for name, usual in SAME_OPTIONS.items()
    )


def find_track(records: Iterable[Record], step: Step) -> tuple[Record, Track] | None:
    """The newest run that has what the step's track needs; damaged runs are passed over."""
    for record in records:
        if record.method != step.verb.method or not has_options(record, step.options):
            continue
        try:
            track = step.read(record)
        except CutawayError:
            continue
        if track is not None:
            return record, track
    return None
