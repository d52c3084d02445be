"""Vectors as a C header: static const arrays, and the parameters of a single set as macros."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from requant.convert.vectors.table import Column, Kind, Table, stages_text
from requant.convert.vectors.vectors import Vectors

_INT64_MINIMUM = -(1 << 63)


def c_header(found: Vectors, title: str, about: Sequence[str]) -> str:
    """Return the header. `title`: the operation, the prefix of all identifiers; `about`: lines of the top comment."""
    table = Table.of(found)
    name = re.sub(r"[^a-z0-9]+", "_", title.lower()).strip("_")
    lines = ["/*", *(f" * {_safe(line)}".rstrip() for line in _preface(found, title, about)), " */"]
    guard = f"REQUANT_VECTORS_{name.upper()}_H"
    lines += [f"#ifndef {guard}", f"#define {guard}", "", "#include <stdint.h>", ""]
    lines.append(f"#define {name.upper()}_COUNT {len(found.vectors)}")
    lines.append(f"#define {name.upper()}_PARAMETER_SETS {len(found.sets)}")
    if len(found.sets) == 1:
        lines += [f"#define {_identifier(name, column).upper()} {_literal(column, 0)}" for column in table.parameters]
    reasons = [", ".join(each.why) for each in found.sets]
    for column in table.parameters:
        lines += _array(name, column, f"{name.upper()}_PARAMETER_SETS", reasons)
    places = Column("parameter_set", Kind.UNSIGNED, 16, table.places, "ui16")
    lines += ["", "/* The set of parameters of each vector. */", *_array(name, places, f"{name.upper()}_COUNT", ())]
    why = [", ".join(each.why) for each in found.vectors]
    if table.input.kind is Kind.FLOAT:
        why = [f"{each.explanation.input}; {said}" for each, said in zip(found.vectors, why, strict=True)]
    steps = [stages_text(each.explanation) for each in found.vectors]
    lines += _array(name, table.input, f"{name.upper()}_COUNT", why)
    lines += _array(name, table.expected, f"{name.upper()}_COUNT", steps)
    if table.stages:
        lines += [
            "",
            "/* The results of the steps; 0 where a vector has no such step, or its result is not an int64. */",
        ]
    for column in table.stages:
        lines += _array(name, column, f"{name.upper()}_COUNT", ())
    return "\n".join([*lines, "", "#endif", ""])


def _preface(found: Vectors, title: str, about: Sequence[str]) -> Iterator[str]:
    yield f"Vectors of {title}."
    yield ""
    yield from about
    yield ""
    yield "The steps of an ordinary element:"
    yield from (f"    {line}" for line in found.formula)


def _safe(text: str) -> str:
    """Return text that can neither start nor end a comment, nor continue on the next line."""
    return text.replace("*/", "* /").replace("/*", "/ *").replace("\\", "/")


def _identifier(name: str, column: Column) -> str:
    return f"{name}_{re.sub(r'[^A-Za-z0-9_]', '_', column.name)}"


def _array(name: str, column: Column, count: str, comments: Sequence[str]) -> Iterator[str]:
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
