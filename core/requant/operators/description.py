"""What an operator is: its names, versions, operands, results and attributes, each described once.

Protocols read these descriptions and know no operator: routes, models of the inference protocol, the catalog and the
OpenAPI document are all generated from them. To add an operator, describe it in a file of its system's
folder and list it in that folder's `__init__`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from requant.description import Choices, Option, TensorValue, Value
from requant.errors import UnsupportedError
from requant.formats.elements import FloatElement, IntegerElement
from requant.mlir.types import TensorType, Type

_BYTES_OF_ELEMENT = 16

ZERO_POINT_PER_SCALE = "One zero point per scale. Default: zeros."
"""What an operand says of zero points that may be absent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """An input or output tensor of an operator.

    `types` are the element types in MLIR's spelling, each with the version that first has it; "quantized" stands for
    every `!quant.uniform` type.
    """

    name: str
    description: str
    types: Mapping[str, int]
    optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute(Option):
    """An attribute, which is an option. `since`: the version that first has it."""

    since: int = 1


Outputs = Mapping[str, TensorValue]
Run = Callable[[], Outputs]
"""The work on arrays that a checked call stands for."""


@dataclass(frozen=True, slots=True)
class Work:
    """Work whose size the operands do not tell: elements of the outputs, multiplications, bytes of copies."""

    run: Run
    elements: int = 0
    products: int = 0
    copied: int = 0

    def working_bytes(self, inputs: Mapping[str, TensorValue]) -> int:
        """Return about how much memory a call takes beside its operands: a wide number or two for each element."""
        largest = max((tensor.data.size for tensor in inputs.values()), default=0)
        return _BYTES_OF_ELEMENT * max(largest, self.elements) + self.copied


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """A call whose names, types and attributes are those of a version. Optional attributes that are absent are None."""

    version: int
    implementation: str
    inputs: Mapping[str, TensorValue]
    attributes: Mapping[str, Value | None]

    def optional(self, name: str) -> TensorValue | None:
        """Return an optional operand, None if it is absent."""
        return self.inputs.get(name)

    def integer(self, name: str) -> int:
        """Return an attribute that is an integer and there."""
        value = self.attributes[name]
        assert isinstance(value, int)
        return value

    def number(self, name: str) -> float:
        """Return an attribute that is a number and there."""
        value = self.attributes[name]
        assert isinstance(value, (int, float))
        return float(value)

    def text(self, name: str) -> str:
        """Return an attribute that is a text and there."""
        value = self.attributes[name]
        assert isinstance(value, str)
        return value

    def boolean(self, name: str) -> bool:
        """Return an attribute that is a boolean and there."""
        value = self.attributes[name]
        assert isinstance(value, bool)
        return value

    def type(self, name: str) -> Type | None:
        """Return an attribute that is a type, None if it is absent."""
        value = self.attributes[name]
        assert value is None or isinstance(value, Type)
        return value

    def list(self, name: str) -> tuple[Any, ...] | None:
        """Return an attribute that is a list, None if it is absent."""
        value = self.attributes[name]
        if value is None:
            return None
        assert isinstance(value, Sequence)
        return tuple(value)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operator:
    """One operator of one system.

    `versions` are those in which it changed, oldest first; () for a system that has none. `last_version` is the newest
    one of the system itself. `implementations` are those that can be chosen between, the default first, and the same
    for all operators of a system. `operation` is what clients call it, where that of `name` is taken by another route.
    `plan` checks what the operator demands beyond names and types and returns the work, with its size where that does
    not follow from the operands'. `stages` are intermediate values, which a call whose attribute `trace` is true gives
    beside its outputs, as far as its arithmetic has them. `example` has the operands as JSON tensors and the
    attributes: a call that works.
    """

    system: str
    name: str
    summary: str
    source: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    implementations: Choices
    plan: Callable[[OperatorCall], Run | Work]
    example: Mapping[str, Any]
    attributes: tuple[Attribute, ...] = ()
    stages: tuple[Operand, ...] = ()
    versions: tuple[int, ...] = ()
    last_version: int = 1
    operation: str = ""
    deviations: tuple[str, ...] = field(default=())

    @property
    def full_name(self) -> str:
        """The name with the system, as models and pages have it: `onnx.QuantizeLinear`."""
        return f"{self.system}.{self.name}"

    @property
    def default_implementation(self) -> str:
        return self.implementations.values[0]

    def work_of(self, call: OperatorCall) -> Work:
        """Return what `plan` does."""
        work = self.plan(call)
        return work if isinstance(work, Work) else Work(work)

    def version_of(self, version: int) -> int:
        """Return the version of the operator that holds in a version of its system, or raise UnsupportedError."""
        if not self.versions:
            return 1
        if not self.versions[0] <= version <= self.last_version:
            raise UnsupportedError(
                f"{self.name} is there from opset {self.versions[0]} to {self.last_version}, its newest here"
            )
        return max(since for since in self.versions if since <= version)


def only_implementation(system: str) -> Choices:
    """Return the implementations of a system that has one, which is named after the system."""
    return Choices(f"{system.capitalize()}Implementation", (system,), "The only implementation of these operators.")


def empty(tensor: TensorType) -> TensorValue:
    """Return a tensor of plain elements that has none."""
    element = tensor.element
    assert isinstance(element, (IntegerElement, FloatElement))
    return TensorValue(tensor, np.empty(0, element.tensor_dtype))
