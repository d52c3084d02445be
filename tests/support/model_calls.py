"""Calls of JSON routes as calls of models: what each member of a request becomes, and where its reply has to be found.

Lists of numbers are tensors, a tensor's type is a parameter, and other lists and objects are JSON as text.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.support.oip_wire import Array, Input, Reply

Members = Mapping[str, Any]

_KEPT = {"f16": "<f2", "f32": "<f4", "f64": "<f8", "bf16": "<u2", "i1": "|b1"}
# Members that are lists of real numbers, as texts or not, and the tensors that they become.
_REALS = {
    "minimums": "minimum",
    "maximums": "maximum",
    "nudged_minimums": "nudged_minimum",
    "nudged_maximums": "nudged_maximum",
    "weight_scales": "weight_scale",
    "input_scale": "input_scale",
    "factors": "factor",
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


def tensor_input(name: str, tensor: Members) -> Input:
    """A JSON tensor as an input, in binary."""
    _, element = shape_and_element(tensor["type"])
    return Input(name, array_of(tensor), "BF16" if element == "bf16" else "")


def _real(value: Any) -> float:
    return float.fromhex(value) if isinstance(value, str) and "0x" in value else float(value)


def model_call(request: Members, *, slots: set[str], parameters: set[str]) -> tuple[list[Input], Members]:
    """The inputs and the parameters of a call. `slots` and `parameters`: those that the model has."""
    inputs: list[Input] = []
    stated: dict[str, Any] = {}
    for name, value in request.items():
        if name == "attributes":
            stated |= {key: json.dumps(each) if isinstance(each, list) else each for key, each in value.items()}
        elif name == "inputs" and isinstance(value, dict):
            for key, tensor in value.items():
                inputs.append(tensor_input(key, tensor))
                stated |= _type_of(key, tensor, parameters)
        elif name == "inputs":
            slot = "input" if "input" in slots else "x"
            inputs += [tensor_input(f"{slot}_{index}", tensor) for index, tensor in enumerate(value)]
        elif name == "scales" and isinstance(value, list):
            for side in value[0]:
                inputs.append(Input(f"{side}_scale", np.array([_real(each[side]) for each in value])))
        elif name == "multipliers":
            for side in ("multiplier", "shift"):
                inputs.append(Input(side, np.array([each[side] for each in value], np.int64)))
        elif is_tensor(value):
            slot = name if name in slots else "x"
            inputs.append(tensor_input(slot, value))
            stated |= _type_of(name, value, parameters)
        elif name in _REALS:
            numbers = value if isinstance(value, list) else [value]
            inputs.append(Input(_REALS[name], np.array([_real(each) for each in numbers])))
        elif name == "opset":
            continue
        else:
            stated[name] = json.dumps(value) if isinstance(value, (list, dict)) else value
    return inputs, stated


def _type_of(name: str, tensor: Members, parameters: set[str]) -> dict[str, str]:
    """The parameter for the type of a tensor, if the model has one and the datatype does not say it."""
    shape, element = shape_and_element(tensor["type"])
    plain = element.lstrip("uibf").isdigit() and not element.startswith("f8")
    if f"{name}_type" not in parameters or (plain and element.endswith(str(dtype_of(element).itemsize * 8))):
        return {}
    return {f"{name}_type": element if shape else tensor["type"]}


def rescale_call(request: Members) -> tuple[list[Input], Members]:
    """A call of `/v1/tosa/rescale`, whose operands are numbers, as one of the operator, whose operands are tensors."""
    stated = {name: value for name, value in request.items() if isinstance(value, (bool, str)) and "type" not in name}
    element = shape_and_element(request["input"]["type"])[1]
    if element == "i48":
        stated |= {"input_type": element, "input_zp_type": element}
    inputs = [tensor_input("input", request["input"])]
    width = np.int32 if stated.get("scale32", True) else np.int16
    inputs.append(Input("multiplier", np.array(request["multiplier"], width)))
    inputs.append(Input("shift", np.array(request["shift"], np.int8)))
    for name, of in (("input_zp", element), ("output_zp", request["output_type"])):
        inputs.append(Input(name, np.array([request.get(name, 0)], dtype_of(of))))
    return inputs, stated


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
