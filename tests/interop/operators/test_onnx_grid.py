"""QuantizeLinear and DequantizeLinear over a grid of versions, types, shapes, axes, blocks and special values.

Bits against the ReferenceEvaluator and onnxruntime, wherever these run the node; what is taken and what is refused
against onnx's checker with shape inference. Every difference is of a kind that is named here.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from requant.errors import RequantError
from requant.operators.registry import OPERATORS
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import operator
from tests.interop.onnxruntime_version import IMPLEMENTATION
from tests.interop.operators.typed_arrays import DTYPES, NAMES, Array, same

pytest.importorskip("onnx")
ort: Any = pytest.importorskip("onnxruntime")

from tests.interop.operators.onnx_node import PROTO, Node, by_reference, session_options  # noqa: E402

pytestmark = pytest.mark.interop

VERSIONS = (10, 13, 19, 21, 23, 24, 25, 28)
SPECIAL = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, np.nan, np.inf, -np.inf, 3e9, -3e9, -(2.0**31), 1e-40, 300.25, 6.0]


def layouts() -> Iterator[tuple[tuple[int, ...], tuple[int, ...], dict[str, int]]]:
    """Shapes of x and of the scale, and attributes: some of them wrong."""
    yield (), (), {}
    yield (6,), (), {}
    yield (6,), (1,), {}
    yield (6,), (6,), {}
    yield (6,), (6,), {"axis": 0}
    yield (3, 5), (5,), {}
    yield (3, 5), (5,), {"axis": -1}
    yield (3, 5), (3,), {"axis": 0}
    yield (3, 5), (3,), {"axis": -2}
    yield (3, 5), (3,), {"axis": 1}
    yield (3, 5), (5,), {"axis": 2}
    yield (3, 5), (), {"axis": 9}
    yield (2, 3, 4), (3,), {}
    yield (3, 5), (3, 5), {}
    yield (3, 5), (3, 3), {"block_size": 2}
    yield (3, 5), (2, 5), {"block_size": 2, "axis": 0}
    yield (3, 5), (3, 2), {"block_size": 2, "axis": -1}
    yield (3, 5), (3, 1), {"block_size": 7}
    yield (3, 5), (3, 1), {"block_size": 5, "axis": -1}
    yield (3, 5), (), {"block_size": 2}
    yield (6,), (2,), {"block_size": 3, "axis": 0}
    yield (2, 3, 4), (2, 2, 4), {"block_size": 2}
    yield (1, 2, 4), (1, 2, 4), {"block_size": 2, "axis": 0}
    yield (5, 1), (3, 1), {"block_size": 2, "axis": 0}
    yield (3, 5), (3, 5), {"block_size": 1, "axis": 0}
    yield (3, 5), (3, 5), {"block_size": 1, "axis": 1}
    yield (5, 1), (5, 1), {"block_size": 1, "axis": 0}
    yield (1, 9), (1, 9), {"block_size": 3, "axis": 0}
    yield (3, 4, 1), (3, 2, 1), {"block_size": 2, "axis": 1}
    yield (15,), (), {}
    yield (9, 2), (9,), {"axis": 0}
    yield (3, 5), (3, 3), {"block_size": -2}
    yield (0,), (), {}
    yield (2, 0), (2,), {"axis": 0}


def real_data(shape: tuple[int, ...], name: str, rng: np.random.Generator) -> Array:
    size = int(np.prod(shape))
    if name == "i32":
        chosen = np.array([0, 1, -1, 2**31 - 1, -(2**31), 16777217, 255, -77])
        data = np.concatenate([rng.permutation(chosen), rng.integers(-3000, 3000, 64)])[:size]
        return data.astype(np.int32).reshape(shape)
    data = np.concatenate([rng.permutation(SPECIAL), rng.normal(0, 40, 64)])[:size]
    with np.errstate(all="ignore"):
        return data.astype(np.float32).astype(DTYPES[name]).reshape(shape)


def scale_data(shape: tuple[int, ...], name: str, rng: np.random.Generator) -> Array:
    size = int(np.prod(shape))
    if name == "i32":
        return rng.integers(1, 9, size).astype(np.int32).reshape(shape)
    choices = [0.5, 1.0, 2.0, 4.0] if name == "f8E8M0FNU" else [0.0237, 0.5, 1.0, 0.1, 3.0, 7e-5]
    return rng.choice(choices, size).astype(np.float32).astype(DTYPES[name]).reshape(shape)


def stored_data(shape: tuple[int, ...], name: str, rng: np.random.Generator, *, small: bool = False) -> Array:
    size, dtype = int(np.prod(shape)), DTYPES[name]
    if name[0] == "f":
        codes = rng.integers(0, 1 << int(name[1]), size).astype(np.uint8)
        return (codes * (not small)).astype(np.uint8).view(dtype).reshape(shape)
    bits, unsigned = int(name.lstrip("ui")), name.startswith("u")
    lowest, highest = (0, (1 << bits) - 1) if unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    if small and bits == 32:
        return np.zeros(shape, np.int32)
    if small:
        lowest, highest = max(lowest, -100), min(highest, 100)
    kept_type = np.int64
    return rng.integers(lowest, highest + 1, size, kept_type).astype(dtype).reshape(shape)


def quantize_nodes(rng: np.random.Generator) -> Iterator[Node]:
    slots = {slot.name: slot for slot in OPERATORS["onnx.QuantizeLinear"].inputs}
    stored = slots["y_zero_point"].types
    pairs = list(itertools.product(slots["x"].types, slots["y_scale"].types))
    for version in VERSIONS:
        # Every type of zero point with every layout in f32; every pair of real types with a few of them.
        for (shape, scales, attributes), name in itertools.product(layouts(), (*stored, None, "i32")):
            inputs = {"x": real_data(shape, "f32", rng), "y_scale": scale_data(scales, "f32", rng)}
            if name is not None:
                inputs["y_zero_point"] = stored_data(scales, name, rng, small=True)
            yield Node("QuantizeLinear", version, inputs, attributes)
        for (real, scale), name, (shape, scales, attributes) in itertools.product(
            pairs, ("ui8", "i4", "f8E5M2", "f4E2M1FN"), list(layouts())[1:15:4]
        ):
            inputs = {"x": real_data(shape, real, rng), "y_scale": scale_data(scales, scale, rng)}
            inputs["y_zero_point"] = stored_data(scales, name, rng, small=True)
            yield Node("QuantizeLinear", version, inputs, attributes)
            if name == "ui8":
                for precision in (1, 10, 16, 3):
                    yield Node("QuantizeLinear", version, inputs, {**attributes, "precision": precision})
        for name, number in PROTO.items():
            inputs = {"x": real_data((16,), "f32", rng), "y_scale": scale_data((), "f32", rng)}
            yield Node("QuantizeLinear", version, inputs, {"output_dtype": number})
            with_points = {**inputs, "y_zero_point": np.array(3, np.uint8)}
            yield Node("QuantizeLinear", version, with_points, {"output_dtype": number})
            if name.startswith("f8E") and name != "f8E8M0FNU":
                zero = {**inputs, "y_zero_point": np.zeros((), DTYPES[name])}
                yield Node("QuantizeLinear", version, zero, {"saturate": 0})
        for shape in ((), (1,), (2,)):
            inputs = {"x": real_data((3, 5), "f32", rng), "y_scale": scale_data((), "f32", rng)}
            yield Node("QuantizeLinear", version, {**inputs, "y_zero_point": np.zeros(shape, np.uint8)})
        for odd in (0.0, -0.5, np.inf, np.nan, -np.inf, 1e-45):
            inputs = {"x": real_data((16,), "f32", rng), "y_scale": np.array(odd, np.float32)}
            for name in ("ui8", "i8", "i16", "i4", "f8E4M3FN"):
                point = np.array(0 if name[0] == "f" else 5, np.float32).astype(DTYPES[name])
                yield Node("QuantizeLinear", version, {**inputs, "y_zero_point": point})


def dequantize_nodes(rng: np.random.Generator) -> Iterator[Node]:
    slots = {slot.name: slot for slot in OPERATORS["onnx.DequantizeLinear"].inputs}
    for version in VERSIONS:
        for (shape, scales, attributes), name, scale in itertools.product(
            layouts(), slots["x"].types, slots["x_scale"].types
        ):
            inputs = {"x": stored_data(shape, name, rng), "x_scale": scale_data(scales, scale, rng)}
            yield Node("DequantizeLinear", version, inputs, attributes)
            inputs = {**inputs, "x_zero_point": stored_data(scales, name, rng, small=True)}
            yield Node("DequantizeLinear", version, inputs, attributes)
        for name, scale, number in itertools.product(slots["x"].types, slots["x_scale"].types, (1, 10, 16, 3, 11)):
            inputs = {"x": stored_data((16,), name, rng), "x_scale": scale_data((), scale, rng)}
            yield Node("DequantizeLinear", version, inputs, {"output_dtype": number})
        for odd in (0.0, -0.5, np.inf, np.nan):
            inputs = {"x": stored_data((16,), "i8", rng), "x_scale": np.array(odd, np.float32)}
            yield Node("DequantizeLinear", version, inputs)
        points = {"x": stored_data((16,), "i32", rng), "x_scale": np.array(0.1, np.float32)}
        yield Node("DequantizeLinear", version, {**points, "x_zero_point": np.array(7, np.int32)})


def packed(array: Array) -> Array:
    """As onnxruntime keeps it: two or four to a byte, the first lowest."""
    name = NAMES[array.dtype]
    bits = int(name.lstrip("ui")) if name[0] in "iu" else 8
    flat = np.ascontiguousarray(array).reshape(-1)
    if bits >= 8:
        return flat.view(np.uint8)
    each = 8 // bits
    fields = np.zeros(-(-flat.size // each) * each, np.uint8)
    fields[: flat.size] = flat.astype(np.int8).view(np.uint8) & ((1 << bits) - 1)
    shifts = np.arange(each, dtype=np.uint8) * bits
    return np.asarray(np.bitwise_or.reduce(fields.reshape(-1, each) << shifts, axis=1))


def unpacked(data: Array, name: str, shape: tuple[int, ...]) -> Array:
    bits = int(name.lstrip("ui")) if name[0] in "iu" else 8
    if bits >= 8:
        return data.view(DTYPES[name]).reshape(shape)
    each = 8 // bits
    shifts = np.arange(each, dtype=np.uint8) * bits
    flat = ((data[:, None] >> shifts) & ((1 << bits) - 1)).ravel()[: int(np.prod(shape))]
    if name[0] == "i":
        flat = (flat << (8 - bits)).view(np.int8) >> (8 - bits)
    return flat.astype(DTYPES[name]).reshape(shape)


def by_onnxruntime(node: Node, model: Any, name: str) -> Array | None:
    """The result, None where onnxruntime has no kernel for the types or refuses the shapes. `name`: the type of y."""
    try:
        session = ort.InferenceSession(model.SerializeToString(), session_options(), providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        alive = {key: packed(array) for key, array in node.inputs.items()}
        for key, array in node.inputs.items():
            number = PROTO[NAMES[array.dtype]]
            binding.bind_input(key, "cpu", 0, number, list(array.shape), alive[key].ctypes.data)
        shape = node.inputs["x"].shape
        size = packed(np.zeros(shape, DTYPES[name])).size
        output = np.empty(max(size, 1), np.uint8)
        binding.bind_output("y", "cpu", 0, PROTO[name], list(shape), output.ctypes.data)
        session.run_with_iobinding(binding)
    except Exception:
        return None
    return unpacked(output[:size], name, shape)


def refused_beyond_the_checker(node: Node) -> str | None:
    """Why this project may refuse what onnx's checker and inference take: what each calls a matter of the run."""
    scale = node.inputs["y_scale" if node.operator == "QuantizeLinear" else "x_scale"]
    point = node.inputs.get("y_zero_point" if node.operator == "QuantizeLinear" else "x_zero_point")
    if point is not None and point.shape != scale.shape:
        return "shape of the zero point"
    if scale.shape not in ((), (1,)) or "block_size" in node.attributes:
        return "shape of the scale"
    if point is not None and (NAMES[point.dtype][0] == "f" or point.dtype == np.int32) and np.any(point.astype(float)):
        return "zero point that has to be 0"
    if node.attributes.get("precision") == 3 or node.attributes.get("output_dtype"):
        return "type in an attribute"
    if scale.dtype == DTYPES["f8E8M0FNU"] and node.operator == "DequantizeLinear":
        return "f8E8M0FNU without output_dtype"
    return None


