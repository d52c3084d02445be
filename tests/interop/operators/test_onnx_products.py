"""MatMulInteger, ConvInteger, QLinearMatMul and QLinearConv over a grid of types, shapes, parameters and windows.

As in test_onnx_grid: bits against onnxruntime and the reference evaluator, what is taken and refused against onnx's
checker with shape inference. Every difference is of a kind that is named here.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from requant.errors import RequantError
from requant.operators.registry import OPERATORS
from tests.interop.conformance import systems
from tests.interop.onnxruntime_products import exact_together
from tests.interop.onnxruntime_version import IMPLEMENTATION
from tests.interop.operators.counting import Tally
from tests.interop.operators.typed_arrays import DTYPES, NAMES, Array, same

pytest.importorskip("onnx")
ort: Any = pytest.importorskip("onnxruntime")

from tests.interop.operators.onnx_node import Node, by_reference, session_options  # noqa: E402

pytestmark = pytest.mark.interop

BYTES = ("ui8", "i8")
# Scales of which a factor may be beyond f32, or 0.
ODD_SMALL, ODD_LARGE = 1e-38, 1e38
OPSETS = {"MatMulInteger": (10, 21, 28), "ConvInteger": (10, 28), "QLinearConv": (10, 28), "QLinearMatMul": (10, 20)}


def stored(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
    limits = np.iinfo(DTYPES[name])
    return rng.integers(limits.min, limits.max + 1, shape).astype(DTYPES[name])


def operands_of(
    rng: np.random.Generator, names: str, types: tuple[str, str], a: tuple[int, ...], b: tuple[int, ...]
) -> dict[str, Array]:
    """Two operands for which onnxruntime's sums are exact."""
    return dict(zip(names, exact_together(stored(rng, types[0], a), stored(rng, types[1], b)), strict=True))


def real(value: Any, name: str = "f32") -> Array:
    return np.asarray(value).astype(np.float32).astype(DTYPES[name])


MATRICES = (
    ((3, 4), (4, 5)), ((4, 4), (4, 5)), ((1, 1), (1, 1)), ((17, 33), (33, 9)), ((4,), (4,)), ((4,), (4, 5)),
    ((3, 4), (4,)), ((2, 3, 4), (4,)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (5, 4, 2)),
    ((0, 4), (4, 5)), ((3, 4), (5, 4)), ((), (4,)), ((2, 3, 4), (3, 4, 5)),
)  # fmt: skip
PARAMETERS = ("one", "vector", "whole", "wrong", "1-vector")


def parameters(kind: str, shape: tuple[int, ...], kept: int) -> tuple[int, ...]:
    """A shape of zero points or scales for a matrix whose rows or columns are dimension `kept`."""
    rank = len(shape)
    summed = {-2: -1, -1: -2}[kept]
    match kind:
        case "vector":
            return (shape[kept] if rank > 1 else 1,)
        case "whole" if rank > 1:
            return tuple(1 if axis == rank + summed else size for axis, size in enumerate(shape))
        case "wrong":
            return (*shape, 7)
        case "1-vector":
            return (1,)
    return ()


