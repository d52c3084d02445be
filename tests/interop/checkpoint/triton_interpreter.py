"""llm-compressor with the kernels that compressed-tensors runs on a GPU, in Triton's interpreter.

`TRITON_INTERPRET=1 python -m tests.interop.checkpoint.triton_interpreter SOURCES TARGETS`: quantize each directory
SOURCES/dtype by each scheme into TARGETS/dtype/scheme. A process of its own, since all kernels of one are interpreted.

Two things are not the interpreter's: conversions between float formats, where it gets subnormals and ties wrong, are
torch's (RNE), and `rint`, which is CUDA's device library, is numpy's.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton.language as tl
from compressed_tensors.utils.impl_backend import ImplBackend
from triton.runtime import interpreter

from tests.interop.checkpoint import llm_compressor
from tests.interop.checkpoint.schemes import OPTIONS, PRESETS, theirs

KERNELS = ("_quantize_triton", "quantize_and_pack_fp4_triton")
"""Those that quantize weights: codes of one element each, and NVFP4 and MXFP4 packed."""

_FORMATS = {
    tl.float32: torch.float32,
    tl.float16: torch.float16,
    tl.bfloat16: torch.bfloat16,
    tl.float8e4nv: torch.float8_e4m3fn,
}
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}

ran = dict.fromkeys(KERNELS, 0)
"""How often each was run."""


def _counted(kernel: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **named: Any) -> Any:
        ran[kernel.__name__] += 1
        return kernel(*args, **named)

    return run


def _has_data(*args: Any, **named: Any) -> bool:
    """Whether the first tensor has values: llm-compressor first validates on meta tensors."""
    return not next(iter((*args, *named.values()))).is_meta


def _converted(values: np.ndarray, source: tl.dtype, target: tl.dtype, rounding: Any) -> np.ndarray:
    bits = torch.from_numpy(values.view(f"u{values.itemsize}").astype(f"i{values.itemsize}", copy=True))
    to = _FORMATS[target]
    codes: np.ndarray = bits.view(_FORMATS[source]).to(to).view(_INTEGERS[to.itemsize]).numpy()
    return codes.view(f"u{to.itemsize}")


def _rint(x: tl.tensor) -> tl.tensor:
    return tl.tensor(interpreter.TensorHandle(np.rint(x.handle.data), x.handle.dtype), x.type)


def interpret() -> None:
    """Run the GPU kernels for tensors on the CPU, too."""
    for name, implementations in ImplBackend._backends.items():
        ImplBackend._backends[name] = [
            (_counted(kernel), _has_data, priority) if kernel.__name__ in KERNELS else (kernel, usable, priority)
            for kernel, usable, priority in implementations
        ]
    torch.cuda.device = lambda device: contextlib.nullcontext()
    tl.extra.cuda.libdevice.rint = _rint
    interpreter._convert_float = _converted


def main(sources: Path, targets: Path) -> None:
    interpret()
    for source in sorted(sources.iterdir()):
        for scheme in (*PRESETS, *OPTIONS):
            before = sum(ran.values())
            llm_compressor.quantize(source, targets / source.name / scheme, theirs(scheme))
            assert sum(ran.values()) > before, f"{scheme}: compressed-tensors has not run its kernels"


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
