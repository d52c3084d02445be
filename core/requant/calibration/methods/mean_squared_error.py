"""The range with the smallest error: of K candidates, each is quantized and dequantized again."""

from __future__ import annotations

import numpy as np

from requant.calibration.methods.method import (
    MAX_CANDIDATES,
    Array,
    CalibratedRanges,
    CalibrationMethod,
    CalibrationOptions,
    Target,
    integer_option,
    limit_work,
)
from requant.calibration.methods.observed import Observed
from requant.convert.dequantize import plan_dequantize
from requant.convert.quantize import plan_quantize
from requant.errors import ParameterError, PreconditionError, RequantError
from requant.errors.cancellation import check_cancelled
from requant.kernels.statistics.error_sums import SQUARED_ERROR
from requant.mlir.types import TensorType, UniformQuantizedType
from requant.plan.channels import Channels
from requant.plan.float_arrays import widen
from requant.plan.plan import pieces

_CANDIDATES = 100
_PROFILE = "stablehlo"

# A few seconds on one core.
_MAX_CONVERSIONS = 1 << 29
# What starting on one more tensor costs, in elements.
_ELEMENTS_OF_TENSOR = 1 << 13
_MAX_TYPES = 1 << 19


def _find(observed: Observed, options: CalibrationOptions, target: Target) -> CalibratedRanges:
    count = integer_option(options, "candidates", _CANDIDATES, 1, MAX_CANDIDATES)
    profile = _PROFILE if options.profile is None else options.profile
    elements = observed.elements + len(observed.arrays) * _ELEMENTS_OF_TENSOR
    limit_work(count * elements, _MAX_CONVERSIONS, "candidates times elements")
    limit_work(count * observed.parameters, _MAX_TYPES, "candidates times scales")
    lows, highs = observed.overall_extremes()
    if target.options.symmetric:
        highs = np.maximum(np.abs(lows), np.abs(highs))
        lows = -highs
    best = np.full(observed.parameters, np.inf)
    chosen = np.zeros(observed.parameters, np.int64)
    refused: PreconditionError | ParameterError | None = None
    for candidate in range(1, count + 1):
        check_cancelled()
        try:
            type_ = target.type_of(target.parameters(*_shrunk(lows, highs, candidate, count)))
        except (PreconditionError, ParameterError) as error:
            refused = error
            continue
        errors = _squared_errors(observed, type_, profile)
        better = errors < best
        best[better] = errors[better]
        chosen[better] = candidate
    if refused is not None and not chosen.any():
        raise refused
    if not chosen.all():
        raise PreconditionError(
            f"range {int(np.argmin(chosen))} has an error beyond binary64 with every candidate",
        )
    return CalibratedRanges(*_shrunk(lows, highs, chosen, count))


def _shrunk(lows: Array, highs: Array, candidate: Array | int, count: int) -> tuple[Array, Array]:
    return lows * candidate / count, highs * candidate / count


def _squared_errors(observed: Observed, type_: UniformQuantizedType, profile: str) -> Array:
    """Return the sum of squared errors of each parameter, over all tensors, when they are stored as `type_`."""
    channels = observed.channels
    cycle = channels.cycle and channels.repeat == 1
    # A tiled cycle would give one parameter several sums.
    layout = (
        Channels(1, channels.channels, channels.group, channels.groups, cycle=True) if cycle else channels.as_runs()
    )
    owners = observed.owners(layout)
    reals = TensorType(observed.shape, observed.element)
    quantize = plan_quantize(reals, TensorType(observed.shape, type_), profile)
    try:
        dequantize = plan_dequantize(quantize.output_type, reals, profile)
    except RequantError as error:
        # The input of dequantize is what is stored.
        error.side = "output"
        raise
    counts, back = quantize.new_counts(), dequantize.new_counts()
    sums = np.zeros(observed.parameters)
    for array in observed.arrays:
        for piece in pieces(array.size):
            check_cancelled()
            source = array[piece]
            stored = np.empty(source.size, quantize.output_dtype)
            restored = np.empty(source.size, dequantize.output_dtype)
            quantize.step(source, stored, piece.start, counts)
            dequantize.step(stored, restored, piece.start, back)
            SQUARED_ERROR[cycle](
                widen(source, observed.element),
                widen(restored, observed.element),
                piece.start,
                *layout.scalars,
                owners,
                sums,
            )
    for plan, tally in ((quantize, counts), (dequantize, back)):
        plan.report(tally)
    return sums


MEAN_SQUARED_ERROR = CalibrationMethod(
    name="mse",
    summary="the candidate with the smallest squared error under a profile; NaN and infinity are refused",
    formula="r(k) = (min x * k / K, max x * k / K), symmetric: max|x| * k / K both ways, k = 1..K = candidates; the "
    "sum of (y - x)^2 in f64, in row-major order, y = dequantize(quantize(x)); the first smallest; candidates of which "
    "no type can be made are passed over",
    source="Requant's own definition: docs/parameters.md",
    options=frozenset({"candidates", "profile"}),
    find=_find,
)