def matrix_nodes(rng: np.random.Generator) -> Iterator[Node]:
    for (a, b), types, (of_a, of_b) in itertools.product(
        MATRICES, itertools.product(BYTES, BYTES), itertools.product(PARAMETERS, PARAMETERS)
    ):
        a_shape, b_shape = parameters(of_a, a, -2), parameters(of_b, b, -1)
        data = operands_of(rng, "AB", types, a, b)
        points = {"a_zero_point": stored(rng, types[0], a_shape), "b_zero_point": stored(rng, types[1], b_shape)}
        opset = int(rng.choice(OPSETS["MatMulInteger"]))
        yield Node("MatMulInteger", opset, {**data, **points})
        if (of_a, of_b) == ("one", "one"):
            yield Node("MatMulInteger", opset, data)
            yield Node("MatMulInteger", opset, {**data, "a_zero_point": points["a_zero_point"]})
            yield Node("MatMulInteger", opset, {**data, "b_zero_point": points["b_zero_point"]})
            yield Node("MatMulInteger", opset, {**data, "a_zero_point": stored(rng, "i8", ())})
        for narrow, output in itertools.product(("f32", "f16", "bf16"), BYTES):
            if narrow != "f32" and types != ("ui8", "i8"):
                continue
            scales = {
                "a_scale": real(rng.choice([0.5, 0.0371, 0.25], a_shape), narrow),
                "b_scale": real(rng.choice([0.5, 0.013, 0.125], b_shape), narrow),
            }
            depth = a[-1] if a else 1
            y_scale = real(rng.choice([8.0, 2.0, 11.3]) * np.sqrt(depth), narrow)
            inputs = {
                "a": data["A"], "a_scale": scales["a_scale"], "a_zero_point": points["a_zero_point"],
                "b": data["B"], "b_scale": scales["b_scale"], "b_zero_point": points["b_zero_point"],
                "y_scale": y_scale, "y_zero_point": stored(rng, output, ()),
            }  # fmt: skip
            for version in (int(rng.choice(OPSETS["QLinearMatMul"])), int(rng.choice([21, 28]))):
                yield Node("QLinearMatMul", version, inputs)


def odd_matrix_nodes(rng: np.random.Generator) -> Iterator[Node]:
    """Scales of any kind, parameters of y, types that do not agree, and 8-bit floats."""
    one = {
        **operands_of(rng, "ab", ("ui8", "i8"), (9, 6), (6, 7)),
        "a_scale": real(0.5), "a_zero_point": stored(rng, "ui8", ()),
        "b_scale": real(0.0371), "b_zero_point": stored(rng, "i8", ()),
        "y_scale": real(3.5), "y_zero_point": stored(rng, "ui8", ()),
    }  # fmt: skip
    for version in (10, 21, 28):
        for name, value in itertools.product(
            ("a_scale", "b_scale", "y_scale"), (0.0, -0.5, 1e-40, 3e38, np.inf, -np.inf, np.nan)
        ):
            yield Node("QLinearMatMul", version, {**one, name: real(value)})
        for shape in ((1,), (9,), (9, 1), (7,)):
            yield Node("QLinearMatMul", version, {**one, "y_scale": real(np.full(shape, 3.5))})
            yield Node("QLinearMatMul", version, {**one, "y_zero_point": stored(rng, "ui8", shape)})
        yield Node("QLinearMatMul", version, {**one, "b_scale": real([0.5, 0.25, 1, 2, 0.1, 0.7, 0.3])})
        yield Node("QLinearMatMul", version, {**one, "a_scale": real(0.5, "f16")})
        yield Node("QLinearMatMul", version, {**one, "a_zero_point": stored(rng, "i8", ())})
        for name in ("f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ"):
            floats = {"a": real(np.ones((9, 6)), name), "a_zero_point": real(0, name)}
            yield Node("QLinearMatMul", version, {**one, **floats})


def windows(rank: int) -> Iterator[dict[str, Any]]:
    two, three, mixed = [2] * rank, [3] * rank, [2, 1, 3][:rank]
    yield {}
    yield {"strides": two, "pads": [1, 0, 2][:rank] + [2, 1, 0][:rank], "dilations": mixed}
    yield {"strides": three, "pads": three + two}
    yield {"auto_pad": "VALID", "dilations": two}
    yield {"auto_pad": "SAME_UPPER", "strides": mixed}
    yield {"auto_pad": "SAME_LOWER", "strides": two}
    yield {"auto_pad": "SAME_UPPER", "dilations": two}
    yield {"auto_pad": "SAME_LOWER", "pads": [0] * 2 * rank}
    yield {"auto_pad": "same"}
    yield {"kernel_shape": [3, 2, 2][:rank]}
    yield {"kernel_shape": [2, 2, 2][:rank]}
    yield {"kernel_shape": [3] * (rank + 1)}
    yield {"strides": [0] * rank}
    yield {"dilations": [0] * rank}
    yield {"pads": [-1] * 2 * rank}
    yield {"pads": [1]}
    yield {"strides": [1] * (rank + 1)}
    yield {"group": 2}
    yield {"group": 3}
    yield {"group": 0}


