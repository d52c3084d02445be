"""Vectors as files: a table of numbers, an archive of arrays, a C header, and words for SystemVerilog's $readmemh.

The words are those of IEEE 1800-2017, 21.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from io import BytesIO

import numpy as np

from requant.convert.explain.explanation import ElementExplanation, Step
from requant.convert.vectors.subject import Array, Element
from requant.convert.vectors.vectors import Vectors
from requant.formats.elements import FLOATS, FloatElement
from requant.plan.float_arrays import COMPUTE_DTYPES, narrowed

_STAGES = frozenset(COMPUTE_DTYPES)
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
    def of(cls, vectors: Vectors) -> Table:
        """Return the table of vectors."""
        return cls(
            element_column("input", [each.input for each in vectors.vectors], vectors.input),
            element_column("expected", [each.expected for each in vectors.vectors], vectors.output),
            tuple(each.parameters for each in vectors.vectors),
            tuple(_parameters(vectors)),
            tuple(_stages([each.explanation for each in vectors.vectors])),
        )


def element_column(name: str, numbers: Sequence[int], element: Element) -> Column:
    """Return a column of stored elements."""
    if isinstance(element, FloatElement):
        return Column(name, Kind.FLOAT, element.width, tuple(numbers), element.name)
    kind = Kind.SIGNED if element.signed else Kind.UNSIGNED
    return Column(name, kind, element.width, tuple(numbers), element.name)


def real_bits(numbers: Sequence[float], element: FloatElement) -> list[int]:
    """Return the bits of numbers, rounded once to a float."""
    reals = np.array(numbers, np.float64)
    rounded = narrowed(reals, element)
    bits: list[int] = rounded.view(f"<u{rounded.dtype.itemsize}").tolist()
    return bits


def _parameters(vectors: Vectors) -> Iterator[Column]:
    """Yield a column for each parameter of the sets. All sets have the same parameters."""
    for name in vectors.sets[0].numbers:
        numbers = [each.numbers[name] for each in vectors.sets]
        if name in vectors.reals:
            element = vectors.scale
            yield Column(name, Kind.FLOAT, element.width, tuple(real_bits(numbers, element)), element.name)
        else:
            whole = [int(number) for number in numbers]
            width = vectors.widths.get(name, 64)
            yield Column(name, Kind.SIGNED, width, tuple(whole), f"i{width}")


def _stages(explained: Sequence[ElementExplanation]) -> Iterator[Column]:
    """Yield a column for each symbol whose results are integers, or floats of one type."""
    last: list[Mapping[str, Step]] = [{step.symbol: step for step in each.steps} for each in explained]
    symbols = dict.fromkeys(symbol for steps in last for symbol in steps)
    for symbol in symbols:
        results = [steps.get(symbol) for steps in last]
        types = {step.precision for step in results if step is not None}
        if types <= {"integer", "i32"}:
            yield Column(f"stage_{symbol}", Kind.SIGNED, 64, tuple(map(_integer, results)), "i64")
        elif len(types) == 1 and types <= _STAGES:
            element = FLOATS[types.pop()]
            bits = [0 if step is None or step.bits is None else int(step.bits, 16) for step in results]
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


def column_array(column: Column) -> Array:
    """Return a column as an array: floats as they are where numpy has them, else their bits."""
    if column.kind is not Kind.FLOAT:
        sign = "i" if column.kind is Kind.SIGNED else "u"
        return np.array(column.numbers, f"<{sign}{column.container // 8}")
    bits = np.array(column.numbers, f"<u{column.container // 8}")
    return bits.view(FLOATS[column.element].tensor_dtype) if column.element in COMPUTE_DTYPES else bits


def npz(vectors: Vectors, about: Mapping[str, str]) -> bytes:
    """Return an archive of arrays: an entry for each vector, or for each set of parameters; and texts `about` them."""
    table = Table.of(vectors)
    arrays = {column.name: column_array(column) for column in (table.input, table.expected, *table.stages)}
    arrays["parameter_set"] = np.array(table.places, "<i4")
    arrays["why"] = np.array([",".join(each.why) for each in vectors.vectors])
    arrays |= {f"parameter_{column.name}": column_array(column) for column in table.parameters}
    arrays["parameter_why"] = np.array([",".join(each.why) for each in vectors.sets])
    arrays["formula"] = np.array(vectors.formula)
    arrays |= {name: np.array(text) for name, text in about.items()}
    file = BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]  # no array is named allow_pickle
    return file.getvalue()


_INT64_MINIMUM = -(1 << 63)


def identifier_of(*words: str) -> str:
    """Return words as the prefix of identifiers: tosa.RESCALE is tosa_rescale."""
    return re.sub(r"[^a-z0-9]+", "_", " ".join(words).lower()).strip("_")


def c_header(vectors: Vectors, title: str, about: Sequence[str], *, name: str = "") -> str:
    """Return the header. `title`: the operation; `about`: lines of the top comment; `name`: the prefix of all
    identifiers, that of the operation if it is empty."""
    table = Table.of(vectors)
    name = name or identifier_of(title)
    lines = ["/*", *(f" * {_safe(line)}".rstrip() for line in _preface(vectors, title, about)), " */"]
    guard = f"REQUANT_VECTORS_{name.upper()}_H"
    lines += [f"#ifndef {guard}", f"#define {guard}", "", "#include <stdint.h>", ""]
    lines.append(f"#define {name.upper()}_COUNT {len(vectors.vectors)}")
    lines.append(f"#define {name.upper()}_PARAMETER_SETS {len(vectors.sets)}")
    if len(vectors.sets) == 1:
        lines += [f"#define {_identifier(name, column).upper()} {_literal(column, 0)}" for column in table.parameters]
    reasons = [", ".join(each.why) for each in vectors.sets]
    for column in table.parameters:
        lines += c_array(name, column, f"{name.upper()}_PARAMETER_SETS", reasons)
    places = Column("parameter_set", Kind.UNSIGNED, 16, table.places, "ui16")
    lines += ["", "/* The set of parameters of each vector. */", *c_array(name, places, f"{name.upper()}_COUNT", ())]
    why = [", ".join(each.why) for each in vectors.vectors]
    if table.input.kind is Kind.FLOAT:
        why = [f"{each.explanation.input}; {reason}" for each, reason in zip(vectors.vectors, why, strict=True)]
    steps = [stages_text(each.explanation) for each in vectors.vectors]
    lines += c_array(name, table.input, f"{name.upper()}_COUNT", why)
    lines += c_array(name, table.expected, f"{name.upper()}_COUNT", steps)
    if table.stages:
        lines += [
            "",
            "/* The results of the steps; 0 where a vector has no such step, or its result is not an int64. */",
        ]
    for column in table.stages:
        lines += c_array(name, column, f"{name.upper()}_COUNT", ())
    return "\n".join([*lines, "", "#endif", ""])


def _preface(vectors: Vectors, title: str, about: Sequence[str]) -> Iterator[str]:
    yield f"Vectors of {title}."
    yield ""
    yield from about
    yield ""
    yield "The steps of an ordinary element:"
    yield from (f"    {line}" for line in vectors.formula)


def _safe(text: str) -> str:
    """Return text that can neither start nor end a comment, nor continue on the next line."""
    return text.replace("*/", "* /").replace("/*", "/ *").replace("\\", "/")


def _identifier(name: str, column: Column) -> str:
    return f"{name}_{re.sub(r'[^A-Za-z0-9_]', '_', column.name)}"


def c_array(name: str, column: Column, count: str, comments: Sequence[str]) -> Iterator[str]:
    """Yield the lines of an array in C."""
    sign = "int" if column.kind is Kind.SIGNED else "uint"
    yield ""
    if column.kind is Kind.FLOAT:
        yield f"/* Bits of {column.element}. */"
    yield f"static const {sign}{column.container}_t {_identifier(name, column)}[{count}] = {{"
    for index in range(len(column.numbers)):
        comment = f" /* {index}: {_safe(comments[index])} */" if comments else ""
        yield f"    {_literal(column, index)},{comment}"
    yield "};"


def _literal(column: Column, index: int) -> str:
    number = column.numbers[index]
    if column.kind is Kind.SIGNED:
        if number == _INT64_MINIMUM:
            return f"(-INT64_C({-(number + 1)}) - 1)"
        return f"INT{column.container}_C({number})"
    if column.kind is Kind.UNSIGNED:
        return f"UINT{column.container}_C({number})"
    return f"UINT{column.container}_C(0x{number:0{(column.width + 3) // 4}x})"


def readmemh(vectors: Vectors, title: str, about: Sequence[str]) -> str:
    """Return a file of words, one for each vector. `title`: the operation; `about`: lines of the top comment.

    A word has the parameters in its highest bits and the expected result in its lowest ones. Numbers are in two's
    complement, floats as their bits. Comments say where each field lies.
    """
    table = Table.of(vectors)
    fields = (*table.parameters, table.input, table.expected)
    width = sum(field.width for field in fields)
    lines = [f"Vectors of {title}.", "", *about, "", f"{len(vectors.vectors)} words of {width} bits:"]
    lines += [f"    {line}" for line in _layout(fields, width)]
    lines += ["", "The steps of an ordinary element:", *(f"    {line}" for line in vectors.formula)]
    text = [f"// {line}".rstrip() for line in lines]
    digits = (width + 3) // 4
    for index, vector in enumerate(vectors.vectors):
        word = 0
        for field in (*table.parameters,):
            word = word << field.width | field.numbers[vector.parameters] & ((1 << field.width) - 1)
        for field in (table.input, table.expected):
            word = word << field.width | field.numbers[index] & ((1 << field.width) - 1)
        why, stages = ", ".join(vector.why), stages_text(vector.explanation)
        text.append(f"{word:0{digits}x} // {index}: {vector.explanation.input}; {why}; {stages}")
    return "\n".join([*text, ""])


def hexadecimal_words(column: Column) -> Iterator[str]:
    """Yield each number of a column as a word of its width."""
    digits = (column.width + 3) // 4
    yield from (f"{each & ((1 << column.width) - 1):0{digits}x}" for each in column.numbers)


def _layout(fields: Sequence[Column], width: int) -> Iterator[str]:
    """Yield the part-select of each field of a word."""
    high = width - 1
    for field in fields:
        what = field.element if field.kind is Kind.FLOAT else field.kind
        yield f"[{high}:{high - field.width + 1}] {field.name} ({what})"
        high -= field.width
