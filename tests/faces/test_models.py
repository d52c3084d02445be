"""Every operation as a model: what its JSON route answers, to the bit, and which model each operation is."""

from __future__ import annotations

import math
import re
from typing import Any

import httpx
import pytest

from requant_service.oip.models.registry import MODELS
from tests.requests.catalog import CATALOG, OF_ROUTE
from tests.requests.document import DOCUMENT, EXAMPLES
from tests.requests.inference import inference
from tests.service.openapi.test_documented_replies import TYPES
from tests.support import oip_wire
from tests.support.model_calls import check_reply, rescale_operands
from tests.support.page_table import page_table

OPERATIONS = [
    path
    for path, item in DOCUMENT["paths"].items()
    # Checkpoint jobs are about files, and no model.
    if path.startswith("/v1/") and "post" in item and not re.search("/v1/checkpoints|/jobs", path)
]
MODEL_OF = {
    operation.strip(" `"): row[1].strip("`")
    for row in page_table("open_inference_protocol.md", "Models")
    if row[0].startswith("`/v1")
    for operation in row[0].split(",")
}
OPERATORS = "/v1/{system}/{operator}"
QUANTIZED = "!quant.uniform<i8:f32, 0.5:3>"
PER_CHANNEL = "!quant.uniform<i8:f32:0, {0.5:3, 0.25}>"


def model_of(operation: str) -> str:
    """The model of an operation, as the page says."""
    if operation in MODEL_OF:
        return MODEL_OF[operation]
    assert OPERATORS in MODEL_OF
    _, _, system, operator = operation.split("/")
    return f"{system}.{operator}"


def real(*shape: int, element: str = "f32") -> dict[str, Any]:
    numbers = [((7 * index) % 23 - 11) / 4 for index in range(math.prod(shape))]
    return {"type": f"tensor<{''.join(f'{size}x' for size in shape)}{element}>", "values": numbers}


def stored(element: str, *shape: int) -> dict[str, Any]:
    numbers = [(37 * index) % 200 - 100 if "u" not in element[:16] else index for index in range(math.prod(shape))]
    return {"type": f"tensor<{''.join(f'{size}x' for size in shape)}{element}>", "values": numbers}


def calibration(**members: Any) -> dict[str, Any]:
    return {"input": real(4, 6), "storage": "i8", **members}


