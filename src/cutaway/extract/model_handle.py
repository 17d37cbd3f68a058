"""How another process opens the same model: by its name, once, and only if it is the same."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from cutaway.core.errors import Mismatch
from cutaway.engine import Resources, find_engine
from cutaway.home import expand_path
from cutaway.models.lm import LM
from cutaway.models.load import open_model
from cutaway.models.random_twin import random_twin
from cutaway.recipe.options import RunOptions

# Bytes of one weight, and what a pass holds besides: states of a batch, a shard on its way.
BYTES_PER_WEIGHT = {"float32": 4, "float16": 2, "bfloat16": 2}
WORKING_MEMORY = 512 << 20


@dataclass(frozen=True)
class ModelHandle:
    """Everything it takes to open a model again, and the identity that it must have."""

    name: str
    revision: str | None
    dtype: str
    device: str
    offline: bool
    attention: str
    digest: str
    parameters: int
    twin_seed: int | None = None
    """The seed of the random-weights twin; None for the model itself."""

    def open(self) -> LM:
        """The model; opened once per process, however many pieces ask for it."""
        return _open_model(self)

    def resources(self, engine: str) -> Resources:
        """What a piece that runs the model takes: a GPU where the engine has some to give."""
        return pass_resources(
            engine, self.device, self.parameters * BYTES_PER_WEIGHT.get(self.dtype, 4)
        )


def pass_resources(engine: str, device: str, held: int) -> Resources:
    """What a piece takes that holds so many bytes of weights, gradients and the like."""
    wants = device != "cpu" and find_engine(engine).gpus() > 0
    return Resources(cpus=1, gpus=1 if wants else 0, memory=held + WORKING_MEMORY)


def training_resources(engine: str, spec: RunOptions, lm: LM, *, copies: int) -> Resources:
    """What a training piece takes: the weights so many times (gradients, optimiser, anchors)."""
    return pass_resources(
        engine, spec.device, copies * lm.parameters * BYTES_PER_WEIGHT.get(lm.dtype, 4)
    )


def make_model_handle(
    lm: LM, spec: RunOptions, objects: Mapping[str, Any] | None = None
) -> ModelHandle | None:
    """The way to this model from elsewhere; None for one that was given as an object."""
    if any(value is lm for value in (objects or {}).values()):
        return None
    return ModelHandle(
        name="+".join(_absolute_name(part) for part in lm.name.split("+")),
        revision=getattr(spec, "revision", None), dtype=lm.dtype, device=spec.device,
        offline=spec.offline, attention=lm.attention, digest=lm.digest,
        parameters=lm.parameters,
    )  # fmt: skip


def random_twin_handle(door: ModelHandle | None, of: LM, seed: int) -> ModelHandle | None:
    """The way to the model's twin."""
    return None if door is None else replace(door, twin_seed=seed, digest=of.digest)


def _absolute_name(name: str) -> str:
    """A folder by its full path: workers may stand in another one."""
    path = expand_path(name)
    return str(path.resolve()) if path.is_dir() else name


# Two: a model and its twin.
@lru_cache(maxsize=2)
def _open_model(door: ModelHandle) -> LM:
    lm = open_model(
        door.name, revision=door.revision, dtype=door.dtype, device=door.device,
        offline=door.offline, attention=door.attention, check=False, watch=False,
    )  # fmt: skip
    lm = lm if door.twin_seed is None else random_twin(lm, seed=door.twin_seed)
    if lm.digest != door.digest:
        raise Mismatch(
            f"{door.name!r} has other weights on a worker ({lm.digest[:12]}) than here "
            f"({door.digest[:12]}): give every machine the same checkpoint, or a --revision."
        )
    return lm
