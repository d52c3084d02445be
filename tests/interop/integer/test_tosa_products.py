"""matmul and conv2d of the profiles `tosa` and `tosa_double_round` on TOSA's reference model.

MATMUL, CONV2D or DEPTHWISE_CONV2D and RESCALE are one graph. Multipliers are the oracle's (tests/oracles). The sums
reach both ends of what RESCALE takes and of the accumulator; beyond the accumulator the model wraps in int32 and loses
nothing in 48 bits, TOSA leaves the result undefined, and we refuse.
"""

from __future__ import annotations

import numpy as np
import pytest

from requant.errors import PreconditionError
from requant.integer.conv2d import Window as OurWindow
from requant.integer.conv2d import plan_conv2d
from requant.integer.matmul import plan_matmul
from requant.integer.product import ProductPlan
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import Subject, scheme
from tests.interop.conformance.subject import profile as row
from tests.interop.integer.quantized_tensors import DTYPES, Array, Quantized, per_axis, per_tensor, run_product, tensor
from tests.interop.seed_of_the_day import generator

pytest.importorskip("tosa_serializer")
pytest.importorskip("tosa_reference_model")

from tests.interop.integer import tosa_graphs
from tests.interop.integer.tosa_graphs import (
    ROUNDINGS,
    WIDE,
    Window,
    numbers,
    ours,
    output_of,
    per_sums,
    rescale_of,
    windows,
    zero_point,
)
from tests.interop.tosa_model import Verdict

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("no_debugger")]

CASES = 60


def subjects(profile: str, operation: str, accumulator: str) -> list[Subject]:
    """The rows of a comparison. Sums of 48 bits have no scale32, and one rounding in both profiles."""
    return [row(profile, operation), scheme("tosa_scale16" if accumulator == WIDE else profile)]


def scale(rng: np.random.Generator) -> float:
    """A power of two, whose products have ties, or any."""
    return float(np.float32(2.0 ** rng.integers(-7, 0) if rng.random() < 0.5 else rng.uniform(0.004, 0.9)))


def weights_of(rng: np.random.Generator, storage: str, count: int, axis: int, zero_point: int) -> Quantized:
    """Weights with one scale or, where `count` is more, one for each index of an axis."""
    if count == 1:
        return per_tensor(storage, scale(rng), zero_point)
    scales = np.array([scale(rng) for _ in range(count)])
    return per_axis(storage, scales, axis, np.full(count, zero_point))


PRODUCTS = [("i8", "i8", "i8"), ("i8", "i8", "i16"), ("i8", "i8", "i32"), ("i16", "i16", "i16"), ("i16", "i16", "i8")]


@pytest.mark.parametrize(("of_a", "of_b", "of_y"), PRODUCTS)
@pytest.mark.parametrize("profile", ROUNDINGS)
def test_matmul(profile: str, of_a: str, of_b: str, of_y: str) -> None:
    """Batches, zero points of both sides, and per column scales."""
    rng = generator(401)
    accumulator = "i32" if of_a == "i8" else WIDE
    comparison = Comparison(
        f"TOSA reference model MATMUL, RESCALE {of_a} to {of_y}, {profile}",
        systems.TOSA,
        *subjects(profile, "matmul", accumulator),
    )
    saturated = np.zeros(2, np.int64)
    for index in range(CASES):
        batch = int(rng.integers(1, 4))
        rows, depth, columns = (int(size) for size in rng.integers(1, 40, 3))
        a_side = per_tensor(of_a, scale(rng), zero_point(rng, of_a))
        b_zero, count = zero_point(rng, of_b), columns if index % 2 else 1
        b_side = weights_of(rng, of_b, count, 2, b_zero)
        a, b = numbers(rng, a_side, batch, rows, depth), numbers(rng, b_side, batch, depth, columns)
        sums = np.matmul(a.astype(np.int64) - a_side.zero_points[0], b.astype(np.int64) - b_zero)
        y_side = output_of(rng, of_y, sums, per_sums((a_side, b_side)), accumulator)
        rescale = rescale_of(profile, sums.shape, accumulator, (a_side, b_side), y_side)
        verdict, theirs = tosa_graphs.matmul(a, b, (int(a_side.zero_points[0]), b_zero), rescale)
        assert verdict is Verdict.VALID, (index, rescale)
        assert theirs is not None
        plan = plan_matmul(a_side.tensor(*a.shape), b_side.tensor(*b.shape), y_side.element, profile)
        comparison.add((index, rescale), sums, run_product(plan, a, b), theirs)
        limits = np.iinfo(theirs.dtype)
        saturated += [np.count_nonzero(theirs == limits.min), np.count_nonzero(theirs == limits.max)]
    comparison.finish(20_000)
    assert saturated.min() > 100 or of_y == "i32", saturated


def accumulators(plan: ProductPlan, x: Array, w: Array, bias: Array) -> Array:
    """Our sums. They choose the output's scale, and nothing is compared with them."""
    target = np.empty(plan.elements, plan.output_dtype)
    plan.run(x.ravel(), w.ravel(), bias, target)
    return target.reshape(plan.accumulation.shape)


