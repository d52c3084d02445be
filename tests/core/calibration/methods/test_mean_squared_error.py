"""The range with the smallest error, against every candidate quantized and restored in exact fractions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise, product
from math import prod

import numpy as np
import pytest

from requant.calibration.finished_type import Granularity, PerAxis, PerBlock
from requant.errors import (
    LimitError,
    ParameterError,
    PreconditionError,
    TypeFitError,
    UnknownNameError,
    UnsupportedError,
)
from requant.kernels.statistics.error_sums import SQUARED_ERROR
from requant.plan.channels import Channels, channels_of
from tests.core.calibration.methods.observation import Array, find, samples, target
from tests.oracles import calibration as calibration_oracle
from tests.oracles import quantization as oracle
from tests.oracles import ranges as range_oracle
from tests.support.cases import sample

QUANTIZE: dict[str, Callable[[float, float, int, int, int], oracle.Stored]] = {
    "stablehlo": oracle.quantize_stablehlo,
    "onnx": oracle.quantize_onnx,
    "litert": oracle.quantize_litert,
}
DEQUANTIZE = {"stablehlo": oracle.dequantize, "onnx": oracle.dequantize, "litert": oracle.dequantize_litert}
STORAGES = {"i8": (-128, 127), "u8": (0, 255), "i16": (-32768, 32767)}


def restorer(profile: str, storage: str, *, symmetric: bool) -> Callable[[float, float, float], float]:
    """x quantized with the observer's parameters of a range, and dequantized again."""
    bounds = STORAGES[storage]

    def restore(x: float, low: float, high: float) -> float:
        ends = float(np.float32(low)), float(np.float32(high))
        middle = (128 if storage == "u8" else 0) if symmetric else None
        parameters = range_oracle.torch_observer(*ends, *bounds, middle=middle, epsilon=2.0**-23)
        assert parameters is not None
        stored = QUANTIZE[profile](x, *parameters, *bounds)
        return DEQUANTIZE[profile](stored.value, *parameters)

    return restore


def expected_ends(
    tensors: Sequence[Array], group: Sequence[int], candidates: int, profile: str, storage: str, *, symmetric: bool
) -> tuple[float, float]:
    values = [float(tensor.ravel()[index]) for tensor in tensors for index in group]
    low, high = min(values), max(values)
    if symmetric:
        high = max(abs(low), abs(high))
        low = -high
    restore = restorer(profile, storage, symmetric=symmetric)
    chosen = calibration_oracle.smallest_error(values, low, high, candidates, restore)
    return low * chosen / candidates, high * chosen / candidates


@pytest.mark.parametrize(
    ("symmetric", "storage", "profile"), sample(list(product([False, True], STORAGES, QUANTIZE)), 3)
)
def test_per_tensor(profile: str, storage: str, *, symmetric: bool) -> None:
    rng = np.random.default_rng(1)
    if (profile, storage, symmetric) == ("litert", "i16", False):
        with pytest.raises(UnsupportedError, match="dequantizes i16 only with zero point 0") as caught:
            find("mse", [samples(rng, 40)], target(storage), profile=profile)
        assert caught.value.side == "output"
        return
    for _ in range(6):
        tensors = [samples(rng, 40, 10.0 ** rng.integers(-3, 4)) for _ in range(rng.integers(1, 3))]
        candidates = int(rng.choice([1, 2, 10, 25]))
        wanted = target(storage, symmetric=symmetric)
        found = find("mse", tensors, wanted, candidates=candidates, profile=profile)
        expected = expected_ends(tensors, range(40), candidates, profile, storage, symmetric=symmetric)
        assert (found.minimums[0], found.maximums[0]) == expected


@pytest.mark.parametrize(
    ("shape", "granularity"),
    sample(
        [
            ((4, 30), PerAxis(0, 4)),
            ((30, 4), PerAxis(1, 4)),
            ((3, 4, 10), PerAxis(1, 4)),
            ((40, 3), PerAxis(1, 3)),
            ((6, 24), PerBlock((6, 24), (2, 8))),
            ((5, 22), PerBlock((5, 22), (2, 8))),
            ((24, 6), PerBlock((24, 6), (8, 3))),
            ((6, 4, 5), PerBlock((6, 4, 5), (2, 1, 5))),
        ],
        2,
    ),
)
def test_each_parameter_by_itself(shape: tuple[int, ...], granularity: Granularity) -> None:
    rng = np.random.default_rng(2)
    scales = np.exp(2 * rng.normal(size=shape))
    tensors = [(rng.laplace(size=shape) * scales).astype(np.float32) for _ in range(2)]
    blocks = (
        granularity.block_sizes
        if isinstance(granularity, PerBlock)
        else tuple(1 if axis == granularity.axis else size for axis, size in enumerate(shape))
        if isinstance(granularity, PerAxis)
        else shape
    )
    found = find("mse", tensors, target("i8", granularity=granularity), blocks, candidates=12, profile="onnx")
    for index, group in enumerate(calibration_oracle.members(shape, blocks)):
        expected = expected_ends(tensors, group, 12, "onnx", "i8", symmetric=False)
        assert (found.minimums[index], found.maximums[index]) == expected


