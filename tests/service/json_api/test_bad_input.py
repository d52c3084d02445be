"""Bad input through the real server: a stable code, the place, no payload echoed, and the next request works."""

from __future__ import annotations

import base64
import json
import math
import re
import shutil
import subprocess
from typing import Any

import httpx
import numpy as np
import pytest

from tests.conftest import Server
from tests.service.replies import npy, refused

TARGET = "!quant.uniform<i8:f32, 0.5>"


def npy_promising(shape: str, data: bytes = b"\0" * 16, descr: str = "'<f4'") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


@pytest.fixture(autouse=True)
def the_next_request_works(client: httpx.Client) -> Any:
    yield
    reply = client.post(
        "/v1/quantize", json={"input": {"type": "tensor<2xf32>", "values": [1, -1]}, "output_type": TARGET}
    )
    assert reply.json()["output"]["values"] == [2, -2]


def quantize(client: httpx.Client, tensor: dict[str, Any], output_type: str = TARGET, **more: Any) -> httpx.Response:
    return client.post("/v1/quantize", json={"input": tensor, "output_type": output_type, **more})


ONE = {"type": "tensor<1xf32>", "values": [1]}


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("!quant.uniform<i8:f32, 0.5", 26),
        ("!quant.uniform<i8:f33, 0.5>", 18),
        ("", 0),
        ("tensor<", 7),
    ],
)
def test_a_type_that_does_not_parse(client: httpx.Client, text: str, offset: int) -> None:
    for reply, pointer in (
        (quantize(client, ONE, text), "/output_type"),
        (client.post("/v1/types/parse", json={"text": text}), "/text"),
        (client.post("/v1/npy/quantize", params={"output_type": text}, content=npy(np.zeros(1, "f4"))), "/output_type"),
    ):
        found = refused(reply, 422, "type_invalid")
        assert found["offset"] == offset
        line, caret = found["caret"].split("\n")
        assert caret == " " * offset + "^"
        assert line == text
        assert found["errors"][0]["pointer"] == pointer
        assert found["errors"][0]["offset"] == offset
    found = refused(quantize(client, {"type": "tensor<1xf33>", "values": [1]}), 422, "type_invalid")
    assert found["errors"][0]["pointer"] == "/input/type"


@pytest.mark.parametrize("shape", [(2, 3), (3, 2)])
def test_a_scale_count_that_does_not_match_the_axis_names_both(client: httpx.Client, shape: tuple[int, ...]) -> None:
    target = "!quant.uniform<i8:f32:1, {0.5,0.25,0.125,1.0}>"
    by_npy = client.post("/v1/npy/quantize", params={"output_type": target}, content=npy(np.zeros(shape, "f4")))
    dims = "x".join(map(str, shape))
    by_json = quantize(client, {"type": f"tensor<{dims}xf32>", "values": [0] * 6}, target)
    for reply in (by_npy, by_json):
        found = refused(reply, 422, "type_does_not_fit")
        assert "4" in found["detail"]
        assert str(shape[1]) in found["detail"]


