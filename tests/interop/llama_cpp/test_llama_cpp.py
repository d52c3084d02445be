"""GGUF files of ours beside llama.cpp's: the bytes of its quantizer, and their evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from requant.checkpoint.gguf.plan import _SKIPPED_NAMES, _SKIPPED_PARTS
from requant.checkpoint.gguf.quantize import quantize_gguf
from requant.checkpoint.gguf.tensor_types import FILE_TYPES, FLOATS, TENSOR_TYPES, read_elements, write_elements
from requant.checkpoint.storage.local import LocalStore
from requant.convert.blocks.gguf import GGUF_FORMATS
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import Subject, blocks, checkpoint
from tests.interop.llama_cpp import tiny_model
from tests.interop.llama_cpp.library import logits, needs_llama_cpp, quantize_pure, quantize_rows

pytestmark = pytest.mark.interop

QUANTIZED = [name for name in FILE_TYPES if name not in FLOATS]


def converted(source: Path, type_: str) -> Path:
    store, target = LocalStore(source.parent), source.with_name(f"{source.stem}-{type_}.gguf")
    if not target.exists():
        quantize_gguf(store, source.name, store, target.name, type_)
    return target


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The tiny model by the type of its matrices, and one with tensors of all names that llama.cpp keeps."""
    directory = tmp_path_factory.mktemp("models")
    found = {type_: directory / f"{type_}.gguf" for type_ in FLOATS}
    for type_, path in found.items():
        tiny_model.write(path, type_)
    kept = {part if part.startswith(".") else f".{part}" for part in _SKIPPED_PARTS}
    more: tiny_model.Shapes = {f"blk.0{part.removesuffix('.weight')}.weight": (2, 256) for part in kept}
    more |= dict.fromkeys(_SKIPPED_NAMES, (2, 256))
    more |= {
        "blk.1.some.bias": (2, 256),
        "blk.1.ffn_gate_exps.weight": (3, 4, 256),
        "blk.10.x.weight": (2, 256),
        "blk.9.x.weight": (2, 256),
        "blk.0.one_row.weight": (1, 256),
        "blk.0.some_weight": (4, 256),
        "blk.0.someweight": (4, 256),
    }
    found["kept"] = directory / "kept.gguf"
    tiny_model.write(found["kept"], "F32", more)
    found["odd"] = directory / "odd.gguf"
    tiny_model.write(found["odd"], "F32", {"blk.0.odd.weight": (4, 96), "blk.0.odder.weight": (4, 20)})
    return found


@needs_llama_cpp
@pytest.mark.parametrize("type_", FILE_TYPES)
@pytest.mark.parametrize("source", [*FLOATS, "kept"])
def test_files_equal_those_of_llama_quantize(source: str, type_: str, models: dict[str, Path], tmp_path: Path) -> None:
    ours, theirs = converted(models[source], type_), tmp_path / "theirs.gguf"
    assert quantize_pure(models[source], theirs, FILE_TYPES[type_]) == 0
    assert ours.read_bytes() == theirs.read_bytes()
    print(f"llama-quantize --pure: {theirs.stat().st_size:,} bytes of a file of {type_} compared")  # noqa: T201