def convolution_nodes(rng: np.random.Generator) -> Iterator[Node]:
    for rank, group, types, per_channel in itertools.product(
        (1, 2, 3), (1, 2), itertools.product(BYTES, BYTES), ("one", "channels", "1-vector", "wrong")
    ):
        x_shape, w_shape = (2, 4, *(9, 8, 7)[:rank]), (6, 4 // group, *(3, 2, 2)[:rank])
        shape = {"one": (), "channels": (6,), "1-vector": (1,), "wrong": (5,)}[per_channel]
        for attributes in windows(rank) if per_channel in ("one", "channels") else ({},):
            given = {**({"group": group} if group > 1 else {}), **attributes}
            operands = operands_of(rng, "xw", types, x_shape, w_shape)
            # x is padded with its zero point.
            zero_x, zero_w = exact_together(stored(rng, types[0], ()), stored(rng, types[1], shape))
            opset = int(rng.choice(OPSETS["ConvInteger"]))
            yield Node("ConvInteger", opset, {**operands, "x_zero_point": zero_x, "w_zero_point": zero_w}, given)
            if per_channel == "one":
                yield Node("ConvInteger", opset, operands, given)
            # onnxruntime takes one zero point for all channels; their scales differ.
            zero_w = np.full(shape, int(stored(rng, types[1], ()))).astype(DTYPES[types[1]])
            for output, bias in itertools.product(BYTES, (None, (6,))):
                if bias is None and output != types[0]:
                    continue
                inputs = {
                    **operands, "x_scale": real(0.37), "x_zero_point": zero_x,
                    "w_scale": real(rng.choice([0.5, 0.021, 0.125], shape)), "w_zero_point": zero_w,
                    "y_scale": real(rng.choice([30.0, 64.0, 17.7])), "y_zero_point": stored(rng, output, ()),
                }  # fmt: skip
                if bias is not None:
                    inputs["B"] = rng.integers(-9000, 9000, bias).astype(np.int32)
                yield Node("QLinearConv", int(rng.choice(OPSETS["QLinearConv"])), inputs, given)


def odd_convolution_nodes(rng: np.random.Generator) -> Iterator[Node]:
    """Shapes that do not fit, other ranks, parameters of other shapes, and scales of any kind."""
    for x_shape, w_shape in (
        ((1, 2), (3, 2)), ((1, 2, 5, 5), (3, 2, 3)), ((1, 2, 5, 5), (3, 2, 6, 6)), ((0, 2, 5, 5), (3, 2, 3, 3)),
        ((1, 2, 4, 3, 4, 3), (3, 2, 2, 2, 2, 2)), ((1, 2, 5, 5), (3, 1, 3, 3)), ((1, 2, 5, 5), (0, 2, 3, 3)),
        ((1, 0, 5, 5), (3, 0, 3, 3)), ((1, 2, 0, 5), (3, 2, 1, 1)),
    ):  # fmt: skip
        operands = {"x": stored(rng, "ui8", x_shape), "w": stored(rng, "ui8", w_shape)}
        yield Node("ConvInteger", 10, operands)
        yield Node("QLinearConv", 10, quantized(rng, operands))
    operands = operands_of(rng, "xw", ("ui8", "i8"), (1, 2, 5, 5), (3, 2, 3, 3))
    for name, shape in itertools.product(
        ("x_zero_point", "x_scale", "w_zero_point", "w_scale", "y_zero_point", "y_scale", "B"),
        ((1,), (2,), (3,), (1, 1), (3, 1, 1, 1)),
    ):
        inputs = quantized(rng, operands)
        kept = inputs[name] if name in inputs else np.zeros((), np.int32)
        inputs[name] = np.full(shape, kept).astype(kept.dtype)
        yield Node("QLinearConv", 10, inputs)
        if name.endswith("_zero_point") and name[0] != "y":
            yield Node("ConvInteger", 10, {**operands, name: inputs[name]})
    for name, value in itertools.product(
        ("x_scale", "w_scale", "y_scale"), (0.0, -0.5, 1e-40, 3e38, np.inf, -np.inf, np.nan)
    ):
        yield Node("QLinearConv", 10, {**quantized(rng, operands), name: real(value)})
    yield Node("QLinearConv", 10, {**quantized(rng, operands), "x_zero_point": stored(rng, "i8", ())})
    yield Node("ConvInteger", 10, {**operands, "w_zero_point": stored(rng, "ui8", ())})


def quantized(rng: np.random.Generator, operands: dict[str, Array]) -> dict[str, Array]:
    x, w = operands["x"], operands["w"]
    return {
        "x": x, "x_scale": real(0.37), "x_zero_point": stored(rng, NAMES[x.dtype], ()),
        "w": w, "w_scale": real(0.25), "w_zero_point": stored(rng, NAMES[w.dtype], ()),
        "y_scale": real(17.7), "y_zero_point": stored(rng, "ui8", ()),
    }  # fmt: skip


def by_onnxruntime(node: Node, model: Any) -> Array | None:
    """The result, None where onnxruntime has no kernel for the types or refuses the shapes."""
    try:
        session = ort.InferenceSession(model.SerializeToString(), session_options(), providers=["CPUExecutionProvider"])
        (found,) = session.run(None, node.inputs)
    except Exception:
        return None
    return np.asarray(found)


def refused_beyond_the_checker(node: Node) -> str | None:
    """Why this project may refuse what the checker takes, which looks at no parameter and at few shapes."""
    convolves = "Conv" in node.operator
    x, w = (node.inputs[name] for name in ("xw" if convolves else "AB" if "A" in node.inputs else "ab"))
    scales = [each for name, each in node.inputs.items() if name.endswith("_scale")]
    parameters = [each for name, each in node.inputs.items() if "_" in name]
    if any(NAMES[each.dtype].startswith("f8") for each in (x, *parameters)):
        return "8-bit floats"
    if not all(ODD_SMALL < abs(float(each)) < ODD_LARGE for array in scales for each in array.ravel()):
        return "factor that is not finite"
    if convolves and (found := _refused_window(node, x, w)) is not None:
        return found
    if any(each.shape not in ((), (1,)) for each in parameters):
        return "shape of a parameter"
    if convolves and "B" in node.inputs and node.inputs["B"].shape != w.shape[:1]:
        return "shape of a parameter"
    return None


def _refused_window(node: Node, x: Array, w: Array) -> str | None:
    given, group = node.attributes, node.attributes.get("group", 1)
    if given.get("auto_pad") == "same" or group == 0:
        return "value of an attribute"
    if 0 in w.shape or x.shape[1] != w.shape[1] * group or w.shape[0] % group:
        return "shape of w"
    if "auto_pad" in given and "pads" in given:
        return "pads with auto_pad"
    if given.get("kernel_shape", list(w.shape[2:])) != list(w.shape[2:]):
        return "kernel_shape that w does not have"
    if any(kernel > size for kernel, size in zip(w.shape[2:], x.shape[2:], strict=False)):
        return "window larger than x"
    return None


# What a system takes against the text: numpy broadcasts parameters of many shapes.
TAKEN_BY_REFERENCE = {
    "shape of a parameter", "8-bit floats", "factor that is not finite", "pads with auto_pad", "window larger than x",
    "shape of w", "value of an attribute", "kernel_shape that w does not have",
}  # fmt: skip
TAKEN_BY_ONNXRUNTIME = {"factor that is not finite", "shape of w"}


def known_difference(node: Node, system: str) -> str | None:
    """Where the reference evaluator's result is not what the text says."""
    if system != "reference":
        return None
    if "Conv" in node.operator:
        rank = node.inputs["x"].ndim - 2
        vector = any(node.inputs.get(name, np.zeros(())).size > 1 for name in ("w_scale", "w_zero_point"))
        return "parameters for each channel in other than two dimensions" if vector and rank != 2 else None
    for name in ("a_zero_point", "a_scale"):
        given = node.inputs.get(name)
        if given is not None and given.ndim == 1 and given.size > 1:
            return "a vector of parameters of a, taken as one for each column"
    a, b = (node.inputs[name] for name in ("AB" if "A" in node.inputs else "ab"))
    shapes = [each.ndim for name, each in node.inputs.items() if "_" in name]
    rank = max(max(a.ndim, b.ndim) - (a.ndim == 1) - (b.ndim == 1), 0)
    if 1 in (a.ndim, b.ndim) and max(shapes, default=0) > rank:
        return "parameters with a dimension that a product of vectors does not have"
    return None


def check(nodes: Iterator[Node], at_least: int) -> None:
    tallies = {IMPLEMENTATION: Tally(systems.ONNXRUNTIME), "reference": Tally(systems.ONNX_REFERENCE)}
    verdicts: Counter[str] = Counter()
    wrong: list[str] = []
    for node in nodes:
        try:
            model, reason = node.model, ""
        except Exception as error:
            model, reason = None, str(error)
        ours: dict[str, Array] = {}
        refusal: RequantError | None = None
        operator = OPERATORS[f"onnx.{node.operator}"]
        try:
            for name in tallies:
                ours[name] = node.ours(name)
        except RequantError as error:
            refusal = error
        if model is None:
            verdicts["both refuse" if refusal else "taken, refused by the checker"] += 1
            if refusal is None:
                wrong.append(f"taken, refused by the checker: {node}: {reason[:200]}")
            continue
        theirs = {IMPLEMENTATION: by_onnxruntime(node, model), "reference": by_reference(node, model)}
        if refusal is not None:
            why = refused_beyond_the_checker(node)
            verdicts[f"refused, taken by the checker: {why}"] += 1
            for name, allowed in ((IMPLEMENTATION, TAKEN_BY_ONNXRUNTIME), ("reference", TAKEN_BY_REFERENCE)):
                if theirs[name] is not None:
                    verdicts[f"refused, taken by {name}: {why}"] += 1
                    if why not in allowed:
                        wrong.append(f"refused, taken by {name}: {refusal.detail}: {node}")
            if why is None:
                wrong.append(f"refused {refusal.detail}: {node}")
            continue
        verdicts["both take"] += 1
        version = operator.version_of(node.opset)
        for name, found in theirs.items():
            if found is None:
                verdicts[f"{name} has no kernel, or refuses"] += 1
                continue
            different = known_difference(node, name)
            if different is not None and not same(ours[name], found):
                verdicts[f"{name} differs: {different}"] += 1
                continue
            shown = f"{name}: {node}: ours {ours[name].ravel()[:12]}, theirs {found.shape} {found.ravel()[:12]}"
            tallies[name].add(operator.full_name, version, same(ours[name], found), shown, found.size)
    sys.stdout.write("".join(f"{count} {verdict}\n" for verdict, count in sorted(verdicts.items())))
    assert not wrong, f"{len(wrong)} verdicts\n" + "\n".join(wrong[:25])
    for tally in tallies.values():
        tally.finish(at_least)


def test_matrix_products() -> None:
    check(itertools.chain(*(make(np.random.default_rng(41)) for make in (matrix_nodes, odd_matrix_nodes))), 900)


def test_convolutions() -> None:
    check(
        itertools.chain(*(make(np.random.default_rng(42)) for make in (convolution_nodes, odd_convolution_nodes))), 450
    )
