"""A safetensors body gives the bits of the same tensor in a `.npy`, whatever stands around it, or is refused."""

from __future__ import annotations

import asyncio
import io
import json
import struct
from typing import Any

import numpy as np
import pytest

from tests.support.asgi import Reply, post, ready_app

I8 = "!quant.uniform<i8:f32, 0.5:3>"
SAFETENSORS = "application/vnd.safetensors"
Array = np.ndarray[Any, Any]
APP = ready_app()


def npy(array: Array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def with_header(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


def safetensors(tensors: dict[str, tuple[str, list[int], bytes]], metadata: dict[str, str] | None = None) -> bytes:
    """A file as the format's description says, tensors in the order given: name to dtype, shape and bytes."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    data = b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    return with_header(json.dumps(header).encode(), data)


def one(dtype: str, array: Array, name: str = "w") -> bytes:
    return safetensors({name: (dtype, list(array.shape), array.tobytes())})


def tensors_of(body: bytes) -> dict[str, tuple[str, list[int], bytes]]:
    """The tensors of a reply, read as the format's description says."""
    (length,) = struct.unpack_from("<Q", body)
    assert length % 8 == 0
    data = body[8 + length :]
    header = json.loads(body[8 : 8 + length])
    assert sum(entry["data_offsets"][1] - entry["data_offsets"][0] for entry in header.values()) == len(data)
    return {
        name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])]) for name, entry in header.items()
    }


def send(operation: str, body: bytes, **query: Any) -> Reply:
    """Send a body. `chunk`, `declared` and `accept` say how; all else is the query."""
    chunk, declared = query.pop("chunk", 1 << 20), query.pop("declared", True)
    accept = query.pop("accept", "")
    chunks = [body[at : at + chunk] for at in range(0, len(body), chunk)] or [b""]
    headers = [(b"accept", accept.encode())] if accept else []
    length = len(body) if declared else None
    return asyncio.run(post(APP, f"/v1/npy/{operation}", query, chunks, declared=length, headers=headers))


def refused(reply: Reply) -> tuple[int, str, str]:
    problem = json.loads(reply.body)
    return reply.status, problem["code"], problem["detail"]


def stated(reply: Reply) -> dict[str, str]:
    """The headers that say what the body is."""
    return {name: value for name, value in reply.headers.items() if name.startswith(("requant-", "content-"))}


SOURCE = np.array([[-0.25, 0.25, 0.75], [100, -3.5, 1.25]], np.float32)
BF16 = (SOURCE.view(np.uint32) >> 16).astype(np.uint16)
F8 = np.array([0x38, 0xB8, 0x7E, 0x01], np.uint8)
ACCUMULATORS = np.array([-70000, -750, 750, 70000], np.int32)
PER_CHANNEL = "!quant.uniform<i8:f32:0, {0.5,0.25:1}>"

SAME_BITS = [
    ("quantize", "F32", SOURCE, {"output_type": I8}),
    ("quantize", "F32", SOURCE, {"output_type": I8, "profile": "onnx"}),
    ("quantize", "F32", SOURCE, {"output_type": PER_CHANNEL, "profile": "torch"}),
    ("quantize", "F32", SOURCE, {"output_type": "!quant.uniform<i4:f32, 0.5>", "packing": "dense"}),
    ("quantize", "F32", SOURCE, {"output_type": "!quant.any<i8:f32>", "axis": "0"}),
    ("quantize", "F32", SOURCE, {"output_type": "!quant.any<i8:f32>", "output": "npz"}),
    ("quantize", "F64", SOURCE.astype(np.float64), {"output_type": "!quant.uniform<i8:f64, 0.5:3>"}),
    ("quantize", "F16", SOURCE.astype(np.float16), {"output_type": "!quant.uniform<u8:f16, 0.5:3>"}),
    ("quantize", "BF16", BF16, {"output_type": "!quant.uniform<i8:bf16, 0.5:3>", "input_type": "bf16"}),
    ("quantize", "U16", BF16, {"output_type": "!quant.uniform<i8:bf16, 0.5:3>", "input_type": "bf16"}),
    ("quantize", "BF16", BF16, {"output_type": "!quant.any<i8:bf16>", "input_type": "bf16"}),
    ("dequantize", "I8", SOURCE.astype(np.int8), {"input_type": I8}),
    ("dequantize", "U8", SOURCE.astype(np.int8).view(np.uint8), {"input_type": "!quant.uniform<u8:f32, 0.5:3>"}),
    ("dequantize", "I16", SOURCE.astype(np.int16), {"input_type": "!quant.uniform<i16:f32, 0.5>"}),
    ("dequantize", "F8_E4M3", F8, {"input_type": "!quant.uniform<f8E4M3FN:f32, 0.5>", "profile": "onnx"}),
    ("dequantize", "F8_E5M2", F8, {"input_type": "!quant.uniform<f8E5M2:f32, 0.5>", "profile": "onnx"}),
    ("dequantize", "U8", F8, {"input_type": "!quant.uniform<f8E4M3FN:f32, 0.5>", "profile": "onnx"}),
    ("requantize", "I32", ACCUMULATORS, {"input_type": "!quant.uniform<i32:f32, 0.001>", "output_type": I8}),
    ("requantize", "I32", ACCUMULATORS, {"output_type": I8, "multipliers": "1073741824:-3", "scheme": "litert"}),
]


