"""Which arrays are taken, and what comes out."""

from __future__ import annotations

import doctest
import subprocess
import sys
from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import requant
from requant.mlir.types import UniformPerAxisType, UniformType
from requant.operations import OPERATIONS

_INT8 = "!quant.uniform<i8:f32, 0.5:3>"
# As from code without types.
_NONE: Any = None
_FIVE: Any = 5
_X = np.array([[-0.25, 0.25], [0.75, 100.0]], np.float32)
_Q = np.array([[3, 3], [5, 127]], np.int8)


@pytest.mark.parametrize(
    "module",
    [
        "requant",
        "requant.arrays.comparison",
        "requant.arrays.conversions",
        "requant.arrays.parameters",
        "requant.arrays.types",
    ],
)
def test_the_examples_in_docstrings(module: str) -> None:
    result = doctest.testmod(import_module(module))
    assert result.attempted >= 2
    assert result.failed == 0


def test_memory_order_and_byte_order_do_not_matter() -> None:
    for x in (_X, np.asfortranarray(_X), _X.T.copy().T, _X.astype(">f4"), np.repeat(_X, 2, axis=1)[:, ::2]):
        assert np.array_equal(requant.quantize(x, _INT8, profile="onnx"), _Q)
    for q in (_Q, np.asfortranarray(_Q), _Q.astype(np.int64), _Q.astype(">i2"), _Q.tolist()):
        result = requant.dequantize(q, _INT8)
        assert result.dtype == np.float32
        assert result.tolist() == [[0.0, 0.0], [1.0, 62.0]]


def test_the_input_is_left_as_it_is() -> None:
    x = _X.copy()
    x.flags.writeable = False
    requant.quantize(x, _INT8)
    assert np.array_equal(x, _X)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (2, 1, 3)])
def test_every_shape_comes_back(shape: tuple[int, ...]) -> None:
    x = np.full(shape, 1.25, np.float32)
    q = requant.quantize(x, _INT8, profile="onnx")
    assert q.shape == shape
    assert q.dtype == np.int8
    assert np.all(q == 5)
    assert requant.dequantize(q, _INT8).shape == shape


def test_small_floats_are_arrays_of_ml_dtypes() -> None:
    x = np.array([0.3, -1.7, 500.0], np.float32)
    assert requant.quantize(x, "bf16", profile="ml_dtypes").tobytes() == x.astype(ml_dtypes.bfloat16).tobytes()
    narrow = requant.quantize(x, "f8E5M2", profile="ml_dtypes")
    assert (narrow.dtype, narrow.tobytes()) == (ml_dtypes.float8_e5m2, x.astype(ml_dtypes.float8_e5m2).tobytes())
    assert np.array_equal(requant.dequantize(narrow), narrow.astype(np.float32))
    stored = requant.quantize(x, "!quant.uniform<f8E4M3FN:f32, 0.5>", profile="onnx")
    assert stored.dtype == ml_dtypes.float8_e4m3fn
    for q in (stored, stored.view(np.uint8)):
        assert requant.dequantize(q, "!quant.uniform<f8E4M3FN:f32, 0.5>", profile="onnx").shape == x.shape
    half = requant.quantize(x.astype(ml_dtypes.bfloat16), "!quant.uniform<i8:bf16, 0.5>")
    assert half.dtype == np.int8


def test_integers_of_four_bits_are_kept_one_to_a_byte() -> None:
    q = requant.quantize([-100.0, 1.0, 100.0], "!quant.uniform<i4:f32, 0.5>")
    assert q.dtype == np.int8
    assert q.tolist() == [-8, 2, 7]
    for stored in (q, q.astype(ml_dtypes.int4)):
        assert requant.dequantize(stored, "!quant.uniform<i4:f32, 0.5>").tolist() == [-4.0, 1.0, 3.5]


WRONG: Any = [(1.5, 2), 5]


