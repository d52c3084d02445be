"""Fine-grained fp8, GPTQ, AWQ and NF4 equal the libraries, byte for byte."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.weights.awq import Awq
from requant.checkpoint.weights.fine_grained_fp8 import FineGrainedFp8
from requant.checkpoint.weights.gptq import Gptq
from requant.checkpoint.weights.nf4 import STATE, Nf4
from requant.checkpoint.weights.weight_format import WeightFormat
from tests.support.stored_weights import quantized

VECTORS = Path(__file__).parents[3] / "vectors"
NAMES = {
    "bfloat16": "BF16",
    "float16": "F16",
    "float32": "F32",
    "uint8": "U8",
    "int32": "I32",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e8m0fnu": "F8_E8M0",
}


def read(name: str) -> Any:
    return json.loads((VECTORS / name).read_text())


def tensor(description: dict[str, Any]) -> tuple[str, np.ndarray]:
    dtype = NAMES[description["dtype"]]
    array = np.frombuffer(base64.b64decode(description["data"]), DTYPES[dtype].array)
    return dtype, array.reshape(description["shape"])


def made(form: WeightFormat, weight: dict[str, Any]) -> dict[str, tuple[str, np.ndarray]]:
    """The stored tensors, of which the format says dtype and shape, made in as small pieces as it allows."""
    dtype, source = tensor(weight)
    tensors = form.stored(dtype, source.shape)
    arrays = quantized(form, source, dtype, form.rows_together)
    return {each.suffix: (each.dtype, arrays[each.suffix].reshape(each.shape)) for each in tensors}


def same(found: dict[str, tuple[str, np.ndarray]], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for suffix, description in expected.items():
        dtype, array = tensor(description)
        assert found[suffix][0] == dtype, suffix
        np.testing.assert_array_equal(found[suffix][1].view(np.uint8), array.view(np.uint8), suffix)


@pytest.mark.parametrize("case", read("hf_fp8_block.json")["cases"], ids=lambda case: case["scale_fmt"])
def test_fine_grained_fp8(case: dict[str, Any]) -> None:
    form = FineGrainedFp8({"float": "F32", "ue8m0": "F8_E8M0"}[case["scale_fmt"]])
    same(made(form, read("hf_fp8_block.json")["weight"]), case["compressed"])


def twice(description: dict[str, Any], axis: int) -> dict[str, Any]:
    """The same tensor two times along an axis."""
    array = np.concatenate([tensor(description)[1]] * 2, axis=axis)
    return {**description, "shape": array.shape, "data": base64.b64encode(array.tobytes())}


@pytest.mark.parametrize(
    "case", read("auto_round_gptq.json")["cases"], ids=lambda case: f"{case['bits']}-{case['symmetric']}"
)
def test_gptq(case: dict[str, Any]) -> None:
    """Of two equal halves, because the format takes weights of at least 32 rows, and the library's has 16."""
    weight = twice(read("auto_round_gptq.json")["weight"], 0)
    expected = {suffix: twice(each, 1) for suffix, each in case["out"].items()}
    found = made(Gptq(case["bits"], case["symmetric"], case["group_size"]), weight)
    if not case["symmetric"]:
        # Version 2 has the zero points themselves. Of these the library takes 1, without keeping it from borrowing.
        _, zeros = made(Gptq(case["bits"], False, case["group_size"], version=2), weight)["qzeros"]
        ones = sum(1 << shift for shift in range(0, 32, case["bits"]))
        of_library = tensor(expected.pop("qzeros"))[1].astype(np.int64)
        np.testing.assert_array_equal((zeros.astype(np.int64) - ones - of_library) % (1 << 32), 0)
        del found["qzeros"]
    same(found, expected)


def test_awq() -> None:
    document = read("awq_gemm.json")
    same(made(Awq(document["group_size"]), document["weight"]), document["out"])


def test_nf4() -> None:
    document = read("bnb_nf4.json")
    found = made(Nf4(), document["weight"])
    state = json.loads(found.pop(STATE)[1].tobytes())
    assert state == {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": document["weight"]["shape"]}
    expected = {suffix if suffix == "weight" else f"weight.{suffix}": each for suffix, each in document["out"].items()}
    same(found, expected)
