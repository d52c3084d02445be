"""NVFP4: f4E2M1FN in blocks of 16 along the last axis, an f8E4M3FN scale for each, and one f32 for the whole tensor.

    sg = f32(amax of the tensor / 2688)                      2688 = 448 * 6, the largest scale times the largest element
    sb = f8E4M3FN RNE( clamp( f32(f32(amax of the block / 6) / sg), 2^-6, 448 ) )
    element = f4E2M1FN RNE( clamp( f32(x / f32(sg * sb)), -6, 6 ) )
    value   = f32(element * f32(sg * sb))

Those are torchao's scales, and elements by divisions and not reciprocals. Without a global scale, sg = 1.
Libraries have other scales, and other global scales (`Nvfp4Rule`).

A block of zeros has the smallest scale, 2^-6, and keeps the signs of its zeros. A block with a NaN has the scale NaN
(0x7F), and its elements are all written as code 0; an infinity counts as larger than any number, so its block has the
scale 448 and the infinity becomes 6. Where torchao divides 0 by 0, this is a PreconditionError. The rules of libraries
refuse NaN and infinities, for which libraries write elements without meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.convert.blocks.blocking import block_count, check_length, flat_f32
from requant.convert.blocks.four_over_six import BlockError, dequantize_four_over_six, quantize_four_over_six
from requant.convert.float_encoding import Encoder, encoder
from requant.convert.small_floats import check_codes, decode_table
from requant.errors import ParameterError, PreconditionError, UnsupportedError
from requant.kernels.checkpoint.magnitudes import LARGEST_MAGNITUDES
from requant.kernels.convert import blocks as kernels
from requant.profiles import profile_named

Array = NDArray[Any]

BLOCK = 16
_NAME = "nvfp4"
_SCALE = "f8E4M3FN"
_ELEMENT = "f4E2M1FN"
_SMALLEST_SCALE, _LARGEST_SCALE, _LARGEST_ELEMENT = np.float32(2.0**-6), np.float32(448.0), np.float32(6.0)


class GlobalScale(StrEnum):
    """Where the scale of the whole tensor comes from, if the caller states none."""

    DERIVED = "derived"
    """From the tensor's largest magnitude."""

    ABSENT = "absent"
    """There is none: one level of scales."""


class Nvfp4Rule(StrEnum):
    """Whose scales and elements. a is the largest magnitude of the tensor, b that of a block, each step is one of f32,
    E4M3 and E2M1 round to nearest even and saturate. `global_scale` is the library's own number."""

    TORCHAO = "torchao"
    """g = a / 2688; s = E4M3(max(b / 6 / g, 2^-6)); element = E2M1(x * (1 / g / s)). Without a global scale, g = 1."""

    COMPRESSED_TENSORS = "compressed_tensors"
    """G = 1 / max(a, 2^-126) * 2688, 1 if infinite; s = E4M3(G * (b / 6)), 2^-3 where that is 0;
    element = E2M1(x / (s / G) + 0)."""

    MODEL_OPTIMIZER = "model_optimizer"
    """g = a / 2688; s = E4M3(max(b / (6 * g), 2^-9)), of 1 where b / (6 * g) is 0; element = E2M1(x / (s * g) + 0)."""

    FOUROVERSIX = "fouroversix"
    """"Four over six" by the squared error (`four_over_six`). The global scale is a."""

    FOUROVERSIX_MAE = "fouroversix_mae"
    """The same by the sum of magnitudes."""

    FOUROVERSIX_ABS_MAX = "fouroversix_abs_max"
    """The same by the largest error."""

    TRANSFORMER_ENGINE = "transformer_engine"
    """S = min(2688 / a, largest f32), 1 if a = 0; s = E4M3(b * (S * (1 / 6)));
    element = E2M1(x * min(1 / (s * (1 / S)), largest f32))."""


@dataclass(frozen=True, slots=True)
class Nvfp4Tensor:
    """`shape` elements, flat in row-major order, one to a byte, one scale for each 16 of them, and the global scale.

    `scales`: uint8, f8E4M3FN codes. `elements`: uint8, f4E2M1FN codes, 0 to 15. `global_scale`: an f32, None if absent.
    """

    shape: tuple[int, ...]
    global_scale: float | None
    scales: Array
    elements: Array


def _usable(global_scale: np.float32) -> bool:
    with np.errstate(over="ignore", under="ignore"):
        return bool(global_scale * _SMALLEST_SCALE > 0 and np.isfinite(global_scale * _LARGEST_SCALE))


def _check_finite(largest: np.float32, source: Array, consequence: str) -> None:
    if not np.isfinite(largest):
        index = int(np.argmin(np.isfinite(source)))
        raise PreconditionError(f"the value at index {index} is not finite, {consequence}", index=index)


