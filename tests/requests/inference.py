"""The body of a JSON route as a request of the model of the same operation: JSON, binary, or a message of gRPC.

Nothing is checked, since bodies of all kinds come here: what is no tensor or no number stays what it is.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from requant_service.oip.grpc import inference_pb2 as pb
from tests.requests.catalog import CATALOG, Entry
from tests.support.inference_messages import request_of
from tests.support.oip_wire import DTYPES, Array, Input

_TENSOR = re.compile(r"tensor<((?:\d+x)*)(.*)>", re.DOTALL)
_DATATYPES = {
    "f32": "FP32", "f16": "FP16", "bf16": "BF16", "f64": "FP64", "i1": "BOOL", "i64": "INT64", "ui64": "UINT64",
}  # fmt: skip
_STORAGE = re.compile(r"(?:!quant\.uniform<)?(s|u|ui|si|i)(\d+)")
_DENSE = "dense"


def datatype_of(element: str) -> str:
    """The datatype that elements of a type travel as, as far as its text tells."""
    if element in _DATATYPES:
        return _DATATYPES[element]
    if storage := _STORAGE.match(element):
        bits = next((bits for bits in (8, 16, 32, 64) if int(storage[2][:4]) <= bits), 64)
        return f"{'UINT' if storage[1].startswith('u') else 'INT'}{bits}"
    return "UINT8" if element.startswith(("f4", "f6", "f8", "!quant.uniform<f")) else "FP32"


def array_from(values: Any, datatype: str) -> Array:
    """JSON values as an array; bf16 as bit patterns. Raise ValueError, TypeError or OverflowError."""
    with np.errstate(all="ignore"):
        numbers = np.array([float(each) if isinstance(each, str) else each for each in values])
        if datatype == "BF16":
            return np.asarray(numbers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        return numbers.astype(DTYPES[datatype])


@dataclass(frozen=True)
class Part:
    """An input: JSON values, whatever they are, or bytes, or an array of any shape."""

    name: str
    datatype: str
    shape: list[int]
    values: Any

    @property
    def array(self) -> Array:
        """The elements in their shape."""
        if isinstance(self.values, bytes):
            return np.frombuffer(self.values, DTYPES[self.datatype]).reshape(self.shape)
        given = self.values if isinstance(self.values, np.ndarray) else array_from(self.values, self.datatype)
        return given.reshape(self.shape)


@dataclass(frozen=True)
class Inference:
    """A request of a model."""

    model: str
    version: str
    parts: list[Part]
    parameters: dict[str, Any]

    @property
    def path(self) -> str:
        """The model, with its version where it has several."""
        return f"{self.model}/versions/{self.version}" if self.version else self.model

    @property
    def inputs(self) -> list[Input]:
        """The inputs as arrays, which are sent in binary."""
        return [Input(each.name, each.array, each.datatype) for each in self.parts]

    def in_json(self) -> dict[str, Any]:
        """The body in JSON."""
        return {"inputs": [_head(each, each.array.ravel().tolist()) for each in self.parts],
                "parameters": self.parameters}  # fmt: skip

    def drafted(self) -> tuple[dict[str, Any], bytes]:
        """The JSON and the binary tensors: each tensor in the form in which the route's body has it."""
        heads, blobs = [], b""
        for each in self.parts:
            if isinstance(each.values, bytes):
                heads.append({**_head(each), "parameters": {"binary_data_size": len(each.values)}})
                blobs += each.values
            else:
                heads.append(_head(each, each.values))
        return {"inputs": heads, "parameters": dict(self.parameters)}, blobs

    def message(self, **members: Any) -> pb.ModelInferRequest:
        """The message of gRPC."""
        tensors = {f"{each.name}:{each.datatype}": each.array for each in self.parts}
        return request_of(self.model, tensors, self.parameters, model_version=self.version, **members)


def _head(part: Part, *data: Any) -> dict[str, Any]:
    head = {"name": part.name, "shape": part.shape, "datatype": part.datatype}
    return {**head, "data": data[0]} if data else head


def _number(value: Any) -> Any:
    """A factor is a text in JSON, and a number of a tensor."""
    try:
        return float.fromhex(value) if "x" in value else float(value)
    except (TypeError, ValueError, OverflowError):
        return value


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _of_numbers(name: str, datatype: str, numbers: list[Any]) -> Part:
    return Part(name, datatype, [len(numbers)], numbers)


