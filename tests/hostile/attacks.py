"""Every attack of docs/hostile_input.md, as the bytes that are sent on a connection."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import struct
import zlib
from dataclasses import dataclass
from typing import Any

_QUANTIZE = "output_type=%21quant.uniform%3Ci8%3Af32%2C0.5%3E"
NPY = f"/v1/npy/quantize?{_QUANTIZE}"
INFER = "/v2/models/quantize/infer"
JSON = "/v1/quantize"
TYPE = "/v1/types/parse"
TARGET = "!quant.uniform<i8:f32, 0.5>"


@dataclass(frozen=True)
class Attack:
    """What is sent. `slow`: nothing follows, and the connection stays open until the server ends it."""

    name: str
    sent: bytes
    slow: bool = False


def head(path: str, length: int | None, *fields: str, method: str = "POST") -> bytes:
    """The head of a request; `length` None: chunked."""
    size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", size, *fields, "", ""]).encode("latin-1")


def request(path: str, body: bytes, *fields: str) -> bytes:
    """A whole request."""
    return head(path, len(body), *fields) + body


def npy(header: str, data: bytes = b"", *, version: int = 1, length: int | None = None) -> bytes:
    """A `.npy` file with any text as its header, and any length stated for that."""
    text = header.encode("latin-1")
    stated = len(text) if length is None else length
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", stated) + text + data


def safetensors(header: str, data: bytes = b"", *, length: int | None = None) -> bytes:
    """A safetensors file with any text as its header, and any length stated for that."""
    text = header.encode("utf-8")
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(shape: str = "[2]", offsets: str = "[0,8]", dtype: str = "F32") -> str:
    return f'"w":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}'


def described(descr: str = "'<f4'", shape: str = "(2,)", order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


_EIGHT = bytes(8)
_NPY_HEADERS = {
    "npy: a shape of 16 GB, and no data": npy(described(shape="(4000000000,)")),
    "npy: a shape beyond 2^64": npy(described(shape="(1099511627776, 1099511627776)")),
    "npy: a dimension beyond 2^40": npy(described(shape="(9223372036854775807,)")),
    "npy: elements of no bytes": npy(described("'|V0'", "(9223372036854775807,)")),
    "npy: texts of no characters": npy(described("'|S0'", "(1000000000,)")),
    "npy: structured elements": npy(described("[('a', '<f4')]"), _EIGHT),
    "npy: dates": npy(described("'<M8[ns]'"), _EIGHT * 2),
    "npy: complex numbers": npy(described("'<c8'"), _EIGHT * 2),
    "npy: big-endian numbers": npy(described("'>f4'"), _EIGHT),
    "npy: objects (a pickle)": npy(described("'|O'"), b"cos\nsystem\n(S'true'\ntR."),
    "npy: Fortran order": npy(described(shape="(2, 1)", order="True"), _EIGHT),
    "npy: bytes after the data": npy(described(), _EIGHT + b"more"),
    "npy: bytes missing": npy(described(), _EIGHT[:5]),
    "npy: 900 minus signs": npy(described(shape=f"({'-' * 900}1,)"), _EIGHT),
    "npy: a header of 4000 minus signs": npy(described(shape=f"({'-' * 4000}1,)"), _EIGHT),
    "npy: a dimension of Python 2": npy(described(shape="(2L,)"), _EIGHT),
    "npy: a dimension that is true": npy(described(shape="(True,)"), _EIGHT),
    "npy: a negative dimension": npy(described(shape="(-2,)"), _EIGHT),
    "npy: 65 dimensions": npy(described(shape=f"({'1,' * 65})"), _EIGHT),
    "npy: code as its header": npy("__import__('os').system('true')\n", _EIGHT),
    "npy: a header of 4 GiB": npy(described(), _EIGHT, version=3, length=(1 << 32) - 1),
    "npy: an unknown version": npy(described(), _EIGHT, version=9),
    "npy: no magic": b"PK\x03\x04" + bytes(100),
    "npy: an empty body": b"",
}

_MEBIBYTE = 1 << 20
_SAFETENSORS = {
    "safetensors: no tensors": safetensors("{}"),
    "safetensors: a shape of 16 GB, and no data": safetensors(f"{{{tensor('[4000000000]', '[0,16000000000]')}}}"),
    "safetensors: a shape beyond 2^64": safetensors(f"{{{tensor('[4294967296,4294967296]')}}}", _EIGHT),
    "safetensors: a dimension beyond 2^40, and no elements": safetensors(
        f"{{{tensor('[0,9223372036854775807]', '[0,0]')}}}"
    ),
    "safetensors: complex numbers": safetensors(f"{{{tensor('[1]', dtype='C64')}}}", _EIGHT),
    "safetensors: a name twice": safetensors(f"{{{tensor()},{tensor()}}}", _EIGHT),
    "safetensors: tensors that overlap": safetensors(f"{{{tensor()},{tensor().replace('w', 'v')}}}", _EIGHT),
    "safetensors: bytes before the data": safetensors(f"{{{tensor(offsets='[8,16]')}}}", _EIGHT * 2),
    "safetensors: bytes after the data": safetensors(f"{{{tensor()}}}", _EIGHT + b"more"),
    "safetensors: bytes missing": safetensors(f"{{{tensor()}}}", _EIGHT[:5]),
    "safetensors: a header of 4 GiB": safetensors(f"{{{tensor()}}}", _EIGHT, length=(1 << 32) - 1),
    "safetensors: a header that is cut": safetensors(f"{{{tensor()}}}", length=_MEBIBYTE),
    "safetensors: a header of brackets": safetensors('{"w":' + "[" * (_MEBIBYTE - 5)),
    "safetensors: a header of spaces": safetensors("{" + " " * (_MEBIBYTE - 1)),
    "safetensors: 18 000 empty tensors, and no name": safetensors(
        "{" + ",".join(f'"{i:x}":{{"shape":[0],"dtype":"U8","data_offsets":[0,0]}}' for i in range(18_000)) + "}"
    ),
}


_FORM = "/v1/multipart/quantize"
_OF_FORM = "Content-Type: multipart/form-data; boundary={}"


def _part(name: str, data: bytes, *fields: str) -> bytes:
    """A part of a form, from its boundary, which is b."""
    disposition = f'Content-Disposition: form-data; name="{name}"'
    return b"--b\r\n" + "\r\n".join([disposition, *fields, "", ""]).encode() + data + b"\r\n"


def _form(*parts: bytes, boundary: str = "b") -> bytes:
    return request(_FORM, b"".join(parts) + b"--b--\r\n", _OF_FORM.format(boundary))


_X = _part("x", npy(described(), _EIGHT))
_FORMS = {
    "form: no boundary": request(_FORM, b"", "Content-Type: multipart/form-data"),
    "form: a boundary of 71 characters": _form(_X, boundary="b" * 71),
    "form: a boundary that is not that of the body": _form(_X, boundary="c"),
    "form: no last boundary": request(_FORM, _X, _OF_FORM.format("b")),
    "form: no part": _form(),
    "form: a part without a name": _form(b"--b\r\n\r\nx\r\n"),
    "form: a name that is a path": _form(_part("../../etc/passwd", b"")),
    "form: a name of 1 000 characters": _form(_part("x" * 900, b"")),
    "form: x twice": _form(_X, _X),
    "form: 100 000 parts": _form(b"--b\r\n\r\n\r\n" * 100_000),
    "form: 1 000 000 boundaries in the data": _form(_part("x", npy(described(), b"\r\n--b" * 1_000_000))),
    "form: 8 MiB of blanks after a boundary": _form(b"--b" + b" " * (8 << 20) + b"\r\n"),
    "form: the head of a part without end": request(_FORM, b"--b\r\na: " + b"a" * (8 << 20), _OF_FORM.format("b")),
    "form: 100 000 header fields in a part": _form(b"--b\r\n" + b"a: b\r\n" * 100_000 + b"\r\n"),
    "form: a part in base64": _form(_part("x", b"AAAA", "Content-Transfer-Encoding: base64")),
    "form: a file name in another file's place": _form(_X.replace(b'"x"', b'"x"; filename="/etc/passwd"')),
    "form: a file that promises 16 GB": _form(_part("x", npy(described(shape="(4000000000,)")))),
    "form: more data than the file promises": _form(_part("x", npy(described(), bytes(1 << 20)))),
    "form: a scale that is a pickle": _form(_X, _part("scale", b"\x80\x04cos\nsystem\n(S'true'\ntR.")),
    "form: a type of 2 MiB": _form(_X, _part("output_type", b"a" * (2 << 20))),
    "form: a text that is no UTF-8": _form(_X, _part("output_type", b"\xff\xfe")),
    "form: an unknown field": _form(_X, _part("__proto__", b"1")),
    "form: gzip": request(_FORM, gzip.compress(_X), _OF_FORM.format("b"), "Content-Encoding: gzip"),
}


def _json(path: str, body: Any) -> bytes:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return request(path, text, "Content-Type: application/json")


def _tensor(**tensor: Any) -> bytes:
    return _json(JSON, {"input": tensor, "output_type": TARGET})


def _type(text: str) -> bytes:
    return _json(TYPE, {"text": text})


_NESTED = 100_000
_JSON = {
    "base64: more than the type says": _tensor(type="tensor<2xf32>", data="A" * (4 << 20)),
    "base64: a type that promises 2^80 elements": _tensor(
        type=f"tensor<{'x'.join(['1099511627776'] * 2)}xf32>", data=""
    ),
    "base64: characters that are none": _tensor(type="tensor<2xf32>", data="AAAA*AAAAAA="),
    "json: nested 100 000 deep": _json(JSON, b"[" * _NESTED),
    "json: nested deep, and whole": _json(JSON, b"[" * _NESTED + b"]" * _NESTED),
    "json: a million empty lists": _json(JSON, b"[" + b"[]," * (1 << 20) + b"[]]"),
    "json: a million quotes": _json(JSON, b'{"x": "' + b'\\"' * (1 << 20) + b'"}'),
    "json: a number of a million digits": _json(JSON, b'{"x": ' + b"9" * (1 << 20) + b"}"),
    "json: a value of 1e999": _json(
        JSON, b'{"input": {"type": "tensor<1xf32>", "values": [1e999]}, "output_type": "f16"}'
    ),
    "json: a bf16 value beyond bf16": _json(
        JSON, {"input": {"type": "tensor<1xbf16>", "values": [1.7976931348623157e308]}, "output_type": "f8E4M3FN"}
    ),
    "json: 65 537 values": _tensor(type="tensor<65537xf32>", values=[0] * 65537),
    "json: 20 000 unknown fields": _json(JSON, {f"x{number}": 0 for number in range(20_000)}),
    "json: bytes that are no UTF-8": _json(JSON, b'{"input": "\xff\xfe"}'),
    "json: a body of 9 MiB": head(JSON, 9 << 20, "Content-Type: application/json"),
    "type: nested 100 000 deep": _type("tuple<" * _NESTED),
    "type: a number of 100 000 digits": _type(f"tensor<{'9' * 100_000}xf32>"),
    "type: a scale of 100 000 digits": _type(f"!quant.uniform<i8:f32, 0.{'0' * 100_000}1>"),
    "type: 65 537 scales": _type(f"!quant.uniform<i8:f32:0, {{{', '.join(['0.5'] * 65537)}}}>"),
    "type: longer than 1 MiB": _type("!" * ((1 << 20) + 1)),
    "type: longer than 4 KiB in a query": request(f"/v1/npy/quantize?output_type={'a' * 5000}", b""),
    "type: control characters": _type("\x00\x1b[31m\u202e"),
}


def _inference(**members: Any) -> bytes:
    x = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}
    return json.dumps({"inputs": [x], "parameters": {"output_type": TARGET}, **members}).encode()


def _blob(shape: list[int], stated: int, blob: bytes) -> bytes:
    given = {"name": "x", "shape": shape, "datatype": "FP32", "parameters": {"binary_data_size": stated}}
    text = _inference(inputs=[given])
    return request(INFER, text + blob, f"Inference-Header-Content-Length: {len(text)}")


_GZIP, _DEFLATE = "Content-Encoding: gzip", "Content-Encoding: deflate"
_ZEROS = bytes(60 << 20)
_INFERENCE = {
    "gzip: 60 MiB of zeros": request(INFER, gzip.compress(_ZEROS), _GZIP),
    "deflate: 60 MiB of zeros": request(INFER, zlib.compress(_ZEROS), _DEFLATE),
    "gzip: not gzip": request(INFER, b"x" * 100, _GZIP),
    "gzip: cut": request(INFER, gzip.compress(_inference())[:-9], _GZIP),
    "gzip: bytes after its end": request(INFER, gzip.compress(_inference()) + b"x", _GZIP),
    "gzip: where none is read": request(NPY, gzip.compress(npy(described(), _EIGHT)), _GZIP),
    "brotli": request(INFER, b"x", "Content-Encoding: br"),
    "inference: a JSON longer than the body": request(INFER, _inference(), "Inference-Header-Content-Length: 999999"),
    "inference: a JSON of 2^63 bytes": request(INFER, _inference(), f"Inference-Header-Content-Length: {1 << 63}"),
    "inference: a negative length of the JSON": request(INFER, _inference(), "Inference-Header-Content-Length: -1"),
    "inference: a shape beyond 2^64": _blob([1 << 40, 1 << 40], 8, _EIGHT),
    "inference: a size that is not the shape's": _blob([2], 1 << 40, _EIGHT),
    "inference: a negative dimension": _blob([-2], 8, _EIGHT),
    "inference: 257 inputs": request(INFER, _inference(inputs=[{"name": "x"}] * 257)),
    "inference: 10 000 parameters": request(INFER, _inference(parameters={f"p{n}": 0 for n in range(10_000)})),
    "inference: an id of 1 MiB": request(INFER, _inference(id="x" * (1 << 20))),
    "inference: a list without members": request(
        "/v2/models/onednn.Dequantize/infer",
        _inference(
            inputs=[{"name": "src", "shape": [4], "datatype": "UINT8", "data": [0, 3, 128, 255]}],
            parameters={"scales": "[]", "zps": "[3]"},
        ),
    ),
}


def _registration(key: str, *, offset: int = 0, byte_size: int = 64, region: str = "a") -> bytes:
    given = {"key": key, "offset": offset, "byte_size": byte_size}
    return _json(f"/v2/systemsharedmemory/region/{region}/register", given)


def _in_memory(**parameters: Any) -> bytes:
    place = {"shared_memory_region": "a", "shared_memory_byte_size": 8, **parameters}
    return request(INFER, _inference(inputs=[{"name": "x", "shape": [2], "datatype": "FP32", "parameters": place}]))


_SHARED_MEMORY = {
    "shared memory: a key that is a path": _registration("/../../etc/passwd"),
    "shared memory: a key in a folder": _registration("/a/b"),
    "shared memory: a key that is the directory": _registration("/.."),
    "shared memory: a NUL in a key": _registration("a\0b"),
    "shared memory: a key of 300 bytes": _registration("a" * 300),
    "shared memory: no such object": _registration("requant-no-such-object"),
    "shared memory: a size of 2^70": _registration("requant-no-such-object", byte_size=1 << 70),
    "shared memory: a negative offset": _registration("requant-no-such-object", offset=-1),
    "shared memory: a region of 300 characters": _registration("a", region="r" * 300),
    "shared memory: a registration of 20 KB": _registration("a" * 20_000),
    "shared memory: a tensor in no region": _in_memory(),
    "shared memory: a tensor of another size": _in_memory(shared_memory_byte_size=1 << 70),
    "shared memory: a tensor at a negative offset": _in_memory(shared_memory_offset=-8),
    "shared memory: a tensor in memory and in the body": _in_memory(binary_data_size=8),
}

_BEGUN = b"POST " + NPY.encode() + b" HTTP/1.1\r\nHost: localhost\r\n"


def _calibration(values: list[float], bins: int) -> bytes:
    tensor = {"type": f"tensor<{len(values)}xf32>", "values": values}
    method = {"method": "torch_histogram", "storage": "u8", "bins": bins}
    return _json("/v1/parameters/tensor", {"input": tensor, **method})


_VALUES = {
    "values: a histogram of one number beyond 2^25": _calibration([1e9] * 1000, 2050),
    "values: a histogram whose range times its bins overflows f32": _calibration([-1.5e38, 1.5e38, 0.0], 2050),
}

_MESSAGES = {
    "body: 64 MiB and a byte": head(NPY, (64 << 20) + 1),
    "body: 2^63 bytes": head(NPY, 1 << 63),
    "body: a length that is no number": b"POST "
    + NPY.encode()
    + b" HTTP/1.1\r\nHost: a\r\nContent-Length: 1e3\r\n\r\n",
    "body: two lengths": request(NPY, b"", "Content-Length: 5"),
    "body: a length and chunks": head(NPY, None, "Content-Length: 5") + b"0\r\n\r\n",
    "body: a chunk of a size that is no number": head(NPY, None) + b"zz\r\n",
    "body: a chunk of 2^64 bytes": head(NPY, None) + b"ffffffffffffffffff\r\n",
    "body: a chunk longer than its size": head(NPY, None) + b"1\r\nxxxx\r\n",
    "head: 40 KiB of path": head("/" + "a" * 40_000, 0),
    "head: a field of 40 KiB": head("/v1/info", 0, f"X: {'a' * 40_000}"),
    "head: 101 fields": head("/v1/info", 0, *(f"X{number}: a" for number in range(101))),
    "head: not HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100) + b"\r\n\r\n",
    "head: a blank in a name": b"GET /v1/info HTTP/1.1\r\nHost : a\r\nX\x00: b\r\n\r\n",
    "head: CONNECT": b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
    "head: no Host": b"GET /v1/info HTTP/1.1\r\n\r\n",
    "head: two Hosts": head("/v1/info", 0, "Host: localhost"),
    "head: a Host that is no name": b"GET /v1/info HTTP/1.1\r\nHost: a b\r\n\r\n",
    "head: HTTP/2.0": b"GET /v1/info HTTP/2.0\r\nHost: a\r\n\r\n",
    "head: RTSP": b"GET /v1/info RTSP/1.0\r\nHost: a\r\n\r\n",
    "head: a URL with a port of 99 999 999": head("http://a:99999999/", 0),
    "head: a URL without a host": head("http://@/", 0),
    "head: a URL with half an address": head("http://[::1", 0),
    "head: a URL without a path": head("http://a", 0),
    "head: a folded line": head("/v1/info", 0, "X: a\r\n b"),
    "head: a NUL in a value": head("/v1/info", 0, "X: a\x00b"),
    "head: a lone line feed": head("/v1/info", 0, "X: a\nY: b"),
    "head: 16 000 fields": head("/v1/info", 0, *["a:"] * 16_000),
    "head: 240 KB of empty lines": b"\r\n" * 120_000,
    "body: a length with 5 000 leading zeros": head(NPY, None).replace(
        b"Transfer-Encoding: chunked", b"Content-Length: " + b"0" * 5000 + b"5"
    )
    + b"12345",
    "body: a length with blanks after it": head(NPY, None).replace(
        b"Transfer-Encoding: chunked", b"Content-Length: 5 \t"
    )
    + b"12345",
    "body: gzip in chunks": head(NPY, None).replace(b": chunked", b": gzip, chunked") + b"0\r\n\r\n",
    "body: chunks in HTTP/1.0": head(NPY, None).replace(b"HTTP/1.1", b"HTTP/1.0") + b"0\r\n\r\n",
    "body: trailers without end": head(JSON, None) + b"0\r\n" + b"a: b\r\n" * 40_000,
    "body: a chunk extension without end": head(JSON, None) + b"1;" + b"a" * 240_000,
    "path: out of the tree": head("/docs/assets/..%2f..%2f..%2fetc%2fpasswd", 0, method="GET"),
    "path: unknown": head("/v1/nothing", 0),
    "query: unknown field": head(f"{NPY}&__proto__=1", 0),
    "profile: not a name": request(f"{NPY}&profile={'%00' * 100}", npy(described(), _EIGHT)),
}

_FOREIGN = "Origin: https://evil.example"
_REGISTER = "/v2/systemsharedmemory/region/r/register"
_REGION = json.dumps({"key": "a", "offset": 0, "byte_size": 8}).encode()
_PAGES = {
    "page: shared memory as text/plain": request(_REGISTER, _REGION, "Content-Type: text/plain", _FOREIGN),
    "page: a form of another site": request("/v1/multipart/quantize", b"", "Sec-Fetch-Site: cross-site"),
    "page: an Origin of null": request(JSON, b"{}", "Origin: null"),
    "page: another port of this host": request(JSON, b"{}", "Origin: http://localhost:3000"),
    "page: DELETE from another site": head("/v1/info", 0, _FOREIGN, method="DELETE"),
    "page: a name that leads here (DNS rebinding)": request(JSON, b"{}", "Origin: http://evil.example").replace(
        b"Host: localhost", b"Host: evil.example"
    ),
    "page: reading by a name that leads here": head("/v1/info", 0, method="GET").replace(
        b"Host: localhost", b"Host: evil.example"
    ),
}

_SLOW = {
    "slow: a connection and nothing": b"",
    "slow: a head without an end": _BEGUN,
    "slow: a body without an end": head(NPY, 1000) + b"\x93NUMPY",
    "slow: chunks without an end": head(NPY, None) + b"6\r\n\x93NUMPY\r\n",
}

_WHOLE = (_FORMS, _JSON, _INFERENCE, _VALUES, _MESSAGES)
ATTACKS = {
    attack.name: attack
    for attack in (
        *(Attack(name, request(NPY, body)) for name, body in (_NPY_HEADERS | _SAFETENSORS).items()),
        *(
            Attack(name, sent)
            for group in (_FORMS, _JSON, _INFERENCE, _SHARED_MEMORY, _VALUES, _MESSAGES, _PAGES)
            for name, sent in group.items()
        ),
        *(Attack(name, sent, slow=True) for name, sent in _SLOW.items()),
    )
}


def answer_to(attack: Attack, port: int) -> bytes:
    """Send an attack, and return all that comes back: the connection is to be closed by the server, or then by us."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        with contextlib.suppress(ConnectionError):  # answered before all of it was sent
            connection.sendall(attack.sent)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while data := connection.recv(1 << 16):
                received += data
                start, found, body = received.partition(b"\r\n\r\n")
                if found and len(body) >= _length(start):
                    break
    return received


def _length(start: bytes) -> int:
    for line in start.lower().split(b"\r\n"):
        name, _, value = line.partition(b": ")
        if name == b"content-length":
            return int(value)
    return 0


def outcome(received: bytes) -> tuple[int, str]:
    """The status and the code of a problem or "none", (0, "closed") for a connection that was closed without a word."""
    if not received:
        return 0, "closed"
    start, _, body = received.partition(b"\r\n\r\n")
    return int(start.split()[1]), json.loads(body).get("code", "none")
