"""Errors of operations in the words of an inference request."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from requant.errors import InvalidRequestError, RequantError
from requant_service.oip.call import Call
from requant_service.oip.parameters import pointer_to


@contextmanager
def pointing_into(call: Call, **inputs: str) -> Iterator[None]:
    """Point at the input or the parameter that the argument of an operation is made of.

    An operation points at its arguments by name: `/scheme`, `/minimums/3`. `inputs`: those arguments that are inputs of
    the call, by the names of these. An argument without an input is the parameter of its name.
    """
    try:
        yield
    except RequantError as error:
        error.pointer = _place(error.pointer, call, inputs)
        if isinstance(error, InvalidRequestError):
            error.faults = tuple(
                replace(fault, pointer=_place(fault.pointer, call, inputs) or fault.pointer) for fault in error.faults
            )
        raise


def _place(pointer: str | None, call: Call, inputs: dict[str, str]) -> str | None:
    if not pointer:
        # About several arguments together.
        sent = any(value is not None for value in call.parameters.values())
        return None if pointer is None else "/parameters" if sent else ""
    _, argument, *rest = pointer.split("/")
    if argument in inputs:
        return _input_place(call, inputs[argument], rest)
    return pointer_to(argument) if argument in call.parameters else pointer


def _input_place(call: Call, name: str, rest: list[str]) -> str:
    tensors = call.several(name)
    if not tensors:
        return "/inputs"
    # Of a variadic input the next step is the index of a tensor.
    index = int(rest[0]) if len(tensors) > 1 and rest and rest[0].isdigit() else 0
    return tensors[index].pointer
