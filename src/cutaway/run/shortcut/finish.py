"""The last step of every shortcut recipe: the numbers become a run on disk."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cutaway.core.spec import Spec, address
from cutaway.models.lm import LM
from cutaway.run.record import Meter, provenance
from cutaway.run.result import Result
from cutaway.run.shortcut.maps import model_facts
from cutaway.run.shortcut.rows import frame
from cutaway.run.shortcut.sample import Sample
from cutaway.run.specs.shortcut import Sampled
from cutaway.run.table import Row
from cutaway.store.results import find, save


def done_before(spec: Sampled, name: str) -> Result | None:
    """The finished run of this address, if there is one."""
    record = find(spec.runs, "shortcut", name)
    return None if record is None else Result(record)


def name_of(spec: Spec, lm: LM, sample: Sample, **besides: Any) -> str:
    """The address of a run: spec, model, texts, and what else decides its numbers."""
    return address(spec, model=lm.identity, data=sample.texts.digest, **besides)


def finish(
    verb: str,
    spec: Sampled,
    name: str,
    sample: Sample,
    meter: Meter,
    *,
    summary: Mapping[str, Any],
    baselines: Any,
    rows: Iterable[Row],
    files: Mapping[str, Path | bytes] | None = None,
) -> Result:
    """The run, saved whole."""
    texts = sample.texts
    record = save(
        spec.runs,
        method="shortcut",
        address=name,
        spec=spec,
        summary={"verb": verb, **summary},
        baselines=baselines,
        model=model_facts(sample.lm),
        data={"name": texts.name, "rows": len(texts), "digest": texts.digest},
        **provenance(f"shortcut {verb}", spec, meter),
        rows=frame(rows),
        files=files,
    )
    return Result(record)
