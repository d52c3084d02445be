"""Long tensors whose stretches need different degrees of care of the kernel: all within the bounds, some outside, some
beyond what 16 bits hold, some beyond the window, infinities and NaN. Every element and every count against the oracle.
"""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest

from requant.convert.quantize import plan_quantize
from requant.mlir import parse_type
from requant.mlir.types import TensorType
from requant.plan.plan import Plan
from tests.oracles import profiles as profile_oracle
from tests.oracles.quantization import Stored
from tests.support.cases import sample

INF, NAN = float("inf"), float("nan")
# In steps of the scale.
STRETCHES: dict[str, tuple[float, ...]] = {
    "within": (-5, -1.5, -0.5, 0.0, 0.49999997, 0.5, 1, 2.5, 4.5),
    "outside": (-300, -130, -3, 0.5, 4, 129, 260, 600),
    "sixteen bits": (-32900, -32768, -16400, -16000, -1, 0.5, 16000, 16384, 32767, 32768, 33000),
    "large": (-2097151.5, -2000000, -65536, 0.5, 65536, 2000000, 2097151.5),
    "far": (-1e30, -4e9, -2147483648, -2097152.5, 0.5, 2097153, 2147483648, 4e9, 1e38),
    "infinite": (-INF, -1, 0.5, INF),
    "NaN": (-1, 0.5, 3, NAN),
}
ORDER = (
    "within",
    "outside",
    "within",
    "sixteen bits",
    "large",
    "outside",
    "far",
    "within",
    "NaN",
    "infinite",
    "within",
)
SIZE = 60_000
PROFILES = ("stablehlo", "onnx", "onnx_reference", "litert", "onednn", "torch_decomposed")
# Bounds, and the zero point of a tensor that has one.
STORAGES = {
    "i8": (-128, 127, 3),
    "u8": (0, 255, 128),
    "i8<-5:7>": (-5, 7, -1),
    "u8<3:250>": (3, 250, 250),
    "i16": (-32768, 32767, 0),
}
# Elements that follow each other with one parameter; 1 stands for the last axis.
ROWS = (5000, 100, 48, 32, 1)
SHAPES = {5000: (12, 5000), 100: (600, 100), 48: (1250, 48), 32: (1875, 32), 1: (400, 150)}


def tensor(shape: tuple[int, ...], element: str) -> TensorType:
    parsed = parse_type(f"tensor<{'x'.join(map(str, shape))}x{element}>")
    assert isinstance(parsed, TensorType)
    return parsed


def reals(scales: np.ndarray) -> np.ndarray:
    """Stretches of nearly equal length, whose ends are no multiples of anything."""
    rng = np.random.default_rng(3)
    parts = np.array_split(np.zeros(SIZE), len(ORDER))
    steps = np.concatenate(
        [rng.choice(STRETCHES[name], part.size) for name, part in zip(ORDER, parts, strict=True)]
    ).astype(np.float32)
    with np.errstate(over="ignore"):
        return np.asarray(steps * scales)


def check(plan: Plan, profile: str, x: np.ndarray, scales: np.ndarray, zeros: np.ndarray, storage: str) -> None:
    plain = profile_oracle.target(storage.split("<")[0])
    lowest, highest, _ = STORAGES[storage]
    bounded = profile_oracle.Target(plain.storage, lowest, highest, plain.type_lo, plain.type_hi)

    @cache
    def expected(real: float, scale: float, zero: int) -> Stored | None:
        return profile_oracle.QUANTIZE[profile](real, scale, zero, bounded)

    found = [expected(*each) for each in zip(x.tolist(), scales.tolist(), zeros.tolist(), strict=True)]
    target = np.empty(x.size, plan.output_dtype)
    whole = plan.run(x, target)
    wrong = [
        index
        for index, (stored, each) in enumerate(zip(target.tolist(), found, strict=True))
        if each is None or stored != each.value
    ]
    assert not wrong, f"{len(wrong)} differ, first {wrong[0]}: {x[wrong[0]]}, {target[wrong[0]]}, {found[wrong[0]]}"
    counts = [sum(getattr(each, name) for each in found) for name in ("low", "high", "nan")]
    assert [whole.saturated_low, whole.saturated_high, whole.nan] == counts


@pytest.mark.parametrize(("profile", "storage"), sample(list(product(PROFILES, STORAGES)), 12))
def test_one_parameter(profile: str, storage: str) -> None:
    if profile == "onednn" and storage == "i16":
        pytest.skip("the profile has no such storage")
    scale, zero = 0.0237, STORAGES[storage][2]
    quantized = parse_type(f"!quant.uniform<{storage}:f32, {scale}:{zero}>")
    plan = plan_quantize(tensor((SIZE,), "f32"), quantized, profile)
    scales = np.full(SIZE, scale, np.float32)
    check(plan, profile, reals(scales), scales, np.full(SIZE, zero), storage)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("profile", "rows"), sample(list(product(["onnx", "onnx_reference"], ROWS)), 5))
def test_a_parameter_for_each_row(profile: str, rows: int) -> None:
    shape = SHAPES[rows]
    axis = 1 if rows == 1 else 0
    rng = np.random.default_rng(4)
    scales = rng.uniform(0.01, 0.5, shape[axis]).astype(np.float32)
    zeros = rng.integers(0, 256, shape[axis])
    each = ", ".join(f"{scale!r}:{zero}" for scale, zero in zip(scales.tolist(), zeros.tolist(), strict=True))
    quantized = parse_type(f"!quant.uniform<u8:f32:{axis}, {{{each}}}>")
    plan = plan_quantize(tensor(shape, "f32"), quantized, profile)
    if axis == 0:
        scales, zeros = np.repeat(scales, shape[1]), np.repeat(zeros, shape[1])
    else:
        scales, zeros = np.tile(scales, shape[0]), np.tile(zeros, shape[0])
    check(plan, profile, reals(scales), scales, zeros, "u8")
