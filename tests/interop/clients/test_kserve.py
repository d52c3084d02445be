"""KServe's InferenceRESTClient, as installed, against the running service."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the packages that it imports
    kserve: Any = pytest.importorskip("kserve")

from kserve.protocol.infer_type import RequestedOutput

from tests.conftest import Server
from tests.interop.clients.model_cases import CASES, Array, ModelCase, check

pytestmark = pytest.mark.clients

TARGET = {"output_type": "!quant.uniform<i8:f32, 0.5:3>", "profile": "onnx"}
# What to ask a client of the URL.
Ask = Callable[[Any, str], Awaitable[Any]]


def call(server: Server, ask: Ask) -> Any:
    async def run() -> Any:
        async with kserve.InferenceRESTClient(kserve.RESTConfig(protocol="v2", timeout=120)) as client:
            return await ask(client, server.url)

    return asyncio.run(run())


def given(name: str, array: Array, *, binary: bool) -> Any:
    datatype = array.dtype.name.upper().replace("FLOAT", "FP")
    found = kserve.InferInput(name, list(array.shape), datatype)
    found.set_data_from_numpy(array, binary_data=binary)
    return found


def infer(server: Server, model: str, inputs: list[Any], **request: Any) -> Any:
    asked = kserve.InferRequest(model, inputs, **request)
    return call(server, lambda client, url: client.infer(url, asked, model_name=model))


def test_server_and_models(server: Server, client: httpx.Client) -> None:
    assert call(server, lambda kserve_client, url: kserve_client.is_server_live(url)) is True
    assert call(server, lambda kserve_client, url: kserve_client.is_server_ready(url)) is True
    models = client.get("/v2/models").json()["models"]
    operators = {entry["model"] for entry in client.get("/v1/operators").json()["operators"]}
    assert set(models) == {case.model for case in CASES} | operators
    for model in (*models, "nope"):

        async def ask(kserve_client: Any, url: str, model: str = model) -> Any:
            return await kserve_client.is_model_ready(url, model)

        assert call(server, ask) is (model != "nope")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.model)
@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False, None])
def test_every_model(server: Server, case: ModelCase, binary_in: bool, binary_out: bool | None) -> None:
    inputs = [given(name, array, binary=binary_in) for name, array in case.inputs.items()]
    parameters: dict[str, Any] = dict(case.parameters)
    outputs = None
    if binary_out is None:
        outputs = [RequestedOutput(name, {"binary_data": index == 0}) for index, name in enumerate(case.expected)]
    else:
        parameters["binary_data_output"] = binary_out
    response = infer(server, case.model, inputs, request_id="id-1", parameters=parameters, request_outputs=outputs)
    assert (response.id, response.model_name) == ("id-1", case.model)
    check(case, {output.name: output.as_numpy() for output in response.outputs}, response.parameters)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_kind_of_reals(server: Server, dtype: Any) -> None:
    """FP16 goes in binary only, both ways, and this client knows no BF16."""
    x = np.array([0.25, 0.75, -1.5], dtype)
    text = f"!quant.uniform<i8:f{8 * x.itemsize}, 0.5:3>"
    y = infer(server, "quantize", [given("x", x, binary=True)], parameters={"output_type": text}).outputs[0]
    assert y.as_numpy().tolist() == [4, 4, 0]
    parameters = {"input_type": text, "binary_data_output": True}
    back = infer(server, "dequantize", [given("x", y.as_numpy(), binary=True)], parameters=parameters).outputs[0]
    assert back.as_numpy().dtype == x.dtype
    assert back.as_numpy().tolist() == [0.5, 0.5, -1.5]


@pytest.mark.parametrize("binary", [True, False])
def test_tensors_without_elements(server: Server, binary: bool) -> None:
    inputs = [given("x", np.zeros((2, 0), np.float32), binary=binary)]
    assert infer(server, "quantize", inputs, parameters=TARGET).outputs[0].as_numpy().shape == (2, 0)


def test_errors_are_in_the_response(server: Server) -> None:
    with pytest.raises(httpx.HTTPStatusError) as caught:
        infer(server, "quantize", [given("x", np.zeros(2, np.float32), binary=True)], parameters={"output_type": "f"})
    response = caught.value.response
    assert response.status_code == 422
    assert response.json()["error"] == response.json()["detail"]
