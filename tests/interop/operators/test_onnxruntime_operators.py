"""onnxruntime's operators of com.microsoft, bit by bit, each with at least a million elements in the exhaustive mode.

All pairs of codes go through the elementwise operators, with scales for which many sums are ties or one ulp beside.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from requant.errors import RequantError
from requant.operators.registry import OPERATORS
from tests.interop.conformance import systems
from tests.interop.onnxruntime_products import SATURATES, exact_together
from tests.interop.onnxruntime_version import IMPLEMENTATION
from tests.interop.operators.counting import Tally
from tests.interop.operators.typed_arrays import DTYPES, Array, same
from tests.interop.seed_of_the_day import generator
from tests.support.cases import EXHAUSTIVE

pytest.importorskip("onnx")
ort: Any = pytest.importorskip("onnxruntime")

from tests.interop.operators.onnx_node import Node, session_options  # noqa: E402

pytestmark = pytest.mark.interop

BYTES = ("ui8", "i8")
Nodes = Iterator[Node]


def fused(operator: str, inputs: dict[str, Array], **attributes: Any) -> Node:
    return Node(operator, 21, inputs, attributes, "com.microsoft")


def one(value: Any, name: str = "f32") -> Array:
    """A tensor of rank 0."""
    return np.array(value, DTYPES[name])


def codes(rng: np.random.Generator, name: str, shape: tuple[int, ...] = ()) -> Array:
    limits = np.iinfo(DTYPES[name])
    return rng.integers(limits.min, limits.max + 1, shape).astype(DTYPES[name])


def all_codes(name: str) -> Array:
    return np.arange(256, dtype=np.uint8).view(DTYPES[name])


def parameters(rng: np.random.Generator, prefix: str, name: str, scale: Any, absent: float = 0.0) -> dict[str, Array]:
    """A scale, and a zero point that may be absent if it is the last input: onnxruntime refuses absent ones before."""
    found = {f"{prefix}_scale": one(scale)}
    return found if rng.random() < absent else found | {f"{prefix}_zero_point": codes(rng, name)}


def beside(rng: np.random.Generator, scale: float) -> np.float32:
    """A scale, or one ulp beside it."""
    beyond = [-np.inf, scale, np.inf][rng.integers(3)]
    return np.float32(np.nextafter(np.float32(scale), np.float32(beyond)))


ODD = (0.0, 1e-45, 1e-38, 3e38, np.inf, np.nan, -0.5, 1e9, 1e-9, 2.0**-20, 2.0**31 - 1)

FINITE_ODD = tuple(each for each in ODD if 0 < abs(each) < np.inf)


def scales_of_three(rng: np.random.Generator, odd: bool) -> tuple[Any, Any, Any]:
    """Scales whose ratios are multiples of 1/2, 1/3 or 1/256, any ratios, or odd numbers."""
    if odd:
        a, b, c = (rng.choice(ODD) if rng.random() < 0.5 else rng.uniform(0.01, 1) for _ in range(3))
        return a, b, c
    c = np.exp(rng.uniform(-8, 3))
    match rng.integers(4):
        case 0:
            ratios = rng.integers(1, 6, 2) / 2
        case 1:
            ratios = rng.integers(1, 9, 2) / rng.choice([3, 10])
        case 2:
            ratios = rng.integers(1, 512, 2) / 256
        case _:
            ratios = np.exp(rng.uniform(-4, 1, 2))
    return beside(rng, c * ratios[0]), beside(rng, c * ratios[1]), np.float32(c)


SPANS = (
    ((5, 1), (1,)), ((5, 1), ()), ((1,), (5, 1)), ((), (5, 1)), ((5, 1), (1, 1)), ((1, 1), (5, 1)), ((), ()),
    ((2, 3, 1), (3, 1)), ((3, 1), (2, 3, 1)), ((2, 1), (2, 1)), ((1,), (2,)), ((2,), (1,)), ((2,), ()), ((), (2,)),
    ((1, 2), (2, 1)), ((2, 1), (1, 2)), ((2, 2, 1), (2, 1, 1)), ((0,), (1,)), ((0, 2), (1, 2)), ((1, 1, 1), (4, 1, 1)),
    ((4, 2, 1), (1,)), ((3, 1, 5), (4, 1)), ((33,), (2, 33)), ((1, 7, 1), (3, 7, 5)), ((16, 1), (1, 16)),
    ((2, 0), (0,)),
)  # fmt: skip


def elementwise_nodes(rng: np.random.Generator, operator: str, scales: Any) -> Nodes:
    rounds = 80 if EXHAUSTIVE else 4
    for number in range(rounds):
        name = BYTES[number % 2]
        pairs = np.repeat(all_codes(name), 256), np.tile(all_codes(name), 256)
        # From 65,536 elements on by a table, below that directly.
        a, b = pairs if number % 4 < 2 else (rng.permutation(pairs[0])[:-3], pairs[1][:-3])
        yield fused(operator, operands(rng, name, a, b, scales(rng, number % 5 == 4)))
    for shapes, name in itertools.product(SPANS, BYTES):
        for _ in range(20 if EXHAUSTIVE else 3):
            a, b = (codes(rng, name, shape) for shape in shapes)
            yield fused(operator, operands(rng, name, a, b, scales(rng, rng.random() < 0.2)))


def operands(rng: np.random.Generator, name: str, a: Array, b: Array, scales: tuple[Any, Any, Any]) -> dict[str, Array]:
    return {
        "A": a, **parameters(rng, "A", name, scales[0]), "B": b, **parameters(rng, "B", name, scales[1]),
        **parameters(rng, "C", name, scales[2], 0.1),
    }  # fmt: skip


def scales_of_product(rng: np.random.Generator, odd: bool) -> tuple[Any, Any, Any]:
    """As of a sum, but with a product of the first two near the third."""
    if not odd and rng.random() < 0.5:
        # A factor with few bits, so that many products are ties.
        return rng.integers(1, 8) / 4, rng.integers(1, 8) / 8, 2.0 ** rng.integers(-1, 7)
    a, b, c = scales_of_three(rng, odd)
    return (a, b, c) if odd else (a, b, np.float32(c * 2.0 ** rng.integers(-6, 8)))


def by_onnxruntime(node: Node) -> Array | None:
    try:
        session = ort.InferenceSession(node.model.SerializeToString(), session_options(), ["CPUExecutionProvider"])
        (found,) = session.run(None, node.inputs)
    except Exception:
        return None
    return np.asarray(found)


def by_us(node: Node) -> Array | None:
    try:
        return node.ours(IMPLEMENTATION)
    except RequantError:
        return None


def check(nodes: Nodes, elements: int) -> None:
    """Compare with onnxruntime. What one refuses, the other does too."""
    tally = Tally(systems.ONNXRUNTIME)
    for node in nodes:
        theirs, ours = by_onnxruntime(node), by_us(node)
        assert (theirs is None) == (ours is None), node
        if theirs is None or ours is None:
            continue
        differ: Any = np.flatnonzero(ours.ravel() != theirs.ravel())[:4] if ours.shape == theirs.shape else []
        shown = [(int(each), ours.ravel()[each], theirs.ravel()[each]) for each in differ]
        values = {key: each for key, each in node.inputs.items() if each.size < 8}
        what = f"{node} {values}: {ours.shape}, {theirs.shape} (index, ours, theirs): {shown}"
        tally.add(node.full_name, 1, same(ours, theirs), what, ours.size)
    compared = sum(tally.elements.values())
    tally.finish(1)
    assert compared >= (elements if EXHAUSTIVE else 1)


def test_add() -> None:
    check(elementwise_nodes(generator(1), "QLinearAdd", scales_of_three), 1_000_000)


def test_multiply() -> None:
    check(elementwise_nodes(generator(2), "QLinearMul", scales_of_product), 1_000_000)


def unary_nodes(rng: np.random.Generator, operator: str) -> Nodes:
    """All codes, permuted, with a scale of Y that makes many results ties."""
    for number in range(4100 if EXHAUSTIVE else 60):
        name = BYTES[number % 2]
        x = float(np.exp(rng.uniform(-7, 1)))
        y = rng.choice([x * 2.0 ** rng.integers(-2, 3), x / 3, 1 / 256, 1 / 255, x * rng.uniform(0.1, 3)])
        if number % 9 == 8:
            x, y = rng.choice(FINITE_ODD, 2)
        # Without a zero point of Y onnxruntime aborts.
        inputs = {
            "X": rng.permutation(all_codes(name)), **parameters(rng, "X", name, beside(rng, x)),
            **parameters(rng, "Y", name, beside(rng, y)),
        }  # fmt: skip
        given: dict[str, Any] = {}
        if operator == "QLinearLeakyRelu":
            given["alpha"] = float(rng.choice([0.01, 0.1, 0.5, -0.25, 2.0, 0.0]))
        yield fused(operator, inputs, **given)


def joined_nodes(rng: np.random.Generator) -> Nodes:
    for number in range(1400 if EXHAUSTIVE else 40):
        name, axis = BYTES[number % 2], int(rng.integers(-3, 3))
        scale = float(np.exp(rng.uniform(-7, 1)))
        inputs = parameters(rng, "Y", name, scale)
        if number % 9 == 8:
            inputs["Y_scale"] = one(rng.choice(FINITE_ODD))
        shape = [int(each) for each in rng.choice([1, 2, 7, 16], 3)]
        for part in range(int(rng.integers(1, 9))):
            shape[axis] = int(rng.integers(0, 20))
            same_parameters = rng.random() < 0.2
            inputs[f"X_{part}"] = codes(rng, name, tuple(shape))
            inputs[f"X_{part}_scale"] = (
                inputs["Y_scale"]
                if same_parameters
                else one(beside(rng, scale * rng.choice([0.5, 1.0, 1.5, 2.25, rng.uniform(0.1, 3)])))
            )
            zero_point = inputs["Y_zero_point"] if same_parameters else codes(rng, name)
            inputs[f"X_{part}_zero_point"] = zero_point
        yield fused("QLinearConcat", inputs, axis=axis)


def chosen_nodes(rng: np.random.Generator) -> Nodes:
    shapes: Any = (
        ((256,), (256,), (256,)), ((), (256,), (256,)), ((7, 1), (1, 9), (7, 9)), ((3, 4), (), (4,)),
        ((5, 1), (5, 1), ()), ((0,), (1,), (1,)), ((), (), ()), ((2, 1, 3), (4, 1), (2, 4, 3)),
        ((40, 1), (1, 40), (1,)),
    )  # fmt: skip
    for number in range(4500 if EXHAUSTIVE else 40):
        name, shape = BYTES[number % 2], shapes[rng.integers(len(shapes))]
        z = float(np.exp(rng.uniform(-7, 1)))
        x, y = z * rng.choice([0.5, 1.0, 1.5, 2.25, rng.uniform(0.1, 3)], 2)
        if number % 9 == 8:
            x, y, z = rng.choice(FINITE_ODD, 3)
        yield fused(
            "QLinearWhere",
            {
                "condition": rng.random(shape[0]) < 0.5 if shape[0] else np.array(rng.random() < 0.5),
                "X": codes(rng, name, shape[1]), **parameters(rng, "x", name, beside(rng, x)),
                "Y": codes(rng, name, shape[2]), **parameters(rng, "y", name, beside(rng, y)),
                **parameters(rng, "z", name, z),
            },
        )  # fmt: skip


def global_pool_nodes(rng: np.random.Generator) -> Nodes:
    for number in range(2400 if EXHAUSTIVE else 30):
        name, last = BYTES[number % 2], int(rng.integers(2))
        spatial = tuple(int(each) for each in rng.integers(1, 9, rng.integers(1, 4)))
        images, channels = int(rng.integers(1, 4)), int(rng.choice([1, 3, 33, 1000]))
        x = float(np.exp(rng.uniform(-7, 1)))
        count = int(np.prod(spatial))
        y = x * rng.choice([1.0, 2.0, 1 / 3, 2 / count, 0.5 / count, 300.0, rng.uniform(0.05, 2)])
        shape = (images, *spatial, channels) if last else (images, channels, *spatial)
        inputs = {
            "X": codes(rng, name, shape), **parameters(rng, "x", name, beside(rng, x)),
            **parameters(rng, "y", name, beside(rng, y)),
        }  # fmt: skip
        yield fused("QLinearGlobalAveragePool", inputs, channels_last=last)


def pool_nodes(rng: np.random.Generator) -> Nodes:
    for number in range(1600 if EXHAUSTIVE else 40):
        name, rank, last = BYTES[number % 2], int(rng.integers(1, 4)), int(rng.integers(2))
        spatial = tuple(int(each) for each in rng.integers(3, 13, rank))
        kernel = [int(rng.integers(1, size + 1)) for size in np.minimum(spatial, 5)]
        attributes: dict[str, Any] = {"kernel_shape": kernel, "channels_last": last}
        attributes["strides"] = [int(each) for each in rng.integers(1, 4, rank)]
        match rng.integers(4):
            case 0:
                attributes["auto_pad"] = str(rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"]))
            case 1:
                attributes["pads"] = [int(rng.integers(0, taps)) for taps in kernel * 2]
        attributes["count_include_pad"] = int(rng.integers(2))
        attributes["ceil_mode"] = int(rng.integers(2))
        x = float(np.exp(rng.uniform(-7, 1)))
        y = x * rng.choice([1.0, 2.0, 1 / 3, 0.5, 2 / np.prod(kernel), rng.uniform(0.05, 2)])
        if number % 20 == 19:
            x, y = rng.choice(ODD, 2)
        images, channels = int(rng.integers(1, 3)), int(rng.choice([1, 3, 16, 40]))
        shape = (images, *spatial, channels) if last else (images, channels, *spatial)
        inputs = {
            "X": codes(rng, name, shape), **parameters(rng, "x", name, beside(rng, x)),
            **parameters(rng, "y", name, beside(rng, y), 0.1),
        }  # fmt: skip
        yield fused("QLinearAveragePool", inputs, **attributes)


def softmax_nodes(rng: np.random.Generator) -> Nodes:
    for number in range(1700 if EXHAUSTIVE else 40):
        name, opset = BYTES[number % 2], int(rng.choice([1, 11, 12, 13, 17]))
        shape = tuple(int(each) for each in rng.choice([1, 2, 5, 10, 31], rng.integers(1, 4)))
        if number % 10 == 9:
            shape = (5, 1000)
        x = codes(rng, name, shape)
        if rng.random() < 0.3:
            x = (x // 16).astype(x.dtype)
        axis = int(rng.integers(-len(shape), len(shape)))
        y = rng.choice([1 / 256, 1 / 255, 1 / 128, 1.0, 0.3, 2 / shape[-1] / 3, np.exp(rng.uniform(-7, 0))])
        inputs = {
            "X": x, "X_scale": one(beside(rng, np.exp(rng.uniform(-9, 2)))), "x_zero_point": codes(rng, name),
            **parameters(rng, "y", name, beside(rng, y)),
        }  # fmt: skip
        if rng.random() < 0.3:
            # All elements are equal, and all results ties: 1 / D over 1 / (D * (k + 1 / 2)).
            reduced = shape[axis] if opset >= 13 else int(np.prod(shape[axis:]))
            inputs["X"] = np.full_like(x, x[(0,) * len(shape)])
            inputs["y_scale"] = one(1 / (reduced * (int(rng.integers(1, 90)) + 0.5)))
        attributes = {"opset": opset, "axis": axis}
        if rng.random() < 0.4:
            del attributes["axis"]
        yield fused("QLinearSoftmax", inputs, **attributes)


def matrices(rng: np.random.Generator, batches: bool) -> tuple[Array, Array, str, str]:
    """Two operands for which onnxruntime's sums are exact on this machine, and their types."""
    of_a, of_b = (str(each) for each in rng.choice([("ui8", "ui8"), ("ui8", "i8"), ("i8", "i8")]))
    m, k, n = (int(each) for each in rng.choice([1, 2, 3, 7, 16, 33, 64, 100], 3))
    batch = (2,) if batches and rng.random() < 0.2 else ()
    a, b = exact_together(codes(rng, of_a, (*batch, m, k)), codes(rng, of_b, (k, n)))
    return a, b, of_a, of_b