def _derived(source: Array) -> np.float32:
    largest = np.uint32((source.view("<u4") & 0x7FFFFFFF).max(initial=0)).view("<f4")
    _check_finite(largest, source, "so no global scale follows from the values; give one")
    scale = np.float32(largest / np.float32(_LARGEST_SCALE * _LARGEST_ELEMENT))
    if not _usable(scale):
        raise PreconditionError(f"the largest magnitude, {largest}, is too small to derive a global scale; give one")
    return scale


@dataclass(frozen=True, slots=True)
class _Steps:
    """A rule: the global scale of a, the scales of b before E4M3, and what elements are multiplied by, or divided by.

    `smallest`: the smallest scale but 0. `zero_code`: what a scale of 0 becomes. Rules that divide add 0, so that -0
    becomes 0.
    """

    global_scale: Callable[[np.float32], np.float32]
    scales: Callable[[Array, np.float32], Array]
    factors: Callable[[Array, np.float32], Array]
    divides: bool = False
    smallest: float = 2.0**-9
    zero_code: int = 0


_ONE, _LARGEST = np.float32(1), np.finfo(np.float32).max
_LARGEST_PRODUCT = np.float32(_LARGEST_SCALE * _LARGEST_ELEMENT)
_INT64_MAX = (1 << 63) - 1


def _compressed_tensors_scale(largest: np.float32) -> np.float32:
    # torch divides a number by a tensor in two steps.
    scale = np.float32(_ONE / np.maximum(largest, np.finfo(np.float32).tiny) * _LARGEST_PRODUCT)
    return scale if np.isfinite(scale) else _ONE


def _model_optimizer_scales(largest: Array, g: np.float32) -> Array:
    scales = largest / np.float32(_LARGEST_ELEMENT * g)
    return np.maximum(np.where(scales == 0, _ONE, scales), np.float32(2.0**-9))


def _transformer_engine_scale(largest: np.float32) -> np.float32:
    return np.float32(np.minimum(_LARGEST_PRODUCT / largest, _LARGEST)) if largest else _ONE


_STEPS = {
    Nvfp4Rule.TORCHAO: _Steps(
        global_scale=lambda a: np.float32(a / _LARGEST_PRODUCT),
        scales=lambda b, g: np.maximum(b / _LARGEST_ELEMENT / g, _SMALLEST_SCALE),
        factors=lambda s, g: _ONE / g / s,
        smallest=float(_SMALLEST_SCALE),
    ),
    Nvfp4Rule.COMPRESSED_TENSORS: _Steps(
        global_scale=_compressed_tensors_scale,
        scales=lambda b, g: g * (b / _LARGEST_ELEMENT),
        factors=lambda s, g: s / g,
        divides=True,
        zero_code=0x20,
    ),
    Nvfp4Rule.MODEL_OPTIMIZER: _Steps(
        global_scale=lambda a: np.float32(a / _LARGEST_PRODUCT),
        scales=_model_optimizer_scales,
        factors=lambda s, g: s * g,
        divides=True,
    ),
    Nvfp4Rule.TRANSFORMER_ENGINE: _Steps(
        global_scale=_transformer_engine_scale,
        scales=lambda b, g: b * np.float32(g * (_ONE / _LARGEST_ELEMENT)),
        factors=lambda s, g: np.minimum(_ONE / (s * (_ONE / g)), _LARGEST),
    ),
}


_FOUR_OVER_SIX = {
    Nvfp4Rule.FOUROVERSIX: BlockError.MSE,
    Nvfp4Rule.FOUROVERSIX_MAE: BlockError.MAE,
    Nvfp4Rule.FOUROVERSIX_ABS_MAX: BlockError.ABS_MAX,
}


@cache
def _saturating(target: str) -> Encoder:
    found = encoder(profile_named("ptx").cast_rule(), target)
    assert isinstance(found, Encoder)
    return found


