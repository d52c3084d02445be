"""Quantize, dequantize and requantize as subjects: one for each parameter set of the types or multipliers.

Plain integers in the place of a quantized type ask for sets that are designed. Scales: 1 and the adjacent floats, a
power of two, another one, the smallest and largest normal, a subnormal, one whose reciprocal is subnormal.
Multipliers: the smallest and the largest, a power of two, and random ones, each with shifts over the whole range. Zero
points cycle: 0, the lowest, the highest, a random one. Sets that a profile or scheme refuses are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import cycle, islice, product
from math import ldexp
from typing import Any

from requant.convert.explain.dequantize import dequantize_explainer
from requant.convert.explain.explanation import Explainer
from requant.convert.explain.quantize import quantize_explainer
from requant.convert.explain.requantize import requantize_explainer
from requant.convert.vectors.subject import Draws, Element, Floats, Number, ParameterReason, Place, Subject
from requant.convert.vectors.subject import ParameterReason as Why
from requant.errors import (
    LimitError,
    ParameterError,
    PreconditionError,
    RequantError,
    TypeFitError,
    UnsupportedError,
    error_side,
    excerpt,
)
from requant.formats.elements import FLOATS, FloatElement, IntegerElement, Signedness
from requant.formats.float_format import round_to_format
from requant.formats.rules import Quotient
from requant.mlir.printer import print_type
from requant.mlir.types import (
    QuantileType,
    StorageType,
    TensorType,
    Type,
    UniformPerAxisType,
    UniformQuantizedType,
    UniformSubChannelType,
    UniformType,
)
from requant.plan.operands import storage_name
from requant.profiles import Operation, profile_named
from requant.profiles.rule import Steps
from requant.schemes import Float, Multiplier, Scheme, scheme_named

_TYPICAL_RIGHT_SHIFT = 8


ZeroPoints = Iterator[tuple[int, tuple[Why, ...]]]


def zero_points_of(storage: StorageType, draws: Draws) -> ZeroPoints:
    """Yield the zero points of a storage type and the reasons, cyclically."""
    lowest, highest = storage.default_bounds
    while True:
        yield min(max(0, lowest), highest), ()
        yield lowest, (Why.ZERO_POINT_MINIMUM,)
        yield highest, (Why.ZERO_POINT_MAXIMUM,)
        yield draws.between(lowest, highest), ()


def designed_scales(
    storage: StorageType, real: FloatElement, seed: int, max_sets: int
) -> Iterator[tuple[float, int, tuple[Why, ...]]]:
    """Yield at most `max_sets` scales with zero point and reason."""
    draws = Draws(seed)
    format_ = Floats(real.name).format
    ulp = 2.0**-format_.mantissa_bits
    normal = format_.smallest_normal
    drawn = ldexp(1 + draws.below(1 << 20) / (1 << 20), -draws.between(1, 12))
    scales = [
        (round_to_format(drawn, real), Why.RANDOM),
        (0.5, Why.SCALE_POWER_OF_TWO),
        (1.0, Why.SCALE_ONE),
        (1.0 + ulp, Why.SCALE_ONE_ULP_ABOVE_ONE),
        (1.0 - ulp / 2, Why.SCALE_ONE_ULP_BELOW_ONE),
        (normal, Why.SCALE_SMALLEST_NORMAL),
        (normal * (1 - ulp), Why.SCALE_SUBNORMAL),
        (ldexp(1.0, format_.bias), Why.RECIPROCAL_SUBNORMAL),
        (format_.largest, Why.SCALE_LARGEST),
    ]
    zero_points = zero_points_of(storage, draws)
    for (scale, why), (zero_point, more) in islice(zip(scales, zero_points, strict=False), max_sets):
        yield scale, zero_point, (why, *more)


def designed_multipliers(
    scheme: Scheme, width: int, inputs: ZeroPoints, outputs: ZeroPoints, draws: Draws, max_sets: int
) -> Iterator[tuple[Multiplier, tuple[int, int], tuple[Why, ...]]]:
    """Yield at most `max_sets` multipliers with shift, both zero points and the reason. `width`: bits of an input."""
    for multiplier, why in islice(_pairs(scheme, width, draws), max_sets):
        zero_point, more = next(outputs)
        yield multiplier, (next(inputs)[0], zero_point), (*why, *more)


def _pairs(scheme: Scheme, width: int, draws: Draws) -> Iterator[tuple[Multiplier, tuple[Why, ...]]]:
    """Yield multipliers with shifts."""
    lowest, highest = scheme.multipliers
    largest_bits = highest.bit_length()
    power = 1 << (largest_bits - 1)
    half = power >> 1 if power == highest else power
    shifts = sorted((scheme.shifts[0], scheme.shifts[1]), key=scheme.right_shift)

    def shift_of(right: int) -> int:
        """Return the right shift by this many bits, or the nearest that the scheme supports."""
        sign = scheme.right_shift(1) - scheme.right_shift(0)
        wanted = (right - scheme.right_shift(0)) * sign
        return min(max(wanted, scheme.shifts[0]), scheme.shifts[1])

    # From the width of the input to about 8 bits.
    typical = shift_of(largest_bits + max(width - 12, 1))
    drawn = [draws.between(half, highest) for _ in range(4)]
    if isinstance(scheme.stage, Float) and scheme.multipliers[0] < 0:
        lowest = 0
    yield Multiplier(drawn[0], typical), (Why.RANDOM,)
    yield Multiplier(half, typical), (Why.MULTIPLIER_POWER_OF_TWO,)
    yield Multiplier(highest, typical), (Why.MULTIPLIER_MAXIMUM,)
    yield Multiplier(drawn[1], shift_of(largest_bits)), (Why.RANDOM,)
    yield Multiplier(drawn[2], shifts[0]), (Why.SHIFT_MINIMUM,)
    yield Multiplier(drawn[3], shifts[1]), (Why.SHIFT_MAXIMUM,)
    yield Multiplier(1, typical), (Why.MULTIPLIER_ONE,)
    yield Multiplier(lowest, typical), (Why.MULTIPLIER_MINIMUM,)
    for multiplier, shift in product((highest, half), shifts):
        of_shift = Why.SHIFT_MINIMUM if shift == shifts[0] else Why.SHIFT_MAXIMUM
        of_multiplier = Why.MULTIPLIER_MAXIMUM if multiplier == highest else Why.MULTIPLIER_POWER_OF_TWO
        yield Multiplier(multiplier, shift), (of_multiplier, of_shift)


_OF_ZERO_POINTS = frozenset({ParameterReason.ZERO_POINT_MINIMUM, ParameterReason.ZERO_POINT_MAXIMUM})
MAX_CHANNELS, HIGHEST_AXIS, MAX_CODES = 64, 31, 256
_EXPLAINERS: Mapping[Operation, Callable[..., Explainer]] = {
    Operation.QUANTIZE: quantize_explainer,
    Operation.DEQUANTIZE: dequantize_explainer,
    Operation.REQUANTIZE: requantize_explainer,
}


def conversion_subjects(
    operation: Operation,
    input_type: Type,
    output_type: Type | None,
    profile: str,
    *,
    multipliers: Sequence[Multiplier] | None = None,
    seed_of_sets: int = 0,
    max_sets: int = MAX_CHANNELS,
    **options: Any,
) -> list[Subject]:
    """Return the subjects of a conversion from `input_type`. `options` are those of its plan.

    Each multiplier of per-tensor types is a set of its own. `seed_of_sets` and `max_sets` are of designed sets.
    Raise what the plan raises, TypeFitError for the type of a tensor, UnsupportedError for parameters of blocks.
    """
    with error_side("input"):
        source = _element(input_type)
    with error_side("output"):
        target = None if output_type is None else _element(output_type)
    conversion = _Conversion(operation, source, target, profile, options)
    if operation is Operation.REQUANTIZE:
        if multipliers is None and isinstance(source, IntegerElement) and isinstance(target, IntegerElement):
            return conversion.of_designed_multipliers(seed_of_sets, max_sets)
        if multipliers is not None and not conversion.channels:
            return [conversion.subject((each,), (ParameterReason.GIVEN,)) for each in multipliers]
    elif conversion.lacks_scales:
        return conversion.of_designed_scales(seed_of_sets, max_sets)
    return [
        conversion.subject(multipliers, (ParameterReason.GIVEN,), channel)
        for channel in range(conversion.channels or 1)
    ]


def _element(type_: Type) -> Any:
    if isinstance(type_, TensorType):
        raise TypeFitError("expected an element type, not a tensor type; set the number of vectors with count")
    if isinstance(type_, UniformSubChannelType):
        raise UnsupportedError("vectors take parameters per tensor or per axis; these are per block")
    storage = getattr(getattr(type_, "storage", None), "element", None)
    if isinstance(storage, QuantileType) and len(storage.table) > MAX_CODES:
        detail = f"the table has {len(storage.table)} values; vectors take at most {MAX_CODES}"
        raise LimitError(detail, limit=MAX_CODES)
    return type_


class _Conversion:
    """A conversion between two element types."""

    def __init__(
        self, operation: Operation, source: Any, target: Any, profile: str, options: Mapping[str, Any]
    ) -> None:
        self.operation, self.source, self.target = operation, source, target
        self.profile, self.options = profile, options
        per_axis = [each for each in (source, target) if isinstance(each, UniformPerAxisType)]
        self.channels = len(per_axis[0].scales) if per_axis else 0
        self.axis = per_axis[0].axis if per_axis else 0
        side = "input" if per_axis and per_axis[0] is source else "output"
        with error_side(side):
            if self.axis > HIGHEST_AXIS:
                detail = f"the axis of the {side} is {self.axis}; vectors take at most {HIGHEST_AXIS}"
                raise LimitError(detail, limit=HIGHEST_AXIS)
            if self.channels > MAX_CHANNELS:
                detail = f"the {side} has {self.channels} channels; vectors take at most {MAX_CHANNELS}"
                raise LimitError(detail, limit=MAX_CHANNELS)

    @property
    def lacks_scales(self) -> bool:
        """Whether a scale is missing for quantizing to integers or dequantizing them."""
        stored = self.target if self.operation is Operation.QUANTIZE else self.source
        return isinstance(stored, IntegerElement)

    def of_designed_scales(self, seed: int, max_sets: int) -> list[Subject]:
        """Return a subject for each designed scale and zero point that the profile accepts."""
        quantizes = self.operation is Operation.QUANTIZE
        stored, real = (self.target, self.source) if quantizes else (self.source, self.target or FLOATS["f32"])
        with error_side("input" if quantizes else "output"):
            if not isinstance(real, FloatElement):
                detail = f"scales are designed for floats; this is {excerpt(print_type(real))}"
                raise UnsupportedError(detail)
        with error_side("output" if quantizes else "input"):
            storage = storage_of(stored)

        def subject(scale: float, zero_point: int, why: tuple[ParameterReason, ...]) -> Subject:
            typed = UniformType(storage, real, scale, zero_point)
            source, target = (self.source, typed) if quantizes else (typed, self.target)
            return _Conversion(self.operation, source, target, self.profile, self.options).subject(None, why)

        return accepted_subjects(subject, designed_scales(storage, real, seed, max_sets))

    def of_designed_multipliers(self, seed: int, max_sets: int) -> list[Subject]:
        """Return a subject for each designed multiplier, shift and pair of zero points that the scheme accepts."""
        with error_side("input"):
            source = storage_of(self.source)
        with error_side("output"):
            target = storage_of(self.target)
        named = self.options.get("scheme") or self._scheme_for(storage_name(source), storage_name(target))

        def with_zero_points(
            multiplier: Multiplier, numbers: tuple[int, int], why: tuple[ParameterReason, ...]
        ) -> Subject:
            typed = [
                UniformType(storage, FLOATS["f32"], 1.0, zero_point)
                for storage, zero_point in zip((source, target), numbers, strict=True)
            ]
            conversion = _Conversion(self.operation, typed[0], typed[1], self.profile, self.options)
            return conversion.subject((multiplier,), why)

        def subject(multiplier: Multiplier, numbers: tuple[int, int], why: tuple[ParameterReason, ...]) -> Subject:
            try:
                return with_zero_points(multiplier, numbers, why)
            except UnsupportedError:
                # Some types have no zero point but 0, such as i16 in LiteRT.
                return with_zero_points(multiplier, (0, 0), tuple(each for each in why if each not in _OF_ZERO_POINTS))

        draws = Draws(seed)
        # Accumulators of 32 bits have none.
        inputs = zero_points_of(source, draws) if source.width < 32 else cycle([(0, ())])
        outputs = zero_points_of(target, draws)
        designs = designed_multipliers(scheme_named(named), source.width, inputs, outputs, draws, max_sets)
        return accepted_subjects(subject, designs)

    def _scheme_for(self, source: str, target: str) -> str:
        """Return the scheme of the profile for a pair of storages. Some pairs have one of their own."""
        rule = profile_named(self.profile).rule(Operation.REQUANTIZE)
        with error_side("output"):
            rule = rule.for_pair(source, target)
        if rule.scheme is None:
            raise UnsupportedError(f"profile {self.profile} multiplies by two scales; name a scheme, or give scales")
        return rule.scheme

    def _scale_element(self) -> FloatElement:
        """Return the type in which the profile uses scales."""
        sides = [each for each in (self.source, self.target) if isinstance(each, UniformQuantizedType)]
        if self.operation is Operation.REQUANTIZE or not sides:
            return FLOATS["f64"]
        rule = profile_named(self.profile).rule(self.operation)
        if rule.quotient is Quotient.RECIPROCAL_OF_F64:
            return FLOATS["f64"]
        return sides[0].expressed if rule.scales is Steps.EXPRESSED else FLOATS["f32"]

    def subject(
        self, multipliers: Sequence[Multiplier] | None, why: tuple[ParameterReason, ...], channel: int = 0
    ) -> Subject:
        """Return the subject of a channel. Raise what its plan raises."""
        options = dict(self.options)
        if multipliers is not None:
            options["multipliers"] = multipliers

        # The search uses the same few shapes repeatedly.
        @lru_cache(maxsize=4)
        def explainer(shape: tuple[int, ...]) -> Explainer:
            tensor = TensorType(shape, self.source)
            return _EXPLAINERS[self.operation](tensor, self.target, self.profile, **options)

        place = Place(channel, self.channels, self.axis) if self.channels else Place()
        plan = explainer(place.shape(1)).plan
        target = plan.output_type.element
        numbers: dict[str, Number] = {}
        if self.operation is not Operation.REQUANTIZE:
            for element in (self.source, target):
                if isinstance(element, UniformQuantizedType):
                    numbers |= _scaled("", element, channel)
        else:
            for side, element in (("input_", self.source), ("output_", target)):
                if isinstance(element, UniformQuantizedType):
                    numbers |= _scaled(side, element, channel)
                else:
                    numbers[f"{side}zero_point"] = 0
            if plan.multipliers:
                used = plan.multipliers[channel if len(plan.multipliers) > 1 else 0]
                numbers |= {"multiplier": used.multiplier, "shift": used.shift}
                if multipliers is not None:
                    # The scales of the types are not used.
                    numbers = {name: number for name, number in numbers.items() if not name.endswith("_scale")}
        return Subject(
            explainer=explainer,
            input=stored_element(self.source),
            output=stored_element(target),
            parameters=numbers,
            why=why,
            scale=self._scale_element(),
            place=place,
            filling=_filling(self.source, channel),
        )


def _scaled(prefix: str, element: UniformQuantizedType, channel: int) -> dict[str, Number]:
    index = channel if len(element.scales) > 1 else 0
    numbers: dict[str, Number] = {f"{prefix}scale": element.scales[index]}
    storage = element.storage
    if isinstance(storage.element, FloatElement):
        return numbers
    numbers[f"{prefix}zero_point"] = element.zero_points[index]
    if (storage.minimum, storage.maximum) != storage.default_bounds and prefix != "input_":
        numbers |= {"storage_minimum": storage.minimum, "storage_maximum": storage.maximum}
    return numbers


def _filling(element: Any, channel: int) -> int:
    """Return a stored element that is valid in every other channel."""
    if isinstance(element, UniformQuantizedType) and not isinstance(element.storage.element, FloatElement):
        lowest, highest = element.storage.default_bounds
        return min(max(0, lowest), highest)
    return 0


def stored_element(element: Any) -> Element:
    """Return the storage of elements of a type: an integer or a float."""
    if isinstance(element, (IntegerElement, FloatElement)):
        return element
    assert isinstance(element, UniformQuantizedType)
    storage = element.storage
    if isinstance(storage.element, FloatElement):
        return storage.element
    signed = storage.element.bounds[0] < 0 if isinstance(storage.element, QuantileType) else storage.signed
    return IntegerElement(storage.width, Signedness.SIGNLESS if signed else Signedness.UNSIGNED)


def storage_of(element: IntegerElement) -> StorageType:
    """Return a plain integer as the storage of a quantized type."""
    if element.width > 32:
        raise UnsupportedError(f"parameters are designed for integers of at most 32 bits; this is {element.name}")
    signed = element.signedness is not Signedness.UNSIGNED
    return StorageType.unbounded(replace(element, signedness=Signedness.SIGNLESS), signed=signed)


def accepted_subjects(make: Callable[..., Subject], designs: Iterable[tuple[Any, ...]]) -> list[Subject]:
    """Return the subjects of the designs that are accepted. If none is, raise the error of the first."""
    subjects: list[Subject] = []
    refusal: RequantError | None = None
    for design in designs:
        try:
            subjects.append(make(*design))
        except (UnsupportedError, ParameterError, PreconditionError, TypeFitError) as error:
            refusal = refusal or error
    if not subjects and refusal is not None:
        raise refusal
    return subjects
