"""`python -m requant_service.profile_pages`: write docs/profiles/, a page for each profile, and docs/coverage.md.

They are made of the catalogs, of explained examples, of what was compared with the real systems and of the errata that
name a profile. The pages are checked in, and a test compares them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import requant
from requant.errors import RequantError
from requant.errors.names import UNCOVERED
from requant.operation_reference import table
from requant.profiles import PROFILES
from requant_service.json_api.catalog.conformance import Conformance, facts
from requant_service.json_api.catalog.profiles import (
    CastRule,
    OperationRule,
    ProductRule,
    Profile,
    conforming_profile_page,
)

_DOCS = Path(__file__).parents[2] / "docs"
_WRITTEN = "<!-- Written by `python -m requant_service.profile_pages`. -->"

# What a rule says, in the words of the page.
_SAID = {
    "formula": "formula",
    "quotient": "quotient",
    "precision": "precision",
    "rounding": "rounding",
    "zero_point": "zero point",
    "saturation": "saturation",
    "nan": "NaN",
    "scheme": "scheme",
    "difference": "difference",
    "expressed": "expressed types",
    "storages": "storage types",
    "granularities": "granularities",
    "pairs": "pairs of storage types",
    "symmetric": "zero points must be 0",
}
_ABOUT = {
    "quantize": ("formula", "quotient", "precision", "rounding", "zero_point", "saturation", "nan"),
    "dequantize": ("formula", "difference", "precision", "rounding", "nan"),
    "requantize": ("formula", "precision", "rounding", "zero_point", "saturation", "scheme", "pairs"),
}
_TYPES = ("expressed", "storages", "granularities", "symmetric")

_EXAMPLES = {
    "quantize": (np.array([0.25], np.float32), {"output_type": "!quant.uniform<i8:f32, 0.1:3>"}),
    "dequantize": (np.array([5], np.int8), {"input_type": "!quant.uniform<i8:f32, 0.1:3>"}),
    # A negative tie, at which schemes differ.
    "requantize": (
        np.array([-80], np.int32),
        {"input_type": "!quant.uniform<i32:f32, 0.03125>", "output_type": "!quant.uniform<i8:f32, 1.0:3>"},
    ),
}
_CAST_EXAMPLE = (np.array([0.2], np.float32), {"output_type": "f8E4M3FN"})


def _words(value: str | list[str], name: str) -> str:
    if isinstance(value, list):
        return ", ".join(f"`{each}`" for each in value)
    if name in ("formula", "scheme"):
        return f"`{value}`"
    return value.replace("_", " ") if name in ("rounding", "zero_point") else value


def _rule(operation: str, rule: OperationRule) -> Iterator[str]:
    said = rule.model_dump()
    shown = (*_ABOUT[operation], *_TYPES)
    yield from ("", *(f"- {_SAID[name]}: {_words(said[name], name)}" for name in shown if said[name]))
    if not rule.variants:
        return
    names: dict[str, list[str]] = {}
    for name, variant in rule.variants.items():
        other = variant.model_dump()
        changed = (each for each in shown if other[each] and other[each] != said[each])
        different = "\n".join(f"- {_SAID[each]}: {_words(other[each], each)}" for each in changed)
        names.setdefault(different, []).append(f"`{name}`")
    for different, listed in names.items():
        yield from ("", f"For {', '.join(listed)} instead:", "", different)


def _example(operation: str, profile: str, example: tuple[Any, dict[str, Any]]) -> Iterator[str]:
    """The steps of one element, or nothing where the profile does not define what the example needs."""
    values, arguments = example
    try:
        _, report = getattr(requant, f"explain_{operation}")(values, profile=profile, return_report=True, **arguments)
    except RequantError:
        return
    (element,) = report["elements"]
    words = {"input_type": "of", "output_type": "to"}
    types = " ".join(f"{words[name]} `{text}`" for name, text in arguments.items())
    yield from ("", f"For example {element['input']} {types}:")
    yield from table(
        "step | formula | with these numbers | result",
        (
            (
                step["step"].replace("_", " "),
                f"`{step['symbol']} = {step['formula']}`",
                f"`{step['inserted']}`",
                f"{step['value']}{', a tie' if step.get('tie') else ''}",
            )
            for step in element["steps"]
        ),
    )


def _products(products: Mapping[str, ProductRule]) -> Iterator[str]:
    rows = []
    for name, rule in products.items():
        for variant, each in {"": rule, **rule.variants}.items():
            scheme = f"`{each.scheme}`" if each.scheme else "dequantized and quantized"
            rows.append((f"{name} {variant}".strip(), each.operator, scheme, each.factor, each.overflow))
    yield from ("", "## Products")
    yield from table("operation | operator of the system | sums are scaled by | factor | overflow of i32", rows)
    if any("undelegated" in row[0] for row in rows):
        yield from ("", "`undelegated` is what XNNPACK does not take, and LiteRT's own kernels compute.")


def _casts(rule: CastRule) -> Iterator[str]:
    yield from ("", "## Casts", "", f"Where the formats leave a choice, {rule.authority} is followed.")
    said = {
        "formula": rule.formula,
        "f64": rule.f64,
        "saturation": rule.saturation,
        "NaN": rule.nan,
        "to f8E8M0FNU": rule.scale,
        "notes": rule.notes,
        "from": ", ".join(f"`{each}`" for each in rule.sources),
    }
    yield from ("", *(f"- {name}: {text}" for name, text in said.items() if text))
    yield from ("", "The codes of what is beyond a format, or no number:")
    yield from table("to | largest | overflow | infinity | NaN | -0 | roundings",
        (
            (
                f"`{each.type}`", each.largest, each.codes.overflow, each.codes.infinity, each.codes.nan,
                each.codes.negative_zero, ", ".join(text.replace("_", " ") for text in each.roundings),
            )
            for each in rule.formats
        ),
    )  # fmt: skip


def _compared(conformance: Mapping[str, Conformance]) -> Iterator[str]:
    yield from ("", "## Compared with the system")
    yield from table("operation | system | instruction set | elements | deliberate divergences",
        (
            (
                operation, f"{each.system} (`{each.version}`)", each.instruction_set, f"{each.elements:,}",
                ", ".join(f"[{one.name}](../conformance.md#{one.name}) {one.elements:,}" for one in each.divergences),
            )
            for operation, rows in conformance.items()
            for each in rows.compared
        ),
    )  # fmt: skip
    missing = {name: rows.not_compared for name, rows in conformance.items() if rows.not_compared}
    if missing:
        yield from ("", "Not compared with a running system:", "")
        yield from (f"- {name}: {reason}" for name, reason in missing.items())


def _errata() -> dict[str, list[tuple[str, str]]]:
    """Return the anchors and titles of the errata that call each profile."""
    text = (_DOCS / "errata.md").read_text(encoding="utf-8")
    titles = dict(re.findall(r"^\| \[([\w-]+)\]\(#.*\| (.*) \|$", text, re.MULTILINE))
    found: dict[str, list[tuple[str, str]]] = {}
    for entry in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        anchor = entry.split("\n", 1)[0]
        for name in PROFILES:
            if re.search(rf"""["'`]{name}["'`]""", entry):
                found.setdefault(name, []).append((anchor, titles[anchor]))
    return found


_HOW_COMPARED = {
    "mlir": (
        "IREE compiles and runs the text of Requant's own [lowering](../lowering.md), which is compared with that of "
        "MLIR's pass separately; inputs whose conversion is poison are left out.",
    )
}


def profile_page(profile: Profile, errata: Iterable[tuple[str, str]]) -> str:
    """Return the page of a profile."""

    def lines() -> Iterator[str]:
        yield from (f"# {profile.title}", "", _WRITTEN, "", f"Profile `{profile.name}`. {profile.summary}")
        yield from ("", f"It follows {profile.source}.")
        for each in profile.equals:
            yield f"It equals {each.system}, `{each.package}` {', '.join(each.versions)}, deliberate divergences aside."
        yield from _HOW_COMPARED.get(profile.name, ())
        for operation, rule in profile.operations.items():
            yield from ("", f"## {operation.capitalize()}", *_rule(operation, rule))
            yield from _example(operation, profile.name, _EXAMPLES[operation])
        if profile.products:
            yield from _products(profile.products)
        if profile.add is not None:
            by = f", with multipliers of scheme `{profile.add.scheme}`" if profile.add.scheme else ""
            yield from ("", "## Add", "", f"{profile.add.operator}: {profile.add.addition.replace('_', ' ')}{by}.")
        if profile.casts is not None:
            yield from _casts(profile.casts)
            yield from _example("quantize", profile.name, _CAST_EXAMPLE)
        yield from _compared(profile.conformance)
        if errata:
            yield from ("", "## Errata that it appears in", "")
            yield from (f"- [{title}](../errata.md#{anchor})" for anchor, title in errata)

    return "\n".join(lines()) + "\n"


# By system: the title of its section, and what its name does not say.
_NOTES = {
    "ExecuTorch": (
        "CMSIS-NN, in ExecuTorch",
        "Its Python model of CMSIS-NN. Recorded outputs of CMSIS-NN's own portable C, with one rounding and with two, "
        "are compared too: `cmsis_nn_single_rounding`, `cmsis_nn_int64`.",
    ),
    "Vela": (
        "Ethos-U, by Vela",
        "Multipliers and shifts only. What the NPU makes of them is from Arm's description: no package runs it. Vela "
        "gives int8 convolutions TFL rounding, which is scheme `litert`.",
    ),
}

_COVERAGE = f"""# Is my system covered?

{_WRITTEN}

The systems that Requant was compared with bit for bit, their versions, and what their arithmetic is called here.
[Conformance](conformance.md) has the operations, the instruction sets and the counts.

A system that is not listed may compute as one that is: [identify](identify.md) says which rules give the outputs that
you observed, and at which step each of the others diverges.
"""


def coverage_page() -> str:
    """Return the page that lists the real systems, with what has the arithmetic of each."""
    systems: dict[str, tuple[set[str], dict[str, list[str]]]] = {}
    for row in facts()["rows"]:
        for each in row["compared"]:
            versions, names = systems.setdefault(each["system"], (set(), {}))
            versions.add(f"`{each['version']}`")
            listed = names.setdefault(row["kind"].replace("_", " "), [])
            # Of a checkpoint: the scheme, and the profile that it is converted by.
            name = row["name"].split(", ")[0]
            if name not in listed:
                listed.append(name)
    lines = [_COVERAGE]
    for system, (versions, names) in sorted(systems.items(), key=lambda each: each[0].lower()):
        title, note = _NOTES.get(system, (system, ""))
        lines += [f"## {title}", "", f"{', '.join(sorted(versions))}. {note}".rstrip(), ""]
        for kind, listed in names.items():
            shown = (f"[`{name}`](profiles/{name}.md)" if kind == "profile" else f"`{name}`" for name in listed)
            lines.append(f"- {kind}: {', '.join(shown)}")
        lines.append("")
    missing = ", ".join(sorted(set(UNCOVERED.values()), key=str.lower))
    return "\n".join([*lines, "## Not covered", "", f"Never compared: {missing}.", ""])


def pages() -> dict[Path, str]:
    """Return the texts of all pages, by their paths in docs/."""
    errata = _errata()
    found = {Path("coverage.md"): coverage_page()}
    for name in PROFILES:
        found[Path("profiles", f"{name}.md")] = profile_page(conforming_profile_page(name), errata.get(name, []))
    return found


def main() -> None:
    """Write the pages."""
    for path, text in pages().items():
        (_DOCS / path).parent.mkdir(exist_ok=True)
        (_DOCS / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
