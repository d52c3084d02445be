"""Elements of GGUF tensors: ggml's own bytes, an oracle for blocks, what is refused."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from requant.checkpoint.gguf.tensor_types import FILE_TYPES, TENSOR_TYPES, read_elements, write_elements
from requant.convert.blocks.gguf import quantize_gguf
from requant.errors import PreconditionError
from tests.oracles import ggml_blocks as oracle
from tests.support.page_table import DOCS

Array = NDArray[Any]

VECTORS = json.loads((Path(__file__).parents[3] / "vectors" / "ggml_blocks.json").read_text())
ORACLES = {
    "MXFP4": (oracle.quantize_mxfp4, 32),
    "TQ1_0": (oracle.quantize_tq1_0, 256),
    "TQ2_0": (oracle.quantize_tq2_0, 256),
}


def decoded(text: str, dtype: str) -> Array:
    return np.frombuffer(base64.b64decode(text), dtype)


@pytest.mark.parametrize("name", VECTORS["blocks"])
def test_ggml_writes_the_same_bytes(name: str) -> None:
    values = decoded(VECTORS["x"]["data"], "<f4")
    stored = write_elements(values, TENSOR_TYPES[name])
    assert stored.tobytes() == base64.b64decode(VECTORS["blocks"][name])


@pytest.mark.parametrize("name", VECTORS["blocks"])
def test_what_was_read_is_written_again(name: str) -> None:
    """Quantization of what a type holds exactly gives the same values; in pieces as at once."""
    type_ = TENSOR_TYPES[name]
    stored = decoded(VECTORS["blocks"][name], "|u1")
    values = read_elements(stored, type_)
    half = values.size // 2
    assert read_elements(stored[: type_.size(half)], type_).tobytes() == values[:half].tobytes()
    if name in ("F16", "BF16", "TQ1_0", "TQ2_0"):
        again = read_elements(write_elements(values, type_), type_)
        assert np.array_equal(again, values)
    scale = np.abs(decoded(VECTORS["x"]["data"], "<f4").reshape(-1, 32)).max(axis=1, keepdims=True)
    error = np.abs(values - decoded(VECTORS["x"]["data"], "<f4")).reshape(-1, 32)
    largest = {"F16": 2**-11, "BF16": 2**-8, "Q8_0": 2**-7, "TQ1_0": 2.0**20, "TQ2_0": 2.0**20}.get(name, 0.26)
    assert (error <= largest * scale + 2**-20).all()


ZEROS = {
    "+0": np.zeros(32, np.float32),
    "-0": np.full(32, -0.0, np.float32),
    "-0, then +0": np.array([-0.0] + [0.0] * 31, np.float32),
    "+0, then -0": np.array([0.0] + [-0.0] * 31, np.float32),
}


@pytest.mark.parametrize("zeros", ZEROS)
def test_the_signs_of_zeros_are_as_the_page_says(zeros: str) -> None:
    page = (DOCS / "checkpoints_onnx_gguf.md").read_text(encoding="utf-8").replace("\n", " ")
    assert "`requant checkpoint` writes the scale -0 in `Q4_0` and `Q5_0`, as ggml's C does, and the API +0" in page
    assert "`Q4_1` and `Q5_1` has the sign of the first zero in both" in page
    values, negative = ZEROS[zeros], zeros.startswith("-")
    for name in ("Q4_0", "Q5_0"):
        of_checkpoint, of_api = write_elements(values, TENSOR_TYPES[name]), quantize_gguf(values[None], name).data
        # d = 0 / -8, of +0 in the checkpoint whatever the sign.
        assert of_checkpoint[:2].tobytes() == b"\0\x80"
        assert of_api[:2].tobytes() == (b"\0\0" if negative else b"\0\x80")
        assert of_checkpoint[2:].tobytes() == of_api[2:].tobytes()
    for name in ("Q4_1", "Q5_1"):
        of_checkpoint, of_api = write_elements(values, TENSOR_TYPES[name]), quantize_gguf(values[None], name).data
        assert of_checkpoint.tobytes() == of_api.tobytes()
        assert of_api[2:4].tobytes() == (b"\0\x80" if negative else b"\0\0")
    assert not write_elements(values, TENSOR_TYPES["Q8_0"]).any()
    assert not quantize_gguf(values[None], "Q8_0").data.any()


ODD_VALUES = st.one_of(
    st.integers(-48, 48).map(lambda n: n / 8),
    st.floats(-6, 6, width=32).filter(lambda x: x == 0 or abs(x) > 2.0**-100),
    st.sampled_from([0.0, -0.0, 4.0, 3.9999998, -8.0, 7.9999995, 1.0, 0.99999994]),
)


@pytest.mark.parametrize("name", ORACLES)
@given(pattern=st.lists(ODD_VALUES, min_size=32, max_size=32), exponent=st.integers(-20, 10))
def test_the_oracle_agrees(name: str, pattern: list[float], exponent: int) -> None:
    quantize, block = ORACLES[name]
    values = (np.array(pattern, "<f4") * np.float32(2.0**exponent)).astype("<f4")
    whole = np.concatenate([np.roll(values, turn) for turn in range(block // 32)])
    assert write_elements(whole, TENSOR_TYPES[name]).tobytes() == quantize([float(x) for x in whole])


def test_the_scale_of_a_block_of_zeros_is_negative_in_c() -> None:
    """gguf-py writes +0 where the first value is -0; ggml's C and llama-quantize write -0."""
    for name in ("Q4_0", "Q5_0"):
        stored = write_elements(np.full(32, -0.0, "<f4"), TENSOR_TYPES[name])
        assert stored[:2].tobytes() == b"\x00\x80"


@pytest.mark.parametrize("name", [name for name in FILE_TYPES if name != "F32"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(name: str, value: float) -> None:
    values = np.zeros(1024, "<f4")
    values[300] = value
    with pytest.raises(PreconditionError, match=r"index 1,300 is not finite") as error:
        write_elements(values, TENSOR_TYPES[name], first=1000)
    assert error.value.index == 1300


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("F16", 65520.0, "index 300 is beyond f16"),
        ("BF16", 3.4e38, "index 300 is beyond bf16"),
        ("Q4_0", 65536.0 * 8, "block at index 288 is beyond f16"),
        ("Q4_1", 65536.0 * 16, "block at index 288 is beyond f16"),
        ("Q8_0", 65536.0 * 127, "block at index 288 is beyond f16"),
        ("Q5_0", 1e-42, "f32 cannot represent the scale of the block at index 288"),
        ("TQ1_0", 65520.0, "block at index 256 is beyond f16"),
        ("TQ2_0", 1e-40, "f32 cannot represent the reciprocal of the scale of the block at index 256"),
        ("MXFP4", 2.0**-126, "block at index 288 are below 2"),
    ],
)
def test_what_its_scale_does_not_hold_is_refused(name: str, value: float, message: str) -> None:
    values = np.zeros(1024, "<f4")
    values[300] = value
    with pytest.raises(PreconditionError, match=message):
        write_elements(values, TENSOR_TYPES[name])