def test_the_first_smallest_wins() -> None:
    """Zeros are restored exactly with every candidate."""
    found = find("mse", [np.zeros(9, np.float32)])
    assert (found.minimums[0], found.maximums[0]) == (0, 0)
    # 1 is restored exactly when the range is 0 to 1 or, saturated, to no smaller one: the last candidate.
    assert find("mse", [np.array([0, 1], np.float32)], candidates=4).maximums[0] == 1


@pytest.mark.parametrize(("dtype", "expressed"), [("<f2", "f16"), ("<f8", "f64")])
def test_other_elements(dtype: str, expressed: str) -> None:
    """Profile stablehlo takes every step in the expressed type, which numpy does as well."""
    rng = np.random.default_rng(3)
    wanted = target("i8", expressed=expressed)
    for _ in range(10):
        tensor = samples(rng, 50).astype(dtype)
        low, high = float(tensor.min()), float(tensor.max())
        errors = []
        for k in range(1, 21):
            parameters = wanted.parameters(np.array([low * k / 20]), np.array([high * k / 20]))
            scale, zero_point = (array[0].astype(dtype) for array in (parameters.scales, parameters.zero_points))
            stored = np.rint(np.clip(tensor / scale + zero_point, np.array(-128, dtype), np.array(127, dtype)))
            difference = ((stored - zero_point) * scale).astype(np.float64) - tensor
            errors.append(np.cumsum(difference * difference)[-1])
        chosen = int(np.argmin(errors)) + 1
        found = find("mse", [tensor], wanted, candidates=20)
        assert (found.minimums[0], found.maximums[0]) == (low * chosen / 20, high * chosen / 20)


LAYOUTS = [((700,), (700,)), ((7, 100), (1, 100)), ((100, 7), (100, 1)), ((10, 70), (3, 32)), ((6, 5, 20), (2, 1, 20))]


@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
@pytest.mark.parametrize(("shape", "blocks"), LAYOUTS)
def test_sums_are_in_order_and_the_same_in_any_pieces(
    shape: tuple[int, ...], blocks: tuple[int, ...], dtype: str
) -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.normal(size=(2, prod(shape))) * 10.0 ** rng.integers(-6, 6, prod(shape))).astype(dtype)
    groups = calibration_oracle.members(shape, blocks)
    expected = []
    for group in groups:
        total = 0.0
        for index in group:
            total += (float(b[index]) - float(a[index])) ** 2
        expected.append(total)
    channels = channels_of(shape, blocks)
    layouts = [(False, channels.as_runs())]
    if channels.cycle and channels.repeat == 1:
        layouts.append((True, Channels(1, channels.channels, channels.group, channels.groups, cycle=True)))
    for cycle, layout in layouts:
        owners = layout.lay_out(np.arange(len(groups)), "<i8")
        for pieces in (1, 2, 5):
            sums = np.zeros(len(groups))
            cuts = [0, *sorted(rng.integers(0, a.size + 1, pieces - 1).tolist()), a.size]
            for begin, end in pairwise(cuts):
                SQUARED_ERROR[cycle](a[begin:end], b[begin:end], begin, *layout.scalars, owners, sums)
            assert sums.tolist() == expected


def test_what_is_refused() -> None:
    values = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    with pytest.raises(UnknownNameError):
        find("mse", [values], profile="nope")
    with pytest.raises(UnsupportedError):
        find("mse", [values], target("i16"), profile="onednn")
    with pytest.raises(TypeFitError, match="do not divide"):
        find("mse", [values], target(granularity=PerBlock((2, 3), (1, 2))), (1, 2))
    for candidates in (0, 1025):
        with pytest.raises(ParameterError, match="candidates must be from 1 to 1024"):
            find("mse", [values], candidates=candidates)
    with pytest.raises(LimitError, match="candidates times elements"):
        find("mse", [np.ones(1 << 20, np.float32)], candidates=1024)
    with pytest.raises(LimitError, match="candidates times scales"):
        find("mse", [np.ones((1000, 2), np.float32)], target(granularity=PerAxis(0, 1000)), (1, 2), candidates=1000)
    # No candidate's scale is one of a type, and the rule demands 0 in the range.
    with pytest.raises(PreconditionError, match="no type has scale 0"):
        find("mse", [np.zeros(3, np.float32)], target(scheme="litert"))
    with pytest.raises(ParameterError, match="does not contain 0"):
        find("mse", [values], target(scheme="litert"))


def test_candidates_without_a_type_are_passed_over() -> None:
    """Of f16, whose smallest number is 6e-8: most fractions of a small range have no scale."""
    tensor = np.array([0, 3e-5], np.float16)
    found = find("mse", [tensor], target("u8", "onnxruntime", expressed="f16"), candidates=20)
    assert 0 < found.maximums[0] <= tensor[1]
    # Errors that overflow binary64 cannot be told apart.
    with pytest.raises(PreconditionError, match="error beyond binary64"):
        find("mse", [np.array([-1e200, 1e200])], target("i8", "mlir", expressed="f64"), candidates=3)