def _quantize_by_steps(
    source: Array, scales: Array, elements: Array, rule: Nvfp4Rule, given: float | GlobalScale
) -> np.float32 | None:
    """Write scales and elements by a library's rule, and return the global scale."""
    if given is GlobalScale.ABSENT and rule is not Nvfp4Rule.TORCHAO:
        raise UnsupportedError(f"rule {rule} always has a global scale", pointer="/global_scale")
    patterns = np.empty(scales.size, np.int32)
    LARGEST_MAGNITUDES[32](source.view(np.int32), BLOCK, BLOCK, patterns)
    of_blocks = patterns.view("<f4")
    largest = patterns.max(initial=0).view("<f4")
    _check_finite(largest, source, f"for which rule {rule} has no elements")
    if rule in _FOUR_OVER_SIX:
        with np.errstate(over="ignore"):
            whole = largest if given is GlobalScale.DERIVED else np.float32(given)
        encoders = _saturating(_SCALE), _saturating(_ELEMENT)
        quantize_four_over_six(source, of_blocks, scales, elements, whole, _FOUR_OVER_SIX[rule], encoders)
        return whole
    steps = _STEPS[rule]
    counts = np.zeros(4, np.int64)
    with np.errstate(all="ignore"):
        if given is GlobalScale.ABSENT:
            whole = _ONE
        else:
            whole = steps.global_scale(largest) if given is GlobalScale.DERIVED else np.float32(given)
            ends = steps.factors(np.array([steps.smallest, _LARGEST_SCALE], "<f4"), whole)
            if not (0 < whole < np.inf and (ends > 0).all() and np.isfinite(ends).all()):
                if given is GlobalScale.DERIVED:
                    raise PreconditionError(
                        f"the largest magnitude, {largest}, is too small to derive a global scale; give one"
                    )
                raise ParameterError(f"rule {rule} cannot use the global scale {given}: f32 does not hold its products")
        _saturating(_SCALE).encode(steps.scales(of_blocks, whole), scales, 0, counts)
        scales[scales == 0] = steps.zero_code
        factors = steps.factors(decode_table(_SCALE)[scales], whole)
    scaling = _saturating(_ELEMENT).scaling("f32", steps.divides, adds_zero=steps.divides)
    layout = np.array([BLOCK, max(scales.size, 1), _INT64_MAX, 1, 0], np.int64)
    scaling.encode_scaled(source, elements, 0, counts, layout, factors)
    return None if given is GlobalScale.ABSENT else whole


def quantize_nvfp4(
    values: Array, global_scale: float | GlobalScale = GlobalScale.DERIVED, rule: Nvfp4Rule | None = None
) -> Nvfp4Tensor:
    """Derive the scales of an f32 tensor of any rank from 1 and quantize it. A given `global_scale` is rounded to f32.

    Raises UnsupportedError for values that are not f32, and without a global scale for a rule that always has one;
    TypeFitError if the last axis is not a multiple of 16; ParameterError for a given global scale that is not positive,
    or whose product with a block's scale (2^-6 to 448) f32 does not hold; PreconditionError where no global scale can
    be derived: a value is not finite, or all are zero or too close to it; with a rule for any value that is not finite.
    """
    shape = values.shape
    count = block_count(shape, BLOCK, _NAME)
    source = flat_f32(values, _NAME)
    scales, elements = np.empty(count, "|u1"), np.empty(source.size, "|u1")
    if rule is not None:
        scale = _quantize_by_steps(source, scales, elements, rule, global_scale)
        return Nvfp4Tensor(shape, None if scale is None else float(scale), scales, elements)
    if global_scale is GlobalScale.ABSENT:
        scale = None
    elif global_scale is GlobalScale.DERIVED:
        scale = _derived(source)
    else:
        with np.errstate(over="ignore", under="ignore"):
            scale = np.float32(global_scale)
        if not _usable(scale):
            raise ParameterError(f"the global scale {global_scale} cannot be used; expected about 2^-143 to 2^119")
    factor = np.float32(1) if scale is None else scale
    kernels.quantize_nvfp4(source, scales, elements, BLOCK, factor, decode_table(_SCALE))
    return Nvfp4Tensor(shape, None if scale is None else float(scale), scales, elements)


def dequantize_nvfp4(tensor: Nvfp4Tensor, rule: Nvfp4Rule | None = None) -> Array:
    """Return f32(element * f32(sg * sb)) in the tensor's shape, which is torchao's too.

    With rule COMPRESSED_TENSORS f32(element * f32(sb / G)); with MODEL_OPTIMIZER the element -0 is 0. Raises
    TypeFitError if the last axis is not a multiple of 16, TensorDataError for arrays of another length and for elements
    beyond 15, UnsupportedError for rule TRANSFORMER_ENGINE.
    """
    if rule is Nvfp4Rule.TRANSFORMER_ENGINE:
        reason = "TransformerEngine dequantizes by the tensor's largest magnitude, which its global scale does not tell"
        raise UnsupportedError(reason, pointer="/rule")
    count = block_count(tensor.shape, BLOCK, _NAME)
    check_length(tensor.scales, count, "scales")
    check_length(tensor.elements, count * BLOCK, "elements")
    check_codes(tensor.elements, _ELEMENT)
    factor = np.float32(1 if tensor.global_scale is None else tensor.global_scale)
    target = np.empty(tensor.elements.size, "<f4")
    table = decode_table(_ELEMENT)
    if rule is Nvfp4Rule.MODEL_OPTIMIZER:
        table = table + np.float32(0)
    with np.errstate(all="ignore"):
        scales = decode_table(_SCALE)[tensor.scales]
        if rule in _FOUR_OVER_SIX:
            dequantize_four_over_six(tensor.elements, scales, factor, target)
            return target.reshape(tensor.shape)
        scales = scales / factor if rule is Nvfp4Rule.COMPRESSED_TENSORS else scales * factor
    kernels.scale_blocks(tensor.elements, table, scales, BLOCK, target)
    return target.reshape(tensor.shape)
