"""Conversion calls that leave the scales of their output type open (`requant.operations.derived_scales`).

Errors point at the fields of `requant_service.operations.conversion_call`, at `/calibration/bins` and its like, and at
`/input`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from requant.errors import RequantError, pointers_for_sides
from requant.mlir.types import TensorType, Type
from requant.operations import derived_scales
from requant.operations.derived_scales import DerivedScales
from requant_service.operations.conversion_call import ConversionCall, PlannedConversion, input_tensor_type, plan_call
from requant_service.operations.types import CHARACTERS_PER_SCALE, read_type
from requant_service.runtime.runtime import Runtime
from requant_service.runtime.settings import Settings

Array = NDArray[Any]


def may_leave_scales_open(output_type: object) -> bool:
    """Return whether a type text may be of a type that leaves its scales open. Most others are told at a glance."""
    return isinstance(output_type, str) and ("any" in output_type or "calibrated" in output_type)


def open_type(output_type: Type | str | None, settings: Settings) -> Type | str | None:
    """Return the output type of a quantization, read if it may leave its scales open, else as it is."""
    if isinstance(output_type, str) and may_leave_scales_open(output_type):
        return read_type(output_type, settings.max_type_bytes, "/output_type")
    return output_type


class DerivedQuantization(NamedTuple):
    """The plan of a call with the finished type, and the scales of that."""

    planned: PlannedConversion
    scales: DerivedScales


@dataclass(frozen=True, slots=True)
class Derivation:
    """What is to be found for a call, before any element is read."""

    call: ConversionCall
    found: derived_scales.Derivation

    @property
    def tensor(self) -> TensorType:
        """The type of the input, static."""
        return self.found.tensor

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the input."""
        return self.found.dtype

    def find(self, source: Array) -> DerivedScales:
        """Find the scales of the flat input: work on arrays."""
        with _named(self.call.input_place):
            return self.found.find(source)

    def planned(self, scales: DerivedScales, settings: Settings) -> PlannedConversion:
        """Plan the call with the finished type: work on texts."""
        return plan_call(self.call._replace(output_type=self.found.finished(scales), calibration=()), settings)


async def plan_derivation(call: ConversionCall, characters: int, running: Runtime) -> Derivation:
    """Return what is to be found for a call that leaves scales open. `characters`: of its types as texts.

    Raise what is wrong with the types of the call and with its calibration.
    """
    return await running.executor.run_text(characters, partial(_plan_derivation, call, running.settings))


def _plan_derivation(call: ConversionCall, settings: Settings) -> Derivation:
    output_type = call.output_type
    assert output_type is not None
    assert not isinstance(output_type, str)
    tensor = input_tensor_type(call, settings)
    with _named(call.input_place), pointers_for_sides(input=call.input_place):
        return Derivation(call, derived_scales.plan_derivation(tensor, output_type, dict(call.calibration)))


async def derive_quantization(
    derivation: Derivation, source: Array, running: Runtime, reserve: Callable[[int], Awaitable[None]]
) -> DerivedQuantization:
    """Find the scales for the flat input `source`, and plan the call with the finished type.

    `reserve` reserves so many bytes of memory. Raise what `Calibration.run`, `finish_type` and `plan_call` raise.
    """
    executor, settings, search = running.executor, running.settings, derivation.found.search
    weight = source.nbytes
    if search is not None:
        await reserve(search.byte_count(source.size))
        weight = search.weight(source.nbytes, settings.inline_bytes)
    scales = await executor.run_array(weight, partial(derivation.find, source))
    planning = partial(derivation.planned, scales, settings)
    planned = await executor.run_text(len(scales.type.scales) * CHARACTERS_PER_SCALE, planning)
    return DerivedQuantization(planned, scales)


@contextmanager
def _named(input_place: str) -> Iterator[None]:
    """Point at where the call has the type of the input."""
    try:
        yield
    except RequantError as error:
        error.pointer = input_place if error.pointer == "/input/type" else error.pointer
        raise
