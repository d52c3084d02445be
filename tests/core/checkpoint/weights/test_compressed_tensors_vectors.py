"""Every weight format of compressed-tensors equals the library, byte for byte, in both directions."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.schemes import scheme_named
from requant.checkpoint.weights.weight_format import StoredRows, WeightFormat
from tests.support.stored_weights import dequantized, quantized

VECTORS = Path(__file__).parents[3] / "vectors" / "compressed_tensors"
NAMES = {
    "bfloat16": "BF16",
    "float16": "F16",
    "float32": "F32",
    "int8": "I8",
    "uint8": "U8",
    "int32": "I32",
    "int64": "I64",
    "float8_e4m3fn": "F8_E4M3",
}
# Vectors whose scheme has another name here.
SCHEMES = {
    "W4CHANNEL": "W4A16:channel",
    "W4G32": "W4A16:group=32",
    "W8TENSOR": "W8A16:tensor",
    "W8A8_ASYM": "W8A8:asymmetric",
}


def tensor(description: dict[str, Any]) -> np.ndarray:
    array = np.frombuffer(base64.b64decode(description["data"]), DTYPES[NAMES[description["dtype"]]].array)
    return array.reshape(description["shape"])


@pytest.mark.parametrize("path", sorted(VECTORS.glob("ct_*.json")), ids=lambda path: path.stem)
def test_vectors(path: Path) -> None:
    document = json.loads(path.read_text())
    scheme = scheme_named(SCHEMES.get(document["scheme"], document["scheme"]))
    weights = scheme.quantization_config(["Linear"], [])["config_groups"]["group_0"]["weights"]
    assert {**weights, **document["weights"]} == weights
    form = scheme.format("compressed-tensors-cpu")
    for case in document["cases"]:
        dtype = NAMES[case["weight"]["dtype"]]
        weight = tensor(case["weight"])
        expected = {suffix: (NAMES[each["dtype"]], tensor(each)) for suffix, each in case["compressed"].items()}
        check(form, weight, dtype, expected, case["decompressed"])


@pytest.mark.parametrize(
    "name", ["W8A8", "W4A16:channel", "W8A16:tensor", "FP8_BLOCK", "NVFP4A16", "MXFP4A16", "MXFP8A16"]
)
def test_codes_and_scales_are_the_weight(name: str) -> None:
    """A shape that cuts off blocks and words where it may be."""
    shape = (130, 160)
    weight = np.random.default_rng(5).standard_normal(shape).astype("<f4")
    form = scheme_named(name).format("compressed-tensors-cuda")
    described = {each.suffix: (each.dtype, each.shape) for each in form.stored("F32", shape)}
    found = quantized(form, weight, "F32", form.rows_together)
    of_rows = dequantized(form, found, described, "F32", shape, shape[0])
    codes = form.codes(StoredRows.whole(found, form.stored("F32", shape), shape))
    assert codes.lowest <= codes.codes.min() < 0 < codes.codes.max() <= codes.highest
    scales = np.repeat(codes.scales, -(-shape[1] // codes.scales.shape[1]), axis=1)[:, : shape[1]]
    steps = of_rows / scales
    if codes.uniform:
        np.testing.assert_allclose(steps, codes.codes, 1e-6)
    else:
        # The order of the places is that of the values; those were rounded to bf16.
        order = np.argsort(codes.codes, axis=None, kind="stable")
        ordered, places = steps.reshape(-1)[order], codes.codes.reshape(-1)[order]
        same = np.diff(places) == 0
        np.testing.assert_allclose(ordered[1:][same], ordered[:-1][same], 0.01)
        assert (np.diff(ordered)[~same] > 1e-3).all()


def check(
    form: WeightFormat,
    weight: np.ndarray,
    dtype: str,
    expected: dict[str, tuple[str, np.ndarray]],
    decompressed: dict[str, Any],
) -> None:
    described = {each.suffix: (each.dtype, each.shape) for each in form.stored(dtype, weight.shape)}
    assert described == {suffix: (name, array.shape) for suffix, (name, array) in expected.items()}
    pieces = {1, form.rows_together, 3 * form.rows_together, weight.shape[0]}
    for rows in sorted(each for each in pieces if each % form.rows_together == 0 or each == weight.shape[0]):
        found = quantized(form, weight, dtype, rows)
        for suffix, (_, array) in expected.items():
            np.testing.assert_array_equal(found[suffix], array.reshape(found[suffix].shape), f"{suffix} {dtype}")
        of = NAMES[decompressed["dtype"]]
        values = dequantized(form, found, described, of, weight.shape, rows)
        np.testing.assert_array_equal(values.view(np.uint8), tensor(decompressed).view(np.uint8), f"{dtype} {rows}")
