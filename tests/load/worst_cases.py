"""The most expensive requests of every operation, as JSON and as a model, and of routes for files and forms.

`tests.load.worst_requests` sends them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from requant.operators.description import Operator
from tests.load import worst_calls, worst_operators
from tests.load.case import (
    BINARY_BYTES,
    JSON_BYTES,
    Call,
    Case,
    as_model,
    as_route,
    form_case,
    json_case,
    model_case,
    noise,
    npy_case,
    of,
    positive,
)
from tests.load.worst_calls import ENTRIES, grown
from tests.requests.catalog import CATALOG, Entry
from tests.support.oip_wire import Input

_OWN = {**worst_calls.OWN, **worst_operators.OWN}
_FURTHER = {**worst_calls.FURTHER, **worst_operators.FURTHER}


def calls(entry: Entry, budget: int) -> Iterator[Call]:
    """Yield the calls of an operation whose tensors have about so many bytes."""
    for call in (_OWN.get(entry.model) or grown(entry))(budget):
        yield _in_last_version(entry, call)
    if entry.model in _FURTHER:
        for call in _FURTHER[entry.model](budget):
            yield _in_last_version(entry, call)


def _in_last_version(entry: Entry, call: Call) -> Call:
    operator = entry.described
    if not isinstance(operator, Operator) or not operator.versions:
        return call
    return Call(call.what, lambda: {**call.body(), "opset": operator.last_version})


def _files() -> Iterator[Case]:
    wide, i8, sums = (16_700_000,), "!quant.uniform<i8:f32, 0.05:3>", "!quant.uniform<i32:f32, 0.01>"
    quantize, dequantize, requantize = (f"/v1/npy/{name}" for name in ("quantize", "dequantize", "requantize"))
    yield npy_case(quantize, "16 million f32", lambda: noise(wide), output_type=i8)
    yield npy_case(
        quantize, "16 million f32, stochastic", lambda: noise(wide), rounding="stochastic", seed="1", output_type=i8
    )
    yield npy_case(
        quantize,
        "32 million f16 to packed i2",
        lambda: noise((33_000_000,), "f2"),
        packing="dense",
        output_type="!quant.uniform<i2:f16, 0.05:1>",
    )
    yield npy_case(
        dequantize,
        "64 million i8 to f64",
        lambda: noise((63 << 20,), "i1"),
        output_type="f64",
        input_type="!quant.uniform<i8:f64, 0.05:3>",
    )
    yield npy_case(
        dequantize,
        "250 million packed i2",
        lambda: noise((63 << 20,), "u1"),
        packing="dense",
        input_type=f"tensor<{4 * (63 << 20)}x!quant.uniform<i2:f32, 0.05:1>>",
    )
    yield npy_case(requantize, "16 million i32", lambda: noise(wide, "i4"), input_type=sums, output_type=i8)
    yield npy_case(
        requantize,
        "64 million i8, torch",
        lambda: noise((63 << 20,), "i1"),
        profile="torch",
        input_type="!quant.uniform<i8:f32, 0.01>",
        output_type=i8,
    )
    yield form_case(
        "/v1/multipart/quantize",
        "60000 channels",
        lambda: {"x": noise((250, 60_000)), "scale": positive((60_000,))},
        storage_type="i8",
        axis="1",
    )
    yield form_case(
        "/v1/multipart/quantize",
        "scales found, 60000 channels",
        lambda: {"x": noise((250, 60_000))},
        output_type="!quant.any<i8:f32>",
        axis="1",
        method="percentile",
        output="npz",
    )
    yield form_case(
        "/v1/multipart/dequantize",
        "60 million i8, 60000 channels",
        lambda: {"x": noise((1000, 60_000), "i1"), "scale": positive((60_000,))},
        storage_type="i8",
        axis="1",
    )
    yield form_case("/v1/multipart/requantize", "65536 multipliers", lambda: {
        "x": noise((200, ENTRIES), "i4"), "multiplier": np.full(ENTRIES, 1 << 30, "i8"),
        "shift": np.full(ENTRIES, -7, "i4")}, input_type="i32", output_type="!quant.uniform<i8:f32, 0.5>", axis="1",
        scheme="litert")  # fmt: skip


def _others() -> Iterator[Case]:
    """Routes whose requests are none of an operation's JSON route."""
    yield json_case(
        "/v1/tosa/rescale",
        "65536 multipliers",
        lambda: {
            "input": of(noise((1, ENTRIES), "i4")),
            "output_type": "i8",
            "per_channel": True,
            "multiplier": [(1 << 30) + index for index in range(ENTRIES)],
            "shift": [35] * ENTRIES,
        },
    )
    yield json_case(
        "/v1/tosa/rescale",
        "750000 i48",
        lambda: {
            "input": of(noise((750_000,), "i4").astype("i8"), "i48"),
            "output_type": "i16",
            "multiplier": [1 << 14],
            "shift": [30],
            "scale32": False,
        },
    )
    yield model_case(
        "quantize",
        "60000 channels",
        lambda: [Input("x", noise((250, 60_000))), Input("scale", positive((60_000,)))],
        storage_type="i8",
        axis=1,
    )
    yield model_case(
        "quantize/versions/1",
        "32 million f16",
        lambda: [Input("x", noise((32_000_000,), "f2"))],
        output_type="!quant.uniform<i8:f16, 0.05:3>",
    )
    yield model_case(
        "derive_from_tensor",
        "percentile, 32 million f16",
        lambda: [Input("x", noise((32_000_000,), "f2"))],
        storage="i8",
        method="percentile",
    )
    yield Case("/v2/repository/index", "every model", lambda: (b"", {}))  # fmt: skip


def cases() -> Iterator[Case]:
    """Yield all of them."""
    for name, entry in CATALOG.items():
        for call in calls(entry, JSON_BYTES):
            yield as_route(name, call)
        for call in calls(entry, BINARY_BYTES):
            yield as_model(name, call)
    yield from _files()
    yield from _others()
