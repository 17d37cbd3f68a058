"""Double precision on every device: on the CPU where the device has none."""

import torch
from torch import Tensor

WITHOUT_FLOAT64 = ("mps",)
"""Kinds of devices without float64."""


def float64_device(device: torch.device) -> torch.device:
    """The device itself, or the CPU if it has no float64."""
    return torch.device("cpu") if device.type in WITHOUT_FLOAT64 else device


def to_float64(tensor: Tensor) -> Tensor:
    """The tensor in float64, on its own device if that has float64, else on the CPU."""
    return tensor.to(float64_device(tensor.device)).double()
