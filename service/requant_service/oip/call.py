"""One call of a model, as the model sees it: no JSON, no blobs, no HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from requant.errors import FieldFault, InvalidRequestError, default_pointer
from requant.mlir.types import TensorType, Type
from requant.plan.operands import bind
from requant_service.oip.parameters import LARGEST_INTEGER, Value, pointer_to, read_list
from requant_service.oip.tensors import InputTensor
from requant_service.operations.types import read_query_type, read_type
from requant_service.runtime.settings import Settings

Choice = TypeVar("Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Call:
    """The tensors of a request by name, and every parameter of the model: None for one that is optional and absent."""

    version: str
    inputs: Mapping[str, InputTensor]
    parameters: Mapping[str, Value | None]
    settings: Settings
    in_query: bool = False
    """Whether the parameters are those of a query."""

    @property
    def characters(self) -> int:
        """About how many characters of types the call has: texts, and tensors beside the first, which may be scales."""
        texts = sum(len(value) for value in self.parameters.values() if isinstance(value, str))
        return texts + sum(tensor.data.nbytes for tensor in list(self.inputs.values())[1:]) // 2

    def several(self, name: str) -> list[InputTensor]:
        """Return the tensors of a variadic input in their order."""
        if name in self.inputs:
            return [self.inputs[name]]
        numbered = (self.inputs.get(f"{name}_{index}") for index in range(len(self.inputs)))
        return [tensor for tensor in numbered if tensor is not None]

    def has(self, name: str) -> bool:
        """Return whether a parameter is there."""
        return self.parameters[name] is not None

    def text(self, name: str) -> str:
        """Return a parameter that is a text and there."""
        value = self.parameters[name]
        assert isinstance(value, str)
        return value

    def integer(self, name: str) -> int:
        """Return a parameter that is an integer and there."""
        value = self.parameters[name]
        assert isinstance(value, int)
        return value

    def boolean(self, name: str) -> bool | None:
        """Return a parameter that is a boolean, None if it is absent."""
        value = self.parameters[name]
        assert value is None or isinstance(value, bool)
        return value

    def number(self, name: str) -> float | None:
        """Return a parameter that is a number, None if it is absent."""
        value = self.parameters[name]
        assert value is None or isinstance(value, float)
        return value

    def integers(self, name: str, lowest: int = 0) -> tuple[int, ...] | None:
        """Return a parameter that is a list of integers from `lowest` to 2^63 - 1, None if it is absent.

        Raise InvalidRequestError.
        """
        if not self.has(name):
            return None
        members = read_list(name, self.text(name), int)
        for index, member in enumerate(members):
            if not lowest <= member <= LARGEST_INTEGER:
                detail = f"member {index} is not from {lowest} to {LARGEST_INTEGER}"
                raise InvalidRequestError.of_field(pointer_to(name), "out_of_range", detail)
        return tuple(members)

    def choice(self, name: str, choices: type[Choice]) -> Choice:
        """Return the member of an enumeration that a parameter names, or raise InvalidRequestError."""
        value = self.text(name)
        if value not in tuple(choices):
            detail = f"not one of {', '.join(choices)}"
            raise InvalidRequestError(f"parameter {name}: {detail}", (FieldFault(pointer_to(name), "enum", detail),))
        return choices(value)

    def type(self, name: str) -> Type:
        """Return the type that a parameter names."""
        if self.in_query:
            return read_query_type(self.text(name), self.settings, f"/{name}")
        return read_type(self.text(name), self.settings.max_type_bytes, pointer_to(name))

    def type_or_text(self, name: str) -> Type | str | None:
        """Return a parameter that names a type and may be absent: as it is, or read if it is short, as in a query."""
        if not self.has(name):
            return None
        return self.type(name) if self.in_query else self.text(name)

    def tensor_type(self, name: str, parameter: str) -> TensorType:
        """Return what an input is: the type that a parameter names, or else what its datatype means by itself."""
        tensor = self.inputs[name]
        stated = self.type(parameter) if self.has(parameter) else tensor.datatype.element
        with default_pointer(pointer_to(parameter)):
            return bind(stated, tensor.shape)
