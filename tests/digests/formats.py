"""Block formats, and the weights of checkpoints and GGUF files."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial

import numpy as np

from requant.checkpoint.gguf.tensor_types import (
    READABLE,
    SEARCHED,
    TENSOR_TYPES,
    WRITABLE,
    TensorType,
    read_elements,
    write_elements,
)
from requant.checkpoint.profiles import CHECKPOINT_PROFILES
from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.schemes import SCHEMES, scheme_named
from requant.checkpoint.weights.floats import bits_of
from requant.checkpoint.weights.weight_format import StoredRows, WeightFormat
from requant.convert.blocks.block_tensor import BlockFormat, BlockRule, dequantize_blocks, quantize_blocks
from requant.convert.blocks.mx import MX_ELEMENTS, MxRule
from requant.convert.blocks.nvfp4 import GlobalScale, Nvfp4Rule
from requant.errors import RequantError
from tests.digests.cases import Array, Case, Found
from tests.digests.patterns import any_f32, finite_f32, integers, words

_ROWS, _COLUMNS = 37, 96


def _tensors() -> dict[str, Array]:
    """Return f32 of several kinds: near 1, of every magnitude, equal in all of a block, with what is no number."""
    count = _ROWS * _COLUMNS
    whole = (integers(-512, 511, count, 80) * 0.25).astype(np.float32)
    levelled = np.repeat(finite_f32(count // 32, 81), 32)
    found = {
        "quarters": whole,
        "near": finite_f32(count, 82, 120, 130),
        "wide": finite_f32(count, 83, 1, 253),
        "small": finite_f32(count, 84, 0, 3),
        "levelled": levelled,
        "special": any_f32(count, 85),
    }
    return {name: each.reshape(_ROWS, _COLUMNS) for name, each in found.items()}


def block_cases() -> Iterator[Case]:
    for kind, values in _tensors().items():
        for format_ in BlockFormat:
            of_nvfp4 = (MxRule.OCP, *Nvfp4Rule) if format_ is BlockFormat.NVFP4 else (MxRule.OCP,)
            for rule in MxRule if format_ in MX_ELEMENTS else of_nvfp4:
                scales = (*GlobalScale, 0.5, 3.0e-5) if format_ is BlockFormat.NVFP4 else (GlobalScale.DERIVED,)
                for scale in scales:
                    name = f"block {format_} {rule} {scale} of {kind}"
                    yield Case(name, partial(_blocks, values, format_, rule, scale))
    for format_ in BlockFormat:
        yield Case(f"block {format_} of any codes", partial(_any_blocks, format_))


def _blocks(values: Array, format_: BlockFormat, rule: MxRule | Nvfp4Rule, scale: float | GlobalScale) -> Found:
    made = quantize_blocks(values, format_, rule=BlockRule(rule), global_scale=scale)
    parts = {name: part.data for name, part in made.parts.items()}
    yield from parts.values()
    yield np.array([made.global_scale or 0.0])
    if rule is not Nvfp4Rule.TRANSFORMER_ENGINE:  # which dequantizes by a number that is not among the parts
        yield dequantize_blocks(
            format_, values.shape, parts, made.global_scale, rule if isinstance(rule, Nvfp4Rule) else None
        )


def _any_blocks(format_: BlockFormat) -> Found:
    """Yield the values of random bytes: scales that are NaN, infinite and subnormal are among them."""
    shape = 64, 128
    made = quantize_blocks(np.ones(shape, np.float32), format_)
    limit = 16 if "4" in format_ else 64 if "6" in format_ else 256
    parts = {}
    for stream, (name, part) in enumerate(made.parts.items(), 86):
        drawn = words(part.data.size, stream).astype(np.uint8)
        kept = drawn % np.uint8(limit) if name == "elements" and limit < 256 else drawn
        parts[name] = kept.view(part.data.dtype)
    scale = 0.75 if format_ is BlockFormat.NVFP4 else None
    yield dequantize_blocks(format_, shape, parts, scale)


def gguf_cases() -> Iterator[Case]:
    for type_ in (TENSOR_TYPES[name] for name in READABLE):
        for kind, values in _tensors().items():
            flat = values.reshape(-1)
            flat = np.ascontiguousarray(flat[: flat.size // 256 * 256])
            if kind != "special" and type_.name in WRITABLE:
                yield Case(f"gguf {type_.name} of {kind}", partial(_gguf, flat, type_))
            if kind != "special" and type_.name in SEARCHED:
                yield Case(f"gguf {type_.name} of {kind} by importance", partial(_gguf_by_importance, flat, type_))
        yield Case(f"gguf {type_.name} of any bytes", partial(_gguf_of_bytes, type_))


def _gguf(values: Array, type_: TensorType) -> Found:
    stored = write_elements(values, type_)
    yield stored
    yield read_elements(stored, type_)


def _gguf_by_importance(values: Array, type_: TensorType) -> Found:
    importance = np.square(np.arange(256, dtype=np.float32) % np.float32(37))
    yield write_elements(values, type_, importance=importance)


def _gguf_of_bytes(type_: TensorType) -> Found:
    yield read_elements(words(512 * type_.block_bytes, 89).astype(np.uint8), type_)


_OPTIONS = ("", ":asymmetric", ":tensor", ":channel", ":group=32", ":rule=rceil", ":rule=fouroversix")


def checkpoint_cases() -> Iterator[Case]:
    shape, seen = (128, 256), set()
    for base in SCHEMES:
        for option in _OPTIONS:
            for profile in CHECKPOINT_PROFILES:
                try:
                    form = scheme_named(base + option).format(profile)
                except (RequantError, KeyError):
                    continue
                # Not every scheme has options and profiles of its own.
                if repr(form) in seen:
                    continue
                seen.add(repr(form))
                for dtype in ("BF16", "F16", "F32"):
                    if not form.stored(dtype, shape):
                        continue
                    for kind in ("quarters", "near", "wide", "special"):
                        yield Case(
                            f"checkpoint {base}{option} {profile} {dtype} of {kind}",
                            partial(_checkpoint, form, dtype, kind, shape),
                        )


@cache
def _weights(kind: str, shape: tuple[int, int]) -> Array:
    count = shape[0] * shape[1]
    if kind == "quarters":
        return (integers(-512, 511, count, 90) * 0.25).astype(np.float32).reshape(shape)
    if kind == "special":
        return any_f32(count, 93).reshape(shape)
    return (finite_f32(count, 91, 118, 126) if kind == "near" else finite_f32(count, 92, 100, 141)).reshape(shape)


@cache
def _rows(kind: str, dtype: str, shape: tuple[int, int]) -> Array:
    values = _weights(kind, shape)
    # Bits as they are, NaN and all, where the dtype has as many.
    return values.view(DTYPES["F32"].array) if dtype == "F32" else bits_of(values, dtype)


def _checkpoint(form: WeightFormat, dtype: str, kind: str, shape: tuple[int, int]) -> Found:
    rows = _rows(kind, dtype, shape)
    extremes = form.extremes(rows, dtype) if form.needs_extremes else None
    stored = {region.suffix: array for region, array in form.quantize(rows, dtype, shape, 0, extremes)}
    yield from stored.values()
    yield form.dequantize(StoredRows.whole(stored, form.stored(dtype, shape), shape), dtype)


def cases() -> Iterator[Case]:
    yield from block_cases()
    yield from gguf_cases()
    yield from checkpoint_cases()
