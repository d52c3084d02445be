"""Types, multipliers, and what the service says about itself, through the real server."""

from __future__ import annotations

import html
import re
from typing import Any

import httpx
import pytest


def parsed(client: httpx.Client, text: str) -> dict[str, Any]:
    reply = client.post("/v1/types/parse", json={"text": text})
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    assert None not in found.values()
    return found


def test_a_tensor_type_is_described_flat(client: httpx.Client) -> None:
    found = parsed(client, "tensor<2x?x!quant.uniform<i8<-127:127>:f32:1, {0.1:3, 0.25, 0.125}>>")
    assert found["canonical"] == (
        "tensor<2x?x!quant.uniform<i8<-127:127>:f32:1, {1.000000e-01:3,2.500000e-01,1.250000e-01}>>"
    )
    assert (found["kind"], found["element_kind"]) == ("tensor", "uniform_per_axis")
    assert found["shape"] == [2, -1]
    assert (found["storage"], found["bits"], found["signed"]) == ("i8", 8, True)
    assert (found["storage_min"], found["storage_max"]) == (-127, 127)
    assert (found["expressed"], found["axis"]) == ("f32", 1)
    assert [float(scale) for scale in found["scales"]] == [0.1, 0.25, 0.125]
    assert found["zero_points"] == [3, 0, 0]
    assert parsed(client, found["canonical"]) == found


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("f32", {"kind": "float", "bits": 32, "signed": True}),
        ("i7", {"kind": "integer", "bits": 7, "signed": True}),
        ("ui8", {"kind": "integer", "bits": 8, "signed": False}),
        ("index", {"kind": "index"}),
        ("tensor<*xf32>", {"kind": "tensor", "ranked": False, "shape": [], "element": "f32", "element_kind": "float"}),
        ("tensor<f32>", {"kind": "tensor", "ranked": True, "shape": []}),
        (
            "!quant.uniform<u8:f32, 0.5:128>",
            {"kind": "uniform", "storage": "u8", "scales": ["0.5"], "zero_points": [128]},
        ),
    ],
)
def test_kinds(client: httpx.Client, text: str, fields: dict[str, Any]) -> None:
    found = parsed(client, text)
    assert {name: found[name] for name in fields} == fields


@pytest.mark.parametrize("storage", ["i8", "u8", "si8", "ui8", "i4", "ui4"])
def test_the_spelling_of_the_storage_is_kept(client: httpx.Client, storage: str) -> None:
    found = parsed(client, f"!quant.uniform<{storage}:f32, 0.5>")
    assert (found["storage"], found["signed"]) == (storage, "u" not in storage)


@pytest.mark.parametrize(
    "path", ["/healthz", "/v1/info", "/v1/profiles", "/problems/npy", "/docs", "/openapi.json", "/nope", "/v1/quantize"]
)
def test_head_is_answered_like_get(client: httpx.Client, path: str) -> None:
    head, get = client.head(path), client.get(path)
    assert head.status_code == get.status_code
    assert head.content == b""
    own = {"date", "x-request-id", "server-timing"}
    assert {k: v for k, v in head.headers.items() if k not in own} == {
        k: v for k, v in get.headers.items() if k not in own
    }


def test_the_methods_of_a_path_are_named(client: httpx.Client) -> None:
    assert client.post("/healthz").headers["allow"] == "GET, HEAD"
    assert client.head("/v1/quantize").headers["allow"] == "POST"


@pytest.mark.parametrize("sign", ["", "-"])
def test_the_largest_factor_has_a_represented_value(client: httpx.Client, sign: str) -> None:
    body = {"factors": [f"{sign}1.7976931348623157e308"], "scheme": "litert"}
    (result,) = client.post("/v1/parameters/multiplier", json=body).json()["results"]
    assert abs(result["multiplier"]) * 2.0 ** (result["shift"] - 1023 - 31) == 2.0
    assert result["represented"] == f"{sign}{2**1024}"
    assert result["relative_error"] == 1 / (2**53 - 1)


def test_multipliers(client: httpx.Client) -> None:
    body = {"factors": ["0.5", "0x1.8p-5", "0"], "scheme": "litert"}
    reply = client.post("/v1/parameters/multiplier", json=body).json()
    assert reply["scheme"] == "litert"
    assert [(r["multiplier"], r["shift"]) for r in reply["results"]] == [(1 << 30, 0), (3 << 29, -4), (0, 0)]
    assert float(reply["results"][1]["represented"]) == 0.046875
    assert reply["results"][1]["relative_error"] == 0.0


def test_many_multipliers_are_derived_off_the_loop(client: httpx.Client) -> None:
    body = {"factors": [f"0.{n}" for n in range(1, 2001)], "scheme": "tosa"}
    results = client.post("/v1/parameters/multiplier", json=body).json()["results"]
    assert len(results) == 2000
    assert all(abs(result["relative_error"]) < 2**-30 for result in results)


def test_info_states_the_limits(client: httpx.Client) -> None:
    info = client.get("/v1/info").json()
    assert info["name"] == "requant"
    assert info["kernels"] > 0
    assert info["limits"]["max_json_bytes"] == 8 << 20
    assert info["limits"] == client.get("/openapi.json").json()["info"]["x-limits"]


