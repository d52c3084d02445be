"""torchao's block formats."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[Any]

MX_ELEMENTS = {
    "mxfp8_e4m3": torch.float8_e4m3fn,
    "mxfp8_e5m2": torch.float8_e5m2,
    "mxfp6_e2m3": "fp6_e2m3",
    "mxfp6_e3m2": "fp6_e3m2",
    "mxfp4_e2m1": torch.float4_e2m1fn_x2,
}
"""torchao has no mxint8."""


def formats(module: str) -> Any:
    return import_module(f"torchao.prototype.mx_formats.{module}")


def in_bytes(elements: Any) -> Array:
    """Elements one to a byte."""
    return np.asarray(elements.view(torch.uint8).numpy())


def unpacked(elements: Any) -> Array:
    """4-bit elements one to a byte."""
    return np.asarray(formats("kernels").unpack_uint4(elements.view(torch.uint8)).numpy())
