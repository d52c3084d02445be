"""Unknown scales and multipliers: what fits holds the true ones, and its ends are tight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from requant.arrays.calls import ArrayCall, call_on_arrays
from requant.arrays.elements import numpy_dtype
from requant.description import Array
from requant.errors import RequantError
from requant.formats.elements import FLOATS, FloatElement
from requant.identification.candidates import Candidate, options_for
from requant.identification.channels import search_for
from requant.identification.outcomes import outcome_of
from requant.identification.unknowns import Contradiction, Interval, ScaleInterval
from requant.mlir import parse_type
from requant.mlir.types import TensorType, UniformType
from requant.operations.conversions import CONVERSIONS
from requant.profiles import Operation

QUANTIZING = ("stablehlo", "onnx", "onnx_reference", "mlir", "litert", "torch", "torch_decomposed", "onednn")
REQUANTIZING = ("stablehlo", "onnx", "litert", "cmsis_nn", "litert_xnnpack", "torch_decomposed")
EXPRESSED = ("f32", "f32", "f16", "bf16")
STORAGES = ("i8", "u8", "i4", "i8<-127:127>")
QUICK, ALL = 100, 1000


def call_of(operation: Operation, arrays: dict[str, Any], types: dict[str, str], options: dict[str, Any]) -> ArrayCall:
    return call_on_arrays(CONVERSIONS[operation], arrays, types, options)


def observed(call: ArrayCall, options: dict[str, Any]) -> Array:
    return call.result(call.planned(options)).outputs["output"].data


def fits(call: ArrayCall, options: dict[str, Any]) -> bool:
    return outcome_of(call, call.planned(options)).mismatches == 0


def with_type(call: ArrayCall, name: str, element: Any) -> ArrayCall:
    if name == "input":
        return replace(call, types={"input": TensorType(call.types["input"].shape, element)})
    return replace(call, options={**call.options, "output_type": element})


def random_scale(rng: np.random.Generator, expressed: FloatElement) -> float:
    return float(np.array(np.exp2(rng.uniform(-7, 2))).astype(numpy_dtype(expressed)))


def beside(scale: float, expressed: FloatElement, step: int) -> float:
    """Return the next number of a type, or the one before."""
    dtype = numpy_dtype(expressed)
    bits = np.array(scale).astype(dtype).view(f"u{dtype.itemsize}")
    return float((bits + np.array(step).astype(bits.dtype)).astype(bits.dtype).view(dtype))


def described(element: UniformType) -> str:
    stated = {-128: "i8", 0: "u8", -8: "i4", -127: "i8<-127:127>"}[int(element.storage.minimum)]
    return f"!quant.any<{stated}:{element.expressed.name}>"


class Case:
    """A call with one type that is known to the test, and left open in the search."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.operation = (Operation.QUANTIZE, Operation.QUANTIZE, Operation.DEQUANTIZE, Operation.REQUANTIZE)[seed % 4]
        name = EXPRESSED[rng.integers(len(EXPRESSED))] if self.operation is not Operation.REQUANTIZE else "f32"
        expressed = FLOATS[name]
        storage = STORAGES[rng.integers(len(STORAGES))] if self.operation is not Operation.REQUANTIZE else "i8"
        low, high = {"i8": (-128, 127), "u8": (0, 255), "i4": (-8, 7), "i8<-127:127>": (-127, 127)}[storage]
        scale, zero_point = random_scale(rng, expressed), int(rng.integers(low // 2, high // 2 + 1))
        text = f"!quant.uniform<{storage}:{name}, {scale!r}:{zero_point}>"
        size = int(rng.integers(20, 400))
        # Some data saturate, and some do not.
        spread = (high - low) * scale * rng.choice([0.2, 0.5, 1.0])
        profiles = QUANTIZING if self.operation is not Operation.REQUANTIZE else REQUANTIZING
        self.candidate: Candidate = (("profile", str(profiles[rng.integers(len(profiles))])),)
        self.opened = "output"
        arrays: dict[str, Any]
        types: dict[str, str] = {}
        options: dict[str, Any] = {"output_type": text}
        if self.operation is Operation.QUANTIZE:
            arrays = {"input": (rng.standard_normal(size) * spread).astype(numpy_dtype(expressed))}
        elif self.operation is Operation.DEQUANTIZE:
            arrays = {"input": rng.integers(low, high + 1, size).astype(np.uint8 if storage == "u8" else np.int8)}
            types, options, self.opened = {"input": text}, {}, "input"
        else:
            self.opened = ("output", "input")[int(rng.integers(2))]
            known = f"!quant.uniform<i8:f32, {random_scale(rng, expressed)!r}:{int(rng.integers(-20, 20))}>"
            arrays = {"input": rng.integers(-128, 128, size).astype(np.int8)}
            types = {"input": text if self.opened == "input" else known}
            options = {"output_type": known if self.opened == "input" else text}
        self.element = parse_type(text)
        assert isinstance(self.element, UniformType)
        self.known = call_of(self.operation, arrays, types, options)
        self.options = options_for(self.candidate, self.known)
        self.call: ArrayCall | None = None
        try:
            seen = observed(self.known, self.options)
        except RequantError:
            return
        self.known = self.known.with_observed({"output": seen})
        self.call = with_type(self.known, self.opened, parse_type(described(self.element)))

    def found(self) -> list[Interval | Contradiction]:
        assert self.call is not None
        search = search_for(self.call, None, None)
        assert search is not None
        return list(search.intervals(self.candidate))


def cases(seeds: range) -> Iterator[Case]:
    return (case for case in map(Case, seeds) if case.call is not None)


def check(case: Case) -> None:
    """The true scale lies in the interval; one ulp outside of any interval, the real kernels give other bits."""
    intervals = [each for each in case.found() if isinstance(each, ScaleInterval)]
    element = case.element
    [own] = [each for each in intervals if each.zero_point == element.zero_point]
    assert own.lowest <= element.scale <= own.highest

    def fitting(scale: float, zero_point: int) -> bool:
        other = replace(element, scale=scale, zero_point=zero_point)
        try:
            return fits(with_type(case.known, case.opened, other), case.options)
        except RequantError:
            return False

    for each in intervals:
        for end, step in ((each.lowest, -1), (each.highest, 1)):
            assert fitting(end, each.zero_point)
            outside = beside(end, element.expressed, step)
            if 0 < outside < float("inf"):
                assert not fitting(outside, each.zero_point)


def test_the_true_scale_fits_and_ends_are_tight() -> None:
    checked = 0
    for case in cases(range(QUICK)):
        check(case)
        checked += 1
    assert checked > QUICK // 2


@pytest.mark.exhaustive
def test_of_1000_tensors_the_true_scale_fits_and_ends_are_tight() -> None:
    checked, seed = 0, QUICK
    while checked < ALL:
        for case in cases(range(seed, seed + 4)):
            check(case)
            checked += 1
        seed += 4