@pytest.mark.parametrize(
    ("tensor", "code"),
    [
        ({"type": "tensor<2xf32>", "data": base64.b64encode(b"\0" * 12).decode()}, "tensor_data"),
        ({"type": "tensor<2xf32>", "data": base64.b64encode(b"\0" * 4).decode()}, "tensor_data"),
        ({"type": "tensor<2xf32>", "data": ""}, "tensor_data"),
        ({"type": "tensor<1099511627776x1099511627776xf32>", "data": "AAAA"}, "tensor_data"),
        ({"type": "tensor<2xf32>", "data": "this is not base64!"}, "base64"),
        ({"type": "tensor<1xf32>", "data": "AAAAAA-_"}, "base64"),
        ({"type": "tensor<1xf32>", "data": "AAAAAA"}, "base64"),
        ({"type": "tensor<1xf32>", "data": "AAAAAB=="}, "base64"),
        ({"type": "tensor<1xf32>", "data": "AAAAAA==\n"}, "base64"),
        ({"type": "tensor<2xf32>", "values": [1]}, "tensor_data"),
        ({"type": "tensor<4294967296xf32>", "values": [1]}, "tensor_data"),
    ],
)
def test_data_that_are_not_what_the_type_says(client: httpx.Client, tensor: dict[str, Any], code: str) -> None:
    found = refused(quantize(client, tensor), 400, code)
    pointer = "/input/data" if "data" in tensor else "/input/values"
    assert found["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize(
    ("shape", "values", "place"),
    [
        ("1", ["one"], "/0"),
        ("2", [1, 1e39], "/1"),
        ("2", [[1], [2]], "/0"),
        ("2", [1, [2]], "/1"),
        ("2x2", [[1, 2], [3]], "/1"),
        ("2x2", [[1, 2], 3], "/1"),
        ("2x2", [[1, 2]], ""),
        ("2x2", [[1, 2], [3, None]], "/1/1"),
        ("2x2", [[1, 2], ["x", 4]], "/1/0"),
        ("2x2", [[1, 2], [3, [4]]], "/1/1"),
        ("2x2", [[1, 2], [3, {}]], "/1/1"),
        ("1x2x1", [[[1], [2, 3]]], "/0/1"),
        ("2x0", [[], [1]], "/1"),
    ],
)
def test_values_that_are_not_what_the_shape_says(client: httpx.Client, shape: str, values: Any, place: str) -> None:
    found = refused(quantize(client, {"type": f"tensor<{shape}xf32>", "values": values}), 400, "tensor_data")
    assert found["errors"][0]["pointer"] == "/input/values" + place


def test_nested_values_are_counted_as_leaves(client: httpx.Client) -> None:
    rows = {"type": "tensor<4097x1xf32>", "values": [[1]] * 4097}
    assert refused(quantize(client, rows), 413, "limit_exceeded")["limit"] == 4096
    row = {"type": "tensor<1x70000xf32>", "values": [[1] * 70_000]}
    assert refused(quantize(client, row), 413, "limit_exceeded")["limit"] == 4096
    deep: Any = 1
    for _ in range(150):
        deep = [deep]
    nested = {"type": "tensor<1xf32>", "values": deep}
    assert refused(quantize(client, nested), 422, "request_invalid")["errors"][0]["pointer"] == "/input/values/0"


@pytest.mark.parametrize(
    ("path", "names", "more"),
    [
        ("compare", ["a", "b"], {}),
        ("blocks/quantize", ["input"], {"format": "mxfp4_e2m1"}),
        ("fake_quantize", ["input"], {"minimums": [-1], "maximums": [1]}),
        ("parameters/tensor", ["input"], {"storage": "i8"}),
    ],
)
def test_no_memory_is_reserved_for_elements_that_were_not_sent(
    client: httpx.Client, path: str, names: list[str], more: dict[str, Any]
) -> None:
    """Else one small request would take the memory that others wait for."""
    for tensor, place in (({"values": [1]}, "values"), ({"data": "AACAPw=="}, "data")):
        promising = {"type": f"tensor<{2**20}x{2**20}xf32>", **tensor}
        reply = client.post(f"/v1/{path}", json={**dict.fromkeys(names, promising), **more})
        assert refused(reply, 400, "tensor_data")["errors"][0]["pointer"] == f"/{names[0]}/{place}"


NPY = {
    "objects": npy(np.array([{}, 1], dtype=object)),
    "pickle": b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00]\x94(K\x01K\x02e.",
    "Fortran order": npy(np.asfortranarray(np.ones((2, 3), np.float32))),
    "big-endian": npy(np.ones(3, ">f4")),
    "complex": npy(np.ones(3, "c8")),
    "text": npy(np.array(["abc"])),
    "dates": npy(np.array(["2020-01-01"], "datetime64[D]")),
    "structured": npy(np.zeros(2, [("a", "f4")])),
    "promises 16 GB": npy_promising("(4000000000,)"),
    "promises 2^82": npy_promising(f"({2**40}, {2**40})"),
    "promises one more": npy_promising("(5,)"),
    "promises one less": npy_promising("(3,)"),
    "no data": npy_promising("(3,)", b""),
    "data after none": npy_promising("(0,)"),
    "a header that says 4 GiB": b"\x93NUMPY\x03\x00\xff\xff\xff\xff" + b" " * 64,
    "empty": b"",
    "anonymous": npy_promising("(8,)", descr="'|V2'"),
    "not numpy": b"GIF89a..........",
}


