"""`python -m requant.function_stubs`: write functions.pyi, which tells editors and type checkers of the functions.

They are made from the descriptions of operations; the file is checked in, and a test compares it.
"""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path

from requant.description import Kind, Operation, Option
from requant.functions import documentation_of, signature_of
from requant.operations import OPERATIONS

STUBS = Path(__file__).with_name("functions.pyi")

_HEAD = """# Written by `python -m requant.function_stubs` from the descriptions of operations.
from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

from numpy.typing import ArrayLike, NDArray

from requant.mlir.types import Type
"""
_REST = """def run_operation(
    operation: Operation, arrays: Mapping[str, ArrayLike], types: Mapping[str, Any], options: Mapping[str, Any]
) -> Result: ...
def read_option(option: Option, value: Any) -> Any: ...
def options_of(operation: Operation) -> list[Option]: ...
def array_of(value: TensorValue) -> NDArray[Any]: ...
def report_of(operation: Operation, result: Result) -> dict[str, Any]: ...
def function_of(operation: Operation) -> Callable[..., Any]: ...
def signature_of(operation: Operation) -> Signature: ...
def documentation_of(operation: Operation) -> str: ...
"""
_KINDS = {
    Kind.BOOLEAN: "bool",
    Kind.INTEGER: "int",
    Kind.NUMBER: "float",
    Kind.TEXT: "str",
    Kind.INTEGERS: "Sequence[int]",
    Kind.NUMBERS: "Sequence[float]",
    Kind.TYPE: "str | Type",
}


def _annotation(operation: Operation, name: str) -> str:
    for tensor in operation.inputs:
        if name == tensor.name:
            return "ArrayLike | None" if tensor.optional else "ArrayLike"
        if name == tensor.type_option:
            return "str | Type | None"
    return _kind(operation.option(name))


def _kind(option: Option) -> str:
    if option.choices is not None and option.choices.enumeration is not None:
        kind = f"Literal[{', '.join(repr(each) for each in map(str, option.choices.values))}]"
    else:
        kind = _KINDS[option.kind]
    return f"{kind} | None" if option.optional else kind


def _overload(operation: Operation, *, reported: bool) -> str:
    lines, keywords = [], False
    for parameter in signature_of(operation).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not keywords:
            keywords = True
            lines.append("    *,")
        if parameter.name == "return_report":
            continue
        default = "" if parameter.default is inspect.Parameter.empty else " = ..."
        lines.append(f"    {parameter.name}: {_annotation(operation, parameter.name)}{default},")
    arrays = ", ".join(["NDArray[Any]"] * len(operation.outputs))
    if reported:
        lines.append("    return_report: Literal[True],")
        result = f"tuple[{arrays}, Mapping[str, Any]]"
    else:
        lines.append("    return_report: Literal[False] = ...,")
        result = arrays if len(operation.outputs) == 1 else f"tuple[{arrays}]"
    return "\n".join(["@overload", f"def {operation.name}(", *lines, f") -> {result}:"])


def stubs() -> str:
    """Return the text of functions.pyi."""
    listed = ", ".join(f'"{name}"' for name in OPERATIONS)
    parts = [_HEAD, f"__all__ = [{listed}]\n"]
    for operation in OPERATIONS.values():
        said = textwrap.indent(f'"""{documentation_of(operation)}\n"""', "    ")
        parts.append(f"{_overload(operation, reported=False)}\n{said}\n")
        parts.append(f"{_overload(operation, reported=True)} ...\n")
    # What the module itself has.
    parts.append(_REST)
    return "\n".join(parts)


if __name__ == "__main__":
    STUBS.write_text(stubs())
