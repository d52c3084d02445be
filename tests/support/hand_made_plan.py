"""A small checkpoint on disk and a plan for it, made by hand: nothing of the planner, no arithmetic of a scheme.

The formats split the bits of BF16 weights into bytes, so that what has to come out is clear without any rounding.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from requant.checkpoint.plan.model import (
    CopyStep,
    DequantizeStep,
    Direction,
    NotFinite,
    Plan,
    QuantizedSource,
    QuantizeStep,
    Request,
    SchemeFor,
    SourceRange,
    Step,
    Task,
)
from requant.checkpoint.safetensors.header import Header, TensorEntry
from requant.checkpoint.safetensors.writer import head_bytes, layout
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.weights.blocks import Extremes, ScaledCodes
from requant.checkpoint.weights.floats import Array
from requant.checkpoint.weights.weight_format import Codes, PlainRows, Region, StoredRows, StoredTensor, WeightFormat


class Bytes(WeightFormat):
    """weight_high U8 [out, in], weight_low U8 [in, out] (columns), weight_shape I64 [2]."""

    rows_together = 2

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        return (
            StoredTensor("weight_high", "U8", shape),
            StoredTensor("weight_low", "U8", shape[::-1]),
            StoredTensor("weight_shape", "I64", (2,)),
        )

    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        once = (Region("weight_shape", 0, 1, 0, 2),) if row_begin == 0 else ()
        return (
            Region("weight_high", row_begin, row_end, 0, shape[1]),
            Region("weight_low", 0, shape[1], row_begin, row_end),
            *once,
        )

    def quantized(self, rows: PlainRows, extremes: Extremes | None) -> Mapping[str, Array]:
        return {
            "weight_high": (rows.bits >> 8).astype(np.uint8),
            "weight_low": np.ascontiguousarray((rows.bits & 255).astype(np.uint8).T),
            "weight_shape": np.array([rows.shape], np.int64),
        }

    def dequantize(self, stored: StoredRows, dtype: str) -> Array:
        assert stored.dtypes["weight_shape"] == "I64"
        assert stored.parts["weight_shape"].tolist() == [list(stored.shape)]
        return (stored.parts["weight_high"].astype(np.uint16) << 8) | stored.parts["weight_low"].T

    def scaled_codes(self, stored: StoredRows) -> ScaledCodes:
        raise NotImplementedError

    def codes(self, stored: StoredRows) -> Codes:
        raise NotImplementedError


class AboveLeast(WeightFormat):
    """weight_distance U16 [out, in]: bits less those of the least of the set; weight_largest U16 [1]."""

    needs_extremes = True

    def stored(self, dtype: str, shape: tuple[int, int]) -> tuple[StoredTensor, ...]:
        return StoredTensor("weight_distance", "U16", shape), StoredTensor("weight_largest", "U16", (1,))

    def regions(self, dtype: str, shape: tuple[int, int], row_begin: int, row_end: int) -> tuple[Region, ...]:
        once = (Region("weight_largest", 0, 1, 0, 1),) if row_begin == 0 else ()
        return (Region("weight_distance", row_begin, row_end, 0, shape[1]), *once)

    def quantized(self, rows: PlainRows, extremes: Extremes | None) -> Mapping[str, Array]:
        assert extremes is not None
        return {
            "weight_distance": rows.bits - _bits(extremes.minimum),
            "weight_largest": np.array([[_bits(extremes.maximum)]]),
        }

    def scaled_codes(self, stored: StoredRows) -> ScaledCodes:
        raise NotImplementedError

    def codes(self, stored: StoredRows) -> Codes:
        raise NotImplementedError


def _bits(number: float) -> np.uint16:
    """Return the bits of a BF16."""
    return np.uint16(np.float32(number).view(np.uint32) >> 16)


BYTES, ABOVE_LEAST = Bytes(), AboveLeast()
Tensors = dict[str, tuple[str, Array]]


def write_safetensors(path: Path, tensors: Tensors, metadata: Mapping[str, str] | None = None) -> Header:
    """Write a file with these tensors (dtype, array)."""
    header = layout([(name, dtype, array.shape) for name, (dtype, array) in tensors.items()], metadata)
    with path.open("wb") as file:
        file.write(head_bytes(header))
        for entry in header.tensors:
            file.write(tensors[entry.name][1].tobytes())
    return header


def read_safetensors(path: Path) -> dict[str, bytes]:
    """Return the bytes of each tensor of a file: read with json alone."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    entries = json.loads(data[8:begin])
    return {
        name: data[begin + entry["data_offsets"][0] : begin + entry["data_offsets"][1]]
        for name, entry in entries.items()
        if name != "__metadata__"
    }


def weights(seed: int, shapes: Mapping[str, tuple[int, int]]) -> Tensors:
    """Return finite BF16 weights of all bits."""
    random = np.random.default_rng(seed)
    return {name: ("BF16", random.integers(0, 0x7F80, shape, np.uint16)) for name, shape in shapes.items()}


