"""/v1/parameters/multiplier: factors and scales in every scheme, and the pages of the schemes."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import httpx
import pytest

from requant.schemes import SCHEMES
from tests.oracles import schemes as scheme_oracle


def results(client: httpx.Client, **body: Any) -> list[dict[str, Any]]:
    response = client.post("/v1/parameters/multiplier", json=body)
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["results"]
    return found


@pytest.mark.parametrize("scheme", SCHEMES)
def test_factors(client: httpx.Client, scheme: str) -> None:
    texts = ["0.0123", "0x1.8p-2", "0.9999999"]
    found = results(client, factors=texts, scheme=scheme)
    for text, result in zip(texts, found, strict=True):
        factor = float.fromhex(text) if text.startswith("0x") else float(text)
        expected = scheme_oracle.derive(scheme, factor)
        assert expected is not None
        value = scheme_oracle.represented(scheme, expected)
        assert (result["multiplier"], result["shift"]) == expected[:2]
        assert Fraction(result["represented"]) == Fraction(result["fraction"]) == value
        assert Fraction(result["factor"]) == Fraction(factor) or float(result["factor"]) == factor
        assert result["relative_error"] == float(value / Fraction(factor) - 1)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("weight", [None, "0.1", "0x1.999999999999ap-4"])
def test_scales(client: httpx.Client, scheme: str, weight: str | None) -> None:
    """f32 or f64 products and quotients, as the scheme's system forms them: 0.3 and 0.1 differ in the two."""
    scales = {"input": "0.3", "output": "0.7"} | ({} if weight is None else {"weight": weight})
    (result,) = results(client, scales=[scales], scheme=scheme)
    factor = scheme_oracle.factor(scheme, 0.3, None if weight is None else 0.1, 0.7)
    expected = scheme_oracle.derive(scheme, factor)
    assert expected is not None
    assert float(result["factor"]) == factor
    assert (result["multiplier"], result["shift"]) == expected[:2]


def test_the_longest_fraction_is_whole(client: httpx.Client) -> None:
    (result,) = results(client, factors=["5e-324"], scheme="litert_float")
    assert result["fraction"] == f"1/{2**1074}"
    assert Fraction(result["represented"]) == Fraction(1, 2**1074)


# Seventeen digits and more, ties of binary64 and of binary32, subnormals, and numbers that no double holds.
HARD = [
    "0.1", "0.30000000000000004", "0.10000000000000000555111512312578270211815834045410156", "1e-46", "7e-46",
    "9007199254740993", "9007199254740992.9999999999999999", "1.00000000000000011102230246251565404236316680908203125",
    "1.00000000000000011102230246251565404236316680908203126", "1.000000059604644775390625",
    "1.0000000596046447753906250000000000000001", "2.4703282292062327e-324", "2.4703282292062328e-324", "5e-324",
    "1e-400", "0", "0.0", "1E+2", "123456789012345678901234567890", "1.7976931348623157e308",
    "-0", "-0.0", "-1", "1e400", "1.7976931348623159e308", "9" * 400, "0." + "1" * 200,
]  # fmt: skip


def of_written(client: httpx.Client, path: str, body: str) -> Any:
    reply = client.post(path, content=body.encode(), headers={"content-type": "application/json"})
    return reply.json() | {"request_id": reply.status_code}


@pytest.mark.parametrize("scheme", ["litert", "onnxruntime", "litert_float"])
def test_a_number_means_what_the_text_of_the_same_characters_means(client: httpx.Client, scheme: str) -> None:
    answered = 0
    for written in HARD:
        for body in (
            {"factors": [0.5, "@"], "scheme": scheme},
            {"scales": [{"input": "@", "weight": 0.1, "output": 0.5}], "scheme": scheme},
            {"scales": [{"input": 1, "output": "@"}], "scheme": scheme},
        ):
            sent = json.dumps(body)
            number, text = (
                of_written(client, "/v1/parameters/multiplier", sent.replace('"@"', each))
                for each in (written, f'"{written}"')
            )
            assert number == text, (written, body)
            answered += "results" in number
            if "results" in number and "factors" in body:
                # The nearest double, of the decimal and not of a rounded one.
                assert float(number["results"][1]["factor"]) == float(Fraction(written))
    assert answered > 40


def test_a_global_scale_is_a_number_or_its_text(client: httpx.Client) -> None:
    values = [0.1 * step for step in range(16)]
    body = {"input": {"type": "tensor<16xf32>", "values": values}, "format": "nvfp4", "global_scale": "@"}
    found = set()
    for written in ("0.001", "1.000000059604644775390625", "1.0000000596046447753906250000000000000001", "-0", "1e-46"):
        text = json.dumps(body)
        number, quoted = (
            of_written(client, "/v1/blocks/quantize", text.replace('"@"', each)) for each in (written, f'"{written}"')
        )
        assert number == quoted, written
        found.add(number.get("global_scale"))
    # By way of the nearest double, which is a tie of f32, where the decimal itself is just above it.
    assert found == {"0.0010000000474974513", "1.0", None}


def of_scales(scheme: str, *triples: dict[str, Any]) -> dict[str, Any]:
    return {"scheme": scheme, "scales": list(triples)}


FINE = {"input": "1", "output": "1"}


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({"scheme": "litert"}, 422, ""),
        ({"scheme": "litert", "factors": ["1"], "scales": []}, 422, ""),
        (of_scales("litert", {"input": "1"}), 422, "/scales/0/output"),
        (of_scales("litert", FINE, {"input": "1", "output": "0"}), 422, "/scales/1/output"),
        (of_scales("litert", FINE, {"input": "x", "output": "1"}), 422, "/scales/1/input"),
        (of_scales("litert", FINE | {"weight": "-1"}), 422, "/scales/0/weight"),
        (of_scales("litert", FINE | {"weight": None}), 422, "/scales/0/weight"),
        (of_scales("litert", FINE | {"bias": "1"}), 422, "/scales/0/bias"),
        (of_scales("onnxruntime", {"input": "1e38", "output": "1e-38"}), 422, "/scales/0"),
        (of_scales("tosa", {"input": "1e308", "output": "1e-308"}), 422, "/scales/0"),
        ({"scheme": "xnnpack_fp32", "factors": ["1", "256"]}, 422, "/factors/1"),
        ({"scheme": "cmsis_nn", "factors": ["-1"]}, 422, "/factors/0"),
        ({"scheme": "nosuch", "factors": ["1"]}, 422, "/scheme"),
        (of_scales("litert", *[FINE] * 5000), 413, "/scales"),
    ],
)
def test_refusals(client: httpx.Client, body: dict[str, Any], status: int, pointer: str) -> None:
    response = client.post("/v1/parameters/multiplier", json=body)
    assert response.status_code == status, response.text
    assert [error["pointer"] for error in response.json()["errors"]] == [pointer]


def test_every_scheme_has_a_page(client: httpx.Client) -> None:
    pages = client.get("/v1/schemes").json()["schemes"]
    assert [page["name"] for page in pages] == list(SCHEMES)
    for page in pages:
        found = client.get(f"/v1/schemes/{page['name']}").json()
        assert found.pop("conformance").keys() == {"requantize"}
        assert found == page
        assert all(
            page[key]
            for key in ("summary", "source", "derivation", "convention", "formula", "rounding", "factor", "demands")
        )
        assert page["multipliers"]["lowest"] <= 0 or page["name"] == "xnnpack_cvt8"
    assert client.get("/v1/schemes/nosuch").status_code == 404