I8, U4 = "!quant.uniform<i8:f32, 0.5:-1>", "!quant.uniform<u4:f32, 0.5:1>"
_BIT = "func.func @main(%x: tensor<2xi1>, %y: tensor<2xbf16>) -> (tensor<2xbf16>, tensor<2xi1>) {\n"
# More of each operation than its documented example shows.
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/matmul", {"lhs": stored("i8", 2, 3), "rhs": stored("i8", 3, 2), "output_type": "i32"}),
    (
        "/v1/matmul",
        {
            "lhs": stored(I8, 2, 2, 3),
            "rhs": stored(I8, 3, 4),
            "output_type": QUANTIZED,
            "profile": "onnx",
            "accumulator": "i32",
            "overflow": "saturate",
            "trace": True,
        },
    ),
    (
        "/v1/conv2d",
        {
            "input": stored(I8, 1, 2, 5, 5),
            "weights": stored(I8, 4, 1, 2, 2),
            "output_type": QUANTIZED,
            "layout": "NCHW",
            "strides": [2, 1],
            "dilations": [1, 2],
            "pads": [1, 0, 1, 2],
            "groups": 2,
            "scheme": "tosa",
        },
    ),
    ("/v1/add", {"lhs": stored(I8, 3, 1), "rhs": stored(I8, 4), "output_type": QUANTIZED, "profile": "stablehlo"}),
    ("/v1/fake_quantize", {"input": real(3, 2), "minimums": [-1, -0.5], "maximums": [1, 2], "axis": 1, "num_bits": 4}),
    ("/v1/fake_quantize", {"input": real(5), "minimums": [0], "maximums": [1.5], "scheme": "litert"}),
    (
        "/v1/parameters/range",
        {"minimums": [-1, 0], "maximums": [1, 2], "axis": 0, "storage": "u8", "scheme": "tf_fake_quant"},
    ),
    (
        "/v1/parameters/range",
        {
            "minimums": [-1, -2, -3, -4],
            "maximums": [1, 2, 3, 4],
            "shape": [2, 64],
            "block_sizes": [1, 32],
            "storage": "i8",
            "scheme": "torch_observer",
            "symmetric": True,
            "epsilon": 1e-5,
        },
    ),
    ("/v1/parameters/range", {"minimums": [0], "maximums": [0], "storage": "i8", "scheme": "litert"}),
    ("/v1/parameters/bias", {"input_scale": 1, "weight_scales": [2], "scheme": "torch"}),
    ("/v1/parameters/bias", {"input_scale": 1, "weight_scales": [0], "scheme": "litert", "bias": real(2)}),
    (
        "/v1/parameters/multiplier",
        {
            "scales": [
                {"input": "0.05", "weight": "0x1p-4", "output": "0.25"},
                {"input": "1", "weight": "3", "output": "7"},
            ],
            "scheme": "tosa",
        },
    ),
    ("/v1/parameters/multiplier", {"factors": ["0", "1.7976931348623157e308"], "scheme": "litert"}),
    ("/v1/parameters/tensor", calibration(method="min_max", granularity="per_axis", axis=1)),
    ("/v1/parameters/tensor", calibration(granularity="sub_channel", block_sizes=[2, 3], scheme="torch_observer")),
    ("/v1/parameters/tensor", calibration(method="percentile", percentile=90.5, magnitudes=True, bins=64)),
    ("/v1/parameters/tensor", calibration(method="entropy", bins=32, quantized_bins=16)),
    ("/v1/parameters/tensor", calibration(method="mse", candidates=7, profile="onnx")),
    (
        "/v1/parameters/tensor",
        {"inputs": [real(4), real(4)], "storage": "u8", "method": "moving_average", "averaging_constant": 0.25},
    ),
    ("/v1/parameters/tensor", {"input": real(2, 2, element="bf16"), "storage": "i4", "expressed": "f16"}),
    *(("/v1/types/parse", {"text": text}) for text in TYPES),
    ("/v1/types/translate", {"type": f"tensor<2x{PER_CHANNEL}>", "systems": ["onnx", "torch"]}),
    ("/v1/types/translate", {"type": f"tensor<4x{I8}>", "rescale_to": "!quant.uniform<i8:f32, 0.25>"}),
    ("/v1/types/translate", {"onnx": {"x_type": "i8", "x_scale": [0.3], "x_zero_point": [3]}, "shape": [2, 3]}),
    ("/v1/types/translate", {"litert": {"type": "INT8", "scale": [0.5, 0.25], "zero_point": [0, 0]}}),
    ("/v1/lower", {"module": "func.func @main() {\n  return\n}\n"}),
    (
        "/v1/evaluate",
        {
            "module": f"{_BIT}  return %y, %x : tensor<2xbf16>, tensor<2xi1>\n}}",
            "inputs": [{"type": "tensor<2xi1>", "values": [1, 0]}, {"type": "tensor<2xbf16>", "values": [1.5, -2.0]}],
        },
    ),
    ("/v1/compare", {"a": real(3), "b": real(3, element="f32"), "max_reported": 1}),
    ("/v1/tosa/rescale", {"input": stored("i48", 2), "output_type": "i16", "multiplier": [1 << 14], "shift": [30],
                          "scale32": False}),
]  # fmt: skip


ANSWERED = [(path, EXAMPLES[path]) for path in OPERATIONS if path in EXAMPLES]


def infer(client: httpx.Client, path: str, request: dict[str, Any]) -> httpx.Response:
    """Send a request to a JSON route to the model of the operation."""
    if path == "/v1/tosa/rescale":
        found = inference(CATALOG["tosa.RESCALE"], rescale_operands(request))
    else:
        found = inference(OF_ROUTE[path], request)
    return oip_wire.infer(client, found.path, found.inputs, parameters={**found.parameters, "binary_data_output": True})


@pytest.mark.parametrize(
    ("path", "request_"),
    [*ANSWERED, *REQUESTS],
    ids=lambda each: str(each)[:50],
)
def test_a_model_answers_what_its_route_does(client: httpx.Client, path: str, request_: dict[str, Any]) -> None:
    reply = client.post(path, json=request_)
    assert reply.status_code == 200, reply.text
    check_reply(oip_wire.read(infer(client, path, request_)), reply.json())


def test_every_operation_has_a_model() -> None:
    assert {model_of(entry.route): entry.model for entry in CATALOG.values()} == {name: name for name in MODELS}
    assert {model_of(path) for path in OPERATIONS} == set(MODELS)
    listed = {path for path in OPERATIONS if path in MODEL_OF}
    assert listed == MODEL_OF.keys() - {OPERATORS}


def test_a_model_of_several_tensors_says_so(client: httpx.Client) -> None:
    """In JSON they are a list of another name, which is not spoken of elsewhere."""
    [tensor] = client.get("/v2/models/derive_from_tensor").json()["inputs"]
    assert "several" in tensor["parameters"]["description"]
    assert "inputs" not in tensor["parameters"]["description"]
