"""Small ONNX models, made with onnx's messages alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

Array = NDArray[Any]

TYPES = {"<f4": 1, "<i8": 7, "<f2": 10}


def tensor(name: str, values: Array, *, type_: int | None = None) -> TensorProto:
    made = TensorProto(name=name, data_type=type_ or TYPES[values.dtype.str], dims=values.shape)
    made.raw_data = values.tobytes()
    return made


def external(name: str, shape: tuple[int, ...], location: str, **entries: str) -> TensorProto:
    made = TensorProto(name=name, data_type=1, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        made.external_data.add(key=key, value=value)
    return made


def value(name: str, *shape: int | str, type_: int = 1) -> ValueInfoProto:
    made = ValueInfoProto(name=name)
    made.type.tensor_type.elem_type = type_
    for each in shape:
        if isinstance(each, int):
            made.type.tensor_type.shape.dim.add(dim_value=each)
        else:
            made.type.tensor_type.shape.dim.add(dim_param=each)
    return made


def node(operator: str, inputs: list[str], outputs: list[str], name: str = "", **attributes: Any) -> NodeProto:
    made = NodeProto(op_type=operator, input=inputs, output=outputs, name=name)
    for key, given in attributes.items():
        if isinstance(given, GraphProto):
            made.attribute.add(name=key, type=5, g=given)
        elif isinstance(given, float):
            made.attribute.add(name=key, type=1, f=given)
        else:
            made.attribute.add(name=key, type=2, i=given)
    return made


def model(
    nodes: list[NodeProto],
    initializers: list[TensorProto],
    inputs: list[ValueInfoProto],
    outputs: list[ValueInfoProto],
    *,
    opset: int = 21,
    ir_version: int = 10,
) -> ModelProto:
    made = ModelProto(ir_version=ir_version)
    made.opset_import.add(domain="", version=opset)
    made.graph.CopyFrom(GraphProto(name="g", node=nodes, initializer=initializers, input=inputs, output=outputs))
    return made


def save(made: ModelProto, path: Path) -> None:
    path.write_bytes(made.SerializeToString())


def load(path: Path) -> ModelProto:
    made = ModelProto()
    made.ParseFromString(path.read_bytes())
    return made


def bytes_of(made: TensorProto, directory: Path) -> bytes:
    """The data of a tensor, from the file that it is in."""
    if made.data_location != TensorProto.EXTERNAL:
        return bytes(made.raw_data)
    entries = {entry.key: entry.value for entry in made.external_data}
    begin, length = int(entries["offset"]), int(entries["length"])
    stored: bytes = (directory / entries["location"]).read_bytes()[begin : begin + length]
    return stored


def array_of(made: TensorProto, directory: Path) -> Array:
    names = {number: dtype for dtype, number in TYPES.items()} | {2: "|u1"}
    return np.frombuffer(bytes_of(made, directory), names[made.data_type]).reshape(made.dims)