def inference(entry: Entry, body: Any) -> Inference:
    """Return the request of a model for what the body of its JSON route asks for."""
    members: dict[str, Any] = dict(body) if isinstance(body, dict) else {}
    parts: list[Part] = []
    parameters: dict[str, Any] = {}
    opset = members.pop("opset", None) if entry.operator else None
    if entry.operator:
        tensors, attributes = (members.pop(name, None) for name in ("inputs", "attributes"))
        tensors = tensors if isinstance(tensors, dict) else {}
        members |= attributes if isinstance(attributes, dict) else {}
    else:
        tensors = {name: members.pop(name) for name in entry.tensors if name in members}
    stated, dense = entry.parameters, members.get("packing") == _DENSE
    for name, value in tensors.items():
        part, type_ = _part(entry, entry.tensors.get(name, name), value, dense=dense)
        parts.append(part)
        if (option := entry.types.get(name, "")) in stated:
            parameters[option] = type_
    for name, value in members.items():
        # Records may have the name of the numbers of one of their members.
        if name in entry.columns:
            parts += _columns(entry, entry.columns[name], value)
        elif name in entry.numbers:
            parts.append(_of_numbers(entry.numbers[name], "FP64", [_number(each) for each in _listed(value)]))
        elif name == entry.calls and isinstance(value, list):
            parameters[name] = json.dumps([_call(entry, each, parts) for each in value])
        elif name in entry.several and isinstance(value, list):
            parts += _several(entry, entry.several[name], value)
        else:
            parameters[name] = json.dumps(value) if isinstance(value, (list, float, dict)) else value
    return Inference(entry.model, _version(entry, opset), parts, parameters)


def _version(entry: Entry, opset: Any) -> str:
    """The version of an operator that holds in a version of its system, none where that is not named."""
    if not isinstance(opset, int):
        return ""
    return str(max((int(each) for each in entry.versions if int(each) <= opset), default=""))


def _call(entry: Entry, call: Any, parts: list[Part]) -> Any:
    """A call of another operation, in which tensors are named that are added to the inputs."""
    if not isinstance(call, dict) or not isinstance(call.get("arguments"), dict):
        return call
    called = CATALOG.get(str(call.get("operation")))
    arguments: dict[str, Any] = {}

    def named(tensor: Any) -> tuple[str, str]:
        part, type_ = _part(entry, f"tensor_{len(parts)}", tensor)
        parts.append(part)
        return part.name, type_

    for name, value in call["arguments"].items():
        if called is not None and name in called.tensors and isinstance(value, dict):
            arguments[name], arguments[called.types[name]] = named(value)
        elif called is not None and name in called.columns and isinstance(value, list):
            for member in called.columns[name]:
                arguments[called.columns[name][member]] = [each.get(member) for each in value if isinstance(each, dict)]
        else:
            arguments[name] = value
    found = {**call, "arguments": arguments}
    if isinstance(observed := call.get("observed"), dict):
        # A tensor is an input if its type is known.
        found["observed"] = {
            name: named(each)[0] if isinstance(each, dict) and "type" in each else each
            for name, each in observed.items()
        }
    return found


def _several(entry: Entry, slot: str, tensors: list[Any]) -> Iterator[Part]:
    for index, tensor in enumerate(tensors):
        yield _part(entry, f"{slot}_{index}", tensor)[0]


def _columns(entry: Entry, names: Mapping[str, str], rows: Any) -> Iterator[Part]:
    """Each member of all objects as an input."""
    pairs = [each for each in _listed(rows) if isinstance(each, dict)]
    for name, slot in names.items():
        if numbers := [
            _number(each[name]) if slot.endswith("_scale") else each[name] for each in pairs if name in each
        ]:
            yield _of_numbers(slot, entry.datatypes[slot][0], numbers)


def _part(entry: Entry, name: str, tensor: Any, *, dense: bool = False) -> tuple[Part, str]:
    """A tensor as an input, and what the parameter for its type says."""
    said = tensor if isinstance(tensor, dict) else {}
    values = said.get("values", [])
    match = _TENSOR.fullmatch(said["type"]) if isinstance(said.get("type"), str) else None
    shape = [len(values)] if isinstance(values, list) else []
    if match:
        shape = [int(size) for size in match[1].split("x")[:-1]]
    element = match[2] if match else "f32"
    datatype = datatype_of(element)
    slot = re.sub(r"_\d+$", "", name) if name not in entry.datatypes else name
    taken = entry.datatypes.get(slot, ("FP32",))
    if isinstance(said.get("data"), np.ndarray):
        values = said["data"]
    elif isinstance(said.get("data"), str):
        try:
            values = base64.b64decode(said["data"])
        except ValueError:
            values = b""
    if dense and isinstance(values, bytes | np.ndarray):
        size = len(values) if isinstance(values, bytes) else values.nbytes
        return Part(name, "UINT8", [size], values), said["type"]
    return Part(name, datatype if datatype in taken else taken[0], shape, values), element