@pytest.mark.parametrize("name", NPY)
@pytest.mark.parametrize("chunked", [False, True])
def test_npy_bodies_that_cannot_be_used(client: httpx.Client, name: str, chunked: bool) -> None:
    body = NPY[name]
    content = (body[at : at + 7] for at in range(0, len(body), 7)) if chunked else body
    refused(client.post("/v1/npy/quantize", params={"output_type": TARGET}, content=content), 400, "npy")


ADVICE: list[tuple[Any, str, Any, str]] = [
    (np.ones((2, 3), "f8"), "x.astype(numpy.float32)", lambda x: x.astype(np.float32), TARGET),
    (np.ones((2, 3), "f8"), "write i8:f64", lambda x: x, TARGET.replace("i8:f32", "i8:f64")),
    (np.ones((2, 3), "f2"), "x.astype(numpy.float32)", lambda x: x.astype(np.float32), TARGET),
    (np.ones((2, 3), "i8"), "x.astype(numpy.float32)", lambda x: x.astype(np.float32), TARGET),
    (np.asfortranarray(np.ones((2, 3), "f4")), "numpy.ascontiguousarray(x)", np.ascontiguousarray, TARGET),
    (np.ones((2, 3), ">f4"), "x.astype('<f4')", lambda x: x.astype("<f4"), TARGET),
    (np.array([1, 2.5], object), "x.astype(numpy.float32)", lambda x: x.astype(np.float32), TARGET),
    (np.array([True, False]), "x.astype(numpy.float32)", lambda x: x.astype(np.float32), TARGET),
    (np.array(["1.5"]), "x.astype(numpy.float32)", lambda x: x.astype(np.float32), TARGET),
    (np.ones(3, "f8"), "x.astype(numpy.float32)", lambda x: x.astype(np.float32), "!quant.any<i8:f32>"),
]


@pytest.mark.parametrize(("array", "advice", "follow", "target"), ADVICE, ids=range(len(ADVICE)))
def test_what_an_npy_is_advised_to_be_is_taken(
    client: httpx.Client, array: Any, advice: str, follow: Any, target: str
) -> None:
    asked = TARGET if "any" not in target else target
    for path, send in (
        ("/v1/npy/quantize", lambda file, type_: {"params": {"output_type": type_}, "content": file}),
        ("/v1/multipart/quantize", lambda file, type_: {"data": {"output_type": type_}, "files": {"x": file}}),
    ):
        reply = client.post(path, **send(npy(array), asked))
        assert reply.status_code in (400, 422)
        assert advice in reply.json()["detail"], reply.text
        assert client.post(path, **send(npy(follow(array)), target)).status_code == 200


@pytest.mark.parametrize(
    "parameters",
    [
        {"output_type": "bf16", "profile": "litert"},
        {"output_type": "i8"},
        {"output_type": "f8E4M3FN", "profile": "ml_dtypes", "saturate": "true"},
        {"output_type": TARGET, "profile": "tflite"},
        {"output_type": TARGET, "rounding": "bogus"},
    ],
)
def test_other_faults_are_not_put_down_to_the_elements(client: httpx.Client, parameters: dict[str, str]) -> None:
    file = npy(np.ones((2, 3), "f2"))
    for reply in (
        client.post("/v1/npy/quantize", params=parameters, content=file),
        client.post("/v1/multipart/quantize", data=parameters, files={"x": file}),
    ):
        assert reply.status_code == 422
        assert "numpy" not in reply.json()["detail"]


