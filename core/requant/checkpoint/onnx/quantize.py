"""Quantizes the weights of an ONNX model in pieces: memory depends neither on the size of the model nor of a weight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.checkpoint.onnx.block_quantization import (
    Blocks,
    DequantizeLinearRange,
    MatMulNBitsColumns,
    Operator,
    WeightForm,
    quantize_columns,
)
from requant.checkpoint.onnx.plan import OnnxPlan, QuantizedWeight, plan_onnx
from requant.checkpoint.onnx.rewrite import Weight
from requant.checkpoint.run.file_plan import run_file_plan
from requant.checkpoint.run.outputs import SourceReader, Stages
from requant.checkpoint.run.run import RunReport
from requant.checkpoint.run.work import Piece, ProgressCallback
from requant.checkpoint.safetensors.header import DTYPES
from requant.checkpoint.storage.store import FileWriter, Store
from requant.checkpoint.weights import floats
from requant.errors import CheckpointError, PreconditionError, excerpt

Array = NDArray[Any]
_Range = tuple[int, int]

# Bytes of the codes of a piece; elements that are quantized at a time, and the bytes of the buffers for each.
_CODES, _ELEMENTS, _BUFFERS = 24 << 20, 1 << 18, 24


def quantize_onnx(
    source: Store,
    name: str,
    destination: Store,
    output: str,
    form: WeightForm,
    *,
    ignore: Sequence[str] = (),
    threads: int | None = None,
    progress: ProgressCallback | None = None,
) -> RunReport:
    """Quantize the weights of MatMul and Gemm of the model `name`; write `output` and `<output>.data`.

    For `requant checkpoint quantize MODEL.onnx DESTINATION.onnx --scheme MatMulNBits4`: `source` and `destination` are
    the stores of the two directories, in which the models lie themselves; `form` is `form_named("MatMulNBits4")`.
    Codes, scales and zero points equal those of onnxruntime's MatMulNBitsQuantizer (1.31), nodes and tensors have its
    names. The model file appears last: until then nothing can be loaded.

    Raises before anything is written what `plan_onnx` and `run_file_plan` raise; while it runs, CheckpointError with
    tensor and index for a value that is not finite or a scale beyond its type, and what the stores raise.
    """
    plan = plan_onnx(source, name, output, form, ignore=ignore)
    return run_file_plan(plan, source, destination, _stages, threads=threads, progress=progress)


def _stages(plan: OnnxPlan, file: str, reader: SourceReader, writer: FileWriter) -> list[Stages]:
    return [iter([_pieces(plan, file, reader, writer)])]


def _pieces(plan: OnnxPlan, file: str, reader: SourceReader, writer: FileWriter) -> Iterator[Piece]:
    fixed = [(0, plan.model)] if file == plan.output else [(begin, bytes(end - begin)) for begin, end in plan.gaps]
    for begin, data in fixed:
        writer.write(begin, data)
        reader.counter.add(written=len(data))
    if file == plan.data_output:
        work = _Work(plan, reader, writer)
        for weight in plan.weights:
            yield from work.weight_pieces(weight)
        for copied in plan.copies:
            end = copied.begin + copied.size
            yield from reader.copy(copied.file, copied.begin, end, writer, copied.output_begin)


@dataclass(frozen=True, slots=True)
class _Work:
    plan: OnnxPlan
    reader: SourceReader
    writer: FileWriter

    def weight_pieces(self, placed: QuantizedWeight) -> Iterator[Piece]:
        """Yield pieces whose outputs are ranges of bytes: columns of all blocks, or blocks of all columns.

        Two codes and two zero points share a byte, so that pieces begin at an even number of both.
        """
        weight, form = placed.weight, self.plan.form
        if form.operator is Operator.MATMUL_NBITS or weight.transposed:
            width = max(_CODES // weight.k // 2 * 2, 2)
            ranges = [((0, weight.k), (at, min(at + width, weight.n))) for at in range(0, weight.n, width)]
        else:
            pair = 2 * form.block_size
            height = pair * max(_CODES // weight.n // pair, 1)
            ranges = [((at, min(at + height, weight.k)), (0, weight.n)) for at in range(0, weight.k, height)]
        for rows, columns in ranges:
            codes = (rows[1] - rows[0]) * (columns[1] - columns[0])
            yield Piece(2 * codes + _ELEMENTS * _BUFFERS, partial(self.convert, placed, rows, columns))

    def convert(self, placed: QuantizedWeight, rows: _Range, columns: _Range) -> None:
        """Quantize rows and columns of W [K, N], one of them all, and write what belongs to them."""
        weight, form = placed.weight, self.plan.form
        height, width = rows[1] - rows[0], columns[1] - columns[0]
        packed: MatMulNBitsColumns | DequantizeLinearRange
        if form.operator is Operator.MATMUL_NBITS:
            packed = MatMulNBitsColumns(height, width, weight.dtype, form)
        else:
            packed = DequantizeLinearRange(height, width, weight.dtype, form, transposed=weight.transposed)
        for top, bottom, left, right in self.strips(weight, height, width):
            first = rows[0] + top, columns[0] + left
            values = self.values(weight, (first[0], rows[0] + bottom), (first[1], columns[0] + right))
            packed.put(self.blocks(weight, values, *first), top, left)
        self.write(placed, packed, rows[0], columns[0])

    def strips(self, weight: Weight, height: int, width: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield top, bottom, left and right of what is quantized at a time: whole blocks, long parts of file rows."""
        block = self.plan.form.block_size
        across = min(max(_ELEMENTS // (height if weight.transposed else block), 1), width)
        down = height if weight.transposed else block * max(_ELEMENTS // (across * block), 1)
        for left in range(0, width, across):
            for top in range(0, height, down):
                yield top, min(top + down, height), left, min(left + across, width)

    def write(
        self, placed: QuantizedWeight, packed: MatMulNBitsColumns | DequantizeLinearRange, row: int, column: int
    ) -> None:
        """Write a range whose first element is W[row, column]: one of both is 0."""
        weight, form = placed.weight, self.plan.form
        blocks = form.blocks(weight.k)
        if form.operator is Operator.MATMUL_NBITS:
            codes = column * blocks * form.block_size * form.bits // 8
            scales, zero_points = column * blocks, column * -(-blocks * form.bits // 8)
        else:
            codes = (row * weight.n + column * weight.k) // 2
            scales = row // form.block_size * weight.n + column * blocks
            zero_points = scales // 2
        self.write_at(placed.codes + codes, packed.codes)
        self.write_at(placed.scales + scales * packed.scales.itemsize, packed.scales)
        if placed.zero_points is not None:
            self.write_at(placed.zero_points + zero_points, packed.zero_points)

    def write_at(self, begin: int, data: Array) -> None:
        stored = np.ascontiguousarray(data).reshape(-1).view("|u1")
        self.writer.write(begin, stored.data)
        self.reader.counter.add(written=stored.size)

    def blocks(self, weight: Weight, values: Array, row: int, column: int) -> Blocks:
        """Quantize elements of which the first one is W[row, column]."""
        try:
            return quantize_columns(values, weight.dtype, self.plan.form)
        except PreconditionError as error:
            down, right = divmod(error.index or 0, values.shape[1])
            index = (column + right, row + down) if weight.transposed else (row + down, column + right)
            detail = f"'{excerpt(weight.name)}' cannot be quantized at [{index[0]}, {index[1]}]: {error.detail}"
            raise CheckpointError(detail, file=self.plan.source.name, tensor=weight.name) from error

    def values(self, weight: Weight, rows: _Range, columns: _Range) -> Array:
        """Read rows and columns of W [K, N] as f32."""
        outer, inner, row = (columns, rows, weight.k) if weight.transposed else (rows, columns, weight.n)
        dtype = np.dtype(DTYPES[weight.dtype].array)
        width = inner[1] - inner[0]
        if width == row:
            begin, size = outer[0] * row * dtype.itemsize, (outer[1] - outer[0]) * row * dtype.itemsize
            stored = weight.data.read(self.reader.store, begin, size).view(dtype).reshape(-1, row)
        else:
            stored = np.empty((outer[1] - outer[0], width), dtype)
            for target, at in zip(stored, range(*outer), strict=True):
                begin = (at * row + inner[0]) * dtype.itemsize
                target[:] = weight.data.read(self.reader.store, begin, target.nbytes).view(dtype)
        self.reader.counter.add(read=stored.nbytes)
        return floats.values(stored.T if weight.transposed else stored, weight.dtype)
