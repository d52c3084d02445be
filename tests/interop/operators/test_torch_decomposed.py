"""torch.ops.quantized_decomposed per token and group, with tensors as bounds, and the choice of parameters."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from requant.description import Value
from requant.operators.registry import operator_named
from tests.interop.conformance import systems
from tests.interop.operators.counting import Tally
from tests.interop.operators.torch_tensors import (
    BOUNDS,
    DECOMPOSED,
    REALS,
    SCALES,
    bits,
    limits,
    ours_of,
    point,
    reals,
    same,
    stored,
    torch,
)
from tests.support.operator_calls import run

pytestmark = pytest.mark.interop

Call = tuple[str, dict[str, Any], dict[str, Value]]

TINY = 1e-40
LOWEST, HIGHEST = -(2**31), 2**31 - 1


def rows(count: int, dtype: str, scale: str, index: str, rng: np.random.Generator) -> dict[str, Any]:
    """Scales and zero points; those of floats are between integers too, and one of int32 may make a difference wrap."""
    scales = rng.choice([*SCALES, TINY], count).astype(scale)
    points = np.array([point(dtype, rng) for _ in range(count)]).astype(index)
    if index == "float32":
        points += rng.choice([0, 0.5, 0.3], count).astype(np.float32)
    elif count and dtype == "int32":
        points[0] = HIGHEST
    return {"scales": torch.from_numpy(scales), "zero_points": torch.from_numpy(points)}


def shaped(parameters: dict[str, Any], *shape: int) -> dict[str, Any]:
    return {name: each.reshape(shape) for name, each in parameters.items()}


def without_nan(x: Any) -> Any:
    return torch.where(torch.isnan(x), torch.ones_like(x), x)


def row_calls(rng: np.random.Generator) -> Iterator[Call]:
    grid = itertools.product(
        BOUNDS, REALS, ("float32", "float64"), ("int32", "int64", "float32"), (False, True), range(4)
    )
    for dtype, real, scale, index, narrow, case in grid:
        attributes: dict[str, Value] = {"dtype": dtype, **limits(dtype, narrow, rng)}
        shape = ((20,), (4, 20), (2, 3, 13), (0, 5))[case]
        tokens = shaped(rows(int(np.prod(shape[:-1])), dtype, scale, index, rng), *shape[:-1], 1)
        x, q = reals(shape, real, rng), stored(shape, dtype, rng)
        yield "quantize_per_token", {"input": x, **tokens}, attributes
        yield "dequantize_per_token", {"input": q, **tokens}, {**attributes, "output_dtype": real}
        channels, length, size = ((4, 20, 5), (2, 32, 32), (3, 16, 128), (1, 80, 2))[case]
        groups = rows(channels * max(1, length // size), dtype, scale, index, rng)
        groups = shaped(groups, channels, -1) if case else groups
        grouped = {**attributes, "group_size": size}
        x, q = without_nan(reals((channels, length), real, rng)), stored((channels, length), dtype, rng)
        yield "quantize_per_channel_group", {"input": x, **groups}, grouped
        if narrow and index == "int32":
            del groups["zero_points"]
        yield "dequantize_per_channel_group", {"input": q, **groups}, {**grouped, "output_dtype": real}


def bound_calls(rng: np.random.Generator) -> Iterator[Call]:
    for dtype, real, scale, shape, narrow in itertools.product(
        BOUNDS, REALS, SCALES[::2], ((7,), (4, 20), (0,)), (False, True)
    ):
        single = {
            "scale": torch.tensor(scale, dtype=torch.float32 if narrow else torch.float64),
            "zero_point": torch.tensor([point(dtype, rng)]),
            **{name: torch.tensor(value) for name, value in limits(dtype, narrow, rng).items()},
        }
        yield "quantize_per_tensor.tensor2", {"input": reals(shape, real, rng), **single}, {"dtype": dtype}
        attributes: dict[str, Value] = {"dtype": dtype, "out_dtype": real}
        yield "dequantize_per_tensor.tensor2", {"input": stored(shape, dtype, rng), **single}, attributes


def ranged(shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """Numbers of one magnitude, all above 0, below it, or of both signs; zeros, and such as make the scale tiny."""
    found = rng.normal(rng.choice([0, 3, -3, 1, -1]), 1, shape) * 10.0 ** rng.integers(-9, 9)
    return torch.from_numpy(np.asarray(found * rng.choice([0, 1, 1, 1, 1]), np.float32))


def choosing_calls(rng: np.random.Generator) -> Iterator[Call]:
    for dtype, narrow, repeat in itertools.product(BOUNDS, (False, True), range(60)):
        lowest, highest = BOUNDS[dtype]
        if narrow:
            lowest, highest = max(lowest, -int(rng.integers(100))), min(highest, int(rng.integers(1, 100)))
        attributes: dict[str, Value] = {"quant_min": lowest, "quant_max": highest, "dtype": dtype}
        attributes["eps"] = (2.0**-23, 1e-5, 0.1, 1e-30)[repeat % 4]
        x = {"input": ranged(((), (1,), (9,), (3, 5))[repeat // 4 % 4], rng)}
        yield "choose_qparams.tensor", x, attributes
        yield "choose_qparams_symmetric.tensor", x, attributes
    for shape, _ in itertools.product(((1,), (9,), (4, 6), (2, 3, 5), (0, 3)), range(60)):
        x = {"input": torch.concatenate([ranged((1, *shape[1:]), rng) for _ in range(shape[0])]).reshape(shape)
             if len(shape) > 1 and shape[0] else ranged(shape, rng)}  # fmt: skip
        yield "choose_qparams_per_token", x, {"dtype": "int8"}
        yield "choose_qparams_per_token_asymmetric", x, {"dtype": "int8"}
        half = {"input": torch.clamp(x["input"], -6e4, 6e4).half()}
        yield "choose_qparams_per_token", half, {"dtype": "int8"}


def fake_calls(rng: np.random.Generator) -> Iterator[Call]:
    for (lowest, highest), shape, wide, _ in itertools.product(
        ((0, 255), (-128, 127), (-8, 7), (LOWEST, HIGHEST)), ((7,), (4, 20), (2, 5, 8), (0, 3)), (False, True), range(8)
    ):
        axis = int(rng.integers(len(shape)))
        parameters = rows(shape[axis], "int8", "float64" if wide else "float32", "int64" if wide else "int32", rng)
        if wide:
            parameters["zero_points"] *= 1000
        attributes: dict[str, Value] = {"axis": axis, "quant_min": lowest, "quant_max": highest}
        yield "fake_quant_per_channel", {"input": reals(shape, "float32", rng), **parameters}, attributes


def casts(rng: np.random.Generator) -> Iterator[Call]:
    floats, integers = (*REALS, "float64"), (*BOUNDS, "int64")
    for dtype, _ in itertools.product((*floats, *integers), range(4)):
        attributes: dict[str, Value] = {"dtype": dtype}
        for real in REALS:
            x = reals((80,), real, rng)
            if dtype in integers:  # of those that every integer type holds
                x = torch.from_numpy(rng.uniform(0 if dtype == "uint8" else -127, 127, 80)).to(getattr(torch, real))
            yield "convert_element_type.no_fuse", {"input": x}, attributes
        wide = torch.from_numpy(rng.uniform(0, 127, 80) * (2.0 ** rng.integers(-150, 140) if dtype in floats else 1))
        yield "convert_element_type.no_fuse", {"input": wide}, attributes
        for stored_type in BOUNDS:
            yield "convert_element_type.no_fuse", {"input": stored((4, 20), stored_type, rng)}, attributes
        longest = rng.integers(-(2**63), 2**63 - 1, 80) >> rng.integers(0, 63, 80)
        yield "convert_element_type.no_fuse", {"input": torch.from_numpy(longest)}, attributes


def theirs(name: str, inputs: dict[str, Any], attributes: dict[str, Value]) -> list[Any]:
    """Operands in their order, and attributes by name."""
    operator = operator_named(f"torch.{DECOMPOSED}{name}")
    operands = [inputs.get(each.name) for each in operator.inputs]
    given = {key: getattr(torch, value) if isinstance(value, str) else value for key, value in attributes.items()}
    packet, _, overload = name.partition(".")
    called = getattr(getattr(torch.ops.quantized_decomposed, packet), overload or "default")
    names = [argument.name for argument in called._schema.arguments]
    given |= dict(zip([each for each in names if each not in given], operands, strict=False))
    found = called(**given)
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.parametrize(
    ("calls", "least"), [(row_calls, 2300), (bound_calls, 550), (choosing_calls, 1800), (fake_calls, 250), (casts, 320)]
)
def test_beside_torch(calls: Any, least: int) -> None:
    tally = Tally(systems.TORCH)
    for name, inputs, attributes in calls(np.random.default_rng(33)):
        found = run(
            f"torch.{DECOMPOSED}{name}", {key: ours_of(each) for key, each in inputs.items()}, attributes
        ).values()
        expected = [bits(each) for each in theirs(name, inputs, attributes)]
        equal = all(same(ours, other) for ours, other in zip(found, expected, strict=True))
        shown = f"{name} {inputs} {attributes}: {list(found)}, {expected}"
        tally.add(f"torch.{DECOMPOSED}{name}", 1, equal, shown, sum(each.size for each in expected))
    tally.finish(least)