def test_a_file_that_curl_stripped(client: httpx.Client) -> None:
    """As `curl -d @x.npy` sends it: without line ends and NUL characters."""
    file = bytes(each for each in npy(np.ones(4, "f4")) if each not in b"\r\n\0")
    kind = {"content-type": "application/x-www-form-urlencoded"}
    reply = client.post("/v1/npy/quantize", params={"output_type": TARGET}, content=file, headers=kind)
    assert "--data-binary" in refused(reply, 400, "npy")["detail"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"profile": "tflite"}, "did you mean litert?"),
        ({"profile": "StableHLO"}, "did you mean stablehlo?"),
        ({"rounding": "half_even"}, "did you mean nearest_even?"),
        ({"outputType": "i8"}, "unknown field, did you mean output_type?"),
        ({"nope": 1}, "available: input, output_type"),
        ({"nan": "lowst"}, "did you mean lowest?"),
        ({"input": [1, 2]}, "an object with type, and either values or data"),
        ({"output_type": {"scale": 0.5}}, 'input should be a string, such as "!quant.uniform<i8:f32, 0.5:3>"'),
        ({"scale": 0.5}, "it is part of the type: !quant.uniform<i8:f32, 0.5:3>"),
    ],
)
def test_what_was_probably_meant(client: httpx.Client, body: dict[str, Any], says: str) -> None:
    reply = client.post("/v1/quantize", json={"input": ONE, "output_type": TARGET, **body})
    assert says in refused(reply, 422, reply.json()["code"])["detail"]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("?profile=onnx", [("/output_type", "required; in a shell, a URL with & in it needs quotes")]),
        ("", [("/output_type", "required")]),
        (
            "?dtype=int8&rouding=floor&nope=1&output_type=i8",
            [
                ("/dtype", "not a parameter; it is part of the type: output_type=!quant.uniform<i8:f32,0.5:3>"),
                ("/rouding", "not a parameter (did you mean rounding?); available: "),
                ("/nope", "not a parameter"),
            ],
        ),
    ],
    ids=["one", "none", "unknown"],
)
def test_what_was_probably_meant_in_a_query(client: httpx.Client, query: str, says: list[tuple[str, str]]) -> None:
    """The names of all parameters once."""
    problem = refused(client.post(f"/v1/npy/quantize{query}", content=npy(np.ones(4, "f4"))), 422, "request_invalid")
    found = [(each["pointer"], each["detail"]) for each in problem["errors"]]
    assert [place for place, _ in found] == [place for place, _ in says]
    assert all(detail.startswith(said) for (_, detail), (_, said) in zip(found, says, strict=True))
    assert sum("available" in detail for _, detail in found) <= 1


def test_a_path_that_was_probably_meant(client: httpx.Client) -> None:
    for path in ("/v1/quantize/", "/quantize", "/v1/quantise", "/v1/Quantize"):
        assert "did you mean /v1/quantize?" in refused(client.post(path, json={}), 404, "not_found")["hint"]
    assert "hint" not in refused(client.get("/" + "x" * 5000), 404, "not_found")


def test_an_npy_of_another_element_type_than_named(client: httpx.Client) -> None:
    params = {"input_type": "!quant.uniform<i8:f32, 0.5>"}
    found = refused(client.post("/v1/npy/dequantize", params=params, content=npy(np.zeros(3, "u1"))), 400, "npy")
    assert "'|u1'" in found["detail"]
    assert "'|i1'" in found["detail"]
    params = {"input_type": "tensor<4x!quant.uniform<i8:f32, 0.5>>"}
    refused(client.post("/v1/npy/dequantize", params=params, content=npy(np.zeros(3, "i1"))), 422, "type_does_not_fit")
    params = {"output_type": TARGET}
    refused(client.post("/v1/npy/quantize", params=params, content=npy(np.zeros(3, "i8"))), 422, "unsupported")


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({"output_type": TARGET}, ["/input"]),
        ({"input": ONE}, ["/output_type"]),
        ({"input": ONE, "output_type": TARGET, "profil": "onnx"}, ["/profil"]),
        ({"input": ONE, "output_type": TARGET, "profile": None}, ["/profile"]),
        ({"input": ONE, "output_type": 3}, ["/output_type"]),
        ({"input": {"type": "tensor<1xf32>"}, "output_type": TARGET}, ["/input"]),
        ({"input": {**ONE, "data": "AAAAAA=="}, "output_type": TARGET}, ["/input"]),
        ({"input": {**ONE, "values": None}, "output_type": TARGET}, ["/input/values"]),
        ({"input": {**ONE, "values": [True]}, "output_type": TARGET}, ["/input/values/0"]),
        ({"input": {**ONE, "values": "1"}, "output_type": TARGET}, ["/input/values"]),
        ([], [""]),
        ("text", [""]),
        (None, [""]),
    ],
)
def test_wrong_fields_are_named(client: httpx.Client, body: Any, pointers: list[str]) -> None:
    reply = client.post("/v1/quantize", content=json.dumps(body), headers={"content-type": "application/json"})
    found = refused(reply, 422, "request_invalid")
    assert [error["pointer"] for error in found["errors"]] == pointers


