"""docs/conformance.md, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from tests.interop.conformance.subject import Kind

_INTRODUCTION = """\
# Conformance

What was compared, bit for bit, with the real systems, running on the same inputs as Requant. `make conformance`
generates this page from the counts of the tests in `tests/interop`; it is never edited by hand. `make interop` repeats
all comparisons at every change. It fails if one bit differs, if a row of this page is no longer compared, or if a
version has changed.

- Generated on {date}, {seeds}. `make conformance MINUTES=60` repeats the tests with new seeds for an hour.
- The instruction set is that of the machine, or the one that the system was told to use. Triton's interpreter runs
  kernels for a GPU on the CPU, operation by operation.
- A difference is an element whose bits are not equal. A run with differences is not published.
- A [deliberate divergence](#deliberate-divergences) is a case where Requant does not follow the system. Its elements
  are not counted as compared.
- `GET /v1/profiles/{{name}}`, `GET /v1/schemes/{{name}}` and `GET /v1/operators/{{name}}` return the same data in
  `conformance`.
"""

_SECTIONS = {
    Kind.PROFILE: ("Profiles", "profile", "elements", ""),
    Kind.SCHEME: (
        "Requantization schemes",
        "scheme",
        "elements",
        "Described in [schemes](parameters.md#requantization-schemes).\n\n",
    ),
    Kind.OPERATOR: (
        "Operators",
        "operator",
        "elements",
        "[Operators](operators.md#deliberate-differences) lists their deliberate differences.\n\n",
    ),
    Kind.RANGES: (
        "Scale and zero point from a range",
        "rule",
        "numbers",
        "Each scale and each zero point counts as a number. "
        "[Ranges](parameters.md#range-rules) describes the rules.\n\n",
    ),
    Kind.CALIBRATION: (
        "Calibration",
        "method",
        "numbers",
        "The numbers are minimum and maximum, or scale and zero point.\n\n",
    ),
    Kind.FAKE_QUANTIZE: ("Fake quantization", "scheme", "elements", ""),
    Kind.BIAS: ("Bias", "rule", "elements", ""),
    Kind.BLOCKS: ("Block formats", "format", "elements", ""),
    Kind.CHECKPOINT: ("Checkpoints", "scheme and profile", "elements", ""),
    Kind.LOWERING: (
        "Lowering",
        "pass",
        "functions",
        "The functions lowered by both, or the results of running both modules.\n\n",
    ),
    Kind.TRANSLATION: (
        "Translation",
        "system",
        "types",
        "Types given to the system in the form that the translation produces.\n\n",
    ),
    Kind.TYPES: ("Type language", "language", "texts", ""),
}


def page(facts: Mapping[str, Any]) -> str:
    """Return docs/conformance.md for these facts."""
    seeds = _seeds(facts["seeds"])
    return "\n".join([_INTRODUCTION.format(date=facts["date"], seeds=seeds), *_sections(facts)])


def _seeds(seeds: list[int]) -> str:
    if not seeds:
        return "without seeds"
    if len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1:
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return ("seed " if len(seeds) == 1 else "seeds ") + ", ".join(map(str, seeds))


def _sections(facts: Mapping[str, Any]) -> Iterator[str]:
    for kind, rows in groupby(facts["rows"], key=lambda row: row["kind"]):
        title, name, unit, text = _SECTIONS[Kind(kind)]
        listed = list(rows)
        several = len({row["operation"] for row in listed}) > 1
        head = [
            name,
            *(["operation"] if several else []),
            "system",
            "instruction set",
            unit,
            "differences",
            "divergences",
        ]
        lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
        for row in listed:
            first = [f"`{row['name']}`" if "," not in row["name"] else row["name"]]
            first += [row["operation"]] if several else []
            lines += [f"| {' | '.join(first + cells)} |" for cells in _cells(row)]
        yield f"## {title}\n\n{text}" + "\n".join(lines) + "\n"
        reasons: dict[str, list[str]] = {}
        for row in listed:
            if not row["compared"] and "not_compared" in row:
                reasons.setdefault(row["not_compared"], []).append(
                    f"`{row['name']}`" + (f" {row['operation']}" if several else "")
                )
        if reasons:
            yield "Not compared with a running system:\n\n" + "".join(
                f"- {', '.join(names)}: {reason}\n" for reason, names in reasons.items()
            )
    yield "## Deliberate divergences\n"
    for name, reason in facts["divergences"].items():
        yield f"### {name}\n\n{reason}\n"


def _cells(row: Mapping[str, Any]) -> Iterator[list[str]]:
    if not row["compared"]:
        yield ["not compared, see below", "", "", "", ""]
    for each in row["compared"]:
        left_out = [f"[{name}](#{name}) {count:,}" for name, count in each["divergences"].items()]
        yield [
            f"{each['system']} (`{each['version'].replace(' ', '` ', 1)})",
            each["instruction_set"],
            f"{each['elements']:,}",
            f"{each['differences']:,}",
            ", ".join(left_out),
        ]