def test_profiles(client: httpx.Client) -> None:
    profiles = client.get("/v1/profiles").json()["profiles"]
    assert {"stablehlo", "onnx", "litert", "litert_single_rounding", "tosa", "tosa_double_round"} <= {
        profile["name"] for profile in profiles
    }
    for profile in profiles:
        page = client.get(f"/v1/profiles/{profile['name']}").json()
        assert profile["operations"].keys() <= page.pop("conformance").keys()
        page.pop("equals")
        assert page == profile
        for rule in profile["operations"].values():
            assert rule["formula"]
            assert None not in rule.values()
    litert = client.get("/v1/profiles/litert").json()
    assert litert["products"]["conv2d"]["variants"]["i64"]["scheme"] == "litert_int64"
    assert litert["add"]["addition"] == "fixed_point"
    assert not {"products", "add"} & client.get("/v1/profiles/mlir").json().keys()
    missing = client.get("/v1/profiles/nope")
    assert (missing.status_code, missing.json()["code"]) == (404, "unknown_name")


def test_every_problem_is_explained(client: httpx.Client) -> None:
    unknown = client.get("/problems/nope")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_name")
    for code in ("npy", "base64", "type_invalid", "limit_exceeded", "not_found", "internal_error"):
        explained = client.get(f"/problems/{code}").json()
        assert explained["code"] == code
        assert len(explained["explanation"]) > 40
        assert explained in client.get("/problems").json()["problems"]


def test_a_problem_is_a_page_for_browsers(client: httpx.Client) -> None:
    accept = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
    page = client.get("/problems/npy", headers={"Accept": accept})
    assert (page.status_code, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert page.headers["Vary"] == "accept"
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    explained = client.get("/problems/npy", headers={"Accept": "*/*"})
    assert (explained.headers["Content-Type"], explained.headers["Vary"]) == ("application/json", "accept")
    assert html.escape(explained.json()["explanation"]) in page.text
    assert '<a href="limit_exceeded">' in page.text


@pytest.mark.parametrize("path", ["/healthz", "/v1/info", "/nope", "/docs"])
def test_every_reply_has_the_common_headers(client: httpx.Client, path: str) -> None:
    reply = client.get(path, headers={"X-Request-Id": "a.b-c_9"})
    assert reply.headers["X-Request-Id"] == "a.b-c_9"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.headers["Cache-Control"] == ("no-cache" if "ETag" in reply.headers else "no-store")
    assert "server" not in reply.headers


STATIC = [
    "/v1/info", "/v1/profiles", "/v1/profiles/litert", "/v1/schemes", "/v1/schemes/litert", "/v1/operators",
    "/v1/operators/onnx.QuantizeLinear", "/problems", "/problems/npy", "/v2", "/v2/models", "/v2/models/quantize",
    "/v2/models/quantize/versions/1", "/docs", "/docs/assets/swagger-ui-bundle.js", "/openapi.json",
]  # fmt: skip


@pytest.mark.parametrize("path", STATIC)
def test_what_never_changes_has_an_etag(client: httpx.Client, path: str) -> None:
    whole = client.get(path)
    tag = whole.headers["ETag"]
    assert re.fullmatch('"[0-9a-f]{32}"', tag)
    for given in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        same = client.get(path, headers={"If-None-Match": given})
        assert (same.status_code, same.content) == (304, b"")
        assert "Content-Length" not in same.headers
        # RFC 9110 15.4.5.
        assert {name: same.headers[name] for name in ("ETag", "Cache-Control")} == {
            name: whole.headers[name] for name in ("ETag", "Cache-Control")
        }
        assert client.head(path, headers={"If-None-Match": given}).status_code == 304
    two_lines = client.get(path, headers=[("If-None-Match", '"other"'), ("If-None-Match", tag)])
    assert two_lines.status_code == 304
    for other in ('"other"', tag[1:-1], "", f"{tag[:-2]}"):
        changed = client.get(path, headers={"If-None-Match": other})
        assert (changed.status_code, changed.content) == (200, whole.content)


def test_the_etag_of_one_resource_is_not_that_of_another(client: httpx.Client) -> None:
    tags = [client.head(path).headers["ETag"] for path in STATIC if path != "/v2/models/quantize/versions/1"]
    assert len(set(tags)) == len(tags)


@pytest.mark.parametrize("path", ["/healthz", "/v2/health/ready", "/v1/profiles/nope", "/metrics"])
def test_what_changes_has_none(client: httpx.Client, path: str) -> None:
    assert "ETag" not in client.get(path).headers
    assert client.get(path, headers={"If-None-Match": "*"}).status_code != 304


@pytest.mark.parametrize("given", ["", "x" * 65, "a b", "a;b", 'a"b'])
def test_other_request_ids_are_replaced(client: httpx.Client, given: str) -> None:
    reply = client.get("/nope", headers={"X-Request-Id": given})
    assert re.fullmatch("[0-9a-f]{32}", reply.headers["X-Request-Id"])
    assert reply.json()["request_id"] == reply.headers["X-Request-Id"]


def test_other_methods_and_paths(client: httpx.Client) -> None:
    wrong = client.get("/v1/quantize")
    assert (wrong.status_code, wrong.headers["allow"], wrong.json()["code"]) == (405, "POST", "method_not_allowed")
    for path in ("/nothing", "/v1/quantize/", "/v1/quantise", "/redoc"):
        missing = client.get(path)
        assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
        assert missing.headers["content-type"] == "application/problem+json"