@dataclass(frozen=True)
class Example:
    """A source directory with its plan, and what each tensor of the output has to be."""

    source: LocalStore
    plan: Plan
    expected: dict[str, dict[str, bytes]]


def example(
    folder: Path,
    *,
    shards: int = 3,
    rows: int = 600,
    columns: int = 700,
    not_finite: NotFinite = NotFinite.REFUSE,
) -> Example:
    """Make a source of some shards, each with two weights split into bytes, a fused pair and a copied tensor."""
    folder.mkdir(parents=True)
    headers, tensors = {}, {}
    for number in range(shards):
        name = f"model-{number}.safetensors"
        shapes = {f"{number}.{part}.weight": (rows + at, columns + at) for at, part in enumerate("abqk")}
        tensors[name] = weights(number, shapes) | {f"{number}.norm": ("BF16", np.arange(columns, dtype=np.uint16))}
        headers[name] = write_safetensors(folder / name, tensors[name])
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text('{"a": 1}' * 1000)
    return planned(folder, headers, tensors, not_finite)


def planned(
    folder: Path, headers: Mapping[str, Header], tensors: Mapping[str, Tensors], not_finite: NotFinite
) -> Example:
    """Return the plan of a source with these files."""
    tasks: list[Task] = []
    expected: dict[str, dict[str, bytes]] = {}
    for name, header in headers.items():
        ranges = {entry.name: _range(name, entry) for entry in header.tensors}
        steps: list[Step] = []
        outputs: list[tuple[str, str, tuple[int, ...]]] = []
        expected[name] = {}
        fused = [tensor for tensor in ranges if tensor.endswith((".q.weight", ".k.weight"))]
        least = min((tensors[name][tensor][1].min() for tensor in fused if tensors[name][tensor][1].size), default=0)
        largest = max((tensors[name][tensor][1].max() for tensor in fused if tensors[name][tensor][1].size), default=0)
        for tensor, place in ranges.items():
            bits = tensors[name][tensor][1]
            module = tensor.removesuffix(".weight")
            if module == tensor:
                steps.append(CopyStep(place, tensor))
                outputs.append((tensor, place.dtype, place.shape))
                expected[name][tensor] = bits.tobytes()
                continue
            if tensor in fused:
                partners = tuple(ranges[other] for other in fused if other != tensor)
                step = QuantizeStep(module, place, ABOVE_LEAST, partners)
                expected[name][f"{module}.weight_distance"] = (bits - least).tobytes()
                expected[name][f"{module}.weight_largest"] = np.uint16(largest).tobytes()
            else:
                step = QuantizeStep(module, place, BYTES)
                expected[name][f"{module}.weight_high"] = (bits >> 8).astype(np.uint8).tobytes()
                expected[name][f"{module}.weight_low"] = bits.astype(np.uint8).T.tobytes()
                expected[name][f"{module}.weight_shape"] = np.array(bits.shape, np.int64).tobytes()
            steps.append(step)
            shape = (place.shape[0], place.shape[1])
            outputs += [(f"{module}.{one.suffix}", one.dtype, one.shape) for one in step.format.stored("BF16", shape)]
        output = layout(outputs)
        tasks.append(Task(name, output, tuple(steps)))
    source = LocalStore(folder)
    files = {file.name: file for file in source.files()}
    plan = Plan(
        Request(Direction.QUANTIZE, (SchemeFor("bytes"),), "none", not_finite=not_finite),
        sha256(repr((files, not_finite)).encode()).hexdigest(),
        tuple(files[name] for name in headers),
        tuple(tasks),
        tuple(files[name] for name in ("tokenizer.json",) if name in files),
        b'{"weight_map": {}}',
        b'{"quantization_config": {}}',
    )
    return Example(source, plan, expected)


def backwards(forwards: Example, converted: Path) -> Plan:
    """Return the plan that makes the split weights of an example whole again."""
    source = LocalStore(converted)
    files = {file.name: file for file in source.files()}
    tasks = []
    for task in forwards.plan.tasks:
        places = {entry.name: _range(task.output, entry) for entry in task.header.tensors}
        split = [step for step in task.steps if isinstance(step, QuantizeStep) and step.format is BYTES]
        header = layout([(f"{step.module}.weight", "BF16", step.source.shape) for step in split])
        steps = [
            DequantizeStep(
                QuantizedSource(
                    step.module,
                    {
                        suffix: places[f"{step.module}.{suffix}"]
                        for suffix in ("weight_high", "weight_low", "weight_shape")
                    },
                    BYTES,
                    "BF16",
                    (step.source.shape[0], step.source.shape[1]),
                ),
                f"{step.module}.weight",
            )
            for step in split
        ]
        tasks.append(Task(task.output, header, tuple(steps)))
    request = Request(Direction.DEQUANTIZE, (), "none")
    sources = tuple(files[task.output] for task in tasks)
    return Plan(request, "back", sources, tuple(tasks), (), None, b"{}")


def _range(file: str, entry: TensorEntry) -> SourceRange:
    return SourceRange(file, entry.name, entry.dtype, entry.shape, entry.begin, entry.end)
