"""/v1/parameters/multiplier: factors and scales in every scheme, and the pages of the schemes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import httpx
import pytest

from core.schemes import SCHEMES
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
        assert client.get(f"/v1/schemes/{page['name']}").json() == page
        assert all(
            page[key]
            for key in ("summary", "source", "derivation", "convention", "formula", "rounding", "factor", "demands")
        )
        assert page["multipliers"]["lowest"] <= 0 or page["name"] == "xnnpack_cvt8"
    assert client.get("/v1/schemes/nosuch").status_code == 404
