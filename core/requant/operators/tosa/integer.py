"""TOSA's MUL, TABLE, AVG_POOL2D and MAX_POOL2D of integers.

    MUL         i32 with shift > 0: (input1 * input2 + 2^(shift - 1)) >> shift; else input1 * input2 modulo 2^32
    TABLE       i8: table[x + 128]
                i16: i = (x >> 7) + 256, table[i] * 128 + (table[i + 1] - table[i]) * (x & 127)
    AVG_POOL2D  acc = sum(x - input_zp) of the n elements of a window that are not padding
                k the number of bits of n - 1, multiplier = ((2^30 + 1) << k) / n, rounded down, shift = 30 + k
                clamp(((acc * multiplier + 2^(shift - 1)) >> shift) + output_zp)
    MAX_POOL2D  the largest element of a window

Shifts of integers round down. Where a REQUIRE of the specification fails, the result is unpredictable there, and an
error here.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from requant.description import Array, Choices, Kind
from requant.errors import ParameterError, PreconditionError, TypeFitError
from requant.errors.cancellation import check_cancelled
from requant.operators.description import Attribute, Operand, Operator, OperatorCall, Work, only_implementation
from requant.operators.onnx.operands import same_type
from requant.operators.stages import I32, TRACE, Stages, in_stages, stage

_SOURCE = "TOSA 1.0; 1.1 draft of 2026-08, which is the same; reference model of tosa-tools 2026.8.0"
_INTEGERS = {"i8": 1, "i16": 1}
_MAX_KERNEL = 8192
_TABLE_SIZES = {"int8": 256, "int16": 513}
# As many products take as long as the work on a tap that does not depend on the size.
_COST_OF_TAP = 1 << 14


def _tensor(call: OperatorCall, name: str, rank: int | None = None) -> Array:
    """Return an operand in its shape. Raise TypeFitError for another rank, and for a dimension of 0."""
    operand = call.inputs[name]
    if rank is not None and len(operand.shape) != rank:
        raise TypeFitError(f"{name} has rank {len(operand.shape)}; TOSA's has {rank}", pointer=f"/inputs/{name}")
    if 0 in operand.shape:
        raise TypeFitError(
            f"{name} has a dimension of 0; TOSA's tensors have at least 1 of each", pointer=f"/inputs/{name}"
        )
    return operand.data.reshape(operand.shape)


def _one(call: OperatorCall, name: str) -> int:
    """Return the only element of an operand of shape [1]."""
    operand = call.inputs[name]
    if operand.shape != (1,):
        raise TypeFitError(f"{name} has shape [1]; this has {list(operand.shape)}", pointer=f"/inputs/{name}")
    return int(operand.data[0])


def _refuse(unpredictable: Array, what: str, name: str) -> None:
    """Raise PreconditionError for the first element at which a REQUIRE fails."""
    if unpredictable.any():
        index = int(np.argmax(unpredictable))
        raise PreconditionError(
            f"element {index}: {what}; TOSA calls the result unpredictable", index=index, pointer=f"/inputs/{name}"
        )


def _plan_multiply(call: OperatorCall) -> Work:
    a, b = (_tensor(call, name) for name in ("input1", "input2"))
    same_type(call, "input2", "input1")
    shift = _one(call, "shift")
    if a.ndim != b.ndim or any(1 not in pair and pair[0] != pair[1] for pair in zip(a.shape, b.shape, strict=True)):
        raise TypeFitError(
            f"the shapes {list(a.shape)} and {list(b.shape)} cannot be broadcast: the ranks are equal, and so are the "
            "sizes that are not 1",
            pointer="/inputs/input2",
        )
    if shift and not (a.dtype == np.int32 and 0 < shift < 64):
        raise ParameterError(f"shift is {shift}; it is 0 to 63, and of i8 and i16 0", pointer="/inputs/shift")

    def stages() -> Stages:
        product = a.astype(np.int64) * b
        if not shift:
            return {"product": product, "output": product.astype(np.int32)}
        # The sum wraps as the reference model's does, in the one case that i64 does not hold: -2^31 twice and 63.
        shifted = (product + (np.int64(1) << (shift - 1))) >> shift
        _refuse(shifted != shifted.astype(np.int32), "i32 does not hold the shifted product", "input1")
        return {"product": product, "output": shifted.astype(np.int32)}

    return in_stages(call, stages, np.broadcast_shapes(a.shape, b.shape))


def _plan_table(call: OperatorCall) -> Work:
    x, table = _tensor(call, "input1"), call.inputs["table"].data
    same_type(call, "table", "input1")
    size = _TABLE_SIZES[x.dtype.name]
    if call.inputs["table"].shape != (size,):
        raise TypeFitError(
            f"table has shape {list(call.inputs['table'].shape)}; of this type it has [{size}]", pointer="/inputs/table"
        )

    def stages() -> Stages:
        if x.dtype == np.int8:
            index = x.astype(np.int32) + 128
            return {"index": index, "output": table.take(index)}
        index = (x.astype(np.int32) >> 7) + 256
        base = table.take(index).astype(np.int32)
        slope = table.take(index + 1) - base
        _refuse(slope != slope.astype(np.int16), "i16 does not hold the slope of the table", "input1")
        return {"index": index, "base": base, "slope": slope, "output": base * 128 + slope * (x & np.int16(127))}

    return in_stages(call, stages, x.shape)


@dataclass(frozen=True, slots=True)
class _Window:
    """The window along one dimension of `size`, with `before` elements of padding before the first."""

    size: int
    kernel: int
    stride: int
    before: int
    places: int

    @property
    def counts(self) -> Array:
        """How many elements of each window are not padding: at least one."""
        start = np.arange(self.places) * self.stride - self.before
        return np.minimum(start + self.kernel, self.size) - np.maximum(start, 0)

    def reduced(self, x: Array, axis: int, ufunc: np.ufunc, start: int) -> Array:
        """Return what a function makes of the elements of each window, from `start` on."""
        shape = (*x.shape[:axis], self.places, *x.shape[axis + 1 :])
        found = np.full(shape, start, x.dtype)
        for tap in range(self.kernel):
            check_cancelled()
            # The places at which the tap is not in the padding.
            first = max(-(-(self.before - tap) // self.stride), 0)
            last = min((self.size - 1 + self.before - tap) // self.stride, self.places - 1)
            if first <= last:
                behind: tuple[Any, ...] = (slice(None),) * axis
                at = first * self.stride + tap - self.before
                seen = x[(*behind, slice(at, at + (last - first) * self.stride + 1, self.stride))]
                part = found[(*behind, slice(first, last + 1))]
                ufunc(part, seen, out=part)
        return found


def _windows(call: OperatorCall, sizes: tuple[int, ...]) -> list[_Window]:
    """Return the windows of rows and columns. Raise ParameterError or TypeFitError for those that TOSA refuses."""
    listed = {}
    for name, length in (("kernel", 2), ("stride", 2), ("pad", 4)):
        listed[name] = call.list(name) or ()
        if len(listed[name]) != length:
            raise ParameterError(f"{name} has {length} numbers", pointer=f"/attributes/{name}")
    found = []
    for axis, (size, kernel, stride) in enumerate(zip(sizes, listed["kernel"], listed["stride"], strict=True)):
        before, after = listed["pad"][2 * axis : 2 * axis + 2]
        if max(before, after) >= kernel:
            raise ParameterError(f"pad is below the kernel, which has {kernel}", pointer="/attributes/pad")
        steps, rest = divmod(size + before + after - kernel, stride)
        if steps < 0 or rest:
            raise TypeFitError(
                f"a dimension of {size} with {before} and {after} of padding less a kernel of {kernel} is no multiple "
                f"of the stride, {stride}",
                pointer="/inputs/input",
            )
        found.append(_Window(size, kernel, stride, before, steps + 1))
    return found


@dataclass(frozen=True, slots=True)
class _Pool:
    """The input of a pool, its windows of rows and columns, and the shape of the output.

    The windows are reduced one after the other, the one that leaves fewer elements first, so that what lies between is
    not larger than both input and output.
    """

    x: Array
    windows: tuple[_Window, _Window]
    shape: tuple[int, ...]

    @classmethod
    def of(cls, call: OperatorCall) -> _Pool:
        """Read it. Raise what is wrong with the input and its windows."""
        x = _tensor(call, "input", 4)
        rows, columns = _windows(call, x.shape[1:3])
        return cls(x, (rows, columns), (x.shape[0], rows.places, columns.places, x.shape[3]))

    @property
    def ordered(self) -> list[tuple[int, _Window]]:
        return sorted(enumerate(self.windows, 1), key=lambda pair: pair[1].places / pair[1].size)

    @property
    def products(self) -> int:
        """About how many products take as long."""
        (_, first), (_, last) = self.ordered
        between = self.x.size // first.size * first.places + _COST_OF_TAP
        return between * first.kernel + (prod(self.shape) + _COST_OF_TAP) * last.kernel

    def reduced(self, x: Array, ufunc: np.ufunc, start: int) -> Array:
        """Return what a function makes of the elements of each window, from `start` on."""
        for axis, window in self.ordered:
            x = window.reduced(x, axis, ufunc, start)
        return x


def _plan_average(call: OperatorCall) -> Work:
    pool = _Pool.of(call)
    x = pool.x
    same_type(call, "input_zp", "input")
    same_type(call, "output_zp", "input")
    zeros = {name: _one(call, name) for name in ("input_zp", "output_zp")}
    limits = np.iinfo(x.dtype)
    for name, zero in zeros.items():
        if zero and x.dtype != np.int8:
            raise ParameterError(f"{name} of i16 is 0", pointer=f"/inputs/{name}")
    counts = [each.counts for each in pool.windows]
    most = int(counts[0].max() * counts[1].max())
    if not -(1 << 31) <= most * (limits.min - zeros["input_zp"]) <= most * (limits.max - zeros["input_zp"]) < 1 << 31:
        raise ParameterError("i32 may not hold the sum of a window of this size", pointer="/attributes/kernel")

    def stages() -> Stages:
        sums = pool.reduced(x.astype(np.int32) - np.int32(zeros["input_zp"]), np.add, 0)
        count = np.multiply.outer(*counts)[None, :, :, None]
        bits = np.frexp(count - 1)[1].astype(np.int64)  # of count - 1, 0 of 0
        multiplier, shift = (((1 << 30) + 1) << bits) // count, 30 + bits
        scaled = (sums * multiplier + (np.int64(1) << (shift - 1))) >> shift
        output = np.clip(scaled + zeros["output_zp"], limits.min, limits.max).astype(x.dtype)
        narrow = {"multiplier": multiplier, "shift": shift, "scaled": scaled}
        return {"accumulator": sums, **{name: each.astype(np.int32) for name, each in narrow.items()}, "output": output}

    return in_stages(call, stages, pool.shape, pool.products)


def _plan_max(call: OperatorCall) -> Work:
    pool = _Pool.of(call)
    lowest = int(np.iinfo(pool.x.dtype).min)
    return in_stages(call, lambda: {"output": pool.reduced(pool.x, np.maximum, lowest)}, pool.shape, pool.products)


def _numbers(name: str, description: str, lowest: int) -> Attribute:
    return Attribute(
        name=name, kind=Kind.INTEGERS, description=description, optional=False, lowest=lowest, highest=_MAX_KERNEL
    )


_WINDOW = (
    _numbers("kernel", "Rows and columns of the window.", 1),
    _numbers("stride", "Steps along rows and columns.", 1),
    _numbers("pad", "Padding: top, bottom, left and right, each below the kernel.", 0),
)
_POOLED = Operand(name="input", description="[N, H, W, C].", types=_INTEGERS)
_FLOATS = "TOSA has it for floats too."
_EXAMPLE = {"type": "tensor<1x3x4x1xi8>", "values": [1, -2, 100, 7, -128, 127, 5, 5, -3, -4, -5, -6]}

MUL = Operator(
    system="tosa",
    name="MUL",
    summary="Multiply integers element by element, with a rounding right shift, and broadcasting.",
    source=_SOURCE,
    inputs=(
        Operand(name="input1", description="The first operand.", types=_INTEGERS | I32),
        Operand(
            name="input2",
            description="The second, of its type and rank; dimensions of 1 are broadcast.",
            types=_INTEGERS | I32,
        ),
        Operand(name="shift", description="Shape [1]: the right shift of i32, 0 to 63; of others 0.", types={"i8": 1}),
    ),
    outputs=(Operand(name="output", description="The products; without a shift their low 32 bits.", types=I32),),
    stages=(stage("product", "input1 * input2.", {"i64": 1}),),
    attributes=(TRACE,),
    deviations=(
        f"{_FLOATS} And for i64.",
        "Shifts that TOSA calls unpredictable are refused; the reference model takes any of them for i8 and i16, and "
        "negative ones for i32.",
    ),
    implementations=only_implementation("tosa"),
    plan=_plan_multiply,
    example={
        "inputs": {
            "input1": {"type": "tensor<4xi32>", "values": [3, -3, 100000, -2147483648]},
            "input2": {"type": "tensor<1xi32>", "values": [1073741824]},
            "shift": {"type": "tensor<1xi8>", "values": [31]},
        },
    },
)

TABLE = Operator(
    system="tosa",
    name="TABLE",
    summary="Look elements up in a table, of 16 bits with interpolation.",
    source=_SOURCE,
    inputs=(
        Operand(name="input1", description="The tensor.", types=_INTEGERS),
        Operand(name="table", description="Of its type: 256 entries of i8, 513 of i16.", types=_INTEGERS),
    ),
    outputs=(
        Operand(
            name="output", description="The entries of i8; of i16 128 times the numbers between.", types={"i8": 1} | I32
        ),
    ),
    stages=(
        stage("index", "x + 128, or of i16 (x >> 7) + 256.", I32),
        stage("base", "Of i16: table[index].", I32),
        stage("slope", "Of i16: table[index + 1] - table[index].", I32),
    ),
    attributes=(TRACE,),
    deviations=("Elements at which i16 does not hold the slope of the table, unpredictable in TOSA, are an error.",),
    implementations=only_implementation("tosa"),
    plan=_plan_table,
    example={
        "inputs": {
            "input1": {"type": "tensor<4xi8>", "values": [-128, -1, 3, 127]},
            "table": {"type": "tensor<256xi8>", "values": [max(each, each // 10) for each in range(-128, 128)]},
        },
    },
)

AVG_POOL2D = Operator(
    system="tosa",
    name="AVG_POOL2D",
    summary="The means of windows, by a reciprocal in fixed point; padding does not count.",
    source=_SOURCE,
    inputs=(
        _POOLED,
        Operand(name="input_zp", description="Shape [1], of the type of input; of i16 0.", types=_INTEGERS),
        Operand(name="output_zp", description="Shape [1], of the type of input; of i16 0.", types=_INTEGERS),
    ),
    outputs=(Operand(name="output", description="The means, of the type of input.", types=_INTEGERS),),
    stages=(
        stage("accumulator", "sum(x - input_zp) of a window.", I32),
        stage("multiplier", "((2^30 + 1) << k) / n, rounded down, k the number of bits of n - 1.", I32),
        stage("shift", "30 + k.", I32),
        stage("scaled", "(accumulator * multiplier + 2^(shift - 1)) >> shift.", I32),
    ),
    attributes=(
        *_WINDOW,
        Attribute(
            name="acc_type",
            kind=Kind.TEXT,
            description="The type of the sums.",
            default="INT32",
            choices=Choices("TosaPoolAccumulator", ("INT32",), "The type in which integers are summed."),
        ),
        TRACE,
    ),
    deviations=(
        _FLOATS,
        "A window so large that i32 may not hold its sum is refused, whatever its elements are: 65,537 of i16. The "
        "reference model lets the sum wrap.",
    ),
    implementations=only_implementation("tosa"),
    plan=_plan_average,
    example={
        "inputs": {
            "input": _EXAMPLE,
            "input_zp": {"type": "tensor<1xi8>", "values": [3]},
            "output_zp": {"type": "tensor<1xi8>", "values": [-1]},
        },
        "attributes": {"kernel": [2, 2], "stride": [2, 2], "pad": [1, 0, 0, 0]},
    },
)

MAX_POOL2D = Operator(
    system="tosa",
    name="MAX_POOL2D",
    summary="The largest elements of windows.",
    source=_SOURCE,
    inputs=(_POOLED,),
    outputs=(Operand(name="output", description="The largest elements, of the type of input.", types=_INTEGERS),),
    attributes=(
        *_WINDOW,
        Attribute(
            name="nan_mode",
            kind=Kind.TEXT,
            description="What becomes of NaN, which integers do not have.",
            default="PROPAGATE",
            choices=Choices("TosaNanMode", ("PROPAGATE", "IGNORE"), "TOSA's nan_mode."),
        ),
    ),
    deviations=(_FLOATS,),
    implementations=only_implementation("tosa"),
    plan=_plan_max,
    example={"inputs": {"input": _EXAMPLE}, "attributes": {"kernel": [2, 2], "stride": [1, 2], "pad": [0, 0, 0, 0]}},
)
