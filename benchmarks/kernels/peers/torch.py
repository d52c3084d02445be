"""PyTorch's eager quantized tensors, its small floats and its range pass, where torch is installed."""

from __future__ import annotations

import warnings
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.kernels.conversion import Conversion
from benchmarks.kernels.peers import Array, Peer, as_bytes

INSTALLED = find_spec("torch") is not None
_EAGER = {"i8": "qint8", "u8": "quint8"}


def _torch(threads: int) -> Any:
    torch = import_module("torch")
    torch.set_num_threads(threads)
    # The eager functions announce their removal.
    warnings.filterwarnings("ignore", category=UserWarning)
    return torch


def _tensor(torch: Any, source: Array) -> Any:
    if source.dtype.name == "bfloat16":
        return torch.from_numpy(source.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(source)


def convert(conversion: Conversion, size: int, source: Array, threads: int = 1) -> Peer:
    """quantize_per_tensor or quantize_per_channel of f32 (bf16 is widened first), a cast, or dequantize."""
    torch = _torch(threads)
    scales, zero_points = conversion.parameters(size)
    x = _tensor(torch, source).reshape(conversion.shape(size))
    if conversion.storage == "f8E4M3FN":
        scale = float(scales)
        return Peer(
            lambda: (x / scale).to(torch.float8_e4m3fn),
            lambda: as_bytes((x / scale).to(torch.float8_e4m3fn).view(torch.uint8).numpy()),
        )
    kind = getattr(torch, _EAGER[conversion.storage])
    if not conversion.quantizes:
        stored = torch._make_per_tensor_quantized_tensor(x, float(scales), int(zero_points))
        return Peer(stored.dequantize, lambda: as_bytes(stored.dequantize().numpy()))
    if conversion.axis is None:
        quantize = partial(torch.quantize_per_tensor, scale=float(scales), zero_point=int(zero_points), dtype=kind)
    else:
        quantize = partial(
            torch.quantize_per_channel,
            scales=torch.from_numpy(scales),
            zero_points=torch.from_numpy(zero_points),
            axis=conversion.axis % x.ndim,
            dtype=kind,
        )
    return Peer(lambda: quantize(x.float()), lambda: as_bytes(quantize(x.float()).int_repr().numpy()))


def aminmax(source: Array) -> Peer:
    """The lowest and the highest value."""
    torch = _torch(1)
    x = torch.from_numpy(source)
    return Peer(partial(torch.aminmax, x), lambda: np.array([float(v) for v in torch.aminmax(x)], "<f4").view(np.uint8))