@pytest.mark.parametrize(
    ("call", "code", "said"),
    [
        (lambda: requant.quantize(_X, "!quant.uniform<i8:f32, 0.5"), "type_invalid", ""),
        (lambda: requant.quantize(_X, "!quant.uniform<i8:f32:0, {1.0, 2.0, 3.0}>"), "type_does_not_fit", ""),
        (lambda: requant.quantize(_X, _INT8, profile="tflite"), "unknown_name", "did you mean litert?"),
        (lambda: requant.quantize(_X, _INT8, rounding="up"), "unknown_name", "rounding"),
        (lambda: requant.quantize(_X, _INT8, nan="zero"), "unknown_name", "NaN policy"),
        (lambda: requant.quantize(_X, "!quant.any<i8:f32>"), "unsupported", ""),
        (lambda: requant.quantize(_X.astype(np.float64), _INT8), "unsupported", "f64"),
        (lambda: requant.quantize(_Q, _INT8), "unsupported", "i8"),
        (lambda: requant.quantize(_X.astype(np.complex64), _INT8), "unsupported", "complex64"),
        (lambda: requant.quantize([np.nan], _INT8, nan="error"), "precondition_failed", ""),
        (lambda: requant.dequantize([300], _INT8), "tensor_data", "element 0 is 300"),
        (lambda: requant.dequantize([9], "!quant.uniform<i4:f32, 0.5>"), "tensor_data", "element 0 is 9"),
        (lambda: requant.dequantize(_X, _INT8), "type_does_not_fit", "float32"),
        (lambda: requant.dequantize(_Q), "unsupported", ""),
        (lambda: requant.requantize(_Q, None, _INT8), "unsupported", "multipliers"),
        (lambda: requant.requantize(_Q, None, _INT8, multipliers=WRONG[:1]), "parameter_invalid", "whole numbers"),
        (lambda: requant.requantize(_Q, None, _INT8, multipliers=WRONG[1:]), "parameter_invalid", "whole numbers"),
        (lambda: requant.quantize(_X, _INT8, seed=1 << 63), "parameter_invalid", "seed is"),
        (lambda: requant.compare(_Q, _Q[:1], _INT8), "type_does_not_fit", ""),
        (lambda: requant.parameters(_X, "i8", axis=5), "type_does_not_fit", ""),
        (lambda: requant.parameters([_X, _X[:1]], "i8"), "type_does_not_fit", "array 1"),
        (lambda: requant.parameters(_X, "i8", method="max"), "unknown_name", ""),
        (lambda: requant.parameters_from_range([0, 0], [1, 1], "i8", scheme="litert"), "type_does_not_fit", "axis"),
        (lambda: requant.quantized_type("i8", [0.5, 0.25]), "type_does_not_fit", "axis"),
        (lambda: requant.quantized_type("i8", 0.0), "precondition_failed", ""),
        (lambda: requant.quantized_type("i8", []), "type_does_not_fit", "scale is empty"),
        (lambda: requant.quantized_type("i8", [], axis=0), "type_does_not_fit", "scale is empty"),
        (lambda: requant.quantized_type("i8", "x"), "type_does_not_fit", "scale is no array of numbers"),
        (lambda: requant.quantized_type("i8", 10**400), "type_does_not_fit", "scale is no array of numbers"),
        (lambda: requant.quantized_type("i8", 0.5, 1.5), "type_does_not_fit", "zero_point 0 is 1.5; expected a whole"),
        (lambda: requant.quantized_type("i8", 0.5, np.nan), "type_does_not_fit", "zero_point 0 is nan"),
        (lambda: requant.quantized_type("i8", 0.5, -np.inf), "type_does_not_fit", "zero_point 0 is -inf"),
        (lambda: requant.quantized_type("i8", 0.5, 2**70), "type_does_not_fit", "expected a whole number of 64 bits"),
        (lambda: requant.quantized_type("i8", 0.5, "3"), "type_does_not_fit", "zero_point 0 is '3'"),
        (lambda: requant.quantized_type("i8", [1, 2], [1, 2, 3], axis=0), "type_does_not_fit", "shape (3,)"),
        (lambda: requant.quantized_type("i8", [1, 2], [[1], [1, 2]], axis=0), "type_does_not_fit", "zero_point is no"),
        (
            lambda: requant.quantize(np.array([1.0]), _INT8),
            "unsupported",
            "numpy's default is f64: x.astype(np.float32)",
        ),
        (lambda: requant.quantize(np.array([1]), _INT8), "unsupported", "in numpy x.astype(np.float32)"),
        (lambda: requant.quantized_type("i8", [1, 2], axis=-1), "type_does_not_fit", "axis is -1; give shape"),
        (lambda: requant.quantized_type("i8", [1, 2], axis=-3, shape=(2, 2)), "type_does_not_fit", "of rank 2"),
        (lambda: requant.quantized_type("i8", [1, 2], axis=0, shape=(3, 2)), "type_does_not_fit", "it needs (3,)"),
        (
            lambda: requant.quantized_type("i8", [[1, 2]], block_sizes=(1, 0), shape=(1, 2)),
            "type_does_not_fit",
            "block size 0",
        ),
        (
            lambda: requant.quantized_type("i8", [[1, 2]], 200, block_sizes=(1, 1), shape=(1, 2)),
            "type_does_not_fit",
            "zero point 200 is outside",
        ),
        (lambda: requant.parameters(_X, "i8", axis=-3), "type_does_not_fit", "axis -3 is none of a tensor of rank 2"),
        (lambda: requant.parameters(_X, "i8", block_sizes=(0, 1)), "type_does_not_fit", "block size 0"),
        (
            lambda: requant.parameters_from_range([0], [1], "i8", scheme="litert", axis=-1),
            "type_does_not_fit",
            "axis is -1",
        ),
        (lambda: requant.quantize(_X, _NONE), "type_invalid", "a type is needed"),
        (lambda: requant.quantize(_X, _FIVE), "type_invalid", "given is 5"),
        (lambda: requant.quantize(_X, _INT8, profile=_NONE), "unknown_name", "no profile is named 'None'"),
        (lambda: requant.quantize([[1.0], [1.0, 2.0]], _INT8), "tensor_data", "the numbers are no array"),
        (lambda: requant.dequantize([3], _INT8, profile=_NONE), "unknown_name", "no profile is named 'None'"),
        (lambda: requant.dequantize([]), "tensor_data", "an empty list has no type of numbers"),
        (lambda: requant.requantize([], None, _INT8), "tensor_data", "an empty list has no type of numbers"),
        (lambda: requant.requantize([3], _INT8, _NONE), "type_invalid", "a type is needed"),
        (lambda: requant.requantize([3], _INT8, _INT8, profile=_NONE), "unknown_name", "no profile is named 'None'"),
    ],
)
def test_what_is_refused(call: object, code: str, said: str) -> None:
    assert callable(call)
    with pytest.raises(requant.RequantError) as refused:
        call()
    assert refused.value.code == code
    assert said in refused.value.detail