def columns(rng: np.random.Generator, b: Array, name: str, scale: Any) -> dict[str, Array]:
    """Scales and zero points of B, one or one for each column; the sums of those that saturate have small ones."""
    count = (b.shape[-1],) if rng.random() < 0.5 else ()
    zero_points = np.asarray(codes(rng, name, count) >> 1) if SATURATES else codes(rng, name, count)
    scales = np.asarray(scale * rng.uniform(0.5, 2, count)).astype(np.float32)
    return {"b_scale": scales, "b_zero_point": zero_points}


def gemm_nodes(rng: np.random.Generator) -> Nodes:
    for number in range(1700 if EXHAUSTIVE else 40):
        a, b, of_a, of_b = matrices(rng, False)
        m, k = a.shape
        n = b.shape[1]
        a_scale, b_scale = np.exp(rng.uniform(-7, 1, 2))
        inputs = {"A": a, **parameters(rng, "a", of_a, a_scale), "B": b, **columns(rng, b, of_b, b_scale)}
        bias = rng.random() < 0.5
        if bias:
            inputs["C"] = rng.integers(-30000, 30000, (m, n) if rng.random() < 0.3 else (n,)).astype(np.int32)
        if rng.random() < 0.8:
            inputs |= parameters(
                rng, "y", of_a, a_scale * b_scale * rng.choice([6.0, 10.0, 64.0, 100.0, 1024.0 * np.sqrt(k)])
            )
            if number % 20 == 19:
                inputs["y_scale"] = one(rng.choice(ODD))
        given: dict[str, Any] = {}
        if rng.random() < 0.5:
            given["alpha"] = float(rng.choice([0.5, 1 / 3, 2.0, -1.0]))
        for name, attribute in (("A", "transA"), ("B", "transB")):
            if rng.random() < 0.3:
                inputs[name], given[attribute] = np.ascontiguousarray(inputs[name].T), 1
        yield fused("QGemm", inputs, **given)


