"""Names of devices, checked without loading torch."""

import re

from cutaway.core.errors import BadSpec

DEVICE_NAME = re.compile(r"auto|cpu|mps|map|cuda(:[0-9]{1,3})?")


def need_device_name(text: str) -> str:
    """The name; BadSpec unless it is one that a device can have."""
    if not DEVICE_NAME.fullmatch(text):
        raise BadSpec(f"device must be auto, cpu, cuda, cuda:N, mps or map, got {text!r}.")
    return text
