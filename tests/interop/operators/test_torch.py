"""torch's operators beside torch itself: dtypes, bounds, shapes, channels, special values, real types of the result."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from requant.description import TensorValue, Value
from tests.interop.conformance import systems
from tests.interop.operators.counting import Tally
from tests.interop.operators.torch_tensors import (
    BOUNDS,
    DECOMPOSED,
    REALS,
    SCALES,
    SHAPES,
    bits,
    limits,
    ours_of,
    point,
    reals,
    same,
    stored,
    torch,
)
from tests.interop.torch_version import VERSION
from tests.support.operator_calls import run, tensor

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore:torch.quantize_per:UserWarning")]

EAGER = ("quantize_per_tensor", "quantize_per_channel")
"""The operators with an implementation for each version."""


@dataclass
class Case:
    """One call: operands as torch's tensors, attributes by torch's names."""

    operator: str
    inputs: dict[str, Any]
    attributes: dict[str, Value] = field(default_factory=dict)

    def __str__(self) -> str:
        shown = {name: f"{each.dtype}{list(each.shape)}" for name, each in self.inputs.items()}
        return f"{self.operator} {shown} {self.attributes}"


def channels(count: int, dtype: str, rng: np.random.Generator, index: str = "int64") -> dict[str, Any]:
    scales = rng.choice(SCALES, count).astype(np.float32)
    points = np.array([point(dtype, rng) for _ in range(count)])
    return {"scales": torch.from_numpy(scales), "zero_points": torch.from_numpy(points.astype(index))}


def cases(rng: np.random.Generator) -> Iterator[Case]:
    wide = ((80,), (4, 20))
    for dtype, scale, shape in itertools.product(("quint8", "qint8", "qint32"), SCALES, (*SHAPES, *wide)):
        plain = dtype.removeprefix("q")
        attributes: dict[str, Value] = {"dtype": dtype}
        one: dict[str, Value] = {"scale": scale, "zero_point": point(plain, rng)}
        yield Case("quantize_per_tensor", {"input": reals(shape, "float32", rng)}, {**attributes, **one})
        if shape:
            axis = int(rng.integers(len(shape)))
            inputs = {"input": reals(shape, "float32", rng), **channels(shape[axis], plain, rng)}
            if axis:
                inputs["scales"] = inputs["scales"].double() * (1 + 1e-12)
            yield Case("quantize_per_channel", inputs, {**attributes, "axis": axis})
    for dtype, real, scale, shape, narrow in itertools.product(
        BOUNDS, REALS, SCALES[::2], (*SHAPES[1:], *wide), (False, True)
    ):
        attributes = {"dtype": dtype, **limits(dtype, narrow, rng)}
        one = {"scale": scale, "zero_point": point(dtype, rng)}
        x, q, axis = reals(shape, real, rng), stored(shape, dtype, rng), int(rng.integers(len(shape)))
        single = {
            "scale": torch.tensor(scale, dtype=torch.float32 if narrow else torch.float64),
            "zero_point": torch.tensor(one["zero_point"]),
        }
        many = channels(shape[axis], dtype, rng, "int32" if narrow else "int64")
        out: dict[str, Value] = {"out_dtype": real}
        yield Case(f"{DECOMPOSED}quantize_per_tensor", {"input": x}, {**attributes, **one})
        yield Case(f"{DECOMPOSED}quantize_per_tensor.tensor", {"input": x, **single}, attributes)
        yield Case(f"{DECOMPOSED}quantize_per_channel", {"input": x, **many}, {**attributes, "axis": axis})
        yield Case(f"{DECOMPOSED}dequantize_per_tensor", {"input": q}, {**attributes, **one, **out})
        yield Case(f"{DECOMPOSED}dequantize_per_tensor.tensor", {"input": q, **single}, {**attributes, **out})
        yield Case(f"{DECOMPOSED}dequantize_per_channel", {"input": q, **many}, {**attributes, "axis": axis, **out})
    for (lowest, highest), scale, shape in itertools.product(
        ((0, 255), (-128, 127), (-8, 7)), SCALES, (*SHAPES, *wide)
    ):
        bounds: dict[str, Value] = {"quant_min": lowest, "quant_max": highest}
        x = reals(shape, "float32", rng)
        one = {"scale": scale, "zero_point": int(rng.integers(lowest, highest + 1))}
        yield Case("fake_quantize_per_tensor_affine", {"input": x}, {**bounds, **one})
        if shape and shape != (0,):  # torch takes the least zero point, of which there has to be one
            axis = len(shape) - 1 - int(rng.integers(len(shape) if 0 not in shape else 1))
            points = torch.from_numpy(rng.integers(lowest, highest + 1, shape[axis]).astype(np.int32))
            many = {**channels(shape[axis], "int8", rng), "zero_points": points}
            yield Case("fake_quantize_per_channel_affine", {"input": x, **many}, {**bounds, "axis": axis})


def test_dequantize() -> None:
    """Tensors with their scales: per tensor and per channel, out of stored numbers."""
    tally, rng = Tally(systems.TORCH), np.random.default_rng(32)
    for (dtype, element), shape in itertools.product((("uint8", "u8"), ("int8", "i8"), ("int32", "i32")), SHAPES[1:]):
        for scale in SCALES:
            q, zero = stored(shape, dtype, rng), point(dtype, rng)
            made = torch._make_per_tensor_quantized_tensor(q, scale, zero)
            text = f"!quant.uniform<{element}:f32, {scale:.17e}:{zero}>"
            found = run("torch.dequantize", {"input": tensor(text, q.numpy())})["output"]
            tally.add("torch.dequantize", 1, same(found, bits(made.dequantize())), f"{text} {shape}", found.size)
        axis = int(rng.integers(len(shape)))
        if not shape[axis]:
            continue  # a type has a scale at least
        many = channels(shape[axis], dtype, rng)
        made = torch._make_per_channel_quantized_tensor(q, many["scales"].double(), many["zero_points"], axis)
        pairs = zip(many["scales"].tolist(), many["zero_points"].tolist(), strict=True)
        listed = ", ".join(f"{scale:.17e}:{zero}" for scale, zero in pairs)
        text = f"!quant.uniform<{element}:f32:{axis}, {{{listed}}}>"
        found = run("torch.dequantize", {"input": tensor(text, q.numpy())})["output"]
        tally.add("torch.dequantize", 1, same(found, bits(made.dequantize())), f"{text} {shape}", found.size)
    tally.finish(100)


def theirs(case: Case) -> Any:
    operands, given = case.inputs, dict(case.attributes)
    for name in ("dtype", "out_dtype"):
        if name in given:
            given[name] = getattr(torch, str(given[name]))
    x = operands["input"]
    rest = [each for name, each in operands.items() if name != "input"]
    if case.operator.startswith(DECOMPOSED):
        name, _, overload = case.operator.removeprefix(DECOMPOSED).partition(".")
        called = getattr(getattr(torch.ops.quantized_decomposed, name), overload or "default")
        return called(x, *rest, **given)
    found = getattr(torch, case.operator)
    if case.operator == "quantize_per_tensor":
        return found(x, given["scale"], given["zero_point"], given["dtype"]).int_repr()
    if case.operator == "quantize_per_channel":
        return found(x, *rest, given["axis"], given["dtype"]).int_repr()
    if case.operator == "fake_quantize_per_tensor_affine":
        return found(x, given["scale"], given["zero_point"], given["quant_min"], given["quant_max"])
    return found(x, *rest, given["axis"], given["quant_min"], given["quant_max"])


def test_the_operators() -> None:
    tally = Tally(systems.TORCH)
    for case in cases(np.random.default_rng(31)):
        inputs: Mapping[str, TensorValue] = {name: ours_of(each) for name, each in case.inputs.items()}
        implementation = VERSION if case.operator in EAGER else ""
        found = run(f"torch.{case.operator}", dict(inputs), case.attributes, implementation=implementation)["output"]
        expected = bits(theirs(case))
        shown = f"{case}: ours {found.ravel()[:20]}, theirs {expected.ravel()[:20]}"
        tally.add(f"torch.{case.operator}", 1, same(found, expected), shown, found.size)
    tally.finish(4500)
