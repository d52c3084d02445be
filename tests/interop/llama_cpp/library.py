"""llama.cpp's libraries through ctypes: its quantizer, and the evaluation of a file.

Parameters are structures that functions return and take by value. Only the fields that are set here are named; behind
them is room for the rest, which the caller on x86-64 copies and the library reads as far as its own structure goes.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

LIBRARIES = Path(__file__).parents[3] / ".llama-cpp/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"

needs_llama_cpp = pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"), reason="llama.cpp is installed on x86-64 Linux"
)


class QuantizeParameters(ctypes.Structure):
    """llama_model_quantize_params."""

    _fields_ = (
        ("threads", ctypes.c_int32),
        ("file_type", ctypes.c_int),
        ("output_type", ctypes.c_int),
        ("embedding_type", ctypes.c_int),
        ("allow_requantize", ctypes.c_bool),
        ("quantize_output", ctypes.c_bool),
        ("only_copy", ctypes.c_bool),
        ("pure", ctypes.c_bool),
        ("keep_split", ctypes.c_bool),
        ("dry_run", ctypes.c_bool),
        ("importance", ctypes.c_void_p),
        ("overrides", ctypes.c_void_p),
        ("rest", ctypes.c_byte * 216),
    )


class Importance(ctypes.Structure):
    """llama_model_imatrix_data."""

    _fields_ = (("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("size", ctypes.c_size_t))


class Override(ctypes.Structure):
    """llama_model_kv_override. `value`: a union, aligned for an i64."""

    _fields_ = (
        ("tag", ctypes.c_int),
        ("key", ctypes.c_char * 128),
        ("padding", ctypes.c_byte * 4),
        ("value", ctypes.c_byte * 128),
    )


class Parameters(ctypes.Structure):
    """llama_model_params and llama_context_params."""

    _fields_ = (("bytes", ctypes.c_byte * 1024),)


class Batch(ctypes.Structure):
    """llama_batch."""

    _fields_ = (("count", ctypes.c_int32), ("pointers", ctypes.c_void_p * 6))


@cache
def ggml() -> ctypes.CDLL:
    """The library with the types of tensors."""
    return ctypes.CDLL(str(LIBRARIES / "libggml-base.so"))


@cache
def llama() -> ctypes.CDLL:
    """The library of models."""
    library = ctypes.CDLL(str(next(LIBRARIES.glob("libllama.v*.so"))))
    backends = ctypes.CDLL(str(next(LIBRARIES.glob("libggml.v*.so"))))
    backends.ggml_backend_load_all_from_path(str(LIBRARIES).encode())
    library.llama_model_quantize_default_params.restype = QuantizeParameters
    for name in ("llama_model_default_params", "llama_context_default_params"):
        getattr(library, name).restype = Parameters
    library.llama_model_load_from_file.restype = ctypes.c_void_p
    library.llama_model_load_from_file.argtypes = (ctypes.c_char_p, Parameters)
    library.llama_init_from_model.restype = ctypes.c_void_p
    library.llama_init_from_model.argtypes = (ctypes.c_void_p, Parameters)
    library.llama_batch_get_one.restype = Batch
    library.llama_batch_get_one.argtypes = (ctypes.c_void_p, ctypes.c_int32)
    library.llama_decode.argtypes = (ctypes.c_void_p, Batch)
    library.llama_get_logits.restype = ctypes.POINTER(ctypes.c_float)
    library.llama_get_logits.argtypes = (ctypes.c_void_p,)
    library.llama_free.argtypes = library.llama_model_free.argtypes = (ctypes.c_void_p,)
    library.llama_backend_init()
    return library


def quantize(
    source: Path,
    target: Path,
    file_type: int,
    *,
    pure: bool = False,
    importance: Mapping[str, NDArray[Any]] | None = None,
    keys: Mapping[str, int | str] | None = None,
) -> int:
    """`llama-quantize --allow-requantize`. Returns what it returns: 0 where it succeeded.

    `importance`: of the columns of weights; with it llama-quantize sets some keys, which the library is told.
    """
    parameters = llama().llama_model_quantize_default_params()
    # The defaults are known: fields are where they are taken to be.
    assert (parameters.file_type, parameters.quantize_output, parameters.pure) == (7, True, False)
    assert (parameters.keep_split, parameters.dry_run, parameters.importance, parameters.overrides) == (
        *(False, False),
        *(None, None),
    )
    parameters.file_type, parameters.pure, parameters.allow_requantize = file_type, pure, True
    if importance is not None:
        entries = [Importance(name.encode(), each.ctypes.data, each.size) for name, each in importance.items()]
        table = (Importance * (len(entries) + 1))(*entries)
        parameters.importance = ctypes.addressof(table)
    if keys is not None:
        overrides = (Override * (len(keys) + 1))()
        for override, (name, value) in zip(overrides, keys.items(), strict=False):
            # LLAMA_KV_OVERRIDE_TYPE_STR and _INT.
            override.tag, override.key = (3 if isinstance(value, str) else 0), name.encode()
            data = value.encode() if isinstance(value, str) else value.to_bytes(8, "little")
            ctypes.memmove(override.value, data, len(data))
        parameters.overrides = ctypes.addressof(overrides)
    found: int = llama().llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(parameters))
    return found


def quantize_pure(source: Path, target: Path, file_type: int) -> int:
    """`llama-quantize --allow-requantize --pure`. Returns what it returns: 0 where it succeeded."""
    return quantize(source, target, file_type, pure=True)


def quantize_rows(type_: int, values: NDArray[Any], size: int, importance: NDArray[Any] | None = None) -> bytes:
    """ggml_quantize_chunk on rows of f32: `size` bytes. `importance`: of each column."""
    target = ctypes.create_string_buffer(size)
    source = values.ctypes.data_as(ctypes.c_void_p)
    rows, row = (ctypes.c_int64(each) for each in values.shape)
    weights = None if importance is None else importance.ctypes.data_as(ctypes.c_void_p)
    ggml().ggml_quantize_chunk(type_, source, target, ctypes.c_int64(0), rows, row, weights)
    return target.raw


def dequantize_rows(type_name: str, blocks: NDArray[Any], count: int) -> NDArray[Any]:
    """ggml's dequantize_row_... of a type on its blocks: `count` f32."""
    target = np.empty(count, np.float32)
    pointers = (array.ctypes.data_as(ctypes.c_void_p) for array in (blocks, target))
    name = type_name.lower().replace("_k", "_K")
    ggml()[f"dequantize_row_{name}"](*pointers, ctypes.c_int64(count))
    return target


def logits(path: Path, tokens: list[int], vocabulary: int) -> NDArray[Any]:
    """Evaluate some tokens, and return the logits after the last one."""
    model = llama().llama_model_load_from_file(str(path).encode(), llama().llama_model_default_params())
    assert model, f"llama.cpp does not load {path}"
    context = llama().llama_init_from_model(model, llama().llama_context_default_params())
    try:
        numbers = np.array(tokens, np.int32)
        assert llama().llama_decode(context, llama().llama_batch_get_one(numbers.ctypes.data, numbers.size)) == 0
        return np.ctypeslib.as_array(llama().llama_get_logits(context), (vocabulary,)).copy()
    finally:
        llama().llama_free(context)
        llama().llama_model_free(model)
