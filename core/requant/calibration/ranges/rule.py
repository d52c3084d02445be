"""What a range rule is made of: how one system turns a range of reals into a scale and a zero point."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import ParameterError, PreconditionError, UnsupportedError
from requant.formats.elements import FLOATS, IntegerElement
from requant.mlir.printer import print_storage
from requant.mlir.types import StorageType

Array = NDArray[Any]

_F32_LARGEST = FLOATS["f32"].largest


@dataclass(frozen=True, slots=True)
class RangeOptions:
    """What a caller may ask of a rule. Each rule has some of these; the others must be left at their defaults.

    symmetric: the range is -m to m, with m its largest magnitude, and the zero point is fixed.
    narrow: the lowest stored value is not used.
    reduced: the range of stored values that the system uses to keep 16-bit sums of products from overflowing.
    power_of_two: the scale is a power of two.
    preserve_sparsity: FBGEMM's symmetric range, for ranges that have zero inside.
    minimum_real_range: the range is widened upwards to at least this width.
    epsilon: the smallest scale.
    """

    symmetric: bool = False
    narrow: bool = False
    reduced: bool = False
    power_of_two: bool = False
    preserve_sparsity: bool = False
    minimum_real_range: float | None = None
    epsilon: float | None = None

    def non_defaults(self) -> list[str]:
        """Return the names of the options that are not at their defaults."""
        return [field.name for field in fields(self) if getattr(self, field.name) != field.default]


@dataclass(frozen=True, slots=True)
class StoredRange:
    """The integers that a range is spread over: `lowest` to `highest`, of those that the storage holds."""

    storage: StorageType
    lowest: int
    highest: int

    @property
    def span(self) -> int:
        return self.highest - self.lowest

    @property
    def bounded(self) -> StorageType:
        """The storage with these bounds."""
        return StorageType(self.storage.element, self.storage.signed, self.lowest, self.highest)


@dataclass(frozen=True, slots=True)
class RangeParameters:
    """Scales and zero points, one for each range: f64 and int64, 1-D. Scales of systems that keep f32 are f32 values.

    `storage` has the bounds that the parameters were made for. `nudged_minimums` and `nudged_maximums` are the ends of
    the range that the parameters stand for, where the system computes them; f32 values.
    """

    scales: Array
    zero_points: Array
    storage: StorageType
    nudged_minimums: Array | None = None
    nudged_maximums: Array | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeRule:
    """How one system finds parameters from a range.

    `stored_range` chooses the integers for a storage and options, or raises UnsupportedError. `derive` takes 1-D arrays
    of minimums and maximums (f64, or f32 for a rule that `keeps_f32`). `contains_zero`: the system demands
    minimum <= 0 <= maximum. `block_rule` names the rule that the system has for blocks instead of this one, and
    `only_blocks` marks that one.
    """

    name: str
    summary: str
    formula: str
    source: str
    options: frozenset[str] = frozenset()
    keeps_f32: bool = True
    contains_zero: bool = False
    block_rule: str = ""
    only_blocks: bool = False
    stored_range: Callable[[StorageType, RangeOptions], StoredRange]
    derive: Callable[[Array, Array, StoredRange, RangeOptions], RangeParameters]

    def derive_all(
        self, minimums: Array, maximums: Array, storage: StorageType, options: RangeOptions
    ) -> RangeParameters:
        """Return the parameters of each range. `minimums` and `maximums` are 1-D f64 arrays of one length.

        Raise UnsupportedError for a storage or an option that the system has not, ParameterError with the index of the
        first range that is none, PreconditionError with the index of the first for which the system's arithmetic has no
        finite answer.
        """
        self._check_options(options)
        stored = self.stored_range(storage, options)
        with np.errstate(all="ignore"):
            lows, highs = self._checked(minimums, maximums)
            derived = self.derive(lows, highs, stored, options)
        unscaled = ~np.isfinite(derived.scales)
        if unscaled.any():
            index = int(np.argmax(unscaled))
            raise PreconditionError(
                f"range {index} is too wide for {self.name}: maximum - minimum is not finite in its precision",
                index=index,
            )
        return derived

    def check_blocks(self, *, blocks: bool) -> None:
        """Raise UnsupportedError if the system has another rule for ranges of blocks, or of what is not blocks."""
        if blocks and self.block_rule:
            raise UnsupportedError(f"{self.name} is not for blocks, for which there is {self.block_rule}")
        if not blocks and self.only_blocks:
            raise UnsupportedError(f"{self.name} is for blocks only")

    def _check_options(self, options: RangeOptions) -> None:
        for name in options.non_defaults():
            if name not in self.options:
                has = ", ".join(sorted(self.options)) or "none"
                raise UnsupportedError(f"{self.name} has no option {name}; it has {has}", pointer=f"/{name}")
        for name, least in (("minimum_real_range", 0.0), ("epsilon", FLOATS["f32"].smallest)):
            value = getattr(options, name)
            if value is not None and not least <= value <= _F32_LARGEST:
                raise ParameterError(f"{name} must be from {least!r} to {_F32_LARGEST!r}", pointer=f"/{name}")

    def _checked(self, minimums: Array, maximums: Array) -> tuple[Array, Array]:
        """Return both ends in the precision of the system, which reads numbers rounded to nearest."""
        if minimums.shape != maximums.shape or minimums.ndim != 1 or minimums.size == 0:
            raise ParameterError(
                f"there are {minimums.size} minimums and {maximums.size} maximums; expected equal numbers, at least "
                "one of each"
            )
        _refuse(~(np.isfinite(minimums) & np.isfinite(maximums)), "has an end that is not finite", minimums, maximums)
        _refuse(minimums > maximums, "has a minimum above its maximum", minimums, maximums)
        if self.contains_zero:
            detail = f"does not contain 0, which {self.name} demands"
            _refuse((minimums > 0.0) | (maximums < 0.0), detail, minimums, maximums)
        if not self.keeps_f32:
            return minimums, maximums
        lows, highs = minimums.astype(np.float32), maximums.astype(np.float32)
        _refuse(
            ~(np.isfinite(lows) & np.isfinite(highs)), f"is outside f32, which {self.name} uses", minimums, maximums
        )
        return lows, highs


def _refuse(wrong: Array, detail: str, minimums: Array, maximums: Array) -> None:
    if wrong.any():
        index = int(np.argmax(wrong))
        low, high = float(minimums[index]), float(maximums[index])
        raise ParameterError(f"range {index}, {low!r} to {high!r}, {detail}", index=index)


def integer_storage(storage: StorageType, system: str) -> IntegerElement:
    """Return the element of an integer storage, or raise UnsupportedError."""
    if not isinstance(storage.element, IntegerElement):
        raise UnsupportedError(f"{system} derives parameters for integer storage; this is {print_storage(storage)}")
    return storage.element


def storage_among(storage: StorageType, system: str, names: tuple[str, ...]) -> str:
    """Return the name of a storage with its default bounds, or raise UnsupportedError unless it is one of `names`.

    `i8` and `si8`, `u8` and `ui8` are the same integers.
    """
    width = integer_storage(storage, system).width
    name = f"{'i' if storage.signed else 'u'}{width}"
    if name not in names:
        raise UnsupportedError(f"{system} has no parameters for {print_storage(storage)}; it has {', '.join(names)}")
    return name


def written_bounds(storage: StorageType) -> tuple[int, int] | None:
    """Return the bounds of a storage if they are not its default ones."""
    bounds = (storage.minimum, storage.maximum)
    return None if bounds == storage.default_bounds else bounds


def narrowed(storage: StorageType, options: RangeOptions, system: str) -> StoredRange:
    """Return the default bounds, without the lowest integer if `narrow` is set or was written as bounds."""
    lowest, highest = storage.default_bounds
    written = written_bounds(storage)
    if written not in (None, (lowest + 1, highest)):
        raise UnsupportedError(
            f"{system} has no bounds {storage.minimum}:{storage.maximum} for this storage; "
            f"it has {lowest}:{highest}, and {lowest + 1}:{highest} with narrow"
        )
    return StoredRange(storage, lowest + (options.narrow or written is not None), highest)


def refuse_vanished(scales: Array, lows: Array, highs: Array, precision: str) -> None:
    """Raise PreconditionError, with the index, for a range of some width whose scale rounds to 0: it is divided by."""
    vanished = (scales == 0) & (lows != highs)
    if vanished.any():
        index = int(np.argmax(vanished))
        raise PreconditionError(f"range {index} is so small that its scale is 0 in {precision}", index=index)


def scalar_like(array: Array, value: float) -> Any:
    """Return `value` in the precision of `array`, so that a step with it is rounded to that precision."""
    return array.dtype.type(value)


def round_half_away(values: Array) -> Array:
    """RNA of each value, exact: adding one half first would round 0.49999999999999994 up."""
    whole = np.trunc(values)
    rounded: Array = whole + np.copysign((np.abs(values - whole) >= 0.5).astype(values.dtype), values)
    return rounded


def parameters(
    scales: Array,
    zero_points: Array,
    stored: StoredRange,
    nudged_minimums: Array | None = None,
    nudged_maximums: Array | None = None,
) -> RangeParameters:
    """Return the parameters that a rule derived, widened to f64 and int64."""
    return RangeParameters(
        scales.astype(np.float64),
        np.full(scales.shape, zero_points, np.int64),
        stored.bounded,
        nudged_minimums,
        nudged_maximums,
    )
