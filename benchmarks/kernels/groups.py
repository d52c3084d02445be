"""The rows, in groups: which conversions, at which sizes, beside whom, and whose bits must equal ours."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from benchmarks.kernels import weights
from benchmarks.kernels.conversion import Conversion, Data, Granularity
from benchmarks.kernels.peers import litert, numpy, onnxruntime, torch
from benchmarks.kernels.ranges import range_rows
from benchmarks.kernels.requantization import Parameters, Requantization
from benchmarks.kernels.row import MakePeer, Row, Work, work_row
from benchmarks.kernels.weights import WeightConversion
from requant.profiles import Operation, Rounding

SIZES = (1_000, 100_000, 1_000_000, 10_000_000)
HUGE = 100_000_000

_MAKE: Mapping[str, MakePeer] = {
    "onnxruntime": onnxruntime.bound,
    "litert": litert.convert,
    "torch": torch.convert,
    "numpy": numpy.convert,
}


@dataclass(frozen=True)
class Case:
    """A conversion and its peers. `equal`: those whose bits must be ours; the others compute a little differently.

    `huge`: whether it is also done with 100,000,000 elements, when that is asked for.
    """

    name: str
    work: Work
    equal: tuple[str, ...] = ()
    unequal: tuple[str, ...] = ()
    sizes: tuple[int, ...] = SIZES
    huge: bool = False
    threads: int = 1

    def rows(self, group: str, huge: bool) -> Iterator[Row]:
        """Measure the case at each size."""
        named = [*self.equal, *self.unequal]
        peers = {name: _MAKE[name] for name in named if name != "torch" or torch.INSTALLED}
        for size in (*self.sizes, HUGE) if huge and self.huge else self.sizes:
            few = {name: make for name, make in peers.items() if size < HUGE or name == named[0]}
            yield work_row(group, self.name, self.work, size, few, frozenset(self.equal), self.threads)


_XNNPACK = "litert_xnnpack"
_I8 = Conversion()
_TO_F32 = Conversion(Operation.DEQUANTIZE)
_LAST = replace(_I8, granularity=Granularity.LAST_AXIS)

PER_TENSOR = (
    Case("f32 to i8", _I8, ("onnxruntime", "numpy"), ("litert", "torch"), huge=True),
    Case("f32 to u8", replace(_I8, storage="u8"), ("onnxruntime",), ("litert",)),
    Case("f32 to i8, litert", replace(_I8, profile="litert"), (), ("litert",)),
    Case("f32 to i8, litert_xnnpack", replace(_I8, profile=_XNNPACK), ("litert",)),
    Case("f32 to i16", replace(_I8, storage="i16", symmetric=True), ("onnxruntime",), ("litert",)),
    Case("f32 to i4, packed", replace(_I8, storage="i4", dense=True), ("onnxruntime",)),
    Case("i8 to f32", _TO_F32, ("onnxruntime", "litert", "torch"), (), huge=True),
    Case("u8 to f32", replace(_TO_F32, storage="u8"), ("onnxruntime", "litert")),
)
GRANULARITIES = (
    Case("f32 to i8, first axis", replace(_I8, granularity=Granularity.FIRST_AXIS), ("onnxruntime",), ("torch",)),
    Case("f32 to i8, middle axis", replace(_I8, granularity=Granularity.MIDDLE_AXIS), ("onnxruntime",), ("torch",)),
    Case("f32 to i8, last axis", _LAST, ("onnxruntime", "numpy"), ("torch",)),
    Case("f32 to i8, blocks of 32", replace(_I8, granularity=Granularity.BLOCKS), ("onnxruntime",)),
    Case("i8 to f32, last axis", replace(_TO_F32, granularity=Granularity.LAST_AXIS), ("onnxruntime", "numpy")),
    Case("i8 to f32, blocks of 32", replace(_TO_F32, granularity=Granularity.BLOCKS), ("onnxruntime",)),
)
FLOATS = (
    Case("f16 to i8", replace(_I8, expressed="f16"), ("onnxruntime",)),
    Case("bf16 to i8", replace(_I8, expressed="bf16"), ("numpy",), ("torch",)),
    Case("f32 to f8E4M3FN", replace(_I8, storage="f8E4M3FN"), ("onnxruntime", "numpy"), ("torch",)),
    Case("f8E4M3FN to f32", replace(_TO_F32, storage="f8E4M3FN"), ("onnxruntime",)),
)
REQUANTIZATIONS = (
    Case(
        "i32 to i8, double rounding",
        Requantization(Parameters("i32", 0.000731), Parameters("i8", 0.0373, 5)),
        ("litert",),
    ),
    Case("i8 to i8", Requantization(Parameters("i8", 0.0211, 3), Parameters("i8", 0.0373, 5), _XNNPACK), ("litert",)),
    Case(
        "i32 to i8, double rounding, last axis",
        Requantization(Parameters("i32", 0.000731), Parameters("i8", 0.0373, 5), channels=256),
    ),
    Case("i32 to i8, XNNPACK", Requantization(Parameters("i32", 0.000731), Parameters("i8", 0.0373, 5), _XNNPACK)),
    Case("i32 to i8, onnx", Requantization(Parameters("i32", 0.000731), Parameters("i8", 0.0373, 5), "onnx")),
    Case("i32 to i8, tosa", Requantization(Parameters("i32", 0.000731), Parameters("i8", 0.0373, 5), "tosa")),
    Case("i32 to i8, torch", Requantization(Parameters("i32", 0.000731), Parameters("i8", 0.0373, 5), "torch")),
)
DATA = tuple(
    Case(f"f32 to i8, {data}", replace(_I8, data=data), ("onnxruntime",), ("litert",), (100_000,)) for data in Data
)
RULES = (
    Case("f32 to i8, stablehlo", replace(_I8, profile="stablehlo")),
    Case("f32 to i8, torch", replace(_I8, profile="torch"), ("torch",)),
    Case("f32 to i8, torch_decomposed", replace(_I8, profile="torch_decomposed"), (), ("torch",)),
    Case("f32 to i8, onednn", replace(_I8, profile="onednn")),
    # Outside of the bounds this profile has no result.
    Case("f32 to i8, mlir", replace(_I8, profile="mlir", data=Data.INSIDE)),
    *(
        Case(f"f32 to i8, rounding {rounding}", replace(_I8, rounding=rounding), sizes=(100_000, 10_000_000))
        for rounding in (Rounding.NEAREST_AWAY, Rounding.NEAREST_UP, Rounding.FLOOR, Rounding.STOCHASTIC)
    ),
)
THREADED = tuple(
    replace(case, name=f"{case.name}, all CPUs", sizes=(1_000_000, 10_000_000), threads=os.cpu_count() or 1)
    for case in (*PER_TENSOR[:2], *PER_TENSOR[-2:], GRANULARITIES[2])
)
WEIGHTS = tuple(
    Case(
        f"weights, {granularity}",
        WeightConversion(granularity=granularity),
        ("onnxruntime", "numpy"),
        ("torch",),
        tuple(weights.SIZES),
    )
    for granularity in (Granularity.TENSOR, Granularity.FIRST_AXIS, Granularity.LAST_AXIS)
)


def _rows(cases: tuple[Case, ...], group: str, huge: bool) -> Iterator[Row]:
    for case in cases:
        yield from case.rows(group, huge)


_GROUPS: Mapping[str, Callable[[bool], Iterator[Row]]] = {
    name: partial(_rows, cases, name)
    for name, cases in {
        "per tensor": PER_TENSOR,
        "granularities": GRANULARITIES,
        "floats": FLOATS,
        "requantize": REQUANTIZATIONS,
        "all CPUs": THREADED,
        "data": DATA,
        "rules": RULES,
        "real weights": WEIGHTS,
    }.items()
}
GROUPS: Mapping[str, Callable[[bool], Iterator[Row]]] = {**_GROUPS, "ranges": partial(range_rows, "ranges")}
"""Each takes whether the largest tensors are wanted too."""
