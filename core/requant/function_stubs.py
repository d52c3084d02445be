"""`python -m requant.function_stubs`: write functions.pyi, which tells editors and type checkers of the functions.

They are made from the descriptions of operations; the file is checked in, and a test compares it.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Sequence
from pathlib import Path

from requant.description import Kind, Operation, Option, TensorInput
from requant.functions import DESCRIBED, documentation_of, gives_tensors, has_report, public_name, signature_of
from requant.operations.operators import operation_of
from requant.operators.registry import OPERATORS

STUBS = Path(__file__).with_name("functions.pyi")

_HEAD = """# Written by `python -m requant.function_stubs` from the descriptions of operations and operators.
from collections.abc import Callable, Mapping, Sequence
from inspect import Signature
from typing import Any, Literal, overload

from numpy.typing import ArrayLike, NDArray

from requant.description import Operation, Option, Result, TensorValue
from requant.mlir.types import Type

DESCRIBED: Mapping[str, Operation]
FUNCTIONS: Mapping[str, Callable[..., Any]]
SYSTEMS: Mapping[str, Any]
"""
_REST = """def run_operation(
    operation: Operation, arrays: Mapping[str, Any], types: Mapping[str, Any], options: Mapping[str, Any]
) -> Result: ...
def gives_tensors(operation: Operation) -> bool: ...
def has_report(operation: Operation) -> bool: ...
def read_option(option: Option, value: Any) -> Any: ...
def options_of(operation: Operation) -> list[Option]: ...
def array_of(value: TensorValue) -> NDArray[Any]: ...
def report_of(operation: Operation, result: Result) -> dict[str, Any]: ...
def file_of(operation: Operation, form: str, file: bytes) -> str | bytes: ...
def function_of(operation: Operation) -> Callable[..., Any]: ...
def signature_of(operation: Operation) -> Signature: ...
def documentation_of(operation: Operation) -> str: ...
def requirements_of(operation: Operation) -> list[str]: ...
def public_name(operator: str) -> str: ...
"""
_KINDS = {
    Kind.BOOLEAN: "bool",
    Kind.INTEGER: "int",
    Kind.NUMBER: "float",
    Kind.TEXT: "str",
    Kind.INTEGERS: "Sequence[int]",
    Kind.NUMBERS: "Sequence[float]",
    Kind.TEXTS: "Sequence[str]",
    Kind.NUMBER_OR_TEXT: "str | float",
    Kind.TYPE: "str | Type",
    Kind.TENSOR_TYPE: "str | Type",
    Kind.GROUP: "Mapping[str, Any]",
}


def _annotation(operation: Operation, name: str) -> str:
    if operation.calls is not None and name == operation.calls.name:
        return "Sequence[Mapping[str, Any]]"
    for given in operation.arguments:
        if name == given.name:
            several = isinstance(given, TensorInput) and given.several
            kind = "ArrayLike | Sequence[NDArray[Any]]" if several else "ArrayLike"
            return f"{kind} | None" if given.optional else kind
    for tensor in operation.tensors:
        if name == tensor.type_option:
            return "str | Type | None"
    return _kind(operation.option(name))


def _kind(option: Option) -> str:
    if option.choices is not None and option.choices.enumeration is not None:
        kind = f"Literal[{', '.join(repr(each) for each in map(str, option.choices.values))}]"
        if option.kind is Kind.TEXTS:
            kind = f"Sequence[{kind}]"
    else:
        kind = _KINDS[option.kind]
    return f"{kind} | None" if option.optional else kind


def _arguments(operation: Operation) -> list[str]:
    lines, keywords = [], False
    for parameter in signature_of(operation).parameters.values():
        if parameter.name == "return_report":
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not keywords:
            keywords = True
            lines.append("*,")
        default = "" if parameter.default is inspect.Parameter.empty else " = ..."
        lines.append(f"{parameter.name}: {_annotation(operation, parameter.name)}{default},")
    return lines


def _function(
    name: str, operation: Operation, heads: Sequence[str], more: Sequence[str], result: str, said: str
) -> str:
    arguments = textwrap.indent("\n".join([*more[:1], *_arguments(operation), *more[1:]]), "    ")
    body = "" if said else " ..."
    text = "\n".join([*heads, f"def {name}(", arguments, f") -> {result}:{body}"])
    return f"{text}\n{textwrap.indent(said, '    ')}\n" if said else f"{text}\n"


def _stub(operation: Operation) -> str:
    """Return an operation of our own, with and without its report."""
    name, said = operation.name, f'"""{documentation_of(operation)}\n"""'
    if not gives_tensors(operation):
        result = "dict[str, Any] | str | bytes" if operation.files else "dict[str, Any]"
        return _function(name, operation, [], [], result, said)
    return _giving_arrays(name, operation, [], [], said)


def _giving_arrays(name: str, operation: Operation, heads: Sequence[str], more: Sequence[str], said: str) -> str:
    """Return an operation whose results are arrays, with and without its report if it has one."""
    plain = _arrays(operation)
    if not has_report(operation):
        return _function(name, operation, heads, more, plain, said)
    heads, more = ["@overload", *heads], more or [""]
    reported = f"tuple[{_listed_arrays(operation)}, Mapping[str, Any]]"
    return "\n".join(
        [
            _function(name, operation, heads, [*more, "return_report: Literal[False] = ...,"], plain, said),
            _function(name, operation, heads, [*more, "return_report: Literal[True],"], reported, ""),
        ]
    )


def _listed_arrays(operation: Operation) -> str:
    return ", ".join(["NDArray[Any]"] * len(operation.outputs))


def _arrays(operation: Operation) -> str:
    arrays = _listed_arrays(operation)
    return arrays if len(operation.outputs) == 1 else f"tuple[{arrays}]"


class _Node:
    """A name of an operator: what it calls, and what is below it."""

    def __init__(self) -> None:
        self.operation: Operation | None = None
        self.below: dict[str, _Node] = {}

    def stub(self, name: str) -> str:
        """Return a function, or a class that stands for a namespace or for a function with overloads."""
        if not self.below:
            return self._call(name, ["@staticmethod"], [])
        parts = [node.stub(below) for below, node in self.below.items()]
        if self.operation is not None:
            parts.insert(0, self._call("__call__", [], ["self,"]))
        inside = textwrap.indent("\n".join(parts), "    ")
        return f"class _{name}:\n{inside}\n{name}: _{name}\n"

    def _call(self, name: str, heads: list[str], more: list[str]) -> str:
        assert self.operation is not None
        said = f'"""{documentation_of(self.operation)}\n"""'
        return _giving_arrays(name, self.operation, heads, more, said)


def _systems() -> _Node:
    root = _Node()
    for name, operator in OPERATORS.items():
        node = root
        for step in public_name(name).split("."):
            node = node.below.setdefault(step, _Node())
        node.operation = operation_of(operator)
    return root


def stubs() -> str:
    """Return the text of functions.pyi."""
    systems = _systems().below
    listed = ", ".join(f'"{name}"' for name in (*DESCRIBED, *systems))
    parts = [_HEAD, f"__all__ = [{listed}]\n", *map(_stub, DESCRIBED.values())]
    parts += [node.stub(name) for name, node in systems.items()]
    lines = "\n".join([*parts, _REST]).split("\n")
    return "\n".join(line.rstrip() for line in lines)


if __name__ == "__main__":
    STUBS.write_text(stubs())
