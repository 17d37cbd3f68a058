"""How another process opens the same model: by its name, and only if its weights are the same."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from cutaway.core.errors import Mismatch
from cutaway.engine import Resources, find_engine
from cutaway.home import expand_path
from cutaway.models.chat import ChatFormat
from cutaway.models.lm import LM
from cutaway.models.load import open_model, random_twin
from cutaway.recipe.options import RunOptions

BYTES_PER_WEIGHT = {"float32": 4, "float16": 2, "bfloat16": 2}
WORKING_MEMORY = 512 << 20
"""Bytes of a pass in addition to the weights: the states of a batch, a shard being written."""


@dataclass(frozen=True)
class ModelHandle:
    """Everything needed to open a model again, and the digest that its weights must have."""

    name: str
    revision: str | None
    dtype: str
    device: str
    offline: bool
    attention: str
    bos: str
    quantise: str
    digest: str
    parameters: int
    twin_seed: int | None = None
    """The seed of the randomly initialised twin; None for the model itself."""
    chat: ChatFormat | None = None
    """How the model reads conversations."""

    def open(self) -> LM:
        """The model; opened once per process, however many pieces use it."""
        return _open_model(self)

    def resources(self, engine: str) -> Resources:
        """What a piece that runs the model needs: a GPU if the engine has any."""
        weights = self.parameters * BYTES_PER_WEIGHT.get(self.dtype, 4)
        return pass_resources(engine, self.device, weights)


def pass_resources(engine: str, device: str, memory: int) -> Resources:
    """What a piece needs whose weights, gradients and the like take this many bytes."""
    gpu = device != "cpu" and find_engine(engine).gpus() > 0
    return Resources(cpus=1, gpus=int(gpu), memory=memory + WORKING_MEMORY)


def training_resources(engine: str, spec: RunOptions, lm: LM, *, copies: int) -> Resources:
    """What a training piece needs: `copies` of the weights (gradients, optimiser state ...)."""
    weights = lm.parameters * BYTES_PER_WEIGHT.get(lm.dtype, 4)
    return pass_resources(engine, spec.device, copies * weights)


def make_model_handle(
    lm: LM, spec: RunOptions, objects: Mapping[str, Any] | None = None
) -> ModelHandle | None:
    """The handle of a model; None for one that was given as an object."""
    if any(getattr(value, "module", None) is lm.module for value in (objects or {}).values()):
        return None
    return ModelHandle(
        name="+".join(_absolute_name(part) for part in lm.name.split("+")),
        revision=getattr(spec, "revision", None), dtype=lm.dtype, device=spec.device,
        offline=spec.offline, attention=lm.attention, bos=lm.bos, quantise=lm.quantise,
        digest=lm.digest, parameters=lm.parameters, chat=lm.chat,
    )  # fmt: skip


def random_twin_handle(handle: ModelHandle | None, twin: LM, seed: int) -> ModelHandle | None:
    """The handle of the model's randomly initialised twin."""
    return None if handle is None else replace(handle, twin_seed=seed, digest=twin.digest)


def _absolute_name(name: str) -> str:
    """A folder or file by its full path, because workers may run in another directory."""
    path = expand_path(name)
    return str(path.resolve()) if path.exists() else name


# Two: a model and its twin.
@lru_cache(maxsize=2)
def _open_model(handle: ModelHandle) -> LM:
    lm = open_model(
        handle.name, revision=handle.revision, dtype=handle.dtype, device=handle.device,
        offline=handle.offline, attention=handle.attention, bos=handle.bos,
        quantise=handle.quantise, check=False, track_changes=False,
    )  # fmt: skip
    lm = lm if handle.twin_seed is None else random_twin(lm, seed=handle.twin_seed)
    if lm.digest != handle.digest:
        raise Mismatch(
            f"{handle.name!r} has other weights on a worker ({lm.digest[:12]}) than here "
            f"({handle.digest[:12]}): give every machine the same checkpoint, or a --revision."
        )
    return replace(lm, chat=handle.chat)