@pytest.mark.parametrize(("operation", "dtype", "array", "query"), SAME_BITS)
def test_same_reply_as_for_a_npy(operation: str, dtype: str, array: Array, query: dict[str, str]) -> None:
    expected = send(operation, npy(array), **query)
    assert expected.status == 200, expected.body
    for body, naming in (
        (one(dtype, array), {}),
        (safetensors({"a": ("U8", [3], b"abc"), "w": (dtype, [*array.shape], array.tobytes())}), {"tensor": "w"}),
        (safetensors({"w": (dtype, [*array.shape], array.tobytes()), "z": ("C64", [1], bytes(8))}), {"tensor": "w"}),
    ):
        for options in ({}, {"chunk": 7}, {"chunk": 1, "declared": False}):
            found = send(operation, body, **options, **query, **naming)
            assert found.status == 200, found.body
            assert found.body == expected.body
            assert stated(found) == stated(expected)


def test_a_long_tensor_between_others() -> None:
    """Converted piece by piece, the output kept or the input."""
    numbers = np.random.default_rng(1).normal(0, 20, 700_001).astype(np.float32)
    body = safetensors(
        {"a": ("U8", [3], b"abc"), "w": ("F32", [numbers.size], numbers.tobytes()), "z": ("I8", [0], b"")}
    )
    expected = send("quantize", npy(numbers), output_type=I8)
    for options in ({"chunk": 65536}, {"chunk": 99_991, "declared": False}):
        assert send("quantize", body, **options, output_type=I8, tensor="w").body == expected.body
    codes = np.arange(700_000, dtype=np.uint32).astype(np.int8)
    body = safetensors({"a": ("U8", [3], b"abc"), "w": ("I8", [codes.size], codes.tobytes())})
    expected = send("dequantize", npy(codes), input_type=I8)
    assert send("dequantize", body, chunk=65536, input_type=I8, tensor="w").body == expected.body


@pytest.mark.parametrize("name", ["w", "", "../x", 'a"b\\c', "größe.重み.😀", "a b\tc", "__metadata", "tensor=1&2"])
def test_names_come_back(name: str) -> None:
    file = {"other": ("F32", [1], bytes(4)), name: ("F32", [2, 3], SOURCE.tobytes())}
    reply = send("quantize", safetensors(file, {"format": "pt"}), accept=SAFETENSORS, output_type=I8, tensor=name)
    assert reply.headers["content-type"] == SAFETENSORS
    expected = np.load(io.BytesIO(send("quantize", npy(SOURCE), output_type=I8).body))
    assert tensors_of(reply.body) == {name: ("I8", [2, 3], expected.tobytes())}


@pytest.mark.parametrize(
    ("output_type", "options", "dtype", "shape"),
    [
        (I8, {}, "I8", [2, 3]),
        ("!quant.uniform<u16:f32, 0.5>", {}, "U16", [2, 3]),
        ("!quant.uniform<f8E4M3FN:f32, 0.5>", {"profile": "onnx"}, "F8_E4M3", [2, 3]),
        ("!quant.uniform<f8E5M2:f32, 0.5>", {"profile": "onnx"}, "F8_E5M2", [2, 3]),
        ("!quant.uniform<f4E2M1FN:f32, 0.5>", {"profile": "onnx"}, "U8", [2, 3]),
        ("!quant.uniform<f4E2M1FN:f32, 0.5>", {"packing": "dense", "profile": "onnx"}, "F4", [2, 3]),
        ("!quant.uniform<i4:f32, 0.5>", {"packing": "dense"}, "U8", [3]),
        ("!quant.uniform<i4:f32, 0.5>", {}, "I8", [2, 3]),
        ("!quant.any<i8:f32>", {}, "I8", [2, 3]),
    ],
)
def test_dtypes_of_replies(output_type: str, options: dict[str, str], dtype: str, shape: list[int]) -> None:
    query = {"output_type": output_type, **options}
    plain = send("quantize", npy(SOURCE), **query)
    assert plain.status == 200, plain.body
    reply = send("quantize", one("F32", SOURCE), accept=f"text/html, {SAFETENSORS};q=0.5", **query)
    stored = np.load(io.BytesIO(plain.body)).tobytes()
    assert tensors_of(reply.body) == {"w": (dtype, shape, stored)}
    # What was written is read back.
    given = {"input_type": reply.headers["requant-type"], **options}
    back = send("dequantize", reply.body, accept=SAFETENSORS, **given)
    assert back.status == 200, back.body
    numbers = np.load(io.BytesIO(send("dequantize", plain.body, **given).body))
    assert tensors_of(back.body) == {"w": ("F32", [2, 3], numbers.tobytes())}


