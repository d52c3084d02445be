"""Vectors as a table, for files: columns of numbers of a given width, one entry per vector or per parameter set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from requant.convert.explain.explanation import ElementExplanation, Step
from requant.convert.vectors.subject import Element
from requant.convert.vectors.vectors import Vectors
from requant.formats.elements import FLOATS, FloatElement
from requant.plan.lanes import LANES, narrowed

_STAGES = frozenset(LANES)
_INT64 = (-(1 << 63), (1 << 63) - 1)


class Kind(StrEnum):
    """The kind of numbers in a column."""

    SIGNED = "signed"
    UNSIGNED = "unsigned"
    FLOAT = "float"
    """The bits of floats."""


@dataclass(frozen=True, slots=True)
class Column:
    """Numbers of `width` bits: integers, or the bits of floats of `element`."""

    name: str
    kind: Kind
    width: int
    numbers: tuple[int, ...]
    element: str

    @property
    def container(self) -> int:
        """The width of the integer that holds one: 8, 16, 32 or 64."""
        return next(width for width in (8, 16, 32, 64) if self.width <= width)


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of all vectors and of all sets.

    `places` says which set a vector belongs to. `stages` are the results of steps by their symbols, 0 where a vector
    has no such step, or its result is not an int64; of a symbol that has several results it is the last.
    """

    input: Column
    expected: Column
    places: tuple[int, ...]
    parameters: tuple[Column, ...]
    stages: tuple[Column, ...]

    @classmethod
    def of(cls, found: Vectors) -> Table:
        """Return the table of vectors."""
        return cls(
            element_column("input", [each.input for each in found.vectors], found.input),
            element_column("expected", [each.expected for each in found.vectors], found.output),
            tuple(each.parameters for each in found.vectors),
            tuple(_parameters(found)),
            tuple(_stages([each.explanation for each in found.vectors])),
        )


def element_column(name: str, numbers: Sequence[int], element: Element) -> Column:
    """Return a column of stored elements."""
    if isinstance(element, FloatElement):
        return Column(name, Kind.FLOAT, element.width, tuple(numbers), element.name)
    kind = Kind.SIGNED if element.signed else Kind.UNSIGNED
    return Column(name, kind, element.width, tuple(numbers), element.name)


def real_bits(numbers: Sequence[float], element: FloatElement) -> list[int]:
    """Return the bits of numbers, rounded once to a float."""
    lanes = np.array(numbers, np.float64)
    rounded = narrowed(lanes, element)
    bits: list[int] = rounded.view(f"<u{rounded.dtype.itemsize}").tolist()
    return bits


def _parameters(found: Vectors) -> Iterator[Column]:
    """Yield a column for each parameter of the sets. All sets have the same parameters."""
    for name in found.sets[0].numbers:
        numbers = [each.numbers[name] for each in found.sets]
        if name in found.reals:
            element = found.scale
            yield Column(name, Kind.FLOAT, element.width, tuple(real_bits(numbers, element)), element.name)
        else:
            whole = [int(number) for number in numbers]
            width = found.widths.get(name, 64)
            yield Column(name, Kind.SIGNED, width, tuple(whole), f"i{width}")


def _stages(explained: Sequence[ElementExplanation]) -> Iterator[Column]:
    """Yield a column for each symbol whose results are integers, or floats of one type."""
    last: list[Mapping[str, Step]] = [{step.symbol: step for step in each.steps} for each in explained]
    symbols = dict.fromkeys(symbol for steps in last for symbol in steps)
    for symbol in symbols:
        found = [steps.get(symbol) for steps in last]
        types = {step.precision for step in found if step is not None}
        if types <= {"integer", "i32"}:
            yield Column(f"stage_{symbol}", Kind.SIGNED, 64, tuple(map(_integer, found)), "i64")
        elif len(types) == 1 and types <= _STAGES:
            element = FLOATS[types.pop()]
            bits = [0 if step is None or step.bits is None else int(step.bits, 16) for step in found]
            yield Column(f"stage_{symbol}", Kind.FLOAT, element.width, tuple(bits), element.name)


def _integer(step: Step | None) -> int:
    """Return the result of a step if it is an int64, else 0: it may be an infinity, or have any number of digits."""
    if step is None or not step.value.lstrip("-").isdigit():
        return 0
    number = int(step.value)
    return number if _INT64[0] <= number <= _INT64[1] else 0


def stages_text(explained: ElementExplanation) -> str:
    """Return the steps in one line: each symbol with its result."""
    return ", ".join(f"{step.symbol} = {step.value}" for step in explained.steps)