def float_nodes(rng: np.random.Generator, operator: str) -> Nodes:
    dynamic = operator == "DynamicQuantizeMatMul"
    for number in range(1700 if EXHAUSTIVE else 40):
        a, b, of_a, of_b = matrices(rng, True)
        if dynamic and of_b == "i8" and SATURATES:
            b = b >> 1
        of_columns = columns(rng, b, of_b, float(np.exp(rng.uniform(-7, 1))))
        if dynamic:
            real = (rng.normal(size=a.shape) * np.exp(rng.uniform(-30, 30))).astype(np.float32)
            inputs = {"A": np.zeros_like(real) if number % 50 == 0 else real, "B": b, **of_columns}
        else:
            of_a_scalar = parameters(rng, "a", of_a, np.exp(rng.uniform(-7, 1)))
            inputs = {"A": a, "B": b, **of_a_scalar, **of_columns}
        if rng.random() < 0.6:
            inputs["bias"] = rng.normal(size=(b.shape[1],)).astype(np.float32)
        if number % 20 == 19:
            inputs["b_scale"] = one(rng.choice(ODD))
        yield fused(operator, inputs)


def bits_nodes(rng: np.random.Generator) -> Nodes:
    """Weights, which the product with a unit matrix shows: in `check_weights`."""
    for number in range(640 if EXHAUSTIVE else 12):
        bits, block = int(rng.choice([2, 4, 8])), int(rng.choice([16, 32, 64, 128]))
        k, n = int(rng.choice([16, 17, 50, 64, 100, 256])), int(rng.choice([1, 3, 16, 100]))
        blocks = -(-k // block)
        inputs = {
            "B": rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8),
            "scales": (rng.normal(size=n * blocks) * np.exp(rng.uniform(-9, 3))).astype(np.float32),
        }
        if rng.random() < 0.6:
            inputs["zero_points"] = rng.integers(0, 256, n * -(-blocks * bits // 8)).astype(np.uint8)
            if bits == 4 and number % 2:
                inputs["zero_points"] = rng.integers(0, 16, (n, blocks)).astype(np.float32)
        yield fused("MatMulNBits", inputs, K=k, N=n, bits=bits, block_size=block)


def test_sigmoid() -> None:
    check(unary_nodes(generator(3), "QLinearSigmoid"), 1_000_000)


def test_leaky_relu() -> None:
    check(unary_nodes(generator(4), "QLinearLeakyRelu"), 1_000_000)


def test_concat() -> None:
    check(joined_nodes(generator(5)), 1_000_000)


def test_where() -> None:
    check(chosen_nodes(generator(6)), 1_000_000)


def test_global_average_pool() -> None:
    check(global_pool_nodes(generator(7)), 1_000_000)


def test_average_pool() -> None:
    check(pool_nodes(generator(8)), 1_000_000)


def test_softmax() -> None:
    check(softmax_nodes(generator(9)), 1_000_000)


def test_gemm() -> None:
    check(gemm_nodes(generator(10)), 1_000_000)


def test_integer_to_float() -> None:
    check(float_nodes(generator(11), "MatMulIntegerToFloat"), 1_000_000)


def test_dynamic_quantize_matmul() -> None:
    check(float_nodes(generator(12), "DynamicQuantizeMatMul"), 1_000_000)


def test_weights_of_bits() -> None:
    """A unit matrix times the weights, all other terms of whose sums are zero."""
    tally = Tally(systems.ONNXRUNTIME)
    for node in bits_nodes(generator(13)):
        k = node.attributes["K"]
        whole = replace(node, inputs={"A": np.eye(k, dtype=np.float32), **node.inputs})
        theirs, ours = by_onnxruntime(whole), node.ours(IMPLEMENTATION)
        assert theirs is not None, node
        tally.add(node.full_name, 1, bool(np.all(theirs == ours.T)), str(node), ours.size)
    tally.finish(1)
    assert not EXHAUSTIVE or sum(tally.elements.values()) >= 1_000_000


def test_operands_are_those_of_its_schemas() -> None:
    """In name and order; the operands of QLinearConcat repeat, and the weights of MatMulNBits are no whole node."""
    state = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
    theirs = {each.name: each for each in state.get_all_operator_schema() if each.domain == "com.microsoft"}
    ours = [each for each in OPERATORS.values() if each.system == "com.microsoft"]
    for each in ours:
        if each.name not in ("QLinearConcat", "MatMulNBits"):
            assert [one.name for one in each.inputs] == [one.name for one in theirs[each.name].inputs], each.name
            assert [one.name for one in each.outputs] == [one.name for one in theirs[each.name].outputs], each.name
    assert len(ours) > 10
