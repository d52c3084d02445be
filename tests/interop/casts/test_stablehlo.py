"""Casts of the profile `stablehlo` against `convert` in StableHLO's interpreter, which jaxlib carries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.convert.small_floats import SMALL_FLOATS
from requant.errors import UnsupportedError
from requant.profiles.cast import FINITE
from tests.interop.casts.cast_data import (
    FORMATS,
    RESULTS,
    WIDE,
    chosen,
    is_nan,
    narrowed,
    real_data,
    stored_data,
    widened,
)
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile

ir: Any = pytest.importorskip("jaxlib.mlir.ir")
passes: Any = pytest.importorskip("jaxlib.mlir.passmanager")
stablehlo: Any = pytest.importorskip("jaxlib.mlir.dialects.stablehlo")

pytestmark = pytest.mark.interop

Array = NDArray[Any]

TAKEN = tuple(name for name in FORMATS if name != "f8E8M0FNU")
SIZE = 60_000
"""The interpreter takes microseconds for an element."""


@pytest.fixture(autouse=True)
def context() -> Iterator[None]:
    stablehlo.register_stablehlo_passes()
    with ir.Context() as opened, ir.Location.unknown():
        stablehlo.register_dialect(opened)
        passes.PassManager.parse("builtin.module(vhlo-legalize-to-stablehlo)").run(ir.Module.parse("").operation)
        yield


def width(name: str) -> int:
    return SMALL_FLOATS[name].width if name in SMALL_FLOATS else 8 * np.dtype(RESULTS[name]).itemsize


def convert(data: Array, source: str, *targets: str) -> Array:
    """Convert to each target after the other, from and to integers of the same width."""
    shape = f"tensor<{data.size}x"
    names = [f"ui{width(source)}", source, *targets, f"ui{width(targets[-1])}"]
    kinds = ["bitcast_convert", *["convert"] * len(targets), "bitcast_convert"]
    lines = [
        f"%{i + 1} = stablehlo.{kind} %{i} : ({shape}{names[i]}>) -> {shape}{names[i + 1]}>"
        for i, kind in enumerate(kinds)
    ]
    text = "\n".join(lines)
    module = ir.Module.parse(
        f"func.func @main(%0: {shape}{names[0]}>) -> {shape}{names[-1]}> {{\n{text}\nreturn %{len(kinds)} : "
        f"{shape}{names[-1]}>\n}}"
    )
    bits = np.ascontiguousarray(data).view(f"u{data.itemsize}")
    argument = ir.DenseElementsAttr.get(bits, shape=[data.size], type=ir.Type.parse(names[0]))
    (found,) = stablehlo.eval_module(module, [argument])
    return np.array(found)


def wide_data(source: str, target: str) -> Iterator[Array]:
    for data in real_data(source, target):
        yield data if source in ("f16", "bf16") else data[:: max(1, data.size // SIZE)].copy()
    if source == "f32":
        yield chosen(target)


@pytest.mark.parametrize("source", WIDE)
@pytest.mark.parametrize("target", TAKEN)
def test_narrow(target: str, source: str) -> None:
    """f4 and f6 have no integers of their width there: they are read after a conversion to f32, which is exact."""
    if source == target:
        return
    comparison = Comparison(
        f"StableHLO interpreter cast {source} to {target}", systems.STABLEHLO, profile("stablehlo", "cast")
    )
    for data in wide_data(source, target):
        ours = narrowed(data, source, target, "stablehlo")
        if target in FINITE:
            real = widened(ours, target, "f32", "ml_dtypes")
            comparison.add(target, data, real.view(np.uint32), convert(data, source, target, "f32"))
        else:
            comparison.add(target, data, ours, convert(data, source, target))
    comparison.finish(65_536 if source in ("f16", "bf16") else 100_000)


@pytest.mark.parametrize("target", WIDE)
@pytest.mark.parametrize("source", [name for name in TAKEN if name not in FINITE])
def test_widen(source: str, target: str) -> None:
    """Every code."""
    if source == target:
        return
    comparison = Comparison(
        f"StableHLO interpreter cast {source} to {target}", systems.STABLEHLO, profile("stablehlo", "cast")
    )
    codes = stored_data(source)
    theirs, ours = convert(codes, source, target).view(RESULTS[target]), widened(codes, source, target, "stablehlo")
    nan = is_nan(theirs)
    assert (is_nan(ours) == nan).all()
    comparison.add(source, codes, ours, theirs, {"nan_bits": nan})
    comparison.finish(codes.size - 2100)


def test_the_format_that_is_refused_has_negative_codes_there() -> None:
    """f8E8M0FNU has no sign, and what the interpreter writes for -3 is the code of a large number."""
    data = np.array([3.0, -3.0], np.float32)
    assert convert(data, "f32", "f8E8M0FNU").tolist() == [0x81, 0x80 | 0x81]
    with pytest.raises(UnsupportedError):
        narrowed(data, "f32", "f8E8M0FNU", "stablehlo")