def test_f4_takes_its_shape_from_the_file() -> None:
    """Two to a byte, the first in the low half: 0.5, -6, 1, 0."""
    body = safetensors({"w": ("F4", [2, 2], bytes([0xF1, 0x02]))})
    for given in ("!quant.uniform<f4E2M1FN:f32, 0.5>", "tensor<2x2x!quant.uniform<f4E2M1FN:f32, 0.5>>"):
        reply = send("dequantize", body, input_type=given, profile="onnx")
        assert np.load(io.BytesIO(reply.body)).tolist() == [[0.25, -3.0], [0.5, 0.0]]
    reply = send("dequantize", body, input_type="tensor<4x!quant.uniform<f4E2M1FN:f32, 0.5>>", profile="onnx")
    assert refused(reply)[:2] == (422, "type_does_not_fit")


def test_bf16_needs_no_input_type() -> None:
    reply = send("quantize", one("BF16", BF16), output_type="!quant.uniform<i8:bf16, 0.5:3>")
    named = send("quantize", npy(BF16), input_type="bf16", output_type="!quant.uniform<i8:bf16, 0.5:3>")
    assert (reply.status, reply.body) == (200, named.body)


@pytest.mark.parametrize(
    "accept", ["", "*/*", "application/octet-stream", f"{SAFETENSORS};q=0", f"{SAFETENSORS}; q=0.0"]
)
def test_replies_are_npy_unless_asked_otherwise(accept: str) -> None:
    body = one("F32", SOURCE)
    for _ in range(2):
        assert send("quantize", body, accept=accept, output_type=I8).body[:6] == b"\x93NUMPY"
        assert send("quantize", body, accept=SAFETENSORS, output_type=I8).headers["content-type"] == SAFETENSORS
    of_npy = send("quantize", npy(SOURCE), accept=SAFETENSORS, output_type=I8)
    assert of_npy.headers["content-type"] == "application/octet-stream"


def test_several_tensors_need_a_name() -> None:
    file = {f"layer.{i}.weight": ("F32", [1], bytes(4)) for i in range(20)}
    status, code, detail = refused(send("quantize", safetensors(file), output_type=I8))
    assert (status, code) == (422, "request_invalid")
    assert "20 tensors" in detail
    assert "'layer.7.weight' and others" in detail
    reply = send("quantize", safetensors(file), output_type=I8, tensor="layer.3.wieght")
    assert refused(reply)[:2] == (422, "request_invalid")
    assert "did you mean layer." in refused(reply)[2]
    assert json.loads(reply.body)["errors"][0]["pointer"] == "/tensor"
    reply = send("quantize", npy(SOURCE), output_type=I8, tensor="w")
    assert refused(reply)[:2] == (422, "request_invalid")


