"""How the Fisher information of a skill overlaps with that of the retained texts."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from cutaway.console import Console
from cutaway.core.errors import Corrupt, Missing
from cutaway.extract.model_handle import make_model_handle
from cutaway.methods.inject.answers import answer_examples
from cutaway.methods.inject.examples import Examples
from cutaway.methods.inject.fisher_file import load_fisher
from cutaway.methods.inject.fisher_sums import sum_squared_gradients_on
from cutaway.methods.inject.maths.overlap import (
    LargestEntries,
    fisher_mass,
    jaccard,
    largest_entries,
    moving_average,
    rank_correlation,
    values_at,
)
from cutaway.methods.inject.rows import InjectCoordinates
from cutaway.methods.inject.spec import InjectSpec
from cutaway.methods.inject.weight_samples import outer_layers
from cutaway.models.lm import LM
from cutaway.models.weight_location import weight_locator
from cutaway.recipe.result import Row
from cutaway.store import files
from cutaway.store.artefacts import load_artefact, save_artefact

if TYPE_CHECKING:
    from cutaway.methods.inject.cells import InjectRequest

FisherTensors = Mapping[str, Tensor]
TOP_ENTRIES, WINDOW = 800, 40
"""The number of largest entries and the window of their moving average, as in the paper."""
FOLDER, OVERLAP_FILE = "fishers", "clash.json"
SKILL_FILE, RETAINED_FILE = "skill.safetensors", "retained.safetensors"


@dataclass(frozen=True)
class FisherOverlap:
    """Rows for the table, and curves at the largest entries for the figure."""

    rows: list[Row]
    tops: list[dict[str, Any]]


def retained_fisher(
    request: "InjectRequest", folder: Path, console: Console
) -> tuple[FisherTensors | None, FisherOverlap | None]:
    """The Fisher of the retained texts, and its overlap with the skill's; each computed once.

    Both are None where neither `ewc` nor `--clash` needs them. `folder` keeps what was computed.
    """
    lm, spec, folder = request.lm, request.spec, folder / FOLDER
    if not (spec.clash or "ewc" in spec.strengths_by_regulariser):
        return None, None
    retained, overlap = _load_retained(spec, lm, folder), _load_overlap(folder)
    if retained is not None and (overlap is not None or not spec.clash):
        return retained, overlap
    comparison = None
    if spec.clash:
        console.print("Comparing the Fisher information of the skill and the retained texts.")
        problems = answer_examples(lm, request.skill.train, request.skill.answer_format)
        few = sample_examples(problems, spec.fisher_examples, spec.seed)
        fisher = _in_file(
            folder / SKILL_FILE,
            mean_squared_gradients(lm, few, spec, console, folder / "sums" / "skill"),
        )
        coordinates = InjectCoordinates(lm.name, request.skill.name, "fisher")
        comparison = FisherComparison(lm, coordinates, "skill", fisher, seed=spec.seed)
        comparison.add_mass("skill", fisher)
    retained, sets = {}, 1 if spec.fisher is not None else len(request.retained)
    for name, part in _fisher_per_set(request, folder, console):
        if comparison is not None:
            comparison.add(name, part)
        if sets > 1:
            for weight, value in part.items():
                value.div_(sets).add_(retained.get(weight, 0))
        retained = part
    if comparison is not None:
        comparison.add_mass("retained", retained)
        overlap = comparison.overlap
        files.write_sealed(folder / OVERLAP_FILE, asdict(overlap))
    if spec.fisher is None:
        retained = _in_file(folder / RETAINED_FILE, retained)
    files.remove_folder(folder / "sums")
    return retained, overlap


def _in_file(path: Path, fisher: FisherTensors) -> FisherTensors:
    """The same values as views of a file, which take memory only while it is free."""
    save_artefact(path, fisher, {"kind": "mean"})
    views = load_artefact(path, verify=False).tensors()
    # In the model's order, by which entries are sampled; the file has another.
    return {name: views[name] for name in fisher}


def _load_retained(spec: InjectSpec, lm: LM, folder: Path) -> FisherTensors | None:
    """The Fisher of `--fisher`, or the one computed before."""
    if spec.fisher is not None:
        return load_fisher(spec.fisher, lm).tensors()
    try:
        saved = load_artefact(folder / RETAINED_FILE)
    except (Corrupt, Missing):
        return None
    return saved.tensors()


def _load_overlap(folder: Path) -> FisherOverlap | None:
    try:
        saved = files.read_sealed(folder / OVERLAP_FILE)
    except (Corrupt, Missing):
        return None
    return FisherOverlap(saved["rows"], saved["tops"])


def _fisher_per_set(
    request: "InjectRequest", folder: Path, console: Console
) -> Iterator[tuple[str, FisherTensors]]:
    """(name, Fisher) of each retained set, or of the given file."""
    lm, spec, retained = request.lm, request.spec, request.retained
    if spec.fisher is not None:
        given = load_fisher(spec.fisher, lm)
        yield given.name, given.tensors()
        return
    share = max(1, spec.fisher_examples // len(retained))
    for number, one in enumerate(retained):
        few, sums = sample_examples(one.train, share, spec.seed), folder / "sums" / f"set-{number}"
        yield one.name, mean_squared_gradients(lm, few, spec, console, sums)


def mean_squared_gradients(
    lm: LM, examples: Examples, spec: InjectSpec, console: Console, sums: Path | None = None
) -> dict[str, Tensor]:
    """The diagonal Fisher: the mean over examples of the squared gradient of each.

    Unfinished sums are saved in the folder `sums`, if one is given.
    """
    # A model given as an object has a made-up name in the spec: workers can't open it.
    handle = make_model_handle(lm, spec) if lm.name == spec.model else None
    found = sum_squared_gradients_on(
        spec.engine, handle, lm, examples, console=console, checkpoint=sums
    )
    return found.mean(len(examples))


def sample_examples(examples: Examples, most: int, seed: int) -> Examples:
    """At most `most` examples, drawn with the seed."""
    order = np.random.default_rng([seed, len(examples)]).permutation(len(examples))
    return examples.take(np.sort(order[:most]))


class FisherComparison:
    """Compares other Fishers with one, at its largest entries overall and in three blocks."""

    def __init__(
        self,
        lm: LM,
        coordinates: InjectCoordinates,
        name: str,
        fisher: FisherTensors,
        *,
        seed: int,
        most: int = TOP_ENTRIES,
    ) -> None:
        self.fisher, self.seed, self.coordinates = fisher, seed, coordinates
        self.locate = weight_locator(lm)
        layers = {
            f"layer {i}": [n for n in fisher if self.locate(n)[0] == i] for i in outer_layers(lm)
        }
        groups = {"all layers": list(fisher), **layers}
        self.largest = {
            group: largest_entries({n: fisher[n] for n in names}, most)
            for group, names in groups.items()
            if names
        }
        self.overlap = FisherOverlap([], [{"where": g, "curves": {}} for g in self.largest])
        self._add_curves(name, fisher)

    def add_mass(self, name: str, fisher: FisherTensors) -> None:
        """Add rows of a Fisher's mass by layer and module."""
        mass = fisher_mass(fisher, self.locate)
        self.overlap.rows.extend(self.coordinates.weight_rows("fisher", f"mass of {name}", mass))

    def add(self, name: str, other: FisherTensors) -> dict[str, float]:
        """Compare another Fisher: its overlap metrics, also added as rows, and its curves."""
        metrics = overlap_metrics(self.fisher, other, self.largest["all layers"], seed=self.seed)
        self.overlap.rows.extend(self.coordinates.rows("overlap", name, metrics))
        self._add_curves(name, other)
        return metrics

    def _add_curves(self, name: str, fisher: FisherTensors) -> None:
        for panel, entries in zip(self.overlap.tops, self.largest.values(), strict=True):
            values = values_at(fisher, entries)
            panel["curves"][name] = {
                "values": _rounded(values),
                "mean": _rounded(moving_average(values, WINDOW)),
            }


def overlap_metrics(
    fisher: FisherTensors, other: FisherTensors, entries: LargestEntries, *, seed: int
) -> dict[str, float]:
    """Jaccard index of the largest entries, its value by chance, and rank correlation."""
    share = min(1.0, len(entries.names) / sum(v.numel() for v in fisher.values()))
    return {
        "jaccard": jaccard(entries, largest_entries(other, len(entries.names))),
        "chance": share / (2 - share),
        "rank_correlation": rank_correlation(fisher, other, rng=np.random.default_rng(seed)),
    }


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
