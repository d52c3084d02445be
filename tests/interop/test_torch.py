"""Profiles `torch`, `torch_2_14` and `torch_decomposed` against the torch that is installed.

Eager quantized tensors, and quantized_decomposed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.convert.requantize import plan_requantize
from tests.interop import traps
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile
from tests.interop.quantized_case import (
    Case,
    parameter_counts,
    per_stored_tensor,
    per_tensor,
    spread_parameters,
    zero_points,
)
from tests.interop.seed_of_the_day import generator
from tests.interop.torch_version import EAGER_PROFILE

pytest.importorskip("torch")

from tests.interop.torch_quantized import EAGER, as_array, decomposed, eager_dequantized, eager_quantized

pytestmark = [
    pytest.mark.interop,
    # The eager functions announce their removal; what they compute until then is what is tested.
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor, torch.quantize_per_channel:UserWarning"),
]

Array = NDArray[Any]

# The last of f32 and bf16 have an infinite reciprocal: 0 becomes NaN.
SCALES = {"f32": (0.0237, 0.5, 3e-39, 3e37, 1e-45), "f16": (0.0237, 6e-8), "bf16": (0.0237, 1e-12, 1e-40)}
AXES = (((26, 4001), 0), ((31, 40, 101), 1), ((4001, 26), 1))
DECOMPOSED = ("i4", "u4", "i8", "u8", "i16", "u16", "i32")


def axes(storage: str, expressed: str, rng: np.random.Generator) -> list[Case]:
    return [
        Case(shape, storage, expressed, *spread_parameters((shape[axis],), storage, expressed, rng), axis)
        for shape, axis in AXES
    ]


def groups(storage: str, expressed: str, rng: np.random.Generator) -> list[Case]:
    """Two dimensions, and groups that divide the last one: nothing else is taken."""
    found = []
    for shape, group in (((50, 2112), 32), ((1001, 104), 8)):
        counts = parameter_counts(shape, 1, group)
        found.append(Case(shape, storage, expressed, *spread_parameters(counts, storage, expressed, rng), 1, group))
    return found


def cases(
    vector: Callable[[str, str, float, int], Case],
    granularity: str,
    storage: str,
    expressed: str,
    rng: np.random.Generator,
) -> list[Case]:
    if granularity == "per_tensor":
        return [vector(storage, expressed, scale, z) for scale in SCALES[expressed] for z in zero_points(storage)]
    return axes(storage, expressed, rng) if granularity == "per_axis" else groups(storage, expressed, rng)


def between_floats(case: Case) -> Case:
    """The same with scales that neither f32 nor the expressed type has: quantized_decomposed takes them as f64.

    Not in blocks: MLIR's sub-channel types hold scales in the expressed type.
    """
    return case if case.block is not None else replace(case, scales=case.scales * 1.0003)


@pytest.mark.parametrize("granularity", ["per_tensor", "per_axis"])
@pytest.mark.parametrize("storage", EAGER)
def test_eager_quantize(storage: str, granularity: str) -> None:
    rng = np.random.default_rng(61)
    comparison = Comparison(
        f"torch eager quantize f32 to {storage} {granularity}", systems.TORCH, profile(EAGER_PROFILE, "quantize")
    )
    for case in cases(per_tensor, granularity, storage, "f32", rng):
        source = case.real_data(rng)
        theirs = as_array(eager_quantized(case, source).int_repr())
        comparison.add(case, source, case.quantized(source, EAGER_PROFILE), theirs)
    comparison.finish(300_000)


@pytest.mark.parametrize("granularity", ["per_tensor", "per_axis"])
@pytest.mark.parametrize("storage", EAGER)
def test_eager_dequantize(storage: str, granularity: str) -> None:
    rng = np.random.default_rng(62)
    comparison = Comparison(
        f"torch eager dequantize {storage} to f32 {granularity}", systems.TORCH, profile(EAGER_PROFILE, "dequantize")
    )
    for case in cases(per_stored_tensor, granularity, storage, "f32", rng):
        source = case.stored_data(rng)
        comparison.add(case, source, case.dequantized(source, EAGER_PROFILE), eager_dequantized(case, source))
    comparison.finish(12_000)


@pytest.mark.parametrize("granularity", ["per_tensor", "per_axis", "sub_channel"])
@pytest.mark.parametrize("expressed", SCALES)
@pytest.mark.parametrize("storage", DECOMPOSED)
def test_decomposed_quantize(storage: str, expressed: str, granularity: str) -> None:
    """Groups with NaN are refused there, and have none here."""
    rng = np.random.default_rng(63)
    comparison = Comparison(
        f"torch decomposed quantize {expressed} to {storage} {granularity}",
        systems.TORCH,
        profile("torch_decomposed", "quantize"),
    )
    for case in map(between_floats, cases(per_tensor, granularity, storage, expressed, rng)):
        source = case.real_data(rng)
        if granularity == "sub_channel":
            source[np.isnan(source)] = 0
        ours = case.quantized(source, "torch_decomposed")
        comparison.add(case, source, ours, decomposed(case, source, "quantize"))
    comparison.finish(200_000)


@pytest.mark.parametrize("granularity", ["per_tensor", "per_axis", "sub_channel"])
@pytest.mark.parametrize("expressed", SCALES)
@pytest.mark.parametrize("storage", DECOMPOSED)
def test_decomposed_dequantize(storage: str, expressed: str, granularity: str) -> None:
    """torch has no arithmetic of zero points along an axis for uint16."""
    if storage == "u16" and granularity != "per_tensor":
        case = cases(per_tensor, granularity, storage, expressed, np.random.default_rng(64))[0]
        with pytest.raises(RuntimeError, match="Promotion for uint16"):
            decomposed(case, np.zeros(case.shape, case.dtype), "dequantize")
        return
    rng = np.random.default_rng(64)
    comparison = Comparison(
        f"torch decomposed dequantize {storage} to {expressed} {granularity}",
        systems.TORCH,
        profile("torch_decomposed", "dequantize"),
    )
    for case in map(between_floats, cases(per_stored_tensor, granularity, storage, expressed, rng)):
        source = case.stored_data(rng)
        ours = case.dequantized(source, "torch_decomposed")
        comparison.add(case, source, ours, decomposed(case, source, "dequantize"))
    comparison.finish(6_000)


@pytest.mark.parametrize("storage", EAGER)
def test_eager_traps(storage: str) -> None:
    rng = generator(65)
    comparison = Comparison(f"torch eager quantize f32 to {storage}", systems.TORCH, profile(EAGER_PROFILE, "quantize"))
    for case, source in traps.reals(storage, "f32", rng):
        theirs = as_array(eager_quantized(case, source).int_repr())
        comparison.add(case, source, case.quantized(source, EAGER_PROFILE), theirs)
    comparison.finish(10_000)
    comparison = Comparison(
        f"torch eager dequantize {storage} to f32", systems.TORCH, profile(EAGER_PROFILE, "dequantize")
    )
    for case, source in traps.stored(storage, "f32", rng):
        comparison.add(case, source, case.dequantized(source, EAGER_PROFILE), eager_dequantized(case, source))
    comparison.finish(10_000)


@pytest.mark.parametrize("expressed", SCALES)
@pytest.mark.parametrize("storage", DECOMPOSED)
def test_decomposed_traps(storage: str, expressed: str) -> None:
    rng = generator(66)
    comparison = Comparison(
        f"torch decomposed quantize {expressed} to {storage}", systems.TORCH, profile("torch_decomposed", "quantize")
    )
    for case, source in traps.reals(storage, expressed, rng):
        ours = case.quantized(source, "torch_decomposed")
        comparison.add(case, source, ours, decomposed(case, source, "quantize"))
    comparison.finish(10_000)
    comparison = Comparison(
        f"torch decomposed dequantize {storage} to {expressed}",
        systems.TORCH,
        profile("torch_decomposed", "dequantize"),
    )
    # torch has no arithmetic of zero points along an axis for uint16.
    for case, source in traps.stored(storage, expressed, rng, granularities=() if storage == "u16" else ("per_axis",)):
        ours = case.dequantized(source, "torch_decomposed")
        comparison.add(case, source, ours, decomposed(case, source, "dequantize"))
    comparison.finish(10_000)


@pytest.mark.parametrize(("source", "target"), [("i8", "u8"), ("u8", "i8"), ("i16", "i8"), ("i32", "i8"), ("i8", "i4")])
def test_decomposed_requantize(source: str, target: str) -> None:
    """dequantize, then quantize."""
    rng = generator(67)
    comparison = Comparison(
        f"torch decomposed requantize {source} to {target}", systems.TORCH, profile("torch_decomposed", "requantize")
    )
    for given, stored in traps.stored(source, "f32", rng, granularities=()):
        scale = np.array(rng.choice(traps.scales("f32", rng)))
        wanted = Case(given.shape, target, "f32", scale, np.array(rng.choice(zero_points(target))))
        plan = plan_requantize(given.tensor, wanted.tensor, "torch_decomposed")
        ours = np.empty(stored.size, plan.output_dtype)
        plan.run(stored, ours)
        theirs = decomposed(wanted, decomposed(given, stored, "dequantize"), "quantize")
        comparison.add((str(given), str(wanted)), stored, ours, theirs)
    comparison.finish(10_000)
