"""The file of a diagonal Fisher: one tensor per weight, and the model and data it belongs to."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from cutaway.core.errors import BadData, Mismatch, Missing
from cutaway.models.lm import LM
from cutaway.models.start_token import report_other_start
from cutaway.recipe.artefact_handle import SavedArtefact
from cutaway.store.artefacts import load_artefact, save_artefact
from cutaway.store.tensors import raw_bytes
from cutaway.store.versions import report_other_versions


@dataclass(frozen=True)
class FisherFile(SavedArtefact):
    """A diagonal Fisher on disk; `meta` has its model, data, objective, labels and seed."""

    @property
    def name(self) -> str:
        """The data and objective it was estimated on."""
        return f"{self.meta['data']['name']} ({self.meta['objective']})"

    def tensors(self) -> dict[str, Tensor]:
        """The Fisher information by weight name."""
        return self.artefact.tensors()

    def need_model(self, lm: LM) -> None:
        """Mismatch unless the Fisher was estimated on exactly this model."""
        made, path = self.meta["model"], str(self.artefact.path)
        if made["digest"] != lm.digest:
            raise Mismatch(
                f"{path!r} is the Fisher of {made['name']!r} (weights {made['digest'][:12]}), not "
                f"of {lm.name!r} (weights {lm.digest[:12]}). Make one with: cutaway fisher "
                f"--model {lm.name} ..."
            )
        report_other_start(path, made, lm)
        wrong = set(lm.params()) ^ set(self.artefact.names)
        if wrong:
            raise Mismatch(
                f"{path!r} and {lm.name!r} differ in their weights: {sorted(wrong)[0]!r}."
            )

    def need_initial_weights(self, weights: Mapping[str, Tensor], name: str) -> None:
        """Mismatch unless these weights of the model `name` are those it was estimated on.

        Weights in another precision are rounded, and files of older versions have no checksums of
        single weights: these are not compared.
        """
        made, checksums = self.meta["model"], self.meta.get("weights", {})
        comparable = {
            n: w
            for n, w in weights.items()
            if n in checksums and str(w.dtype).removeprefix("torch.") == made["dtype"]
        }
        for weight, checksum in tensor_checksums(comparable).items():
            if checksum != checksums[weight]:
                raise Mismatch(
                    f"{str(self.artefact.path)!r} is the Fisher of {made['name']!r} (weights "
                    f"{made['digest'][:12]}); {name!r} starts with another {weight!r}. Start from "
                    f"{made['name']!r}, or make a Fisher of your model: cutaway fisher --model ..."
                )


def tensor_checksums(weights: Mapping[str, Tensor]) -> dict[str, str]:
    """The sha256 of each weight's values in float32, on whatever device it is."""
    return {
        name: hashlib.sha256(raw_bytes(value.detach().float())).hexdigest()
        for name, value in weights.items()
    }


def load_fisher(path: Path | str, lm: LM | None = None) -> FisherFile:
    """The Fisher in a file; Mismatch when a model is given and the file is another model's."""
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
    report_other_versions(artefact.path, artefact.versions)
    fisher = FisherFile(artefact)
    if lm is not None:
        fisher.need_model(lm)
    return fisher


def save_fisher(path: Path, values: Mapping[str, Tensor], meta: Mapping[str, Any]) -> Path:
    """Write a Fisher file; the JSON beside it is written last."""
    return save_artefact(path, values, {**meta, "method": "inject", "kind": "fisher"})
