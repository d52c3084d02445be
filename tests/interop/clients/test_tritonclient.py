"""NVIDIA's tritonclient, as installed, against the running service."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

http: Any = pytest.importorskip("tritonclient.http")
utils: Any = pytest.importorskip("tritonclient.utils")
ml_dtypes: Any = pytest.importorskip("ml_dtypes")

from tests.conftest import Server  # noqa: E402
from tests.interop.clients.model_cases import CASES, Array, ModelCase, check  # noqa: E402
from tests.interop.comparison import Comparison  # noqa: E402
from tests.vector_cases import Conversion, conversions  # noqa: E402

pytestmark = pytest.mark.clients

TARGET = {"output_type": "!quant.uniform<i8:f32, 0.5:3>", "profile": "onnx"}


@pytest.fixture(scope="module")
def triton(server: Server) -> Iterator[Any]:
    with http.InferenceServerClient(f"127.0.0.1:{server.port}", network_timeout=120) as client:
        yield client


def given(name: str, array: Array, *, binary: bool = True) -> Any:
    found = http.InferInput(name, list(array.shape), utils.np_to_triton_dtype(array.dtype))
    return found.set_data_from_numpy(array, binary_data=binary)


def outputs_of(result: Any) -> dict[str, Array]:
    return {output["name"]: result.as_numpy(output["name"]) for output in result.get_response()["outputs"]}


def test_server_and_models(triton: Any, client: httpx.Client) -> None:
    assert triton.is_server_live()
    assert triton.is_server_ready()
    assert triton.get_server_metadata() == client.get("/v2").json()
    index = triton.get_model_repository_index()
    operators = {entry["model"] for entry in client.get("/v1/operators").json()["operators"]}
    assert {entry["name"] for entry in index} == {case.model for case in CASES} | operators
    for entry in index:
        for version in ("", entry["version"]):
            assert triton.is_model_ready(entry["name"], version)
            metadata = triton.get_model_metadata(entry["name"], version)
            assert metadata["name"] == entry["name"]
            assert entry["version"] in metadata["versions"]
    assert not triton.is_model_ready("nope")
    assert not triton.is_model_ready("quantize", "2")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.model)
@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False, None])
@pytest.mark.parametrize("coding", [None, "gzip", "deflate"])
def test_every_model(
    triton: Any, case: ModelCase, binary_in: bool, binary_out: bool | None, coding: str | None
) -> None:
    inputs = [given(name, array, binary=binary_in) for name, array in case.inputs.items()]
    outputs = None
    if binary_out is not None:
        outputs = [http.InferRequestedOutput(name, binary_data=binary_out) for name in case.expected]
    result = triton.infer(
        case.model,
        inputs,
        model_version="1",
        outputs=outputs,
        request_id="id-1",
        parameters=case.parameters,
        request_compression_algorithm=coding,
        response_compression_algorithm=coding,
    )
    response = result.get_response()
    assert (response["id"], response["model_name"], response["model_version"]) == ("id-1", case.model, "1")
    check(case, outputs_of(result), response["parameters"])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_every_kind_of_reals(triton: Any, dtype: Any) -> None:
    """BF16 goes in binary only: this client refuses to send it as JSON."""
    x = np.array([0.25, 0.75, -1.5, np.nan, np.inf], dtype)
    expressed = {"float16": "f16", "float32": "f32", "float64": "f64", "bfloat16": "bf16"}[x.dtype.name]
    text = f"!quant.uniform<i8:{expressed}, 0.5:3>"
    results = [
        triton.infer("quantize", [given("x", x, binary=binary)], parameters={"output_type": text})
        for binary in ([True] if expressed == "bf16" else [True, False])
    ]
    for result in results:
        y = result.as_numpy("y")
        assert y.tolist()[:3] == [4, 4, 0]
        back = triton.infer("dequantize", [given("x", y)], parameters={"input_type": text}).as_numpy("y")
        assert back.dtype == x.dtype
        assert back.astype(np.float64).tolist()[:3] == [0.5, 0.5, -1.5]


@pytest.mark.parametrize("dtype", [bool, *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))])
@pytest.mark.parametrize("binary", [True, False])
def test_every_kind_of_integers(triton: Any, dtype: Any, binary: bool) -> None:
    a = np.array([0, 1, 1], dtype)
    b = np.array([0, 1, 0], dtype)
    result = triton.infer("compare", [given("a", a, binary=binary), given("b", b, binary=binary)])
    assert result.as_numpy("first").tolist() == [2]
    assert result.get_response()["parameters"]["mismatches"] == 1


@pytest.mark.parametrize("shape", [(0,), (2, 0, 3)])
@pytest.mark.parametrize("binary", [True, False])
def test_tensors_without_elements(triton: Any, shape: tuple[int, ...], binary: bool) -> None:
    result = triton.infer("quantize", [given("x", np.zeros(shape, np.float32), binary=binary)], parameters=TARGET)
    assert result.as_numpy("y").shape == shape


@pytest.mark.parametrize(
    ("model", "parameters", "status", "says"),
    [
        ("nope", {}, "404", "no model is named"),
        ("quantize", {}, "422", "output_type"),
        ("quantize", {"output_type": "!quant.uniform<i8:f32, 1>"}, "422", "decimal point"),
        ("quantize", {**TARGET, "profil": "onnx"}, "422", "not a parameter"),
        ("dequantize", {"input_type": TARGET["output_type"]}, "422", "x takes INT8"),
    ],
)
def test_errors_are_read(triton: Any, model: str, parameters: dict[str, str], status: str, says: str) -> None:
    with pytest.raises(utils.InferenceServerException) as caught:
        triton.infer(model, [given("x", np.zeros(2, np.float32))], parameters=parameters)
    assert caught.value.status() == status
    assert says in caught.value.message()


def test_several_calls_at_once(triton: Any) -> None:
    arrays = [np.full(10_000, step, np.float32) for step in range(20)]
    calls = [triton.async_infer("quantize", [given("x", x)], parameters=TARGET) for x in arrays]
    for step, call in enumerate(calls):
        assert (call.get_result().as_numpy("y") == min(2 * step + 3, 127)).all()


def test_a_large_tensor(triton: Any) -> None:
    x = np.random.default_rng(1).normal(size=(1024, 4096)).astype(np.float32)
    parameters = {"output_type": "!quant.uniform<i8:f32, 0.05:1>"}
    y = triton.infer("quantize", [given("x", x)], parameters=parameters).as_numpy("y")
    assert y.tobytes() == np.clip(np.rint(x / np.float32(0.05) + 1), -128, 127).astype(np.int8).tobytes()


PAGE = (Path(__file__).parents[3] / "docs" / "open_inference_protocol.md").read_text(encoding="utf-8")
# Those of shared memory have a server of their own.
PAGE = "".join(part for part in PAGE.split("\n## ") if not part.startswith("System shared memory"))
SCRIPTS = re.findall(r"```python\n([^`]*?)```\n+```\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("script", "expected"), SCRIPTS)
def test_a_script_of_the_page_prints_what_stands_under_it(server: Server, script: str, expected: str) -> None:
    assert len(SCRIPTS) == PAGE.count("```python")
    command = [sys.executable, "-c", script.replace("127.0.0.1:8080", f"127.0.0.1:{server.port}")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == expected


def _wire(case: Conversion) -> Array:
    """The input as this client sends it: bf16 as ml_dtypes' type."""
    shape = [int(size) for size in case.input_type[len("tensor<") :].split("x") if size.isdigit()]
    array = case.values.reshape(shape)
    return array.view(ml_dtypes.bfloat16) if case.input_type.endswith("xbf16>") else array


@pytest.mark.parametrize("operation", ["quantize", "dequantize", "requantize"])
def test_the_vectors_of_the_real_systems(triton: Any, operation: str) -> None:
    comparison = Comparison(f"tritonclient, {operation}")
    for case in conversions():
        if case.operation != operation:
            continue
        inputs = [given("x", _wire(case))]
        for name, column in zip(("multiplier", "shift"), zip(*case.multipliers, strict=True), strict=False):
            inputs.append(given(name, np.array(column, np.int64)))
        parameters = {"output_type": case.output_type, "profile": case.profile, **case.options}
        if operation != "quantize":
            parameters["input_type"] = case.input_type
        if case.expected is None:
            with pytest.raises(utils.InferenceServerException, match=r"^\[422\]"):
                triton.infer(operation, inputs, parameters=parameters)
            continue
        y = triton.infer(operation, inputs, parameters=parameters).as_numpy("y")
        comparison.add(case.name, case.values, case.expected, y.reshape(-1).view(case.expected.dtype))
    comparison.finish(1000)
