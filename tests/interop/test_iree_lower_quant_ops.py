"""The profile `mlir` in a compiler: IREE compiles and runs what lower-quant-ops makes of casts; equal bits.

The pass is ours, and equal to MLIR's to the letter (test_tensorflow_passes.py). Values whose conversion to an integer
is poison there are errors here, and are left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.mlir import parse_type
from tests.core.lowering.modules import lowered
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import operator, profile
from tests.interop.quantized_case import Case, bounds
from tests.interop.seed_of_the_day import generator
from tests.support.operator_calls import run, tensor

pytestmark = pytest.mark.interop
compiler = pytest.importorskip("iree.compiler", reason="PyPI: iree-base-compiler")
runtime = pytest.importorskip("iree.runtime", reason="PyPI: iree-base-runtime")

Array = NDArray[Any]
PASSES = ("lower-quant-ops", "strip-func-quant-types")
SIZE = 4096
STORAGES = ("i8", "u8", "i16")


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


def cases(rng: np.random.Generator, storage: str) -> Sequence[Case]:
    low, high = bounds(storage)
    scales = (0.0237, 1.0, 0.5, float(np.nextafter(np.float32(1), np.float32(2))), 1e-30)
    singles = [
        Case((SIZE,), storage, "f32", np.array(scale), np.array(zero)) for scale in scales for zero in (0, 7, high, low)
    ]
    drawn = np.exp2(rng.uniform(-20, 20, 8)).astype(np.float32).astype(np.float64)
    return [*singles, Case((SIZE // 8, 8), storage, "f32", drawn, rng.integers(low, high + 1, 8), 1)]


@pytest.mark.parametrize("storage", STORAGES)
def test_qcast(storage: str) -> None:
    rng = generator(311)
    comparison = Comparison(
        f"IREE qcast f32 to {storage}", systems.IREE, profile("mlir", "quantize"), operator("mlir.quant.qcast")
    )
    low, high = bounds(storage)
    for case in cases(rng, storage):
        scale, zero = (case.for_each(each).reshape(case.shape) for each in (case.scales, case.zero_points))
        # Quarters of steps, ties among them.
        x = ((rng.integers(4 * low, 4 * high + 1, case.shape) / 4 - zero) * scale).astype(np.float32)
        with np.errstate(all="ignore"):
            whole = np.trunc(x / scale.astype(np.float32) + zero.astype(np.float32))
        x = np.where((whole >= low) & (whole <= high), x, np.float32(0))
        theirs = in_iree(case, "qcast", x).view(case.dtype)
        attributes = {"output_type": parse_type(case.element)}
        (ours,) = run("mlir.quant.qcast", {"input": tensor("f32", x)}, attributes).values()
        comparison.add(case, x, ours, theirs)
    comparison.finish(60_000)


@pytest.mark.parametrize("storage", STORAGES)
def test_dcast(storage: str) -> None:
    """Every stored byte."""
    rng = generator(312)
    comparison = Comparison(
        f"IREE dcast {storage} to f32", systems.IREE, profile("mlir", "dequantize"), operator("mlir.quant.dcast")
    )
    low, high = bounds(storage)
    for case in cases(rng, storage):
        q = np.resize(np.arange(low, high + 1), SIZE).astype(case.dtype).reshape(case.shape)
        theirs = in_iree(case, "dcast", q.view(f"i{q.itemsize}"))
        attributes = {"output_type": parse_type("f32")}
        (ours,) = run("mlir.quant.dcast", {"input": tensor(case.element, q)}, attributes).values()
        comparison.add(case, q, ours, theirs)
    comparison.finish(60_000)
