"""How another process opens the same model: by its name, once, and only if it is the same."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from cutaway.core.errors import Mismatch
from cutaway.engine import Needs, find_engine
from cutaway.home import home_path
from cutaway.models.lm import LM
from cutaway.models.load import open_model
from cutaway.run.specs.common import Common
from cutaway.run.twin import twin

# Bytes of one weight, and what a pass holds besides: states of a batch, a shard on its way.
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
BESIDES = 512 << 20


@dataclass(frozen=True)
class Door:
    """Everything it takes to open a model again, and the identity that it must have."""

    name: str
    revision: str | None
    dtype: str
    device: str
    offline: bool
    attention: str
    digest: str
    parameters: int
    twin: int | None = None
    """The seed of the random-weights twin; None for the model itself."""

    def open(self) -> LM:
        """The model; opened once per process, however many pieces ask for it."""
        return _open(self)

    def needs(self, engine: str) -> Needs:
        """What a piece that runs the model takes: a GPU where the engine has some to give."""
        return needs_of(engine, self.device, self.parameters * BYTES.get(self.dtype, 4))


def needs_of(engine: str, device: str, held: int) -> Needs:
    """What a piece takes that holds so many bytes of weights, gradients and the like."""
    wants = device != "cpu" and find_engine(engine).gpus() > 0
    return Needs(cpus=1, gpus=1 if wants else 0, memory=held + BESIDES)


def needs_to_train(engine: str, spec: Common, lm: LM, *, copies: int) -> Needs:
    """What a training piece takes: the weights so many times (gradients, optimiser, anchors)."""
    return needs_of(engine, spec.device, copies * lm.parameters * BYTES.get(lm.dtype, 4))


def door_of(lm: LM, spec: Common, objects: Mapping[str, Any] | None = None) -> Door | None:
    """The way to this model from elsewhere; None for one that was given as an object."""
    if any(value is lm for value in (objects or {}).values()):
        return None
    return Door(
        name="+".join(_everywhere(part) for part in lm.name.split("+")),
        revision=getattr(spec, "revision", None), dtype=lm.dtype, device=spec.device,
        offline=spec.offline, attention=lm.attention, digest=lm.digest,
        parameters=lm.parameters,
    )  # fmt: skip


def twin_door(door: Door | None, of: LM, seed: int) -> Door | None:
    """The way to the model's twin."""
    return None if door is None else replace(door, twin=seed, digest=of.digest)


def _everywhere(name: str) -> str:
    """A folder by its full path: workers may stand in another one."""
    path = home_path(name)
    return str(path.resolve()) if path.is_dir() else name


# Two: a model and its twin.
@lru_cache(maxsize=2)
def _open(door: Door) -> LM:
    lm = open_model(
        door.name, revision=door.revision, dtype=door.dtype, device=door.device,
        offline=door.offline, attention=door.attention, check=False, watch=False,
    )  # fmt: skip
    lm = lm if door.twin is None else twin(lm, seed=door.twin)
    if lm.digest != door.digest:
        raise Mismatch(
            f"{door.name!r} has other weights on a worker ({lm.digest[:12]}) than here "
            f"({door.digest[:12]}): give every machine the same checkpoint, or a --revision."
        )
    return lm