@pytest.mark.parametrize("depthwise", [False, True], ids=["CONV2D", "DEPTHWISE_CONV2D"])
@pytest.mark.parametrize(("of_x", "of_y"), [("i8", "i8"), ("i8", "i16"), ("i16", "i16"), ("i16", "i8")])
@pytest.mark.parametrize("profile", ROUNDINGS)
def test_conv2d(profile: str, of_x: str, of_y: str, depthwise: bool) -> None:
    """Weights of 8 bits with a zero point, one scale or one for each output channel; a bias as wide as the sums."""
    rng = generator(402, depthwise)
    accumulator, of_bias = ("i32", "i32") if of_x == "i8" else (WIDE, "i64")
    operator = "DEPTHWISE_CONV2D" if depthwise else "CONV2D"
    comparison = Comparison(
        f"TOSA reference model {operator}, RESCALE {of_x} to {of_y}, {profile}",
        systems.TOSA,
        *subjects(profile, "conv2d", accumulator),
    )
    for index in range(CASES):
        height, width = (int(size) for size in rng.integers(4, 14, 2))
        kernel = int(rng.integers(1, 4)), int(rng.integers(1, 4))
        channels, outputs = int(rng.integers(1, 7)), int(rng.integers(2, 9))
        multiples = int(rng.integers(1, 4))
        if depthwise:
            outputs = channels * multiples
        window = windows(rng, (height, width), kernel, depthwise=depthwise)
        x_side = per_tensor(of_x, scale(rng), zero_point(rng, of_x))
        w_zero = zero_point(rng, "i8")
        w_side = weights_of(rng, "i8", outputs if index % 2 else 1, 3 if depthwise else 0, w_zero)
        x = numbers(rng, x_side, int(rng.integers(1, 3)), height, width, channels)
        w_shape = (1, *kernel, outputs) if depthwise else (outputs, *kernel, channels)
        w = numbers(rng, w_side, *w_shape)
        reach = 1 << int(rng.integers(4, 24 if of_x == "i8" else 40))
        bias = rng.integers(-reach, reach, outputs).astype(DTYPES[of_bias])
        used, bias_type = ours(window, channels if depthwise else 1), tensor(f"{outputs}x{of_bias}")
        types = x_side.tensor(*x.shape), w_side.tensor(*w.shape)
        plain = plan_conv2d(*types, tensor(f"1x{of_bias}").element, profile, window=used, bias=bias_type)
        sums = accumulators(plain, x, w, bias)
        y_side = output_of(rng, of_y, sums, per_sums((x_side, w_side)), accumulator)
        rescale = rescale_of(profile, sums.shape, accumulator, (x_side, w_side), y_side)
        given = w.reshape(*kernel, channels, multiples) if depthwise else w
        zeros = int(x_side.zero_points[0]), w_zero
        verdict, theirs = tosa_graphs.conv2d(x, given, bias, zeros, window, rescale)
        assert verdict is Verdict.VALID, (index, rescale)
        assert theirs is not None
        plan = plan_conv2d(*types, y_side.element, profile, window=used, bias=bias_type)
        comparison.add((index, window, rescale), sums, run_product(plan, x, w, bias), theirs)
    comparison.finish(8_000)


def bounds_of_sums(accumulator: str, shift: int) -> tuple[int, int]:
    """The lowest and highest sum that RESCALE takes and the accumulator holds."""
    bits = 47 if accumulator == WIDE else min(31, shift - 1)
    return -(1 << bits), (1 << bits) - 1


@pytest.mark.parametrize("of_x", ["i8", "i16"])
@pytest.mark.parametrize("profile", ROUNDINGS)
def test_sums_at_the_bounds(profile: str, of_x: str) -> None:
    """At the last sum that is allowed and beside it: equal within, refused by us beyond.

    Beyond what RESCALE takes, the model calls the graph unpredictable. Beyond the accumulator it says nothing.
    """
    rng = generator(403)
    accumulator, of_bias = ("i32", "i32") if of_x == "i8" else (WIDE, "i64")
    comparison = Comparison(
        f"TOSA reference model CONV2D, RESCALE of sums at the bounds, {of_x}, {profile}",
        systems.TOSA,
        *subjects(profile, "conv2d", accumulator),
    )
    refused, held = 0, 31 if accumulator == "i32" else 47
    for exponent in (0, -1, -2, -3, -10, -17, -30):
        if accumulator == WIDE and exponent > -17:
            continue
        for fraction in (0.75, 0.5, float(rng.uniform(0.5, 1))):
            factor = float(np.float32(fraction)) * 2.0**exponent
            for of_y in ("i8", "i16", "i32"):
                sides = per_tensor(of_x, factor), per_tensor("i8", 1.0)
                y_side = per_tensor(of_y, 1.0, int(rng.integers(-128, 128)) if of_y == "i8" else 0)
                one = rescale_of(profile, (1, 1, 1, 1), accumulator, sides, y_side)
                for end, inward in zip(bounds_of_sums(accumulator, one.shift[0]), (1, -1), strict=True):
                    for beside in (3, 1, 0, -1):
                        wanted = end + inward * beside
                        x, w = (np.array(each).reshape(1, 1, 1, 1) for each in (-inward * 100, 100))
                        x, w = x.astype(DTYPES[of_x]), w.astype(np.int8)
                        bias = np.array([wanted + inward * 10_000], DTYPES[of_bias])
                        plan = plan_conv2d(sides[0].tensor(1, 1, 1, 1), sides[1].tensor(1, 1, 1, 1), y_side.element,
                                           profile, window=OurWindow(), bias=tensor(f"1x{of_bias}"))  # fmt: skip
                        verdict, theirs = tosa_graphs.conv2d(x, w, bias, (0, 0), Window(), one)
                        if beside >= 0:
                            assert theirs is not None, (one, wanted, verdict)
                            comparison.add((one, wanted), bias.reshape(x.shape), run_product(plan, x, w, bias), theirs)
                            continue
                        beyond_accumulator = not -(1 << held) <= wanted < 1 << held
                        expected = Verdict.VALID if beyond_accumulator else Verdict.UNPREDICTABLE
                        assert verdict is expected, (one, wanted)
                        with pytest.raises(PreconditionError):
                            run_product(plan, x, w, bias)
                        refused += 1
                        if beyond_accumulator:
                            comparison.leave_out("tosa_accumulator_overflow", 1)
    comparison.finish(50)
    assert refused > 30
