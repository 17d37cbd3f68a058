"""Every recipe's spec; loads without torch, so that help and forms are quick."""

from cutaway.run.specs.common import Common
from cutaway.run.specs.probe import ProbeSpec

SPECS: dict[str, type[Common]] = {"probe": ProbeSpec}

__all__ = ["SPECS", "Common", "ProbeSpec"]
