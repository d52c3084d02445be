"""Every case of the real systems' vectors through every face of the running service: same bits, same refusals."""

from __future__ import annotations

import base64
import io
from typing import Any

import httpx
import numpy as np
import pytest

from tests.support import oip_wire
from tests.support.cases import by_file, check_each, sample
from tests.vector_cases import Array, Conversion, Derivation, conversions, derivations

_SHORT_ENOUGH_FOR_A_QUERY = 4096
# Of each file, through each face. Core takes all of them.
_MOST = 25
CONVERSIONS = by_file(conversions())
DERIVATIONS = by_file(derivations())


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


def shaped(case: Conversion) -> Array:
    shape = [int(size) for size in case.input_type[len("tensor<") :].split("x") if size.isdigit()]
    return case.values.reshape(shape)


def npy_of(case: Conversion) -> bytes:
    file = io.BytesIO()
    np.save(file, shaped(case))
    return file.getvalue()


def oip_of(case: Conversion, form: str) -> tuple[bytes, dict[str, str]]:
    element = element_of(case.input_type)
    data = None if form == "binary" else json_values(case.values, element)
    inputs = [oip_wire.Input("x", shaped(case), "BF16" if element == "bf16" else "", data)]
    for name, column in zip(("multiplier", "shift"), zip(*case.multipliers, strict=True), strict=False):
        numbers = np.array(column, np.int64)
        inputs.append(oip_wire.Input(name, numbers, "", None if form == "binary" else numbers.tolist()))
    parameters = {"output_type": case.output_type, "profile": case.profile, "binary_data_output": form == "binary"}
    parameters |= case.options
    # The datatype of real numbers says what they are.
    if case.operation != "quantize":
        parameters["input_type"] = case.input_type
    return oip_wire.body_of(inputs, parameters=parameters, id=case.name)


def told_in_json(case: Conversion) -> Array:
    """Which elements JSON numbers tell to the last bit: they carry no sign and no payload of a NaN, and a cast has one.

    The expected results have the form of the reply: bit patterns of bf16 and of small floats.
    """
    assert case.expected is not None
    if not case.casts:
        return np.ones(case.expected.size, np.bool_)
    floats = case.values if case.values.dtype.kind == "f" else case.expected
    return ~np.isnan(floats)


def check_problem(response: httpx.Response, case: Conversion) -> None:
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["code"] == case.error


@pytest.mark.parametrize("form", ["data", "values"])
@pytest.mark.parametrize("file", CONVERSIONS)
def test_json_face(client: httpx.Client, file: str, form: str) -> None:
    def check(case: Conversion) -> None:
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
            told = told_in_json(case)
            assert values[told].tobytes() == case.expected[told].tobytes()

    check_each(sample(CONVERSIONS[file], _MOST), check)


@pytest.mark.parametrize("file", CONVERSIONS)
def test_npy_face(client: httpx.Client, file: str) -> None:
    def check(case: Conversion) -> None:
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

    short = [
        case
        for case in CONVERSIONS[file]
        if max(len(case.input_type), len(case.output_type)) <= _SHORT_ENOUGH_FOR_A_QUERY
    ]
    check_each(sample(short, _MOST), check)


@pytest.mark.parametrize("form", ["json", "binary"])
@pytest.mark.parametrize("file", CONVERSIONS)
def test_oip_face(client: httpx.Client, file: str, form: str) -> None:
    def check(case: Conversion) -> None:
        body, headers = oip_of(case, form)
        response = client.post(f"/v2/models/{case.operation}/infer", content=body, headers=headers)
        if case.expected is None:
            check_problem(response, case)
            assert response.json()["error"] == response.json()["detail"]
            return
        reply = oip_wire.read(response)
        assert reply.head["id"] == case.name
        told_parameters = (reply.head["parameters"]["profile"], reply.head["parameters"]["elements"])
        assert told_parameters == (case.profile, case.values.size)
        y = reply.outputs["y"]
        assert y.shape == shaped(case).shape
        assert y.dtype == case.expected.dtype
        told = told_in_json(case) if form == "json" else np.ones(case.expected.size, np.bool_)
        assert y.ravel()[told].tobytes() == case.expected[told].tobytes()
        is_bf16 = element_of(case.output_type) == "bf16"
        assert reply.head["outputs"][0]["datatype"] == ("BF16" if is_bf16 else oip_wire.datatype(case.expected))
        for column, expected in enumerate(zip(*case.multipliers, strict=True)):
            assert reply.outputs[("multiplier", "shift")[column]].tolist() == list(expected)

    check_each(sample(CONVERSIONS[file], _MOST), check)


@pytest.mark.parametrize("file", DERIVATIONS)
def test_multiplier_derivation(client: httpx.Client, file: str) -> None:
    def check(case: Derivation) -> None:
        given: dict[str, Any] = {"factors": [case.factor]}
        if case.scales is not None:
            named = zip(("input", "weight", "output"), case.scales, strict=True)
            given = {"scales": [{name: scale for name, scale in named if scale}]}
        response = client.post("/v1/parameters/multiplier", json={**given, "scheme": case.scheme})
        if case.error is not None:
            assert (response.status_code, response.json()["code"]) == (422, case.error)
            return
        (result,) = response.json()["results"]
        assert (result["multiplier"], result["shift"]) == (case.multiplier, case.shift)

    check_each(sample(DERIVATIONS[file], _MOST), check)