@pytest.mark.parametrize("body", [b"", b"{", b"\x93NUMPY\x01\x00", b'{"input": "\xff"}', b"[" * 100_000, b"NaN!"])
def test_json_that_is_not_json(client: httpx.Client, body: bytes) -> None:
    reply = client.post("/v1/quantize", content=body, headers={"content-type": "application/json"})
    refused(reply, 400, "request_malformed")


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_tokens_that_are_not_numbers(client: httpx.Client, token: str) -> None:
    body = f'{{"input": {{"type": "tensor<1xf32>", "values": [{token}]}}, "output_type": "{TARGET}"}}'
    reply = client.post("/v1/quantize", content=body, headers={"content-type": "application/json"})
    found = refused(reply, 400, "tensor_data")
    assert '"Infinity"' in found["detail"]


def test_of_a_repeated_field_the_last_one_counts(client: httpx.Client) -> None:
    body = f'{{"input": {json.dumps(ONE)}, "output_type": "nonsense", "output_type": "{TARGET}"}}'
    reply = client.post("/v1/quantize", content=body, headers={"content-type": "application/json"})
    assert reply.json()["output"]["values"] == [2]


@pytest.mark.parametrize("profile", ["nope", "", "STABLEHLO"])
def test_an_unknown_profile(client: httpx.Client, profile: str) -> None:
    found = refused(quantize(client, ONE, profile=profile), 422, "unknown_name")
    assert found["errors"][0]["pointer"] == "/profile"
    assert "stablehlo" in found["detail"]
    params = {"output_type": TARGET, "profile": profile}
    refused(client.post("/v1/npy/quantize", params=params, content=npy(np.zeros(1, "f4"))), 422, "unknown_name")


def test_a_profile_that_does_not_define_the_operation(client: httpx.Client) -> None:
    refused(quantize(client, ONE, profile="tosa"), 422, "unsupported")


@pytest.mark.parametrize("text", ["f32", "!quant.uniform<i8:f32, 0.5>", "tensor<?xf32>", "tensor<*xf32>"])
def test_data_need_a_static_tensor_type(client: httpx.Client, text: str) -> None:
    refused(quantize(client, {"type": text, "values": [1]}), 422, "type_does_not_fit")


def test_multipliers_that_cannot_be_used(client: httpx.Client) -> None:
    body = {"factors": ["0.5", "abc"], "scheme": "litert"}
    found = refused(client.post("/v1/parameters/multiplier", json=body), 422, "parameter_invalid")
    assert found["errors"][0]["pointer"] == "/factors/1"
    found = refused(client.post("/v1/parameters/multiplier", json={**body, "scheme": "x"}), 422, "unknown_name")
    assert found["errors"][0]["pointer"] == "/scheme"
    for wrong in (None, True, [0.5]):
        found = refused(
            client.post("/v1/parameters/multiplier", json={**body, "factors": [wrong]}), 422, "request_invalid"
        )
        assert found["errors"][0]["pointer"] == "/factors/0"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/octet-stream"])
def test_other_media_types(client: httpx.Client, kind: str) -> None:
    reply = client.post("/v1/quantize", content=b"{}", headers={"content-type": kind})
    assert "application/json" in refused(reply, 415, "media_type")["detail"]


