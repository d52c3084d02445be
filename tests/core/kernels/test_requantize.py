"""The kernels of requantize that check no element: long tensors, in every layout and storage, against the oracle.

Long enough for the loops over whole blocks, with ends that are no whole vector, and with spans of the tensor in which
nothing saturates between those in which something does.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from requant.convert.requantize import plan_requantize
from requant.convert.scaling import ScalingPlan, common_granularity, plan_scaling
from requant.kernels.convert.requantize.fixed_point import requantize_by_multiplier
from requant.kernels.convert.requantize.general import REQUANTIZE_ANY, REQUANTIZE_FLOAT_ANY
from requant.kernels.convert.requantize.real_factor import REQUANTIZE_F32, REQUANTIZE_F64
from requant.kernels.jit.jit import Kernel
from requant.mlir import parse_type
from requant.mlir.types import TensorType
from requant.plan.operands import integer_operand
from requant.plan.plan import Array
from requant.schemes import SCHEMES, FixedPoint, Multiplier
from tests.oracles import schemes as scheme_oracle
from tests.oracles.scaling import BOUNDS, Scaling, check
from tests.support.cases import EXHAUSTIVE, sample
from tests.support.drawn_types import tensor
from tests.support.near_ties import near_ties

FAST = [kernel.compiled() for kernel in (requantize_by_multiplier, REQUANTIZE_F32, REQUANTIZE_F64)]
SIZE = 3 * 4096 + 77
FACTORS = (0.125, 0.0123, 0.35, 3e-5)
"""Of which the first has ties in floats too."""


def flat(size: int, element: str) -> TensorType:
    return tensor(f"tensor<{size}x{element}>")


def uniform(storage: str, zero_point: int) -> str:
    return f"!quant.uniform<{storage}:f32, 1.0:{zero_point}>"


def pairs_of(scheme: str) -> list[scheme_oracle.Derived]:
    found = [scheme_oracle.derive(scheme, factor) for factor in FACTORS]
    return [pair for pair in found if pair is not None]


def numbers_for(oracles: list[Scaling], pairs: list[scheme_oracle.Derived], source: str, size: int) -> Array:
    """Numbers at ties, at bounds and anywhere; in the second 4096 none that saturates."""
    rng = np.random.default_rng(21)
    bounds = BOUNDS[source]
    pool = [v for pair in pairs for v in near_ties(rng, pair.multiplier, pair.right, 60, bounds)]
    pool += rng.integers(*bounds, 100, endpoint=True).tolist()
    pool = [v for v in pool if all(oracle.of(v)[0] is not None for oracle in oracles)]
    inside = [v for v in pool if all(oracle.of(v)[1] == 0 for oracle in oracles)]
    numbers = rng.choice(pool, size)
    numbers[4096:8192] = rng.choice(inside, 4096)
    return numbers


SIDES = [
    ("i32", "i8", 0),
    ("i32", "u8", 0),
    ("i32", "i16", 7),
    ("i32", "i32", 0),
    ("i16", "u8", -3),
    ("u16", "i8", 900),
    ("i8", "i16", 5),
    ("u8", "i4", 128),
]


ONLY_GENERAL = {"vnclip_rne", "vnclip_rdn", "vnclip_rod"}
"""Schemes whose rounding the fast kernels do not have."""


@pytest.mark.parametrize(("scheme", "source", "target", "z_in"), sample([(s, *t) for t in SIDES for s in SCHEMES], 43))
def test_long_tensor(scheme: str, source: str, target: str, z_in: int) -> None:
    for pair in pairs_of(scheme)[:2]:
        oracle = Scaling(scheme, pair, z_in, 3, target)
        numbers = numbers_for([oracle], [pair], source, SIZE)
        plan = plan_requantize(
            tensor(f"tensor<{SIZE}x{uniform(source, z_in)}>"),
            parse_type(uniform(target, 3)),
            multipliers=[Multiplier(pair.multiplier, pair.shift)],
            scheme=scheme,
        )
        assert isinstance(plan, ScalingPlan)
        # Not every scheme is defined for all of i32, nor xnnpack_cvt8 for 16 bits.
        assert plan.kernel in FAST or source == "i32" or scheme == "xnnpack_cvt8" or scheme in ONLY_GENERAL
        check(plan, numbers, [oracle], np.zeros(SIZE, int))


SHAPES = [((283, 44), 1), ((44, 283), 0), ((4, 70, 45), 1), ((3, 4171), 0)]


@pytest.mark.parametrize(("scheme", "shape", "axis"), sample([(s, *t) for t in SHAPES for s in SCHEMES], 21))
def test_long_tensor_with_channels(scheme: str, shape: tuple[int, ...], axis: int) -> None:
    """Rows of one parameter each, and cycles of parameters."""
    pairs = pairs_of(scheme)
    channels = shape[axis]
    listed = [pairs[index % len(pairs)] for index in range(channels)]
    oracles = [Scaling(scheme, pair, 0, -3, "i8") for pair in pairs]
    size = math.prod(shape)
    numbers = numbers_for(oracles, pairs, "i16", size)
    index = np.arange(channels).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    channel = np.broadcast_to(index, shape).ravel() % len(pairs)
    plan = plan_requantize(
        tensor(f"tensor<{'x'.join(map(str, shape))}xi16>"),
        parse_type(uniform("i8", -3)),
        multipliers=[Multiplier(pair.multiplier, pair.shift) for pair in listed],
        scheme=scheme,
        axis=axis,
    )
    assert isinstance(plan, ScalingPlan)
    assert plan.kernel in FAST or scheme == "xnnpack_cvt8" or scheme in ONLY_GENERAL
    check(plan, numbers, oracles, channel)


@pytest.mark.parametrize("scheme", ["litert", "xnnpack_fp32", "litert_float"])
@pytest.mark.parametrize("z_out", [-5, 16_383, 16_384, 32_700, -32_700, 70_000])
def test_zero_points_that_no_type_has(scheme: str, z_out: int) -> None:
    """Sums are made in 16 bits only where the zero point leaves room for the bounds."""
    (pair, *_) = pairs_of(scheme)
    rng = np.random.default_rng(22)
    near = rng.integers(-300, 300, 2000) - z_out
    numbers = np.concatenate([near * 8, rng.integers(-(2**31), 2**31, 2000), rng.integers(-(2**19), 2**19, 2077)])
    oracle = Scaling(scheme, pair, 0, z_out, "i8")
    source, target = integer_operand(flat(numbers.size, "i32"), "in"), integer_operand(flat(numbers.size, "i8"), "out")
    whole = (numbers.size,)
    plan = plan_scaling(
        SCHEMES[scheme],
        source,
        replace(target, zero_points=(z_out,)),
        common_granularity(whole, (whole, 1), (whole, 1)),
        [Multiplier(pair.multiplier, pair.shift)],
        profile="litert",
    )
    assert plan.kernel in FAST
    check(plan, numbers, [oracle], np.zeros(numbers.size, int))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("z_out", [-128, 127])
def test_sums_beside_the_bounds_of_int32(scheme: str, z_out: int) -> None:
    """y within a zero point of -2^31 and 2^31 - 1: the sum wraps, saturates or is not defined. By a factor of 100."""
    pair = scheme_oracle.derive(scheme, 100.0)
    if pair is None:
        pytest.skip("the scheme has no such multiplier")
    oracle = Scaling(scheme, pair, 0, z_out, "i8")
    ends = [round(end / 100) + offset for end in (-(2**31), 2**31) for offset in range(-6, 7)]
    numbers = np.array([v for v in ends if oracle.of(v)[0] is not None], np.int64)
    if not numbers.size:
        pytest.skip("the scheme is not defined there")
    plan = plan_requantize(
        tensor(f"tensor<{numbers.size}x{uniform('i32', 0)}>"),
        parse_type(uniform("i8", z_out)),
        multipliers=[Multiplier(pair.multiplier, pair.shift)],
        scheme=scheme,
    )
    check(plan, numbers, [oracle], np.zeros(numbers.size, int))


@pytest.mark.parametrize("scheme", ["xnnpack_fp32", "onnxruntime", "onnx_reference", "stablehlo", "fbgemm"])
@pytest.mark.parametrize("target", ["i8", "i16"])
def test_products_far_beyond_int32(scheme: str, target: str) -> None:
    pair = scheme_oracle.derive(scheme, 100.25)
    assert pair is not None
    oracle = Scaling(scheme, pair, 0, 3, target)
    numbers = np.random.default_rng(23).integers(-(2**31), 2**31, 1000)
    plan = plan_requantize(
        tensor(f"tensor<1000x{uniform('i32', 0)}>"),
        parse_type(uniform(target, 3)),
        multipliers=[Multiplier(pair.multiplier, pair.shift)],
        scheme=scheme,
    )
    assert isinstance(plan, ScalingPlan)
    assert plan.kernel in FAST
    check(plan, numbers, [oracle], np.zeros(1000, int))


RULES = {
    "litert", "arm_vector", "litert_single_rounding", "xnnpack_rndna", "tosa_double_round", "vnclip_rnu", *ONLY_GENERAL,
}  # fmt: skip


@pytest.mark.sample(5)
@pytest.mark.parametrize("rule", sorted(RULES))
@pytest.mark.parametrize("storage", ["i32", "i16"])
def test_all_shifts(rule: str, storage: str) -> None:
    """Every shift of a scheme of each rule, multipliers at both ends, numbers up to the bounds of the storage."""
    scheme = SCHEMES[rule]
    assert len({stage.rule for name in RULES if isinstance(stage := SCHEMES[name].stage, FixedPoint)}) == 8
    fast = 0
    low, high = scheme.multipliers
    for shift in sample(range(scheme.shifts[0], scheme.shifts[1] + 1), 12):
        right = scheme.right_shift(shift)
        for m in {max(0, low), 1, high // 2 + 1, high - 1, high, 0x5A5A5A5A % high}:
            pair = scheme_oracle.Derived(m, shift, right)
            oracle = Scaling(rule, pair, 0, 3, "i32")
            rng = np.random.default_rng(shift + 100)
            values = [v for v in near_ties(rng, m, right, 96, BOUNDS[storage], 1 << 20) if oracle.of(v)[0] is not None]
            plan = plan_requantize(
                tensor(f"tensor<{len(values)}x{uniform(storage, 0)}>"),
                parse_type(uniform("i32", 3)),
                multipliers=[Multiplier(m, shift)],
                scheme=rule,
            )
            assert isinstance(plan, ScalingPlan)
            fast += plan.kernel is requantize_by_multiplier.compiled()
            check(plan, np.array(values), [oracle], np.zeros(len(values), int))
    assert fast == 0 if rule in ONLY_GENERAL else fast > (60 if EXHAUSTIVE else 15)


def test_what_is_not_proved_is_checked() -> None:
    """The kernel that is chosen: by the bounds of the storage, the multiplier and the zero points."""

    def taken(kernel: Kernel, source: str, m: int, shift: int, scheme: str = "litert", target: str = "i8") -> bool:
        plan = plan_requantize(
            tensor(f"tensor<4x{source}>"), parse_type(target), multipliers=[Multiplier(m, shift)], scheme=scheme
        )
        assert isinstance(plan, ScalingPlan)
        return plan.kernel is kernel.compiled()

    assert taken(requantize_by_multiplier, "i32", 1 << 30, 0)
    assert taken(REQUANTIZE_ANY, "i32", -(1 << 30), 0), "a multiplier below 0"
    assert taken(REQUANTIZE_ANY, "i32", 1 << 30, 1), "a shift to the left that wraps"
    assert taken(requantize_by_multiplier, "i16", 1 << 30, 1)
    assert taken(requantize_by_multiplier, "i16", 1 << 30, 16)
    assert taken(REQUANTIZE_ANY, "i16", 1 << 30, 17)
    assert taken(REQUANTIZE_ANY, "i32", (1 << 31) - 1, -31), "a half that reaches beyond int32"
    assert taken(REQUANTIZE_ANY, "i64", 1 << 30, 0)
    assert taken(REQUANTIZE_F32, "i32", 1 << 23, 30, "xnnpack_fp32")
    assert taken(REQUANTIZE_FLOAT_ANY, "i32", 1 << 23, 30, "xnnpack_fp32", "i32")
    assert taken(REQUANTIZE_F64, "i32", 1 << 23, 30, "litert_float", "i32")
