"""The functions on numpy arrays: the bits of the real systems' vectors, and those of the running service."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any

import httpx
import ml_dtypes
import numpy as np
import pytest

import requant
from tests.support.cases import by_file, check_each, sample
from tests.vector_cases import Array, Conversion, calibration_cases, conversions, range_cases

_MOST = 60
CONVERSIONS = by_file(conversions())
OPERATIONS: dict[str, Callable[..., Any]] = {
    "quantize": requant.quantize,
    "dequantize": requant.dequantize,
    "requantize": requant.requantize,
}


def of_element(bits: Array, name: str) -> Array:
    """Bit patterns as an array of the float type of that name."""
    if name == "bf16":
        return bits.view(ml_dtypes.bfloat16)
    if name.startswith("f") and "E" in name:
        return bits.view(getattr(ml_dtypes, f"float{name[1]}_{name[2:].lower()}"))
    return bits


def run(case: Conversion) -> Array:
    """The result of a case, as an array of its shape."""
    shape, element = case.input_type.removeprefix("tensor<").removesuffix(">"), case.input_type
    if "!" in shape:
        sizes, element = shape.split("!")[0], "!" + shape.partition("!")[2]
    else:
        sizes, _, element = f"x{shape}".rpartition("x")
    values = of_element(case.values, element).reshape([int(size) for size in sizes.split("x") if size])
    options: dict[str, Any] = {"profile": case.profile, **case.options}
    if case.multipliers:
        options["multipliers"] = case.multipliers
    types = [case.output_type] if case.operation == "quantize" else [case.input_type, case.output_type]
    result: Array = OPERATIONS[case.operation](values, *types, **options)
    assert result.shape == values.shape
    return result


@pytest.mark.parametrize("file", CONVERSIONS)
def test_conversions_give_the_vectors_bits(file: str) -> None:
    def check(case: Conversion) -> None:
        if case.expected is None:
            with pytest.raises(requant.RequantError) as refused:
                run(case)
            assert refused.value.code == case.error
        else:
            assert run(case).tobytes() == case.expected.tobytes()

    check_each(sample(CONVERSIONS[file], _MOST), check)


@pytest.mark.parametrize(
    ("operation", "values", "query"),
    [
        ("quantize", [[-0.25, 0.25, np.nan], [0.75, 100.0, -np.inf]], {"output_type": "!quant.uniform<i8:f32, 0.5:3>"}),
        ("quantize", [[0.1, 1e9, -3.0]], {"output_type": "!quant.uniform<i4:f32:1, {0.5,0.25,0.1}>"}),
        ("quantize", [0.1, 300.0, -3.0], {"output_type": "f8E5M2", "profile": "ml_dtypes"}),
        ("dequantize", [3, -128, 127], {"input_type": "!quant.uniform<i8:f32, 0.1:3>"}),
        (
            "requantize",
            [1000, -2000, 2**31 - 1],
            {"input_type": "!quant.uniform<i32:f32, 0.001>", "output_type": "!quant.uniform<i8:f32, 0.25:-1>"},
        ),
    ],
)
def test_what_the_service_answers(client: httpx.Client, operation: str, values: Any, query: dict[str, str]) -> None:
    """Bits and report."""
    array = np.array(values)
    array = array.astype({"quantize": np.float32, "dequantize": np.int8, "requantize": np.int32}[operation])
    result, report = OPERATIONS[operation](array, **query, return_report=True)
    np.save(file := io.BytesIO(), array)
    headers = {"Content-Type": "application/octet-stream"}
    reply = client.post(f"/v1/npy/{operation}", params=query, content=file.getvalue(), headers=headers)
    assert reply.status_code == 200, reply.text
    answered = np.load(io.BytesIO(reply.content))
    assert (answered.shape, answered.tobytes()) == (result.shape, result.tobytes())
    shown = {"type": f"tensor<{'x'.join(map(str, array.shape))}x{query.get('input_type', 'f32')}>"}
    body: dict[str, Any] = {"input": shown | {"data": base64.b64encode(array.tobytes()).decode()}}
    body |= {name: value for name, value in query.items() if name != "input_type"}
    told = client.post(f"/v1/{operation}", json=body).json()["report"]
    told.pop("scheme", None)
    assert report._asdict() == told


def test_ranges_give_the_service_s_parameters(client: httpx.Client) -> None:
    for case in sample(range_cases(), 40):
        found = requant.parameters_from_range(
            case.minimum, case.maximum, case.storage, scheme=case.scheme, **case.options
        )
        assert found.scales.tolist() == [case.scale]
        body = {"minimums": [case.minimum], "maximums": [case.maximum], "storage": case.storage, "scheme": case.scheme}
        told = client.post("/v1/parameters/range", json=body | case.options).json()
        assert (found.scales.tolist(), found.zero_points.tolist()) == (told["scales"], told["zero_points"])
        assert told["type"] == found.type if "type" in told else told["untyped"]


def test_data_give_the_service_s_parameters(client: httpx.Client) -> None:
    for case in sample(calibration_cases(), 10):
        found = requant.parameters(case.tensors, "u8", method=case.method, **case.options)
        assert (found.minimums.tolist(), found.maximums.tolist()) == ([case.minimum], [case.maximum])
        texts = [base64.b64encode(each.tobytes()).decode() for each in case.tensors]
        inputs = [
            {"type": f"tensor<{each.size}xf32>", "data": text} for each, text in zip(case.tensors, texts, strict=True)
        ]
        body = {"inputs": inputs, "storage": "u8", "granularity": "per_tensor", "method": case.method}
        reply = client.post("/v1/parameters/tensor", json=body | case.options)
        assert reply.status_code == 200, reply.text
        told = reply.json()
        assert (found.scales.tolist(), found.zero_points.tolist()) == (told["scales"], told["zero_points"])
        assert (found.scheme, found.left_out, found.type) == (told["scheme"], told["left_out"], told["type"])


def test_blocks_and_axes_have_parameters_of_their_own(client: httpx.Client) -> None:
    x = np.random.default_rng(7).standard_normal((4, 6)).astype(np.float32)
    # LiteRT's rule demands ranges with 0.
    x[0] = 0
    body = {"input": {"type": "tensor<4x6xf32>", "data": base64.b64encode(x.tobytes()).decode()}, "storage": "i8"}
    asked: tuple[tuple[str, dict[str, Any]], ...] = (
        ("per_axis", {"axis": 0}),
        ("per_axis", {"axis": 1, "scheme": "litert"}),
        ("sub_channel", {"block_sizes": (2, 3)}),
    )
    for granularity, options in asked:
        found = requant.parameters(x, "i8", **options)
        told = client.post("/v1/parameters/tensor", json=body | options | {"granularity": granularity}).json()
        assert (found.scales.tolist(), found.type) == (told["scales"], told["type"])
        assert requant.quantize(x, found.type, profile="onnx").shape == x.shape


def test_comparisons_are_the_service_s(client: httpx.Client) -> None:
    type_ = "!quant.uniform<i8:f32, 0.5:3>"
    a, b = np.array([[3, 4, 0], [127, -5, 8]], np.int8), np.array([[3, 5, 0], [100, -5, -128]], np.int8)
    found = requant.compare(a, b, type_, max_reported=2)
    tensors = [{"type": f"tensor<2x3x{type_}>", "data": base64.b64encode(each.tobytes()).decode()} for each in (a, b)]
    told = client.post("/v1/compare", json={"a": tensors[0], "b": tensors[1], "max_reported": 2}).json()
    assert (found.mismatches, found.bit_mismatches, found.equal) == (3, told["bit_mismatches"], told["equal"])
    assert found.mismatches == told["mismatches"]
    assert [(each.index, list(each.position), each.a, each.b, each.real_a) for each in found.first] == [
        (each["index"], each["position"], each["a"], each["b"], each["real_a"]) for each in told["first"]
    ]
    assert found.error.sqnr_db == told["sqnr_db"]
    assert [(each.low, each.high, each.count) for each in found.histogram.buckets] == [
        (each["low"], each["high"], each["count"]) for each in told["histogram"]["buckets"]
    ]
