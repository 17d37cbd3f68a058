"""The provenance of a run: model, data, seed, versions, cost."""

from collections.abc import Mapping
from typing import Any

from cutaway.report import formats
from cutaway.report.overview import local_time
from cutaway.report.records import RecordLike, fact_entries, is_imported

LabelledFacts = list[tuple[str, str]]
# Characters of a digest to show.
DIGEST_LENGTH = 16


def provenance(record: RecordLike) -> LabelledFacts:
    """Label and value of everything needed to trust or repeat the run."""
    facts: LabelledFacts = [("run", f"{record.method}/{record.address}")]
    facts += [("model", _model(one)) for one in fact_entries(record.model)]
    facts += [
        ("warning", f"{one.get('name', 'unnamed')}: {warning['message']}")
        for one in fact_entries(record.model)
        for warning in one.get("warnings", ())
    ]
    facts += [("data", _data(one)) for one in fact_entries(record.data)]
    facts.append(("seed", _seed(record.seed)))
    facts.append(("time", formats.duration(record.seconds)))
    if record.peak_memory_mb:
        facts.append(("peak memory", formats.megabytes(record.peak_memory_mb)))
    if record.created:
        facts.append(("made", local_time(record.created)))
    if record.versions:
        facts.append(("versions", ", ".join(f"{k} {v}" for k, v in record.versions.items())))
    if is_imported(record):
        facts.append(("origin", "imported from another program's logs; no baselines"))
    return facts


def _model(one: Mapping[str, Any]) -> str:
    words = [str(one.get("name", "unnamed"))]
    words += [str(one["family"])] if one.get("family") else []
    words += [f"{one['layers']} layers"] if one.get("layers") else []
    words += [f"width {one['width']}"] if one.get("width") else []
    words += [f"{formats.count(one['parameters'])} parameters"] if one.get("parameters") else []
    return ", ".join(words + _digest(one))


def _data(one: Mapping[str, Any]) -> str:
    words = [str(one.get("name", "unnamed"))]
    words += [f"{one['rows']:,} rows"] if isinstance(one.get("rows"), int) else []
    return ", ".join(words + _digest(one))


def _digest(one: Mapping[str, Any]) -> list[str]:
    return [f"digest {str(one['digest'])[:DIGEST_LENGTH]}"] if one.get("digest") else []


def _seed(seed: Any) -> str:
    return formats.DASH if seed is None else str(seed)