W = '"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
HOSTILE = {
    "no tensors": with_header(b"{}"),
    "a name twice": with_header(f"{{{W},{W}}}".encode(), bytes(4)),
    "a gap": with_header(b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', bytes(8)),
    "an overlap": with_header(f'{{{W},"v":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}}}'.encode(), bytes(4)),
    "16 GB promised": with_header(b'{"w":{"dtype":"F32","shape":[4000000000],"data_offsets":[0,16000000000]}}'),
    "2^64 elements": with_header(
        b'{"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}}', bytes(4)
    ),
    "a long dimension of nothing": with_header(
        b'{"w":{"dtype":"F32","shape":[0,9223372036854775807],"data_offsets":[0,0]}}'
    ),
    "65 dimensions": with_header(
        b'{"w":{"dtype":"F32","shape":[' + b",".join([b"1"] * 65) + b'],"data_offsets":[0,4]}}', bytes(4)
    ),
    "an unknown dtype": with_header(b'{"w":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}}', bytes(4)),
    "complex numbers": with_header(b'{"w":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}}', bytes(8)),
    "booleans": with_header(b'{"w":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}}', bytes(1)),
    "deep nesting": with_header(b'{"w":' + b"[" * 100_000),
    "a header of 2^32 - 1 bytes": struct.pack("<Q", 2**32 - 1) + b"{",
    "a header that ends early": struct.pack("<Q", 100) + b"{}",
    "no header's end": with_header(b'{"w":{"dtype":"F32"'),
    "a byte missing": one("F32", SOURCE)[:-1],
    "a byte too many": one("F32", SOURCE) + b"\0",
    "an unpaired surrogate": with_header(b'{"\\ud800":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(4)),
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("declared", [True, False])
def test_hostile_files(kind: str, declared: bool) -> None:
    reply = send("quantize", HOSTILE[kind], declared=declared, chunk=4096, output_type=I8)
    assert refused(reply)[:2] == (400, "safetensors"), reply.body
    assert len(reply.body) < 2000


def test_a_header_beyond_the_limit_is_not_received() -> None:
    body = with_header(b"{" + b" " * (1 << 20), bytes(10))
    status, code, detail = refused(send("quantize", body, output_type=I8))
    assert (status, code) == (400, "safetensors")
    assert "at most 1048576" in detail


def test_what_is_neither_kind_of_file() -> None:
    for body in (b"", b"{", b'"values"{"w": 1}', b"\x93NUMPX\x01\x00", b"PK\x03\x04" + bytes(20)):
        assert refused(send("quantize", body, output_type=I8))[:2] == (400, "npy")
    headers = [(b"content-type", SAFETENSORS.encode())]
    for body in (b"", b"{", struct.pack("<Q", 1 << 40) + b"{}"):
        reply = asyncio.run(
            post(APP, "/v1/npy/quantize", {"output_type": I8}, [body], declared=len(body), headers=headers)
        )
        assert refused(reply)[:2] == (400, "safetensors")
    # A .npy is one whatever its media type, and whether its header arrives at once.
    body = npy(SOURCE)
    for chunks in ([body], [bytes([byte]) for byte in body]):
        query = {"output_type": I8}
        reply = asyncio.run(post(APP, "/v1/npy/quantize", query, chunks, declared=len(body), headers=headers))
        assert reply.body[:6] == b"\x93NUMPY"


def test_a_form_says_where_safetensors_files_go() -> None:
    part = b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\n' + one("F32", SOURCE)
    body = part + b"\r\n--b--\r\n"
    headers = [(b"content-type", b"multipart/form-data; boundary=b")]
    reply = asyncio.run(post(APP, "/v1/multipart/quantize", {}, [body], declared=len(body), headers=headers))
    assert refused(reply)[:2] == (400, "npy")
    assert "looks like a safetensors file" in refused(reply)[2]


@pytest.mark.parametrize(
    ("dtype", "array", "input_type"),
    [("F16", BF16, "bf16"), ("I8", SOURCE.astype(np.int8), "!quant.uniform<u8:f32, 0.5>"),
     ("F8_E5M2", F8, "!quant.uniform<f8E4M3FN:f32, 0.5>"), ("F32", SOURCE, "!quant.uniform<i32:f32, 0.5>")],
)  # fmt: skip
def test_elements_of_another_type_are_not_reinterpreted(dtype: str, array: Array, input_type: str) -> None:
    operation = "quantize" if input_type == "bf16" else "dequantize"
    query = {"output_type": "!quant.uniform<i8:bf16, 0.5>"} if input_type == "bf16" else {}
    query |= {"profile": "onnx"} if "f8" in input_type else {}
    reply = send(operation, one(dtype, array), input_type=input_type, **query)
    assert refused(reply)[:2] == (400, "safetensors")


def test_a_kept_header_is_of_its_query_and_name() -> None:
    body = safetensors({"a": ("F32", [1], np.float32(1).tobytes()), "b": ("F32", [1], np.float32(2).tobytes())})
    for _ in range(2):
        for name, code in (("a", 5), ("b", 7)):
            reply = send("quantize", body, output_type=I8, tensor=name)
            assert np.load(io.BytesIO(reply.body)).tolist() == [code]
        assert send("quantize", body, output_type=I8).status == 422
        short = send("quantize", body[:-1], output_type=I8, tensor="a")
        assert refused(short)[:2] == (400, "safetensors")
