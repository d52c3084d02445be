"""Casts of the quant dialect, compiled and run by IREE."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from iree import compiler, runtime
from numpy.typing import NDArray

from tests.core.lowering.modules import lowered
from tests.interop.quantized_case import Case, bounds

Array = NDArray[Any]
PASSES = ("lower-quant-ops", "strip-func-quant-types")


def in_iree(case: Case, cast: str, given: Array) -> Array:
    """One cast, qcast or dcast, between f32 and the integers that are stored."""
    shape = "x".join(map(str, case.shape))
    real, quantized = f"tensor<{shape}xf32>", f"tensor<{shape}x{case.element}>"
    source, target = (real, quantized) if cast == "qcast" else (quantized, real)
    text = f"""func.func @main(%x: {source}) -> {target} {{
      %r = quant.{cast} %x : {source} to {target}
      return %r : {target}
    }}"""
    module = lowered(text, *PASSES).write()
    # MLIR's canonicalizer folds the casts of a stored integer to the quantized type and back.
    while cast_ := re.search(r"^ *(%\w+) = quant\.scast (%\w+) : .*\n", module, re.MULTILINE):
        module = re.sub(rf"{cast_[1]}\b", cast_[2], module.replace(cast_[0], ""))
    assert "quant" not in module
    flags = ["--iree-llvmcpu-target-cpu=generic"]
    binary = compiler.compile_str(module, target_backends=["llvm-cpu"], extra_args=flags)
    loaded: Any = runtime.load_vm_flatbuffer(binary, driver="local-sync")
    # A copy: what it hands out lives no longer than the module.
    return np.array(loaded.main(given).to_host())


def within(case: Case, x: Array) -> Array:
    """Reals, with 0 for those whose conversion to an integer is poison."""
    low, high = bounds(case.storage)
    scale, zero = (case.for_each(each).reshape(case.shape) for each in (case.scales, case.zero_points))
    with np.errstate(all="ignore"):
        whole = np.trunc(x / scale.astype(np.float32) + zero.astype(np.float32))
    return np.where((whole >= low) & (whole <= high), x, np.float32(0))
