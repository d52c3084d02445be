"""TensorFlow's fake quantization: the range nudged so that zero is one of its steps. LiteRT has the same function.

Source: TensorFlow fake_quant_ops_functor.h Nudge; LiteRT NudgeQuantizationRange; spec/numerics.md C.11.
"""

from __future__ import annotations

import numpy as np

from core.errors import ParameterError, UnsupportedError
from core.mlir.printer import print_storage
from core.mlir.types import StorageType
from core.parameters.ranges.rule import (
    Array,
    RangeOptions,
    RangeParameters,
    RangeRule,
    StoredRange,
    integer_storage,
    narrowed,
    parameters,
    refuse_vanished,
    round_half_away,
    scalar_like,
)


def _stored(storage: StorageType, options: RangeOptions) -> StoredRange:
    width = integer_storage(storage, "tf_fake_quant").width
    if storage.signed or not 2 <= width <= 16:
        raise UnsupportedError(f"tf_fake_quant has no storage {print_storage(storage)}; it has u2 to u16")
    return narrowed(storage, options, "tf_fake_quant")


def nudge(lows: Array, highs: Array, stored: StoredRange, _: RangeOptions) -> RangeParameters:
    """Return scale, zero point and nudged range of each f32 range. A range of 0 to 0 has all of them 0.

    Raise ParameterError for a range of one number other than 0, PreconditionError for one so small that its step rounds
    to 0: the systems divide by it.
    """
    lowest, highest = scalar_like(lows, stored.lowest), scalar_like(lows, stored.highest)
    scales = (highs - lows) / (highest - lowest)
    empty = (lows == 0) & (highs == 0)
    if ((lows == highs) & ~empty).any():
        index = int(np.argmax((lows == highs) & ~empty))
        raise ParameterError(f"range {index} is a single number other than 0, for which tf_fake_quant has no step")
    refuse_vanished(scales, lows, highs, "f32")
    zero_points = round_half_away(np.clip(lowest - lows / scales, lowest, highest))
    zero_points = np.where(empty, scalar_like(lows, 0), zero_points)
    return parameters(
        scales,
        zero_points,
        stored,
        np.where(empty, scalar_like(lows, 0), (lowest - zero_points) * scales),
        np.where(empty, scalar_like(lows, 0), (highest - zero_points) * scales),
    )


TF_FAKE_QUANT = RangeRule(
    name="tf_fake_quant",
    summary="the nudged range of fake_quant_with_min_max, of TensorFlow and LiteRT; a range without 0 is moved to 0",
    formula="f32: s = f32(f32(max - min) / (qmax - qmin)), z = RNA(f32(qmin - f32(min/s))) clamped, "
    "nudged range f32((qmin - z) * s) to f32((qmax - z) * s)",
    source="TensorFlow fake_quant_ops_functor.h; spec/numerics.md C.11",
    options=frozenset({"narrow"}),
    stored_range=_stored,
    derive=nudge,
)
