"""Vectors as a file for SystemVerilog's $readmemh: one word per vector, with the parameters, the input and the result.

A word has the parameters in its highest bits and the expected result in its lowest ones. Numbers are in two's
complement, floats as their bits. Comments say where each field lies (IEEE 1800-2017, 21.4).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from requant.convert.vectors.table import Column, Kind, Table, stages_text
from requant.convert.vectors.vectors import Vectors


def readmemh(found: Vectors, title: str, about: Sequence[str]) -> str:
    """Return the file. `title`: the operation; `about`: lines of the top comment."""
    table = Table.of(found)
    fields = (*table.parameters, table.input, table.expected)
    width = sum(field.width for field in fields)
    lines = [f"Vectors of {title}.", "", *about, "", f"{len(found.vectors)} words of {width} bits:"]
    lines += [f"    {line}" for line in _layout(fields, width)]
    lines += ["", "The steps of an ordinary element:", *(f"    {line}" for line in found.formula)]
    text = [f"// {line}".rstrip() for line in lines]
    digits = (width + 3) // 4
    for index, vector in enumerate(found.vectors):
        word = 0
        for field in (*table.parameters,):
            word = word << field.width | field.numbers[vector.parameters] & ((1 << field.width) - 1)
        for field in (table.input, table.expected):
            word = word << field.width | field.numbers[index] & ((1 << field.width) - 1)
        why, stages = ", ".join(vector.why), stages_text(vector.explanation)
        text.append(f"{word:0{digits}x} // {index}: {vector.explanation.input}; {why}; {stages}")
    return "\n".join([*text, ""])


def _layout(fields: Sequence[Column], width: int) -> Iterator[str]:
    """Yield the part-select of each field of a word."""
    high = width - 1
    for field in fields:
        what = field.element if field.kind is Kind.FLOAT else field.kind
        yield f"[{high}:{high - field.width + 1}] {field.name} ({what})"
        high -= field.width