def taken_by_onnxruntime_alone(node: Node) -> bool:
    """What onnxruntime takes against the text: scales along an axis at opset 10, zero points of i32, any precision."""
    wide = node.operator == "DequantizeLinear" and node.inputs["x"].dtype == np.int32
    return node.opset == 10 or wide or node.attributes.get("precision") == 3


def check(nodes: Iterator[Node], what: str, at_least: int) -> None:
    tally: Counter[str] = Counter()
    per_version: Counter[tuple[int, str]] = Counter()
    elements: Counter[str] = Counter()
    wrong: list[str] = []
    examples: dict[str, str] = {}
    for node in nodes:
        try:
            model = node.model
        except Exception as error:
            model, reason = None, str(error)
        results: dict[str, Array] = {}
        refusal: RequantError | None = None
        try:
            results = {name: node.ours(name) for name in (IMPLEMENTATION, "reference")}
        except RequantError as error:
            refusal = error
        if model is None and refusal is None:
            tally[f"taken, refused by onnx: {reason[:60]}"] += 1
            wrong.append(f"taken, refused by onnx: {node}: {reason[:200]}")
            continue
        if model is not None and refusal is not None:
            why = refused_beyond_the_checker(node)
            tally[f"refused, taken by the checker: {why}"] += 1
            for y in ("ui8", "f32") if node.operator == "QuantizeLinear" else ("f32",):
                y = y if "y_zero_point" not in node.inputs else NAMES[node.inputs["y_zero_point"].dtype]
                if by_onnxruntime(node, model, y) is not None:
                    tally[f"refused, taken by onnxruntime: {why}"] += 1
                    examples.setdefault(f"{why}", str(node))
                    if not taken_by_onnxruntime_alone(node):
                        wrong.append(f"refused, taken by onnxruntime: {node}")
                    break
            if why is None:
                wrong.append(f"refused {refusal.detail}: {node}")
            continue
        tally["both refuse" if refusal else "both take"] += 1
        if refusal is not None:
            continue
        for name, by in (("reference", by_reference(node, model)),):
            compare(node, name, results[name], by, per_version, elements, wrong)
        theirs = by_onnxruntime(node, model, NAMES[results[IMPLEMENTATION].dtype])
        compare(node, IMPLEMENTATION, results[IMPLEMENTATION], theirs, per_version, elements, wrong)
    print(f"{what}: {dict(tally)}")  # noqa: T201
    print(examples)  # noqa: T201
    print({f"{version} {name}": count for (version, name), count in sorted(per_version.items())})  # noqa: T201
    for name, system in ((IMPLEMENTATION, systems.ONNXRUNTIME), ("reference", systems.ONNX_REFERENCE)):
        record(system, [operator(f"onnx.{what}")], elements[name])
    assert not wrong, f"{len(wrong)} differences\n" + "\n".join(wrong[:25])
    assert sum(count for (_, name), count in per_version.items() if "lacks" not in name) >= at_least


def compare(
    node: Node,
    name: str,
    ours: Array,
    theirs: Array | None,
    per_version: Counter[tuple[int, str]],
    elements: Counter[str],
    wrong: list[str],
) -> None:
    if theirs is None:
        per_version[node.opset, f"{name} lacks"] += 1
        return
    per_version[node.opset, name] += 1
    elements[name] += ours.size
    if same(ours, theirs):
        return
    shown = [array.ravel()[:20].astype(np.float32).tolist() for array in (node.inputs["x"], ours, theirs)]
    wrong.append(f"{name}: {node} {ours.dtype} {theirs.dtype} x, ours, theirs: {shown} {node.inputs}")


def test_quantize_linear() -> None:
    check(quantize_nodes(np.random.default_rng(5)), "QuantizeLinear", 3000)


def test_dequantize_linear() -> None:
    check(dequantize_nodes(np.random.default_rng(6)), "DequantizeLinear", 3000)
