"""A dump: a call that a real system has computed, in our terms, and its label, which is hidden from who identifies it.

The label is right if and only if our own kernels give the observed bits with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from requant.description import Operation, Result
from requant.functions import array_of, run_operation
from requant.operations import OPERATIONS
from requant.operations.conversions import CONVERSIONS


class RefusedError(Exception):
    """A system does not take the numbers that it is asked for."""


Array = NDArray[Any]
Arrays = Mapping[str, Array]
Types = Mapping[str, str]
Answer = Callable[[Arrays, Types], dict[str, Array]]
"""What a system gives for other tensors of one call: the outputs by name, for the inputs and their types by name."""
Limits = tuple[tuple[int, int], tuple[int, int], int]
"""The numbers that a system takes as the operands of a product, and what those of the second are multiples of."""

DUMPED: Mapping[str, Operation] = {**OPERATIONS, **{each.name: each for each in CONVERSIONS.values()}}
"""The operations that a dump may be of, by name. A cast is a quantize or a dequantize between floats."""


@dataclass(frozen=True, eq=False)
class Dump:
    """One call of a real system.

    `arrays`: the inputs by name, and their types as MLIR text in `types`; numbers, such as the ends of a range, have
    none. `options`: those that a caller knows, such as `output_type`. `observed`: the outputs by name. `label`: the
    options that choose the arithmetic, such as `profile` and `scheme`, of which a caller has no idea. `answer`: the
    system, which can be asked anew with other tensors and everything else as it was, a conversion with tensors of the
    same shape; None where there is nothing to vary. `limits`: what it takes as the operands of a product, if not all.
    """

    operation: str
    arrays: dict[str, Array]
    types: dict[str, str]
    options: dict[str, Any]
    observed: dict[str, Array]
    label: dict[str, str] = field(kw_only=True)
    answer: Answer | None = field(default=None, kw_only=True)
    limits: Limits | None = field(default=None, kw_only=True)

    def __str__(self) -> str:
        shapes = ", ".join(f"{name} {list(each.shape)}" for name, each in self.arrays.items())
        return f"{self.operation} of {shapes}, {self.types}, {self.options}, by {self.label}"


def dumped(
    operation: str, arrays: dict[str, Array], types: dict[str, str], options: dict[str, Any], answer: Answer,
    *, label: dict[str, str],
) -> Dump:  # fmt: skip
    """A dump of a system that can be asked anew."""
    return Dump(operation, arrays, types, options, answer(arrays, types), label=label, answer=answer)


def tensor_text(shape: tuple[int, ...], element: str) -> str:
    """The text of a tensor type."""
    return f"tensor<{''.join(f'{size}x' for size in shape)}{element}>"


def bits(array: Array) -> Array:
    """The elements of an array, flat, as unsigned integers; all NaN of floats as one."""
    flat = np.ascontiguousarray(array).reshape(-1)
    found = flat.view(f"u{flat.itemsize}")
    if flat.dtype.kind == "f" or flat.dtype in SMALL:
        # The sign and payload of a NaN that arithmetic made are the processor's.
        with np.errstate(invalid="ignore"):
            found = np.where(np.isnan(flat.astype(np.float64)), ~found.dtype.type(0), found)
    return found


SMALL = tuple(
    np.dtype(getattr(ml_dtypes, name))
    for name in dir(ml_dtypes)
    if name.startswith(("bfloat", "float8", "float6", "float4"))
)


def replayed(dump: Dump) -> dict[str, Array]:
    """What we compute with the label, for each output that was observed."""
    result = run_operation(DUMPED[dump.operation], dump.arrays, dump.types, {**dump.options, **dump.label})
    return {name: _output(result, name) for name in dump.observed}


def _output(result: Result, name: str) -> Array:
    return array_of(result.outputs[name]) if name in result.outputs else np.asarray(result.numbers[name])


def differences(dump: Dump) -> dict[str, Array]:
    """Where our outputs with the label are not those observed, by name; empty if the label is right."""
    found = {}
    for name, ours in replayed(dump).items():
        theirs = dump.observed[name]
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), (str(dump), name, ours.dtype, theirs.dtype)
        wrong = np.flatnonzero(bits(ours) != bits(theirs))
        if wrong.size:
            found[name] = wrong
    return found
