"""Tensors in JSON: values of every size and nesting through both faces, and base64 of exactly the bytes of a type."""

from __future__ import annotations

import asyncio
import base64
import json
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from requant.errors import Base64Error, TensorDataError
from requant_service.app import Application
from requant_service.http.json_document import SLICE_TOKENS
from requant_service.json_api import base64_tensor
from requant_service.runtime.settings import Settings
from tests.support.asgi import post, ready_app
from tests.support.cases import examples

MOST = Settings().max_values
TYPE = "!quant.uniform<i8:f32, 0.5:3>"

# How many brackets and commas stand around the elements of these requests is not known exactly: sizes on both sides.
SIZES = st.integers(0, 64) | st.integers(SLICE_TOKENS // 2 - 64, SLICE_TOKENS // 2 + 8) | st.integers(MOST - 64, MOST)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, ...]:
    """Draw a shape of at most MOST elements: any factors of a size, ones among them."""
    left, shape = draw(SIZES), []
    while left > 1:
        factors = [each for each in range(2, left + 1) if left % each == 0]
        shape.append(draw(st.sampled_from(factors)))
        left //= shape[-1]
    shape += [1] * draw(st.integers(0, 3)) + ([0] if left == 0 else [])
    return tuple(draw(st.permutations(shape)))


@pytest.fixture(scope="module")
def app() -> Application:
    return ready_app()


def send(app: Application, path: str, request: Any) -> Any:
    body = json.dumps(request).encode()
    reply = asyncio.run(post(app, path, {}, [body], declared=len(body)))
    assert reply.status == 200, reply.body
    return json.loads(reply.body)


def expected(array: np.ndarray[Any, Any]) -> list[int]:
    return [int(value) for value in np.clip(array.reshape(-1) * 2 + 3, -128, 127)]


@settings(max_examples=examples(40))
@given(shapes(), st.booleans(), st.booleans())
@example((4096,), False, False)
@example((64, 63), True, False)
@example((1984, 1), True, False)
@example((1, 4095), True, False)
@example((64, 64), False, True)
@example((2, 2, 512, 2), True, True)
def test_every_shape_is_taken_flat_and_nested(
    app: Application, shape: tuple[int, ...], nested: bool, text: bool
) -> None:
    array = np.arange(prod(shape)).reshape(shape) % 97 / 2
    data: Any = (array if nested else array.reshape(-1)).tolist()
    parameters: dict[str, Any] = {"output_type": TYPE}
    if text:
        # A long text beside the tensor moves where the slices end.
        parameters["input_type"] = f"tensor<{''.join(f'{size}x' for size in shape)}f32>"
    tensor = {"name": "x", "shape": shape, "datatype": "FP32", "data": data}
    reply = send(app, "/v2/models/quantize/infer", {"inputs": [tensor], "parameters": parameters})
    assert reply["outputs"][0]["data"] == expected(array)
    written = {"type": f"tensor<{''.join(f'{size}x' for size in shape)}f32>", "values": data}
    assert send(app, "/v1/quantize", {"input": written, "output_type": TYPE})["output"]["values"] == expected(array)


@settings(max_examples=examples(20))
@given(SIZES)
@example(4096)
def test_the_values_of_a_tensor_may_be_as_many(app: Application, size: int) -> None:
    array = np.arange(size) % 97 / 2
    tensor = {"type": f"tensor<{size}xf32>", "values": array.tolist()}
    reply = send(app, "/v1/quantize", {"input": tensor, "output_type": TYPE})
    assert reply["output"]["values"] == expected(array)


@given(npst.arrays(st.sampled_from(["i1", "u1", "<i2", "<u2", "<i4", "<f4"]).map(np.dtype), st.integers(0, 70)))
def test_base64_round_trip(array: np.ndarray[Any, Any]) -> None:
    text = base64_tensor.encode(array).decode("ascii")
    assert text == base64.b64encode(array.tobytes()).decode("ascii")
    decoded = base64_tensor.decode(text, array.dtype, array.size)
    assert decoded.dtype == array.dtype
    assert decoded.tobytes() == array.tobytes()
    assert decoded.flags.aligned
    assert decoded.flags.c_contiguous


@pytest.mark.parametrize(
    "text",
    [
        "!!!!",
        "AAA",
        "AA A",
        "AAA\n",
        "A\u00e9AA",
        "=AAA",
        "A=AA",
        "A===",
        "====",
        "AA-_",
        "data:,AA",
        "AAAA====",
        "AA==AA==",
    ],
)
def test_what_is_not_base64_is_refused_at_any_length(text: str) -> None:
    for elements in (0, 1, 2, 3, 6, 1000):
        with pytest.raises(Base64Error):
            base64_tensor.decode(text, np.dtype("i1"), elements)


@pytest.mark.parametrize(("text", "found"), [("", 0), ("AAAA", 3), ("AAA=", 2), ("AA==", 1), ("AAAAAAAA", 6)])
@pytest.mark.parametrize("elements", [0, 1, 2, 3, 4, 5, 6])
def test_the_byte_count_has_to_be_that_of_the_type(text: str, found: int, elements: int) -> None:
    if found == elements:
        assert base64_tensor.decode(text, np.dtype("i1"), elements).size == elements
    else:
        with pytest.raises(TensorDataError, match=f"has {found} bytes.*which is {elements}$") as caught:
            base64_tensor.decode(text, np.dtype("i1"), elements)
        assert not isinstance(caught.value, Base64Error)


def test_a_huge_promise_is_refused_by_arithmetic() -> None:
    with pytest.raises(TensorDataError):
        base64_tensor.decode("AAAA", np.dtype("<f4"), 2**80)
