"""Every recipe's spec; loads without torch, so that help and forms are quick."""

from cutaway.run.specs.common import Common
from cutaway.run.specs.finetune import FINETUNE
from cutaway.run.specs.graft import GRAFT
from cutaway.run.specs.inject import INJECT
from cutaway.run.specs.nextword import NEXTWORD
from cutaway.run.specs.probe import ProbeSpec
from cutaway.run.specs.shortcut import SHORTCUT

SPECS: dict[str, type[Common]] = {
    "probe": ProbeSpec,
    **FINETUNE,
    **GRAFT,
    **INJECT,
    **NEXTWORD,
    **SHORTCUT,
}

__all__ = ["SPECS", "Common", "ProbeSpec"]
