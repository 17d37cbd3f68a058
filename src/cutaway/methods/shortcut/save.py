"""The last step of every shortcut recipe: the numbers become a run on disk."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cutaway.core.spec import Spec, address
from cutaway.methods.shortcut.rows import shortcut_frame
from cutaway.methods.shortcut.sample import StateSample
from cutaway.methods.shortcut.spec import TextSampleSpec
from cutaway.models.lm import LM, model_facts
from cutaway.recipe.provenance import CostMeter, provenance
from cutaway.recipe.result import Result
from cutaway.recipe.table import Row
from cutaway.store.results import find_record, save_record


def find_finished(spec: TextSampleSpec, name: str) -> Result | None:
    """The finished run of this address, if there is one."""
    record = find_record(spec.runs, "shortcut", name)
    return None if record is None else Result(record)


def run_address(spec: Spec, lm: LM, sample: StateSample, **besides: Any) -> str:
    """The address of a run: spec, model, texts, and what else decides its numbers."""
    return address(spec, model=lm.identity, data=sample.texts.digest, **besides)


def save_shortcut_run(
    verb: str,
    spec: TextSampleSpec,
    name: str,
    sample: StateSample,
    meter: CostMeter,
    *,
    summary: Mapping[str, Any],
    baselines: Any,
    rows: Iterable[Row],
    files: Mapping[str, Path | bytes] | None = None,
) -> Result:
    """The run, saved whole."""
    texts = sample.texts
    record = save_record(
        spec.runs,
        method="shortcut",
        address=name,
        spec=spec,
        summary={"verb": verb, **summary},
        baselines=baselines,
        model=model_facts(sample.lm),
        data={"name": texts.name, "rows": len(texts), "digest": texts.digest},
        **provenance(f"shortcut {verb}", spec, meter),
        rows=shortcut_frame(rows),
        files=files,
    )
    return Result(record)
