"""Runs graphs of oneDNN Graph's C API for another process: requests on stdin, replies on stdout.

Started as a file by the interpreter of the environment that has oneDNN, and imports the standard library only. Apart,
because the library aborts the process on some graphs, reads ONEDNN_MAX_CPU_ISA once, and needs its own directory on the
loader's path.

A request is a line of JSON and the bytes of its inputs, one after the other. Operators name the tensors that they read
and write; those that have no bytes and are not the output are between operators:

    {"operators": [{"op": "Quantize", "attributes": {"qtype": "per_tensor", "scales": [...], "zps": [...]},
                    "inputs": ["src"], "output": "dst"}],
     "tensors": {"src": {"dtype": "f32", "dims": [4]}, "dst": {"dtype": "u8", "dims": [4]}},
     "inputs": [{"name": "src", "bytes": 16}], "output": {"name": "dst", "bytes": 4}}

The whole graph has to be one partition. The reply is a line of JSON and the bytes of the output: {"bytes": 4}, or
{"error": "..."} and no bytes. The declarations follow dnnl.h, dnnl_graph.h and dnnl_graph_types.h of oneDNN 3.13.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from ctypes import POINTER, Structure, byref, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_void_p
from typing import Any, BinaryIO

MAX_NDIMS = 12
CPU = 1
DEFAULT_STREAM = 1
FUSION = 1
STRIDED = 2
VARIABLE, CONSTANT = 1, 2

DATA_TYPES = {
    "f16": 1,
    "bf16": 2,
    "f32": 3,
    "s32": 4,
    "s8": 5,
    "u8": 6,
    "f8_e5m2": 9,
    "f8_e4m3": 10,
    "s4": 11,
    "u4": 12,
}
OPERATORS = {
    "Add": 2,
    "Convolution": 13,
    "Dequantize": 19,
    "DynamicDequantize": 21,
    "DynamicQuantize": 22,
    "MatMul": 39,
    "Quantize": 49,
    "TypeCast": 77,
}
ATTRIBUTES = {
    "scales": 0x20,
    "axis": 0x30,
    "groups": 0x32,
    "dilations": 0x41,
    "pads_begin": 0x46,
    "pads_end": 0x47,
    "strides": 0x4B,
    "zps": 0x4D,
    "group_shape": 0x4E,
    "data_format": 0x83,
    "qtype": 0x85,
    "weights_format": 0x87,
}
STATUS = {
    1: "out of memory",
    2: "invalid arguments",
    3: "unimplemented",
    4: "last implementation reached",
    5: "runtime error",
    6: "not required",
    7: "invalid graph",
    8: "invalid graph op",
    9: "invalid shape",
    10: "invalid data type",
}

Dims = c_int64 * MAX_NDIMS


class LogicalTensor(Structure):
    """dnnl_graph_logical_tensor_t."""

    _fields_ = (
        ("id", c_size_t),
        ("ndims", c_int),
        ("dims", Dims),
        ("data_type", c_int),
        ("property", c_int),
        ("layout_type", c_int),
        ("strides", Dims),
    )


class GraphError(Exception):
    """A call that did not succeed."""


class Graph:
    """The C API, an engine and a stream."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libdnnl.so.3")
        self._engine, self._stream = c_void_p(), c_void_p()
        self._call("dnnl_engine_create", byref(self._engine), c_int(CPU), c_size_t(0))
        self._call("dnnl_stream_create", byref(self._stream), self._engine, c_int(DEFAULT_STREAM))

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise GraphError(f"{name}: {STATUS.get(status, status)}")

    def _made(self, name: str, *arguments: Any) -> c_void_p:
        made = c_void_p()
        self._call(name, byref(made), *arguments)
        return made

    def effective_isa(self) -> int:
        """dnnl_cpu_isa_t of what the library dispatches to."""
        return int(self._library.dnnl_get_effective_cpu_isa())

    def run(self, request: dict[str, Any], inputs: list[bytes]) -> bytes:
        """Build a graph, compile its partition, execute it, and return the bytes of its output."""
        tensors = {name: self._logical(number, each) for number, (name, each) in enumerate(request["tensors"].items())}
        graph = self._made("dnnl_graph_graph_create", c_int(CPU))
        owned: list[tuple[str, c_void_p]] = [("dnnl_graph_graph_destroy", graph)]
        try:
            for number, operator in enumerate(request["operators"]):
                self._add_operator(graph, number, operator, tensors, owned)
            self._call("dnnl_graph_graph_finalize", graph)
            sources = [tensors[each["name"]] for each in request["inputs"]]
            output = request["output"]
            return self._executed(graph, sources, tensors[output["name"]], inputs, output["bytes"], owned)
        finally:
            for name, handle in reversed(owned):
                getattr(self._library, name)(handle)

    def _add_operator(
        self,
        graph: c_void_p,
        number: int,
        operator: dict[str, Any],
        tensors: dict[str, LogicalTensor],
        owned: list[tuple[str, c_void_p]],
    ) -> None:
        kind = operator["op"]
        op = self._made("dnnl_graph_op_create", c_size_t(number), c_int(OPERATORS[kind]), c_char_p(kind.encode()))
        owned.append(("dnnl_graph_op_destroy", op))
        for name, value in operator["attributes"].items():
            self._set_attribute(op, name, value)
        for name in operator["inputs"]:
            self._call("dnnl_graph_op_add_input", op, byref(tensors[name]))
        self._call("dnnl_graph_op_add_output", op, byref(tensors[operator["output"]]))
        self._call("dnnl_graph_add_op", graph, op)

    def _executed(
        self,
        graph: c_void_p,
        sources: list[LogicalTensor],
        target: LogicalTensor,
        inputs: list[bytes],
        size: int,
        owned: list[tuple[str, c_void_p]],
    ) -> bytes:
        self._call("dnnl_graph_graph_filter", graph, c_int(FUSION))
        count = c_size_t()
        self._call("dnnl_graph_graph_get_partition_num", graph, byref(count))
        if count.value != 1:
            raise GraphError(f"{count.value} partitions")
        partition = c_void_p()
        self._call("dnnl_graph_graph_get_partitions", graph, c_size_t(1), byref(partition))
        owned.append(("dnnl_graph_partition_destroy", partition))
        supported = ctypes.c_uint8()
        self._call("dnnl_graph_partition_is_supported", partition, byref(supported))
        if not supported.value:
            raise GraphError("the partition is not supported")
        compiled = self._made("dnnl_graph_compiled_partition_create", partition)
        owned.append(("dnnl_graph_compiled_partition_destroy", compiled))
        logical = (POINTER(LogicalTensor) * len(sources))(*map(ctypes.pointer, sources))
        self._call(
            "dnnl_graph_partition_compile",
            *(partition, compiled, c_size_t(len(sources)), logical),
            *(c_size_t(1), (POINTER(LogicalTensor) * 1)(ctypes.pointer(target)), self._engine),
        )
        buffers = [ctypes.create_string_buffer(data, max(len(data), 1)) for data in inputs]
        result = ctypes.create_string_buffer(max(size, 1))
        tensors = [
            self._made("dnnl_graph_tensor_create", byref(each), self._engine, buffer)
            for each, buffer in zip([*sources, target], [*buffers, result], strict=True)
        ]
        owned.extend(("dnnl_graph_tensor_destroy", each) for each in tensors)
        handles = (c_void_p * len(sources))(*tensors[:-1])
        self._call(
            "dnnl_graph_compiled_partition_execute",
            *(compiled, self._stream, c_size_t(len(sources)), handles),
            *(c_size_t(1), (c_void_p * 1)(tensors[-1])),
        )
        self._call("dnnl_stream_wait", self._stream)
        return result.raw[:size]

    def _logical(self, number: int, description: dict[str, Any]) -> LogicalTensor:
        made = LogicalTensor()
        dims = description["dims"]
        self._call(
            "dnnl_graph_logical_tensor_init_with_dims",
            *(byref(made), c_size_t(number), c_int(DATA_TYPES[description["dtype"]]), c_int32(len(dims)), Dims(*dims)),
            *(c_int(STRIDED), c_int(VARIABLE)),
        )
        return made

    def _set_attribute(self, op: c_void_p, name: str, value: Any) -> None:
        key = c_int(ATTRIBUTES[name])
        if isinstance(value, str):
            self._call("dnnl_graph_op_set_attr_str", op, key, c_char_p(value.encode()), c_size_t(1))
            return
        values = value if isinstance(value, list) else [value]
        kind: Callable[..., Any] = c_float if name == "scales" else c_int64
        setter = "dnnl_graph_op_set_attr_f32" if name == "scales" else "dnnl_graph_op_set_attr_s64"
        self._call(setter, op, key, (kind * len(values))(*values), c_size_t(len(values)))  # type: ignore[operator]


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer requests until there are no more. The first line says which instruction set is used."""
    graph = Graph()
    sink.write(json.dumps({"isa": graph.effective_isa()}).encode() + b"\n")
    sink.flush()
    while line := source.readline():
        request = json.loads(line)
        inputs = [source.read(each["bytes"]) for each in request["inputs"]]
        try:
            output = graph.run(request, inputs)
            sink.write(json.dumps({"bytes": len(output)}).encode() + b"\n" + output)
        except GraphError as error:
            sink.write(json.dumps({"error": str(error)}).encode() + b"\n")
        sink.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
