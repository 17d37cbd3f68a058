"""The file of a Fisher: one tensor per weight, and for which model and data it holds."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from cutaway.core.errors import BadData, BadSpec, Mismatch, Missing
from cutaway.models.lm import LM
from cutaway.recipe.artefact_handle import SavedArtefact
from cutaway.store.artefacts import check_output_free, load_artefact, save_artefact
from cutaway.store.tensors import raw_bytes


@dataclass(frozen=True)
class FisherFile(SavedArtefact):
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

    def need_start(self, weights: Mapping[str, Tensor], name: str) -> None:
        """Mismatch unless these weights of the model `name` are the ones it was made on.

        Weights held in another precision are rounded, and files of before say nothing of single
        weights: neither can be told by its bits.
        """
        made, prints = self.meta["model"], self.meta.get("weights", {})
        alike = {
            n: w for n, w in weights.items() if n in prints and _dtype_name(w) == made["dtype"]
        }
        for weight, found in tensor_checksums(alike).items():
            if found != prints[weight]:
                raise Mismatch(
                    f"{str(self.artefact.path)!r} is the Fisher of {made['name']!r} (weights "
                    f"{made['digest'][:12]}); {name!r} begins with another {weight!r}. Begin with "
                    f"{made['name']!r}, or make a Fisher of your start: cutaway fisher --model ..."
                )


def tensor_checksums(weights: Mapping[str, Tensor]) -> dict[str, str]:
    """Who each weight is: the sha256 of its values in float32, wherever it is held."""
    return {
        name: hashlib.sha256(raw_bytes(value.detach().float())).hexdigest()
        for name, value in weights.items()
    }


def _dtype_name(weight: Tensor) -> str:
    return str(weight.dtype).removeprefix("torch.")


def load_fisher(path: Path | str, lm: LM | None = None) -> FisherFile:
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
    fisher = FisherFile(artefact)
    if lm is not None:
        fisher.need_model(lm)
    return fisher


def save_fisher(path: Path, values: Mapping[str, Tensor], meta: Mapping[str, Any]) -> Path:
    """Write a Fisher; the JSON beside it is written last."""
    return save_artefact(path, values, {**meta, "method": "inject", "kind": "fisher"})


def need_fisher_path(out: str | None) -> None:
    """BadSpec before the work, not after it, when the file can't be called so."""
    if out is not None and not out.endswith(".safetensors"):
        raise BadSpec(f"--out must end in .safetensors, got {out!r}.")
    if out is not None:
        check_output_free(Path(out))