def test_media_types_of_the_npy_routes(client: httpx.Client) -> None:
    params, file = {"output_type": TARGET}, npy(np.zeros(1, "f4"))
    for kind in ("application/octet-stream", "application/x-npy", "application/x-binary", "Application/X-Npy; a=b"):
        reply = client.post("/v1/npy/quantize", params=params, content=file, headers={"content-type": kind})
        assert reply.status_code == 200, kind
    for headers in ({"content-type": "application/json"}, {"content-encoding": "gzip"}):
        refused(client.post("/v1/npy/quantize", params=params, content=file, headers=headers), 415, "media_type")


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("", "/output_type"),
        ("output_type=f32&output_type=f32", "/output_type"),
        ("output_type=f32&outputtype=f32", "/outputtype"),
        ("output_type=f32&a%2Fb~c=f32", "/a~1b~0c"),
        ("&".join(f"a{n}=1" for n in range(40)), None),
    ],
)
def test_queries_that_are_wrong(client: httpx.Client, query: str, pointer: str | None) -> None:
    found = refused(client.post(f"/v1/npy/quantize?{query}", content=b""), 422, "request_invalid")
    assert [error["pointer"] for error in found.get("errors", [])] == ([pointer] if pointer else [])


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/quantize"),
        ("POST", "/v1/dequantize"),
        ("POST", "/v1/requantize"),
        ("POST", "/v1/parameters/multiplier"),
        ("POST", "/v1/parameters/range"),
        ("POST", "/v1/parameters/bias"),
        ("POST", "/v1/fake_quantize"),
        ("POST", "/v1/types/parse"),
        ("GET", "/v1/info"),
        ("GET", "/v1/profiles"),
        ("GET", "/v1/profiles/onnx"),
        ("GET", "/problems/npy"),
        ("GET", "/healthz"),
    ],
)
def test_routes_without_parameters_refuse_a_query(client: httpx.Client, method: str, path: str) -> None:
    found = refused(client.request(method, f"{path}?profile=onnx", json={}), 422, "request_invalid")
    assert [error["pointer"] for error in found["errors"]] == ["/profile"]


def test_numbers_of_any_form_beside_one_that_is_a_tie(client: httpx.Client) -> None:
    for other in ("1e-9999999999999999999", f"0.{'1' * 5000}", "1e-400"):
        body = f'{{"input": {{"type": "tensor<2xf32>", "values": [16777217,{other}]}}, "output_type": "{TARGET}"}}'
        reply = client.post("/v1/quantize", content=body, headers={"content-type": "application/json"})
        assert reply.status_code == 200, reply.text


def test_a_long_type_is_not_echoed(client: httpx.Client) -> None:
    members = f"tuple<{','.join(['f32'] * 200_000)}>"
    found = refused(quantize(client, ONE, members), 422, "type_does_not_fit")
    assert len(found["detail"]) <= 2000


