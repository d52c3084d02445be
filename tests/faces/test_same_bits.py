"""Every case of the real systems' vectors through every face of the running service: same bits, same refusals."""

from __future__ import annotations

import base64
import io
from typing import Any

import httpx
import numpy as np
import pytest

from tests.vector_cases import Array, Conversion, Derivation, conversions, derivations

_SHORT_ENOUGH_FOR_A_QUERY = 4096


def json_values(array: Array, element: str) -> list[Any]:
    """The elements as the JSON face writes them: real numbers for bf16 too, which else travels as bit patterns."""
    spelled = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    real = (array.astype(np.uint32) << 16).view(np.float32) if element == "bf16" else array
    return [spelled.get(str(value), value) for value in real.tolist()]


def from_json_values(values: list[Any], expected: Array, element: str) -> Array:
    """The array that a reply's values stand for, in the form of `expected`."""
    numbers = np.array([float(value) for value in values], np.float32 if element == "bf16" else expected.dtype)
    return (numbers.view(np.uint32) >> 16).astype(np.uint16) if element == "bf16" else numbers


def element_of(text: str) -> str:
    """The element type of a tensor of plain elements."""
    return text.removesuffix(">").rpartition("x")[2]


def body_of(case: Conversion, form: str) -> dict[str, Any]:
    tensor: dict[str, Any] = {"type": case.input_type}
    if form == "data":
        tensor["data"] = base64.b64encode(case.values.tobytes()).decode()
    else:
        tensor["values"] = json_values(case.values, element_of(case.input_type))
    body: dict[str, Any] = {"input": tensor, "output_type": case.output_type, "profile": case.profile}
    body |= case.options
    if case.multipliers:
        body["multipliers"] = [{"multiplier": multiplier, "shift": shift} for multiplier, shift in case.multipliers]
    return body


def npy_of(case: Conversion) -> bytes:
    shape = [int(size) for size in case.input_type[len("tensor<") :].split("x") if size.isdigit()]
    file = io.BytesIO()
    np.save(file, case.values.reshape(shape))
    return file.getvalue()


def check_problem(response: httpx.Response, case: Conversion) -> None:
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["code"] == case.error


@pytest.mark.parametrize("form", ["data", "values"])
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in conversions()])
def test_json_face(client: httpx.Client, case: Conversion, form: str) -> None:
    # JSON numbers carry no NaN payload: a NaN is the quiet one there, and no result but a cast's depends on it.
    response = client.post(f"/v1/{case.operation}", json=body_of(case, form))
    if case.expected is None:
        check_problem(response, case)
        return
    assert response.status_code == 200, response.text
    reply = response.json()
    assert reply["report"]["profile"] == case.profile
    assert reply["report"]["elements"] == case.values.size
    if form == "data":
        assert base64.b64decode(reply["output"]["data"]) == case.expected.tobytes()
    else:
        # A NaN is written as a word, and every other number so that it reads back to the same bits.
        values = from_json_values(reply["output"]["values"], case.expected, element_of(case.output_type))
        if case.casts:
            same = ~np.isnan(case.values if case.values.dtype.kind == "f" else case.expected)
            assert values[same].tobytes() == case.expected[same].tobytes()
        else:
            assert values.tobytes() == case.expected.tobytes()


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name)
        for case in conversions()
        if max(len(case.input_type), len(case.output_type)) <= _SHORT_ENOUGH_FOR_A_QUERY
    ],
)
def test_npy_face(client: httpx.Client, case: Conversion) -> None:
    query = {"input_type": case.input_type, "output_type": case.output_type, "profile": case.profile}
    query |= {name: str(value).lower() for name, value in case.options.items()}
    if case.multipliers:
        query["multipliers"] = ",".join(f"{multiplier}:{shift}" for multiplier, shift in case.multipliers)
    response = client.post(f"/v1/npy/{case.operation}", params=query, content=npy_of(case))
    if case.expected is None:
        check_problem(response, case)
        return
    assert response.status_code == 200, response.text
    array = np.load(io.BytesIO(response.content))
    assert array.dtype == case.expected.dtype
    assert array.tobytes() == case.expected.tobytes()
    assert response.headers["requant-profile"] == case.profile


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case.name}/{case.scheme}") for case in derivations()])
def test_multiplier_derivation(client: httpx.Client, case: Derivation) -> None:
    response = client.post("/v1/parameters/multiplier", json={"factors": [case.factor], "scheme": case.scheme})
    if case.error is not None:
        assert (response.status_code, response.json()["code"]) == (422, case.error)
        return
    (result,) = response.json()["results"]
    assert (result["multiplier"], result["shift"]) == (case.multiplier, case.shift)
