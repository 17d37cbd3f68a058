"""The file of a Fisher: one tensor per weight, and for which model and data it holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from cutaway.core.errors import BadData, BadSpec, Mismatch, Missing
from cutaway.models.lm import LM
from cutaway.run.kept import Kept
from cutaway.store.artefacts import load_artefact, save_artefact


@dataclass(frozen=True)
class Fisher(Kept):
    """A Fisher on disk; `meta` has model, data, objective, labels, number of examples, seed."""

    @property
    def name(self) -> str:
        """What it was made on, for people."""
        return f"{self.meta['data']['name']} ({self.meta['objective']})"

    def tensors(self) -> dict[str, Tensor]:
        """The Fisher by weight name."""
        return {name: self.artefact.tensor(name) for name in self.artefact.names}

    def need_model(self, lm: LM) -> None:
        """Mismatch unless the Fisher is this model's, weight by weight."""
        made, path = self.meta["model"], str(self.artefact.path)
        if made["digest"] != lm.digest:
            raise Mismatch(
                f"{path!r} is the Fisher of {made['name']!r} (weights {made['digest'][:12]}), not "
                f"of {lm.name!r} (weights {lm.digest[:12]}). Make one with: cutaway fisher "
                f"--model {lm.name} ..."
            )
        wrong = set(lm.params()) ^ set(self.artefact.names)
        if wrong:
            raise Mismatch(
                f"{path!r} and {lm.name!r} differ in their weights: {sorted(wrong)[0]!r}."
            )


def load_fisher(path: Path | str, lm: LM | None = None) -> Fisher:
    """The Fisher in a file; with a model, only if it is its own."""
    if not Path(path).is_file():
        raise Missing(
            f"No Fisher at {str(path)!r}. Check the path, or make one with: cutaway fisher --model "
            "MODEL --text docs --out FILE.safetensors"
        )
    artefact = load_artefact(Path(path))
    if artefact.meta.get("kind") != "fisher":
        raise BadData(
            f"{str(path)!r} is no Fisher. Make one with: cutaway fisher --out FILE.safetensors"
        )
    fisher = Fisher(artefact)
    if lm is not None:
        fisher.need_model(lm)
    return fisher


def save_fisher(path: Path, values: Mapping[str, Tensor], meta: Mapping[str, Any]) -> Path:
    """Write a Fisher; the JSON beside it is written last."""
    return save_artefact(path, values, {**meta, "method": "inject", "kind": "fisher"})


def need_file_name(out: str | None) -> None:
    """BadSpec before the work, not after it, when the file can't be called so."""
    if out is not None and not out.endswith(".safetensors"):
        raise BadSpec(f"--out must end in .safetensors, got {out!r}.")