RAW = {"Inference-Header-Content-Length": "0"}
LISTS = [
    "tensor<3x2x!quant.uniform<i8<-127:127>:f32:0,{0.2:20,0.1:10,0.3:30}>>",
    "!quant.uniform<u8:f32:1,{0.2,0.1}>",
    "!quant.uniform<i8:f32:0,{0.2}>",
    "!quant.uniform<i8:f32:{0:1,1:32},{0.2,0.1}>",
    "!quant.quantile<i2:f32,{-1.0,0.0,0.5,1.0}>",
]


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
@pytest.mark.parametrize("type_", LISTS)
def test_what_curl_makes_of_braces_is_known_by_its_looks(server: Server, client: httpx.Client, type_: str) -> None:
    url = f"{server.url}/v1/npy/quantize?output_type={type_}"
    command = ["curl", "-s", "--data-binary", "", url]
    replies = subprocess.run([*command, "-w", "\n"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(replies) == math.prod(each.count(",") + 1 for each in re.findall("{(.*?)}", type_))
    for reply in replies:
        assert json.loads(reply)["code"] == "type_invalid"
        assert "curl -g" in json.loads(reply)["hint"]
    # As it is, the type is one, and what is missing is the body.
    whole = json.loads(subprocess.run([*command, "-g"], capture_output=True, text=True, check=True).stdout)
    assert whole["code"] == "npy"
    fragment = re.sub("{([^,}]*)[^}]*}", r"\1", type_)
    raw = client.post("/v2/models/quantize/infer", params={"output_type": fragment}, content=b"", headers=RAW)
    assert "curl -g" in refused(raw, 422, "type_invalid")["hint"]


@pytest.mark.parametrize(
    "type_", ["!quant.uniform<i8:f32, 1>", "!quant.uniform<i8:f32:0, {1}>", "f33", "!quant.uniform<i8:f32:0,"]
)
def test_other_mistakes_in_a_query_are_not_put_down_to_curl(client: httpx.Client, type_: str) -> None:
    found = client.post("/v1/npy/quantize", params={"output_type": type_}, content=b"")
    assert "curl" not in refused(found, 422, "type_invalid").get("hint", "")


def test_limits_are_stated_and_kept(client: httpx.Client) -> None:
    limits = client.get("/v1/info").json()["limits"]
    long_type = f"tensor<{'1x' * limits['max_type_bytes']}f32>"
    found = refused(client.post("/v1/types/parse", json={"text": long_type}), 413, "limit_exceeded")
    assert found["limit"] == limits["max_type_bytes"]

    params = {"output_type": f"!quant.uniform<i8:f32:0, {{{'0.5,' * 1400}0.5}}>"}
    found = refused(client.post("/v1/npy/quantize", params=params, content=b""), 413, "limit_exceeded")
    assert found["limit"] == limits["max_query_type_bytes"]
    assert "JSON body" in found["detail"]
    raw = client.post("/v2/models/quantize/infer", params=params, content=b"", headers=RAW)
    assert refused(raw, 413, "limit_exceeded")["detail"] == found["detail"]
    params["output_type"] *= 5
    found = refused(client.post("/v1/npy/quantize", params=params, content=b""), 431, "head_too_large")
    assert "JSON body" in found["detail"]

    count = limits["max_values"] + 1
    found = refused(quantize(client, {"type": f"tensor<{count}xf32>", "values": [0] * count}), 413, "limit_exceeded")
    assert found["limit"] == limits["max_values"]
    found = refused(quantize(client, {"type": "tensor<1xf32>", "values": [0] * 70_000}), 413, "limit_exceeded")
    assert found["limit"] == limits["max_values"]
    assert str(limits["max_values"]) in found["detail"]

    rank = limits["max_rank"] + 1
    found = refused(quantize(client, {"type": f"tensor<{'1x' * rank}f32>", "values": [0]}), 413, "limit_exceeded")
    assert found["limit"] == limits["max_rank"]
    refused(
        client.post("/v1/npy/quantize", params={"output_type": TARGET}, content=npy_promising(f"({'1, ' * rank})")),
        400,
        "npy",
    )

    factors = ["1"] * (limits["max_factors"] + 1)
    body = {"factors": factors, "scheme": "litert"}
    found = refused(client.post("/v1/parameters/multiplier", json=body), 413, "limit_exceeded")

    bodies: list[dict[str, Any]] = [
        {f"x{number}": 0 for number in range(limits["max_json_tokens"] // 3 + 1)},
        {"x": [[]] * (limits["max_json_tokens"] // 3 + 1)},
        {"x": [1] * limits["max_json_tokens"]},
        {"x": '"' * limits["max_json_tokens"]},
    ]
    for hostile in bodies:
        found = refused(client.post("/v1/quantize", json=hostile), 413, "limit_exceeded")
        assert found["limit"] == limits["max_json_tokens"]


def test_payloads_are_never_echoed(client: httpx.Client) -> None:
    secret = "S3CRETpayload"
    replies = [
        quantize(client, {"type": "tensor<1xf32>", "data": secret}),
        quantize(client, {"type": "tensor<1xf32>", "values": [secret]}),
        quantize(client, {"type": 5, "values": [secret]}),
        client.post("/v1/npy/quantize", params={"output_type": TARGET}, content=secret.encode()),
        client.post("/v1/quantize", content=f"{{{secret}", headers={"content-type": "application/json"}),
    ]
    for reply in replies:
        assert reply.status_code in (400, 422)
        assert secret not in reply.text
