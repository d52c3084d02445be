"""Vectors: inputs worth testing, each with its expected result, the intermediate steps and the reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from requant.convert.explain.explanation import ElementExplanation, Saturation, StepKind
from requant.convert.vectors.selection import choose, has_tie, results_in_order
from requant.convert.vectors.subject import Array, Draws, Element, Number, ParameterReason, Reason, Subject
from requant.errors import LimitError
from requant.errors.cancellation import checked
from requant.formats.elements import FLOATS, FloatElement, IntegerElement
from requant.formats.float_format import round_to_format

DEFAULT_COUNT, MAX_VECTORS = 256, 2048
_WRAPPING = (StepKind.SHIFT_LEFT, StepKind.ADD_ZERO_POINT)
MIN_PER_SET = 8
"""The minimum number of vectors per parameter set."""


@dataclass(frozen=True, slots=True)
class Vector:
    """One input. `input` and `expected` are integers, or the bits of floats; `parameters` the index of its set."""

    parameters: int
    input: int
    expected: int
    why: tuple[Reason, ...]
    explanation: ElementExplanation


@dataclass(frozen=True, slots=True)
class ParameterSet:
    """The parameters of a set, and the reasons for it."""

    numbers: Mapping[str, Number]
    why: tuple[ParameterReason, ...]


@dataclass(frozen=True, slots=True)
class Vectors:
    """All vectors of a request. `input`, `output` and `scale` are the element types of inputs, results and scales.

    `reals` are the names of parameters that are scales, `widths` the bits of the others. `formula`: the steps of an
    ordinary element of the first set.
    """

    input: Element
    output: Element
    scale: FloatElement
    reals: tuple[str, ...]
    widths: Mapping[str, int]
    formula: tuple[str, ...]
    sets: tuple[ParameterSet, ...]
    vectors: tuple[Vector, ...]


def vectors_of(subjects: Sequence[Subject], count: int, seed: int, names: Mapping[str, str]) -> Vectors:
    """Return at most `count` vectors of parameter sets, the same number of each. `names`: new names of parameters.

    Raise LimitError if that is too few of each, and whatever the operation raises for every input.
    """
    share = count // len(subjects)
    if share < MIN_PER_SET:
        limit = count // MIN_PER_SET
        raise LimitError(
            f"there are {len(subjects)} parameter sets, but count is {count}; give {MIN_PER_SET} vectors or "
            "more to each",
            limit=limit,
            pointer="/count",
        )
    draws = Draws(seed)
    vectors: list[Vector] = []
    formula: tuple[str, ...] = ()
    for index, subject in enumerate(checked(subjects)):
        patterns = choose(subject, share, draws)
        results, explained, formulas = subject.explained(patterns)
        formula = formula or formulas
        reasons = _reasons(subject, patterns, results, explained)
        expected = _bits(results, subject.output)
        vectors += map(Vector, [index] * len(patterns), patterns, expected, reasons, explained)
    sets = tuple(
        ParameterSet({names.get(name, name): number for name, number in subject.parameters.items()}, subject.why)
        for subject in subjects
    )
    one = subjects[0]
    reals = tuple(names.get(name, name) for name in one.parameters if name.endswith("scale"))
    widths = {names.get(name, name): _width(name, subjects) for name in one.parameters}
    return Vectors(one.input, one.output, _scale(subjects), reals, widths, formula, sets, tuple(vectors))


def _scale(subjects: Sequence[Subject]) -> FloatElement:
    """Return the type of all scales: that of the first subject, or f32 for f64 if it holds all of them."""
    element = subjects[0].scale
    scales = [number for each in subjects for name, number in each.parameters.items() if name.endswith("scale")]
    f32 = FLOATS["f32"]
    in_f32 = all(abs(scale) <= f32.largest and round_to_format(scale, f32) == scale for scale in scales)
    return f32 if element.name == "f64" and in_f32 else element


def _width(name: str, subjects: Sequence[Subject]) -> int:
    """Return the width of an integer parameter: that of its type, or the smallest that holds the values of all sets."""
    numbers = [int(each.parameters[name]) for each in subjects]
    one = subjects[0]
    fewest = 8
    if name == "multiplier":
        fewest = 32
    elif name != "shift":
        stored = one.input if name == "input_zero_point" or isinstance(one.output, FloatElement) else one.output
        fewest = stored.width
    for width in (fewest, 16, 32):
        if width >= fewest and all(-(1 << width - 1) <= number < 1 << width - 1 for number in numbers):
            return width
    return 64


def _bits(results: Array, element: Element) -> list[int]:
    """Return integers as they are, floats as their bits."""
    if isinstance(element, IntegerElement):
        numbers: list[int] = results.tolist()
        return numbers
    bits: list[int] = results.view(f"<u{results.dtype.itemsize}").tolist()
    return bits


def _reasons(
    subject: Subject, patterns: Sequence[int], results: Array, explained: Sequence[ElementExplanation]
) -> list[tuple[Reason, ...]]:
    """Return the reasons of each input, from the results computed for it and for adjacent inputs."""
    line = subject.line
    expected = _bits(results, subject.output)
    places = {line.ordinal(pattern): index for index, pattern in enumerate(patterns)}
    places.pop(None, None)
    ordinals = [ordinal for ordinal in places if ordinal is not None]
    ties = [has_tie(each) for each in explained]
    wraps = [_wraps(each) for each in explained]
    has_steps = bool(results_in_order(subject.output))
    reasons = []
    for index, (pattern, explanation) in enumerate(zip(patterns, explained, strict=True)):
        why: list[Reason] = []
        ordinal = line.ordinal(pattern)
        below, above = (None, None) if ordinal is None else (places.get(ordinal - 1), places.get(ordinal + 1))
        beside = [each for each in (below, above) if each is not None]
        if ties[index]:
            why.append(Reason.TIE)
        else:
            why += [Reason.BELOW_TIE] if above is not None and ties[above] else []
            why += [Reason.ABOVE_TIE] if below is not None and ties[below] else []
        if has_steps and any(expected[each] != expected[index] for each in beside):
            why.append(Reason.STEP_BOUNDARY)
        why += _of_bounds(subject, pattern, expected[index], explanation)
        if ordinal is not None and "input_zero_point" in subject.parameters:
            why += [Reason.ACCUMULATOR_MINIMUM] if ordinal == min(ordinals) else []
            why += [Reason.ACCUMULATOR_MAXIMUM] if ordinal == max(ordinals) else []
        if wraps[index]:
            why.append(Reason.WRAPS)
        elif any(wraps[each] for each in beside):
            why.append(Reason.BESIDE_WRAP)
        why += line.reasons(pattern)
        reasons.append(tuple(dict.fromkeys(why)) or (Reason.RANDOM,))
    return reasons


def _of_bounds(subject: Subject, pattern: int, expected: int, explanation: ElementExplanation) -> list[Reason]:
    """Return the reasons that follow from the storage type and the zero point."""
    source, target, parameters = subject.input, subject.output, subject.parameters
    if explanation.saturated is not None:
        return [Reason.SATURATES_LOW if explanation.saturated is Saturation.LOW else Reason.SATURATES_HIGH]
    reasons = []
    stored, element = (expected, target) if isinstance(target, IntegerElement) else (pattern, source)
    if isinstance(element, IntegerElement):
        lowest, highest = (
            parameters.get("storage_minimum", element.minimum),
            parameters.get("storage_maximum", element.maximum),
        )
        reasons += [Reason.STORAGE_MINIMUM] if stored == lowest else []
        reasons += [Reason.STORAGE_MAXIMUM] if stored == highest else []
    if isinstance(source, IntegerElement):
        zero_point = parameters.get("input_zero_point", parameters.get("zero_point"))
        reasons += [Reason.ZERO_POINT] if pattern == zero_point else []
    return reasons


def _wraps(explained: ElementExplanation) -> bool:
    """Return whether an intermediate result wrapped."""
    return any(step.precision == "i32" and step.step in _WRAPPING and step.unrounded for step in explained.steps)
