"""matmul, conv2d, add and cast of the profile `onednn` against graphs of the library.

Dequantize, MatMul or Convolution, and Quantize are one partition, which an int8 kernel computes. Dequantize, Add and
Quantize are not: the library makes a partition of each, and so they are run one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.integer.add import plan_add
from requant.integer.conv2d import WeightsLayout, Window, conv2d_integers, plan_conv2d
from requant.integer.matmul import plan_matmul
from requant.integer.product import ProductPlan
from tests.interop.casts.cast_data import narrowed, real_data, stored_data, widened
from tests.interop.comparison import Comparison
from tests.interop.conformance import systems
from tests.interop.conformance.subject import profile
from tests.interop.integer.quantized_tensors import Quantized, per_axis, per_tensor, run_product
from tests.interop.onednn.cases import NAMES, around, left_out
from tests.interop.onednn.graphs import KINDS, added, by_onednn
from tests.interop.onednn.library import DTYPES, EFFECTIVE, ENVIRONMENT, Onednn, OnednnError, Operator
from tests.interop.seed_of_the_day import generator

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not ENVIRONMENT.exists(), reason=f"there is no {ENVIRONMENT}"),
]

Array = NDArray[Any]

CASES = 60
PAIRS = [("u8", "u8"), ("u8", "i8"), ("i8", "i8"), ("i8", "u8")]


@pytest.fixture(scope="module", params=["AVX2", "AVX512_CORE_VNNI", "AVX512_CORE_BF16"])
def onednn(request: pytest.FixtureRequest) -> Iterator[Onednn]:
    with Onednn(request.param) as library:
        if library.isa != EFFECTIVE[request.param]:
            pytest.skip(f"the processor has no {request.param}")
        yield library


def adds_exactly(library: Onednn) -> bool:
    """Without VNNI, sums of two products of u8 and i8 saturate at 16 bits, and i8 become u8 first."""
    return library.setting != "AVX2"


def comparison_of(library: Onednn, title: str, operation: str) -> Comparison:
    return Comparison(
        f"oneDNN {title}, {library.setting}", systems.ONEDNN, profile("onednn", operation),
        isa=f"x86-64 with {library.setting}",
    )  # fmt: skip


def scale(rng: np.random.Generator) -> float:
    """A power of two, whose products have ties; one near 1, which may be left out; or any."""
    kinds = [2.0 ** rng.integers(-7, 0), float(rng.choice(around(1.0, 12))), rng.uniform(0.004, 0.9)]
    return float(np.float32(rng.choice(kinds, p=[0.4, 0.2, 0.4])))


def zero_point(rng: np.random.Generator, storage: str) -> int:
    limits = np.iinfo(DTYPES[KINDS[storage]])
    return int(rng.choice([0, limits.min, limits.max, int(rng.integers(limits.min, limits.max + 1))]))


def weights_side(rng: np.random.Generator, count: int, axis: int) -> Quantized:
    """Per channel the library takes no zero points."""
    if count == 1:
        return per_tensor("i8", scale(rng), int(rng.choice([0, 0, int(rng.integers(-20, 20))])))
    near = around(1.0, 6)
    scales = rng.choice(near, count) if rng.random() < 0.2 else np.array([scale(rng) for _ in range(count)])
    return per_axis("i8", scales, axis)


def weights(rng: np.random.Generator, exact: bool, *shape: int) -> Array:
    """All of 8 bits, or of 7 where those would saturate."""
    limit = 128 if exact else 64
    return rng.integers(-limit, limit, shape).astype(np.int8)


def output_side(rng: np.random.Generator, storage: str, sums: Array, per_sum: Array) -> Quantized:
    """An output whose bounds most sums lie within, or many do not on either side; a scale near 1 is left out."""
    if rng.random() < 0.1:
        return per_tensor(storage, float(rng.choice(around(1.0, 12))), zero_point(rng, storage))
    reach = max(float(np.abs(sums * per_sum).max()) / 127 * float(rng.choice([0.2, 0.9])), 1e-6)
    chosen = 2.0 ** np.ceil(np.log2(reach)) if rng.random() < 0.5 else reach
    return per_tensor(storage, float(np.float32(chosen)), zero_point(rng, storage))


def per_sums(lhs: Quantized, rhs: Quantized) -> Array:
    found: Array = lhs.scales.astype(np.float64) * rhs.scales.astype(np.float64)
    return found


def beside_ties(
    rng: np.random.Generator, sums: Array, lhs: Quantized, rhs: Quantized, output: Quantized
) -> tuple[Quantized, Quantized]:
    """`rhs` with scales that put a sum of each column within an ulp of a tie, and `output` with a small zero point.

    A large one is added in f32, where what is beside a tie becomes one.
    """
    of_lhs, of_output = float(lhs.scales[0]), float(output.scales[0])
    scales = rhs.scales.astype(np.float64)
    columns = sums.reshape(-1, sums.shape[-1]) if scales.size > 1 else sums.reshape(-1, 1)
    for column, old in enumerate(scales):
        found = abs(int(rng.choice(columns[:, column])))
        code = np.floor(found * of_lhs * old / of_output)
        if found and code < 128:
            scales[column] = (code + 0.5) * of_output / (found * of_lhs)
    return (
        Quantized(rhs.storage, scales.astype(np.float32), rhs.zero_points, rhs.axis),
        per_tensor(output.storage, of_output, int(rng.choice([0, 1, 3]))),
    )


def scales_in_turn(sums: Array, sides: tuple[Quantized, Quantized, Quantized], *, divide: bool) -> Array:
    """The output of kernels that multiply by one scale after the other, in f32: sum * s_lhs * s_rhs * f32(1 / s) + z.

    `divide`: / f32(1 / f32(1 / s)) for the last factor.
    """
    of_lhs, of_rhs, of_output = (np.ones_like(side.scales) if left_out(side.scales) else side.scales for side in sides)
    output = sides[2]
    reals = sums.astype(np.int32).astype(np.float32) * of_lhs * of_rhs
    inverse = np.float32(1) / of_output
    scaled = reals / (np.float32(1) / inverse) if divide else reals * inverse
    limits = np.iinfo(DTYPES[KINDS[output.storage]])
    codes = np.rint(scaled + output.zero_points.astype(np.float32))
    found: Array = np.clip(codes, limits.min, limits.max).astype(limits.dtype)
    return found


def compare(
    library: Onednn,
    comparison: Comparison,
    product: Operator,
    sides: tuple[Quantized, Quantized, Quantized],
    operands: tuple[Array, Array],
    sums: Array,
    plan: ProductPlan,
) -> int:
    """Add one product to the comparison. Return how many elements depend on the order of the scales.

    The profile has the order of kernels for AVX2. Where the library takes another kernel, every element must equal the
    order of that one: brgemm with AVX-512; with AVX2 its reference for some convolutions in groups.
    """
    theirs = by_onednn(library, product, sides, *operands)
    ours = run_product(plan, *operands)
    avx2 = library.setting == "AVX2"
    in_turn = scales_in_turn(sums, sides, divide=avx2)
    other_kernel = not avx2
    groups = product.attributes.get("groups", 1)
    if avx2 and groups > 1 and operands[1].shape[-2:] != (1, groups):
        other_kernel = bool(np.array_equal(theirs, in_turn))
    if other_kernel:
        np.testing.assert_array_equal(theirs, in_turn)
    masks = {"onednn_scales_in_turn": in_turn != ours} if other_kernel else {}
    comparison.add((product, *sides), sums, ours, theirs, masks)
    return int(np.count_nonzero(in_turn != ours))


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_matmul(onednn: Onednn, source: str, target: str) -> None:
    """Zero points of both sides, scales per tensor and per column, and sums above 2^24, which f32 rounds."""
    rng = generator(421)
    comparison = comparison_of(onednn, f"Dequantize, MatMul, Quantize {source} to {target}", "matmul")
    rounded = ordered = 0
    for index in range(CASES):
        rows, depth, columns = (int(size) for size in rng.integers(2, 50, 3))
        long = index % 6 == 0
        depth = 4000 if long else depth
        lhs = per_tensor(source, scale(rng), zero_point(rng, source))
        rhs = weights_side(rng, columns if index % 2 else 1, 1)
        x, w = lhs.data(rng, rows, depth), weights(rng, adds_exactly(onednn), depth, columns)
        if long:
            # All of one sign, so that the sums are large.
            lhs = per_tensor(source, float(lhs.scales[0]), int(np.iinfo(DTYPES[KINDS[source]]).min))
            x, w = np.maximum(x, np.array(100, x.dtype)), np.abs(w | 1)
        sums = (x.astype(np.int64) - lhs.zero_points[0]) @ (w.astype(np.int64) - rhs.zero_points[0])
        rounded += int(np.count_nonzero(sums != sums.astype(np.float32).astype(np.int64)))
        output = output_side(rng, target, sums, per_sums(lhs, rhs))
        if index % 4 > 1:
            rhs, output = beside_ties(rng, sums, lhs, rhs, output)
        product = Operator("MatMul", ("lhs_real", "rhs_real"), "real", "f32", sums.shape)
        plan = plan_matmul(lhs.tensor(*x.shape), rhs.tensor(*w.shape), output.element, "onednn")
        ordered += compare(onednn, comparison, product, (lhs, rhs, output), (x, w), sums, plan)
    if not adds_exactly(onednn):
        comparison.leave_out("onednn_saturated_pairs")
    comparison.finish(10_000)
    assert rounded > 500, rounded
    assert ordered


def test_sums_of_matmul_wrap(onednn: Onednn) -> None:
    """Sums beyond int32."""
    comparison = comparison_of(onednn, "Dequantize, MatMul, Quantize of sums beyond int32", "matmul")
    largest = 127 if adds_exactly(onednn) else 63
    for depth in (2**31 // (255 * largest) + extra for extra in (0, 1, 2, 5, 1000)):
        x, w = np.full((2, depth), 255, np.uint8), np.full((depth, 3), largest, np.int8)
        sums = x.astype(np.int64) @ w.astype(np.int64)
        lhs, rhs, output = per_tensor("u8", 0.5), per_tensor("i8", 0.25), per_tensor("i8", float(2**21), 3)
        product = Operator("MatMul", ("lhs_real", "rhs_real"), "real", "f32", sums.shape)
        theirs = by_onednn(onednn, product, (lhs, rhs, output), x, w)
        plan = plan_matmul(lhs.tensor(*x.shape), rhs.tensor(*w.shape), output.element, "onednn")
        comparison.add(depth, sums, run_product(plan, x, w), theirs)
    comparison.finish(30)


def test_products_of_scales_near_1(onednn: Onednn) -> None:
    """Scales are left out where each is near 1 for itself, and not where their product is. Ties tell it."""
    comparison = comparison_of(onednn, "Dequantize, MatMul, Quantize with products of scales near 1", "matmul")
    x, w = np.arange(64, dtype=np.uint8).reshape(64, 1), np.array([[1, 3, -1, -5]], np.int8)
    for exponent in (0, 1, -1, 5):
        for near in around(1.0, 12).tolist():
            for of_output in (2.0, 4.0):
                lhs, rhs = per_tensor("u8", 2.0**exponent), per_tensor("i8", near * 2.0**-exponent)
                output = per_tensor("i8", of_output, 3)
                product = Operator("MatMul", ("lhs_real", "rhs_real"), "real", "f32", (64, 4))
                theirs = by_onednn(onednn, product, (lhs, rhs, output), x, w)
                plan = plan_matmul(lhs.tensor(*x.shape), rhs.tensor(*w.shape), output.element, "onednn")
                comparison.add((exponent, near, of_output), theirs, run_product(plan, x, w), theirs)
    comparison.finish(50_000)


@pytest.mark.parametrize("depthwise", [False, True], ids=["full", "depthwise"])
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_conv2d(onednn: Onednn, source: str, target: str, depthwise: bool) -> None:
    """Padding beside a zero point, strides, dilations, groups, and scales per tensor and per output channel."""
    rng = generator(422)
    title = "depthwise Convolution" if depthwise else "Convolution"
    comparison = comparison_of(onednn, f"Dequantize, {title}, Quantize {source} to {target}", "conv2d")
    for index in range(CASES):
        height, width = (int(size) for size in rng.integers(8, 14, 2))
        groups = int(rng.integers(2, 9)) if depthwise else int(rng.choice([1, 1, 2]))
        depth = 1 if depthwise else int(rng.integers(1, 9))
        outputs = groups * (1 if depthwise else int(rng.integers(1, 9)))
        strides, dilations = rng.integers(1, 3, 2).tolist(), rng.integers(1, 3, 2).tolist()
        top, left, bottom, right = rng.integers(0, 3, 4).tolist()
        lhs = per_tensor(source, scale(rng), zero_point(rng, source))
        rhs = weights_side(rng, outputs if index % 2 and outputs > 1 else 1, 3)
        # Convolutions take no zero point of the weights.
        rhs = Quantized(rhs.storage, rhs.scales, np.zeros_like(rhs.zero_points), rhs.axis)
        x = lhs.data(rng, 2, height, width, groups * depth)
        w = weights(rng, adds_exactly(onednn), 3, 2, depth, outputs)
        if source == "i8" and not adds_exactly(onednn):
            # The library halves them, and rounds.
            w *= 2
        used = Window(
            weights_layout=WeightsLayout.HWIO, strides=(strides[0], strides[1]), groups=groups,
            dilations=(dilations[0], dilations[1]), pads=(top, left, bottom, right),
        )  # fmt: skip
        sums = conv2d_integers(x, w, int(lhs.zero_points[0]), 0, window=used)
        output = output_side(rng, target, sums, per_sums(lhs, rhs))
        if index % 4 > 1:
            rhs, output = beside_ties(rng, sums, lhs, rhs, output)
        attributes = {
            "strides": strides, "dilations": dilations, "pads_begin": [top, left], "pads_end": [bottom, right],
            "groups": groups, "data_format": "NXC", "weights_format": "XIO",
        }  # fmt: skip
        product = Operator("Convolution", ("lhs_real", "rhs_real"), "real", "f32", sums.shape, attributes)
        plan = plan_conv2d(lhs.tensor(*x.shape), rhs.tensor(*w.shape), output.element, "onednn", window=used)
        compare(onednn, comparison, product, (lhs, rhs, output), (x, w), sums, plan)
    if not adds_exactly(onednn):
        comparison.leave_out("onednn_saturated_pairs")
    comparison.finish(20_000)


def test_pairs_that_saturate(onednn: Onednn) -> None:
    """Why 7 bits are used with AVX2."""
    lhs, rhs, output = per_tensor("u8", 0.5), per_tensor("i8", 0.5), per_tensor("u8", 512.0)
    x, w = np.full((1, 2), 255, np.uint8), np.full((2, 1), 127, np.int8)
    product = Operator("MatMul", ("lhs_real", "rhs_real"), "real", "f32", (1, 1))
    theirs = by_onednn(onednn, product, (lhs, rhs, output), x, w)
    assert theirs.tolist() == [[round((2 * 255 * 127 if adds_exactly(onednn) else 32767) / 4 / 512)]]


def test_weights_that_are_halved(onednn: Onednn) -> None:
    """Why they are even with AVX2 beside i8: the convolution rounds their halves to even."""
    lhs, rhs, output = (per_tensor("i8", 2.0) for _ in range(3))
    x, w = np.full((1, 1, 1, 1), 1, np.int8), np.arange(-7, 8, dtype=np.int8).reshape(1, 1, 1, 15)
    attributes = {name: [1, 1] for name in ("strides", "dilations")} | {"pads_begin": [0, 0], "pads_end": [0, 0]}
    formats = {"data_format": "NXC", "weights_format": "XIO"}
    product = Operator("Convolution", ("lhs_real", "rhs_real"), "real", "f32", (1, 1, 1, 15), attributes | formats)
    theirs = by_onednn(onednn, product, (lhs, rhs, output), x, w)
    expected = w if adds_exactly(onednn) else 2 * np.rint(w / 2)
    assert theirs.tolist() == (2 * expected).tolist()


@pytest.mark.parametrize(("of_a", "of_b", "of_y"), [("u8", "u8", "u8"), ("i8", "i8", "i8"), ("u8", "i8", "i8")])
def test_add(onednn: Onednn, of_a: str, of_b: str, of_y: str) -> None:
    """Every pair of bytes; scales near 1, each of which is left out for itself."""
    rng = generator(423)
    comparison = comparison_of(onednn, f"Dequantize, Add, Quantize {of_a}, {of_b} to {of_y}", "add")
    every = {
        kind: np.arange(np.iinfo(DTYPES[kind]).min, np.iinfo(DTYPES[kind]).max + 1).astype(DTYPES[kind])
        for kind in ("s8", "u8")
    }
    a, b = np.repeat(every[KINDS[of_a]], 256), np.tile(every[KINDS[of_b]], 256)
    for index in range(24):
        sides = [per_tensor(storage, scale(rng), zero_point(rng, storage)) for storage in (of_a, of_b, of_y)]
        if index % 3 == 0:
            sides = [per_tensor(side.storage, float(side.scales[0])) for side in sides]
        theirs = added(onednn, sides, a, b)
        plan = plan_add(sides[0].tensor(a.size), sides[1].tensor(b.size), sides[2].element, "onednn")
        ours = np.empty(a.size, plan.output_dtype)
        plan.run(a, b, ours)
        comparison.add(sides, a, ours, theirs)
    comparison.finish(1_500_000)


def test_the_library_does_not_fuse_add(onednn: Onednn) -> None:
    side = per_tensor("u8", 0.5, 3)
    x = np.zeros(4, np.uint8)
    product = Operator("Add", ("lhs_real", "rhs_real"), "real", "f32", (4,))
    with pytest.raises(OnednnError, match="4 partitions"):
        by_onednn(onednn, product, (side, side, side), x, x)


@pytest.mark.parametrize("element", ["f8E4M3FN", "f8E5M2"])
def test_cast(element: str) -> None:
    """TypeCast does not take these types; Quantize and Dequantize with scale 1 do."""
    kind = NAMES[element]
    with Onednn("AVX2") as library:
        one = np.ones(1, np.float32)
        with pytest.raises(OnednnError, match="invalid graph op"):
            library.run("TypeCast", [("f32", one)], kind)
        with pytest.raises(OnednnError, match="invalid graph op"):
            library.run("TypeCast", [(kind, np.ones(1, np.uint8))], "f32")
        given = {"qtype": "per_tensor", "scales": [1.0]}
        comparison = comparison_of(library, f"Quantize with scale 1 to {element}", "cast")
        for x in real_data("f32", element):
            theirs = library.run("Quantize", [("f32", x)], kind, **given)
            comparison.add(element, x, narrowed(x, "f32", element, "onednn"), theirs)
        comparison.finish(500_000)
        comparison = comparison_of(library, f"Dequantize with scale 1 of {element}", "cast")
        codes = stored_data(element)
        theirs = library.run("Dequantize", [(kind, codes)], "f32", **given)
        ours = widened(codes, element, "f32", "onednn")
        comparison.add(element, codes, ours, theirs, {"onednn_widened_minus_zero": codes == 0x80})
        comparison.finish(250)
