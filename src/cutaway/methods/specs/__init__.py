"""Every recipe's spec; loads without torch, so that help and forms are quick."""

from cutaway.methods.finetune.spec import FINETUNE
from cutaway.methods.graft.spec import GRAFT
from cutaway.methods.inject.spec import INJECT
from cutaway.methods.nextword.spec import NEXTWORD
from cutaway.methods.probe.spec import ProbeSpec
from cutaway.methods.shortcut.spec import SHORTCUT
from cutaway.recipe.options import RunOptions

SPECS: dict[str, type[RunOptions]] = {
    "probe": ProbeSpec,
    **FINETUNE,
    **GRAFT,
    **INJECT,
    **NEXTWORD,
    **SHORTCUT,
}

__all__ = ["SPECS", "RunOptions", "ProbeSpec"]