@needs_llama_cpp
@pytest.mark.parametrize("type_", QUANTIZED)
def test_rows_that_are_not_whole_blocks(type_: str, models: dict[str, Path], tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.gguf"
    assert quantize_pure(models["odd"], theirs, FILE_TYPES[type_]) == 0
    assert converted(models["odd"], type_).read_bytes() == theirs.read_bytes()


@needs_llama_cpp
@pytest.mark.parametrize("type_", QUANTIZED)
@pytest.mark.parametrize("target", FLOATS)
def test_files_become_floats_as_llama_quantize_makes_them(
    type_: str, target: str, models: dict[str, Path], tmp_path: Path
) -> None:
    quantized, theirs = converted(models["F16"], type_), tmp_path / "theirs.gguf"
    assert quantize_pure(quantized, theirs, FILE_TYPES[target]) == 0
    assert converted(quantized, target).read_bytes() == theirs.read_bytes()


@needs_llama_cpp
@pytest.mark.parametrize("type_", FILE_TYPES)
def test_llama_cpp_evaluates_the_files(type_: str, models: dict[str, Path]) -> None:
    tokens = [1, 20, 30, 40, 50, 263, 270]
    reference = logits(models["F16"], tokens, tiny_model.VOCABULARY)
    found = logits(converted(models["F16"], type_), tokens, tiny_model.VOCABULARY)
    assert np.isfinite(found).all()
    least = {"Q4_0": 0.9, "Q4_1": 0.9, "MXFP4": 0.85, "TQ1_0": -0.5, "TQ2_0": -0.5}.get(type_, 0.98)
    assert np.corrcoef(found, reference)[0, 1] > least


def rows() -> NDArray[Any]:
    random = np.random.default_rng(7)
    scales = np.exp2(random.integers(-40, 12, (4000, 8))).repeat(32, axis=1)
    below = np.nextafter(np.exp2(random.integers(-60, 12, (200, 8))).astype(np.float32), np.float32(0))
    values = [
        random.standard_normal((4000, 256)) * scales,
        random.integers(-24, 25, (1000, 256)) / 4,
        below.repeat(32, axis=1) * (random.integers(-4, 5, (200, 256)) / 4),
        np.resize([0.0, -0.0, -0.0], (3, 256)),
    ]
    whole: NDArray[Any] = np.concatenate(values).astype(np.float32)
    clipped: NDArray[Any] = np.clip(whole, -60000, 60000)
    return clipped


def in_blocks(type_: str, operation: str) -> list[Subject]:
    """The block format that is computed by the same arithmetic."""
    return [blocks(type_, operation)] if type_ in GGUF_FORMATS else []


@needs_llama_cpp
@pytest.mark.parametrize("type_", FILE_TYPES)
def test_blocks_equal_ggml(type_: str) -> None:
    values, row = rows(), TENSOR_TYPES[type_]
    found = write_elements(values.reshape(-1), row).tobytes()
    assert found == quantize_rows(row.number, values, row.size(values.size))
    record(systems.LLAMA_CPP, [checkpoint(type_, "quantize", "GGUF"), *in_blocks(type_, "quantize")], values.size)
    print(f"ggml_quantize_chunk: {len(found):,} bytes of {type_} compared")  # noqa: T201


@pytest.mark.parametrize("type_", FILE_TYPES)
def test_blocks_equal_gguf_py(type_: str) -> None:
    """But for the sign of the scale of a block of zeros whose first one is -0 (Q4_0, Q5_0)."""
    values, row, number = rows()[:-3], TENSOR_TYPES[type_], gguf.GGMLQuantizationType[type_]
    theirs = np.ascontiguousarray(gguf.quants.quantize(values, number)).view(np.uint8)
    assert write_elements(values.reshape(-1), row).tobytes() == theirs.tobytes()
    shaped = theirs if type_ not in ("F32", "F16") else theirs.view({"F32": "<f4", "F16": "<f2"}[type_])
    back = np.asarray(gguf.quants.dequantize(shaped, number), np.float32)
    assert read_elements(theirs.reshape(-1), row).tobytes() == back.tobytes()
    for operation in ("quantize", "dequantize"):
        record(systems.GGUF, [checkpoint(type_, operation, "GGUF"), *in_blocks(type_, operation)], values.size)


@pytest.mark.parametrize("type_", FILE_TYPES)
def test_gguf_py_reads_the_files(type_: str, models: dict[str, Path]) -> None:
    reader = gguf.GGUFReader(converted(models["BF16"], type_))
    assert reader.fields["general.file_type"].contents() == FILE_TYPES[type_]
    assert {tensor.name: tuple(reversed(tensor.shape.tolist())) for tensor in reader.tensors} == tiny_model.shapes()
    for tensor in reader.tensors:
        assert tensor.tensor_type.name == (type_ if len(tensor.shape) > 1 else "F32")
