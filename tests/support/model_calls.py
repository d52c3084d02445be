"""Replies of JSON routes and of models of the same operations: where what one says stands in the other.

Lists of numbers are tensors, and other lists and objects are JSON as text.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.support.oip_wire import Array, Reply

Members = Mapping[str, Any]

_KEPT = {"f16": "<f2", "f32": "<f4", "f64": "<f8", "bf16": "<u2", "i1": "|b1", "ui1": "|b1"}
# Members that are lists of real numbers, and the tensors that they are.
_REALS = {
    "minimums": "minimum",
    "maximums": "maximum",
    "nudged_minimums": "nudged_minimum",
    "nudged_maximums": "nudged_maximum",
    "scales": "scale",
    "table": "table",
    "relative_error": "relative_error",
    "factor": "factor",
}
_INTEGERS = {"zero_points": "zero_point", **{name: name for name in ("shape", "block_axes", "block_sizes")}}
_INTEGERS |= {name: name for name in ("scale_shape", "multiplier", "shift")}
# What a reply in JSON says twice, for readers whose numbers are not exact.
_SAID_TWICE = {"scale_bits", "zero_point_bits", "represented", "fraction"}


def shape_and_element(text: str) -> tuple[list[int], str]:
    """`tensor<2x3xf32>` taken apart."""
    shape, rest = [], text.removeprefix("tensor<").removesuffix(">")
    while rest[0].isdigit():
        size, _, rest = rest.partition("x")
        shape.append(int(size))
    return shape, rest


def dtype_of(element: str) -> np.dtype[Any]:
    """What elements are kept in: integers in the next wider ones, small floats as their codes."""
    element = element.removeprefix("!quant.uniform<").partition(":")[0].partition("<")[0]
    if element in _KEPT:
        return np.dtype(_KEPT[element])
    if element.startswith("f"):
        return np.dtype(np.uint8)
    width = max(int(element.lstrip("sui")), 8)
    return np.dtype(f"{'u' if element.startswith('u') else 'i'}{1 << (width - 1).bit_length() >> 3}")


def is_tensor(value: Any) -> bool:
    """Whether a member of a request or a reply is a tensor."""
    return isinstance(value, dict) and "type" in value and ("data" in value or "values" in value)


def array_of(tensor: Members) -> Array:
    """The elements of a JSON tensor, in its shape."""
    shape, element = shape_and_element(tensor["type"])
    if "data" in tensor:
        return np.frombuffer(base64.b64decode(tensor["data"]), dtype_of(element)).reshape(shape)
    values = np.array([float(each) if isinstance(each, str) else each for each in tensor["values"]])
    if element == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).reshape(shape)
    return values.astype(dtype_of(element)).reshape(shape)


def rescale_operands(request: Members) -> Members:
    """A request of `/v1/tosa/rescale`, whose operands are numbers, as one of the operator with tensors."""
    attributes = {
        name: value for name, value in request.items() if isinstance(value, (bool, str)) and "type" not in name
    }
    element = shape_and_element(request["input"]["type"])[1]
    operands = {
        "multiplier": ("i32" if attributes.get("scale32", True) else "i16", request["multiplier"]),
        "shift": ("i8", request["shift"]),
        "input_zp": (element, [request.get("input_zp", 0)]),
        "output_zp": (request["output_type"], [request.get("output_zp", 0)]),
    }
    tensors = {
        name: {"type": f"tensor<{len(values)}x{kind}>", "values": values} for name, (kind, values) in operands.items()
    }
    return {"inputs": {"input": request["input"], **tensors}, "attributes": attributes}


def check_reply(found: Reply, reply: Members) -> None:
    """Compare the reply of a model with that of the JSON route: everything that this says, to the bit."""
    for name, value in reply.items():
        _check(found, name, value)


def _check(found: Reply, name: str, value: Any) -> None:
    said = found.head["parameters"]
    if name in _SAID_TWICE:
        return
    if is_tensor(value):
        shown = "y" if name == "output" and name not in found.outputs else name
        expected, array = array_of(value), found.outputs[shown]
        assert (array.dtype, array.shape, array.tobytes()) == (expected.dtype, expected.shape, expected.tobytes()), name
        if name == "output" and "output_type" in said:
            assert said["output_type"] == value["type"]
    elif name == "outputs":
        named = value if isinstance(value, dict) else {f"output_{index}": each for index, each in enumerate(value)}
        for key, each in named.items():
            _check(found, key, each)
    elif name == "first":
        assert found.outputs["first"].tolist() == [each["index"] for each in value]
    elif name == "buckets":
        assert found.outputs["histogram"].tolist() == [list(each.values()) for each in value]
    elif name in ("multipliers", "results"):
        for member in value[0] if value else ():
            _check(found, member, [each[member] for each in value])
    elif isinstance(value, dict):
        for key, each in value.items():
            _check(found, key, each)
    elif isinstance(value, list) and name in _REALS | _INTEGERS:
        shown = (_REALS | _INTEGERS)[name]
        array = found.outputs.get(shown, np.empty(0))
        assert array.ravel().tolist() == [float(each) if name in _REALS else each for each in value], name
    elif name == "elements" and isinstance(value, list):
        assert json.loads(said["explained"]) == value
    elif isinstance(value, list):
        assert json.loads(said.get(name, "[]")) == value, name
    elif name.startswith("range_"):
        assert said[name] == float(value)
    else:
        assert said[name] == value, name