def test_an_error_says_in_python_what_it_has_beside_its_detail() -> None:
    with pytest.raises(requant.RequantError) as refused:
        requant.quantize(_X, "!quant.uniform<i8:f32, 3:0.5>")
    detail, text, caret, hint = str(refused.value).splitlines()
    assert detail == refused.value.detail
    assert text[caret.index("^")] == "3"
    assert hint == "the scale comes first, then the zero point: `0.5:3`"
    with pytest.raises(requant.RequantError, match=r"\(element 1\)"):
        requant.quantize(np.array([1, np.nan, np.nan], np.float32), _INT8, profile="mlir")


def test_types_from_numbers() -> None:
    assert requant.quantized_type(np.int8, 0.5, 3) == requant.quantized_type("i8", 0.5, 3)
    assert requant.quantized_type(ml_dtypes.float8_e4m3fn, 0.5) == requant.quantized_type("f8E4M3FN", 0.5)
    blocks = requant.quantized_type("i8", [[0.5], [0.25]], block_sizes=(1, 4), shape=(2, 4))
    assert requant.quantize(np.ones((2, 4), np.float32), blocks, profile="onnx").tolist() == [[2] * 4, [4] * 4]
    parsed = requant.parse_type(_INT8)
    assert isinstance(parsed, UniformType)
    assert (parsed.scale, parsed.zero_point) == (0.5, 3)
    assert np.array_equal(requant.quantize(_X, parsed, profile="onnx"), _Q)
    found = requant.parameters(_X, "i8", axis=0)
    assert requant.quantized_type("i8", found.scales, found.zero_points, axis=0) == found.type


def test_an_axis_may_be_counted_from_the_last() -> None:
    found = requant.parameters(np.arange(6, dtype=np.float32).reshape(2, 3), "i8", axis=-1)
    assert found.type == requant.parameters(np.arange(6, dtype=np.float32).reshape(2, 3), "i8", axis=1).type
    same = requant.quantized_type("i8", found.scales, found.zero_points, axis=-1, shape=(2, 3))
    assert requant.parse_type(same) == requant.parse_type(found.type)


def test_whole_numbers_of_any_dtype_are_zero_points() -> None:
    for zero_point in (3, 3.0, np.int8(3), np.float32(3), np.array([3], np.uint64), np.array(3, ml_dtypes.bfloat16)):
        assert requant.quantized_type("i8", 0.5, zero_point) == requant.quantized_type("i8", 0.5, 3)
    scales = np.array([0.5, 0.25], ml_dtypes.bfloat16)
    found = requant.parse_type(requant.quantized_type("i8", scales, np.array([1, 2], ml_dtypes.int4), axis=0))
    assert isinstance(found, UniformPerAxisType)
    assert (found.scales, found.zero_points) == ((0.5, 0.25), (1, 2))


def test_empty_lists_of_a_type() -> None:
    assert requant.dequantize([], _INT8).dtype == np.float32
    assert requant.requantize([], "!quant.uniform<i32:f32, 0.001>", _INT8).shape == (0,)
    assert requant.compare([], [], _INT8).elements == 0


def test_names_are_imported_when_they_are_used() -> None:
    assert {name for name in requant.__all__ if not hasattr(requant, name)} == set()
    assert {*requant.__all__, *OPERATIONS, "onnx", "torch", "quant"} < set(requant.__dir__())
    assert {name for name in OPERATIONS if not callable(getattr(requant, name))} == set()
    with pytest.raises(AttributeError, match="no attribute 'quantise'"):
        _ = requant.quantise  # type: ignore[attr-defined]
    heavy = "import requant, sys; print([m for m in ('numba', 'numpy', 'fastapi', 'pydantic') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    web = (
        "import requant, sys; requant.quantize([1.0], '!quant.uniform<i8:f32, 0.5>'); "
        "print([m for m in ('fastapi', 'pydantic', 'starlette', 'xdsl', 'requant_service') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", web], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
