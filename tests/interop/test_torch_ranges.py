"""The range rules of torch and its bias, against torch."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from requant.calibration.bias import bias_rule_named, bias_scales, quantize_bias
from requant.errors import UnsupportedError
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import bias
from tests.interop.range_cases import RangeComparison, as_f32_steps, ranges

torch: Any = pytest.importorskip("torch")

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore::UserWarning")]

DTYPES = {"i8": "qint8", "u8": "quint8", "i32": "qint32", "u4": "quint4x2", "i16": "int16", "u16": "uint16"}


def pair(low: float, high: float) -> Any:
    return torch.tensor([low, high], dtype=torch.float32)


@pytest.mark.parametrize("reduced", [False, True])
def test_choose_qparams(reduced: bool) -> None:
    comparison = RangeComparison(systems.TORCH, "torch", "u8", reduced=reduced)
    for low, high, scale, zero_point in comparison.pairs(*ranges(1, 2000)):
        theirs = torch._choose_qparams_per_tensor(pair(low, high), reduced)
        comparison.add((low, high), (scale, zero_point), (float(theirs[0]), int(theirs[1])))
    comparison.finish(4000)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(
    ("storage", "reduced"),
    [("i8", False), ("i8", True), ("u8", False), ("u8", True), ("u4", False), ("i16", False), ("i16", True),
     ("u16", False), ("i32", False), ("i8<-127:127>", False), ("i8<-100:127>", True), ("u8<0:121>", True),
     ("u8<0:120>", False), ("i32<0:2147483647>", False)],
)  # fmt: skip
def test_observers(storage: str, reduced: bool, symmetric: bool) -> None:
    """One observer of channels for all ranges at once, whose extremes are the ends."""
    if storage.startswith("u8") and reduced and symmetric:
        with pytest.raises(UnsupportedError):
            RangeComparison(systems.TORCH, "torch_observer", storage, reduced=True, symmetric=True).derive(
                *ranges(2, 1)
            )
        return
    name, _, written = storage.partition("<")
    bounds = {}
    if written:
        lowest, _, highest = written.rstrip(">").partition(":")
        bounds = {"quant_min": int(lowest), "quant_max": int(highest)}
    observer = torch.ao.quantization.PerChannelMinMaxObserver(
        ch_axis=0,
        dtype=getattr(torch, DTYPES[name]),
        qscheme=torch.per_channel_symmetric if symmetric else torch.per_channel_affine,
        reduce_range=reduced,
        **bounds,
    )
    lows, highs = as_f32_steps(*ranges(2, 3000))
    observer(torch.from_numpy(np.stack([lows, highs], axis=1)))
    scales, zero_points = (found.tolist() for found in observer.calculate_qparams())
    comparison = RangeComparison(systems.TORCH, "torch_observer", storage, reduced=reduced, symmetric=symmetric)
    for index, (low, high, scale, zero_point) in enumerate(comparison.pairs(lows, highs)):
        comparison.add((low, high), (scale, zero_point), (scales[index], int(zero_points[index])))
    comparison.finish(6000)


@pytest.mark.parametrize("epsilon", [2.0**-23, 2.0**-12, 1e-30])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("storage", ["i8<-128:127>", "i8<-127:127>", "u8<0:255>", "u8<0:15>", "u16<0:65535>"])
def test_decomposed(storage: str, symmetric: bool, epsilon: float) -> None:
    import_module("torch.ao.quantization.fx._decomposed")
    operators = torch.ops.quantized_decomposed
    operator = operators.choose_qparams_symmetric.tensor if symmetric else operators.choose_qparams.tensor
    name, _, written = storage.rstrip(">").partition("<")
    lowest, highest = (int(bound) for bound in written.split(":"))
    dtype = {"i8": torch.int8, "u8": torch.uint8, "u16": torch.uint16}[name]
    comparison = RangeComparison(systems.TORCH, "torch_decomposed", storage, symmetric=symmetric, epsilon=epsilon)
    for low, high, scale, zero_point in comparison.pairs(*as_f32_steps(*ranges(3, 300))):
        theirs = operator(pair(low, high), lowest, highest, epsilon, dtype)
        comparison.add((low, high), (scale, zero_point), (float(theirs[0]), int(theirs[1])))
    comparison.finish(600)


@pytest.mark.parametrize("symmetric", [False, True])
def test_per_token(symmetric: bool) -> None:
    import_module("torch.ao.quantization.fx._decomposed")
    operators = torch.ops.quantized_decomposed
    operator = operators.choose_qparams_per_token if symmetric else operators.choose_qparams_per_token_asymmetric
    lows, highs = as_f32_steps(*ranges(4, 3000))
    scales, zero_points = operator(torch.from_numpy(np.stack([lows, highs], axis=1)), torch.int8)
    comparison = RangeComparison(systems.TORCH, "torch_per_token", "i8", symmetric=symmetric)
    for index, (low, high, scale, zero_point) in enumerate(comparison.pairs(lows, highs)):
        comparison.add((low, high), (scale, zero_point), (float(scales[index]), int(zero_points[index])))
    comparison.finish(6000)


@pytest.mark.parametrize("per_channel", [False, True])
def test_bias(per_channel: bool) -> None:
    """QuantizeBias calls these two for qint32, with the product of the scales in f64."""
    rng = np.random.default_rng(5)
    rule = bias_rule_named("torch")
    compared = 0
    for _ in range(200):
        channels = 50
        values = (rng.standard_normal(channels) * 10.0 ** rng.uniform(-3, 6, channels)).astype(np.float32)
        input_scale, weights = (
            float(10.0 ** rng.uniform(-4, 1)),
            10.0 ** rng.uniform(-4, 1, channels if per_channel else 1),
        )
        scales = bias_scales(rule, input_scale, weights)
        assert scales.tolist() == (torch.from_numpy(weights) * input_scale).tolist()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if per_channel:
                points = torch.zeros(channels, dtype=torch.int32)
                made = torch.quantize_per_channel(
                    torch.from_numpy(values), torch.from_numpy(scales), points, 0, torch.qint32
                )
            else:
                made = torch.quantize_per_tensor(torch.from_numpy(values), float(scales[0]), 0, torch.qint32)
        assert quantize_bias(rule, values, scales).values.tolist() == made.int_repr().tolist()
        compared += channels
    record(systems.TORCH, [bias("torch")], compared)
    assert compared == 10_000
