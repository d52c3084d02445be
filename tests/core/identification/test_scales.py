"""Unknown scales and multipliers: what fits holds the true ones, and its ends are tight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from requant.arrays.calls import ArrayCall, call_on_arrays
from requant.arrays.elements import numpy_dtype
from requant.description import Array
from requant.errors import RequantError
from requant.formats.elements import FLOATS, FloatElement
from requant.functions import FUNCTIONS
from requant.identification.candidates import Candidate, options_for
from requant.identification.channels import search_for
from requant.identification.outcomes import outcome_of
from requant.identification.unknowns import Contradiction, Interval, MultiplierInterval, ScaleInterval
from requant.mlir import parse_type
from requant.mlir.types import TensorType, UniformPerAxisType, UniformType
from requant.operations.conversions import CONVERSIONS
from requant.profiles import Operation
from requant.schemes import Multiplier, scheme_named

QUANTIZING = ("stablehlo", "onnx", "onnx_reference", "mlir", "litert", "torch", "torch_decomposed", "onednn")
REQUANTIZING = ("stablehlo", "onnx", "litert", "cmsis_nn", "litert_xnnpack", "torch_decomposed")
EXPRESSED = ("f32", "f32", "f16", "bf16")
STORAGES = ("i8", "u8", "i4", "i8<-127:127>")
QUICK, ALL = 60, 1000


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
        parsed = parse_type(text)
        assert isinstance(parsed, UniformType)
        self.element = parsed
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


def of_elements(call: ArrayCall, elements: Array) -> ArrayCall:
    """Return the call of some elements only."""
    return replace(
        call,
        types={"input": TensorType((elements.size,), call.types["input"].element)},
        arrays={"input": call.arrays["input"].reshape(-1)[elements]},
        observed={"output": call.observed["output"].reshape(-1)[elements]},
    )


def real_scales(real: float | Fraction, stored: int, zero_point: int) -> tuple[Fraction, Fraction | None]:
    """Return the scales for which round(real / scale) + zero_point is an int8 that is stored; None has no bound."""
    real, offset = Fraction(real), stored - zero_point
    low, high = offset - Fraction(1, 2), offset + Fraction(1, 2)
    saturated = stored == -128, stored == 127
    if real < 0:
        real, low, high, saturated = -real, -high, -low, saturated[::-1]
    least = real / high if high > 0 else Fraction(10**9)
    return Fraction(0) if saturated[1] else least, None if saturated[0] or low <= 0 else real / low


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(3))
def test_contradictions_name_two_elements_that_contradict_each_other(seed: int) -> None:
    rng = np.random.default_rng(seed)
    source = rng.standard_normal(60).astype(np.float32)
    halves = [
        observed(
            call_of(
                Operation.QUANTIZE, {"input": source[part]}, {}, {"output_type": f"!quant.uniform<i8:f32, {scale}:3>"}
            ),
            {},
        )
        for part, scale in ((slice(0, 30), 0.02), (slice(30, 60), 0.0215))
    ]
    call = call_of(Operation.QUANTIZE, {"input": source}, {}, {"output_type": "!quant.any<i8:f32>"})
    call = call.with_observed({"output": np.concatenate(halves).view(np.int8)})
    search = search_for(call, None, None)
    assert search is not None
    found = list(search.intervals((("profile", "stablehlo"),)))
    assert found
    for each in found:
        assert isinstance(each, Contradiction)
        assert each.zero_point is not None
        pair = np.array(each.elements)
        ends = [
            real_scales(float(source[index]), int(call.observed["output"][index]), each.zero_point) for index in pair
        ]
        lowest, highest = max(low for low, _ in ends), min(high for _, high in ends if high is not None)
        # What the arithmetic of f32 adds to the exact bounds is far less.
        assert lowest > highest * (1 - Fraction(1, 1 << 20))
        alone = search_for(of_elements(call, pair), None, None)
        assert alone is not None
        fitting = [one for one in alone.intervals((("profile", "stablehlo"),)) if isinstance(one, ScaleInterval)]
        assert each.zero_point not in {one.zero_point for one in fitting}


@pytest.mark.parametrize("block_sizes", [None, (1, 40)])
@pytest.mark.parametrize("operation", [Operation.QUANTIZE, Operation.DEQUANTIZE])
def test_channels_and_blocks_have_scales_of_their_own(
    operation: Operation, block_sizes: tuple[int, int] | None
) -> None:
    rng = np.random.default_rng(5)
    candidate = (("profile", "stablehlo" if block_sizes is None else "onnx"),)
    if block_sizes is None:
        scales, zeros, text = [0.05, 0.1, 0.003], [3, -2, 0], "!quant.uniform<i8:f32:0, {0.05:3, 0.1:-2, 0.003}>"
    else:
        scales, zeros = [0.05, 0.1, 0.003, 0.02, 0.04, 0.06], [3, -2, 0, 1, 0, -1]
        text = "!quant.uniform<i8:f32:{0:1, 1:40}, {{0.05:3, 0.1:-2}, {0.003:0, 0.02:1}, {0.04:0, 0.06:-1}}>"
    along = np.repeat(np.array(scales).reshape(3, -1), 80 * 3 // len(scales), axis=1)
    opened: dict[str, str] = {}
    options: dict[str, Any] = {}
    if operation is Operation.QUANTIZE:
        arrays = {"input": (rng.standard_normal((3, 80)) * along * 40).astype(np.float32)}
        known = call_of(operation, arrays, {}, {"output_type": text})
        options = {"output_type": "!quant.any<i8:f32>"}
    else:
        arrays = {"input": rng.integers(-128, 128, (3, 80)).astype(np.int8)}
        known = call_of(operation, arrays, {"input": text}, {})
        opened = {"input": "!quant.any<i8:f32>"}
    seen = observed(known, options_for(candidate, known))
    call = call_of(operation, arrays, opened, options).with_observed({"output": seen})
    search = search_for(call, 0 if block_sizes is None else None, block_sizes)
    assert search is not None
    intervals = [each for each in search.intervals(candidate) if isinstance(each, ScaleInterval)]
    stated: Any = known.types["input"] if operation is Operation.DEQUANTIZE else known.options["output_type"]
    element: Any = getattr(stated, "element", stated)
    for channel, (scale, zero_point) in enumerate(zip(scales, zeros, strict=True)):
        [own] = [each for each in intervals if each.channel == channel and each.zero_point == zero_point]
        assert own.lowest <= np.float32(scale) <= own.highest
        for end, step, fitting in (
            (own.lowest, 0, True),
            (own.highest, 0, True),
            (own.lowest, -1, False),
            (own.highest, 1, False),
        ):
            changed = list(element.scales)
            changed[channel] = beside(end, FLOATS["f32"], step) if step else end
            name = "input" if operation is Operation.DEQUANTIZE else "output"
            other = with_type(known, name, replace(element, scales=tuple(changed)))
            assert fits(other.with_observed({"output": seen}), options_for(candidate, known)) is fitting


def test_a_channel_that_nothing_fits_excludes_a_candidate() -> None:
    source = np.array([[0.1, 0.2, 0.3], [0.1, 0.2, 0.3]], np.float32)
    reply = FUNCTIONS["identify"](
        [
            {
                "operation": "quantize",
                "arguments": {"input": source, "output_type": "!quant.any<i8:f32>"},
                "observed": {"output": np.array([[10, 20, 30], [10, 40, 30]], np.int8)},
            }
        ],
        unknown_axis=0,
        suspects=["onnx"],
    )
    assert not reply["consistent"]
    [first, *_] = reply["excluded"]
    assert {each["channel"] for each in first["contradictions"]} == {1}


@pytest.mark.sample(1)
@pytest.mark.parametrize("scheme", ["litert", "tosa", "fbgemm"])
@pytest.mark.parametrize("axis", [None, 0])
def test_all_multipliers_and_shifts_that_fit(scheme: str, axis: int | None) -> None:
    rng = np.random.default_rng(7)
    source = rng.integers(-4000, 4000, (2, 200)).astype(np.int32)
    rule = scheme_named(scheme)
    true = [rule.derive(0.0213), rule.derive(0.017)][: 1 if axis is None else 2]
    output = "!quant.uniform<i8:f32, 0.5:3>"

    def given(pairs: list[Multiplier]) -> ArrayCall:
        options = {"output_type": output, "scheme": scheme} | ({} if axis is None else {"axis": axis})
        arrays = {
            "input": source,
            "multipliers": [each.multiplier for each in pairs],
            "shifts": [each.shift for each in pairs],
        }
        return call_of(Operation.REQUANTIZE, arrays, {}, options)

    seen = observed(given(true), {})
    call = call_of(Operation.REQUANTIZE, {"input": source}, {}, {"output_type": output, "scheme": scheme})
    search = search_for(call.with_observed({"output": seen}), axis, None)
    assert search is not None
    intervals = [each for each in search.intervals(()) if isinstance(each, MultiplierInterval)]
    for channel, pair in enumerate(true):
        [own] = [each for each in intervals if (each.channel, each.shift) == (channel, pair.shift)]
        assert own.lowest <= pair.multiplier <= own.highest
    lowest, highest = rule.multipliers
    for each in intervals:
        ends = (each.lowest, True), (each.highest, True), (each.lowest - 1, False), (each.highest + 1, False)
        for multiplier, fitting in ends:
            if lowest <= multiplier <= highest:
                pairs = list(true)
                pairs[each.channel] = Multiplier(multiplier, each.shift)
                assert fits(given(pairs).with_observed({"output": seen}), {}) is fitting


@pytest.mark.exhaustive
def test_multipliers_are_tight_in_exact_integers() -> None:
    """q = floor((v * m + 2^(s - 1)) / 2^s) + z, of which no other pair gives all outputs."""
    source = np.arange(-2000, 2000, 37, dtype=np.int64)
    # RESCALE takes values of up to `shift` bits.
    multiplier, shift, zero_point = 171, 12, 5

    def exactly(m: int, s: int) -> list[int]:
        return [min(max(((int(v) * m + (1 << (s - 1))) >> s) + zero_point, -128), 127) for v in source]

    arrays = {"input": source.astype(np.int32)}
    options = {"output_type": f"!quant.uniform<i8:f32, 0.5:{zero_point}>", "scheme": "tosa"}
    call = call_of(Operation.REQUANTIZE, arrays, {}, options)
    expected = exactly(multiplier, shift)
    search = search_for(call.with_observed({"output": np.array(expected)}), None, None)
    assert search is not None
    found = {each.shift: each for each in search.intervals(()) if isinstance(each, MultiplierInterval)}
    assert multiplier in range(found[shift].lowest, found[shift].highest + 1)
    for each in range(12, 22):
        around = round(multiplier * 2.0 ** (each - shift))
        candidates = range(max(0, around - (around >> 4) - 2), around + (around >> 4) + 2)
        fitting = [m for m in candidates if exactly(m, each) == expected]
        stated = list(range(found[each].lowest, found[each].highest + 1)) if each in found else []
        assert fitting == stated


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "derivation",
    [
        {"method": "min_max"},
        {"method": "min_max", "symmetric": True},
        {"method": "min_max", "scheme": "torch_observer", "axis": 0},
        {"method": "percentile", "percentile": 99.999},
        {"method": "min_max", "scheme": "torch", "power_of_two": True},
        {"method": "mse"},
        {"method": "entropy"},
    ],
    ids=str,
)
def test_derivations_are_found(derivation: dict[str, Any]) -> None:
    known = "scheme" in derivation or derivation["method"] == "mse"
    source = np.random.default_rng(3).standard_normal((3, 200)).astype(np.float32)
    derived = FUNCTIONS["derive_from_tensor"](source, storage="i8", **derivation)
    output = call_of(Operation.QUANTIZE, {"input": source}, {}, {"output_type": derived["type"]})
    element = output.options["output_type"]
    reply = FUNCTIONS["identify"](
        [
            {
                "operation": "quantize",
                "arguments": {"input": source, "output_type": derived["type"] if known else "!quant.any<i8:f32>"},
                "observed": {"output": observed(output, {})},
            }
        ],
        suspects=["stablehlo"],
        derivations=True,
        unknown_axis=0 if isinstance(element, UniformPerAxisType) else None,
    )
    own = {name: value for name, value in derivation.items() if name not in ("axis", "percentile")}
    own.setdefault("scheme", derived["scheme"])
    said = [{name: value for name, value in each.items() if name in own} for each in reply["derivations"]]
    assert own in said
