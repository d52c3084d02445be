"""Importance matrices: both forms that llama-imatrix writes, and files that are neither."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.checkpoint.gguf.header import Key, string_value, u32_value
from requant.checkpoint.gguf.importance import ImportanceMatrix, read_importance
from requant.checkpoint.storage.local import LocalStore
from requant.errors import CheckpointError, StorageError
from tests.support.gguf_files import GgufFile, Tensor, legacy_importance, string, strings, u32

Array = NDArray[Any]

SUMS = np.array([3, 6, 9, 12, 1, 2, 3, 4], "<f4")
METADATA = [
    ("general.type", string("imatrix")),
    ("imatrix.datasets", strings(["wiki.train", "other"])),
    ("imatrix.chunk_count", u32(12)),
    ("imatrix.chunk_size", u32(512)),
]


def tensors(name: str = "a.weight", sums: Array = SUMS, counts: tuple[float, ...] = (3, 0)) -> list[Tensor]:
    stored = np.array(counts, "<f4")
    return [
        Tensor(f"{name}.in_sum2", [sums.size // max(len(counts), 1), len(counts)], 0, sums.tobytes()),
        Tensor(f"{name}.counts", [1, len(counts)], 0, stored.tobytes()),
    ]


def read(directory: Path, data: bytes) -> ImportanceMatrix:
    (directory / "i.gguf").write_bytes(data)
    return read_importance(LocalStore(directory), "i.gguf", "some/i.gguf")


def test_the_form_of_gguf(tmp_path: Path) -> None:
    more = [*tensors("b.weight", SUMS[:2], (7,)), Tensor("c.weight.in_sum", [1], 0, bytes(4))]
    found = read(tmp_path, GgufFile([*tensors(), *more], METADATA).to_bytes())
    assert found.find("a.weight", 4, 2)
    assert found.of_columns("a.weight", 4, 0).tolist() == [1, 2, 3, 4]
    # Of an expert that no token reached.
    assert found.of_columns("a.weight", 4, 1).tolist() == [1, 1, 1, 1]
    assert found.of_columns("b.weight", 2, 0).tolist() == (SUMS[:2] / np.float32(7)).tolist()
    assert not found.find("c.weight", 1, 1)
    assert found.keys() == [
        Key("quantize.imatrix.file", string_value(b"some/i.gguf")),
        Key("quantize.imatrix.dataset", string_value(b"wiki.train")),
        Key("quantize.imatrix.entries_count", u32_value(2)),
        Key("quantize.imatrix.chunks_count", u32_value(12)),
    ]


def test_counts_are_rounded(tmp_path: Path) -> None:
    found = read(tmp_path, GgufFile(tensors(counts=(2.5, 0.4)), METADATA).to_bytes())
    assert found.of_columns("a.weight", 4, 0).tolist() == [1, 2, 3, 4]
    assert found.of_columns("a.weight", 4, 1).tolist() == [1, 1, 1, 1]


def test_the_older_form(tmp_path: Path) -> None:
    data = legacy_importance({"a.weight": SUMS, "b.weight": SUMS[:2]}, 3, 12, "wiki.train")
    found = read(tmp_path, data)
    assert found.of_columns("a.weight", 4, 1).tolist() == (SUMS[4:] / np.float32(3)).tolist()
    assert [key.name for key in found.keys()] == [  # noqa: SIM118
        *("quantize.imatrix.file", "quantize.imatrix.dataset"),
        *("quantize.imatrix.entries_count", "quantize.imatrix.chunks_count"),
    ]
    # What comes after the entries may be missing; without a count the sums stay.
    found = read(tmp_path, legacy_importance({"a.weight": SUMS}, 0))
    assert found.of_columns("a.weight", 8, 0).tolist() == SUMS.tolist()
    assert [key.name for key in found.keys()] == ["quantize.imatrix.file", "quantize.imatrix.entries_count"]  # noqa: SIM118


def test_long_texts_are_cut_as_llama_quantize_cuts_them(tmp_path: Path) -> None:
    (tmp_path / "i").write_bytes(legacy_importance({"a.weight": SUMS}, 1, 2, "d" * 200))
    found = read_importance(LocalStore(tmp_path), "i", "p" * 300)
    file, dataset = found.keys()[:2]
    assert file.value == string_value(b"p" * 127)
    assert dataset.value == string_value(b"d" * 127)


def test_a_matrix_of_another_model(tmp_path: Path) -> None:
    found = read(tmp_path, legacy_importance({"a.weight": SUMS, "token_embd.weight": SUMS}, 1))
    assert not found.find("b.weight", 8, 1)
    assert not found.find("token_embd.weight", 16, 1)
    with pytest.raises(CheckpointError, match=r"has 8 sums of 'a.weight', which has 1 x 16 columns: .*another model"):
        found.find("a.weight", 16, 1)


def test_a_sum_that_is_not_finite(tmp_path: Path) -> None:
    for data in (
        legacy_importance({"a.weight": np.array([1, np.nan], "<f4")}, 1),
        GgufFile(tensors(sums=np.array([1, np.inf], "<f4"), counts=(2,)), METADATA).to_bytes(),
    ):
        found = read(tmp_path, data)
        with pytest.raises(CheckpointError, match=r"a sum of 'a.weight' that is not finite"):
            found.of_columns("a.weight", 2, 0)


def number(value: int) -> bytes:
    return struct.pack("<i", value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "4 bytes at 0 are not in its 0"),
        (number(0) * 3, "declares 0 entries"),
        (number(1 << 20) * 3, "declares 1048576 entries"),
        (number(1) + number(-1) + bytes(20), "-1 bytes at 8 are not in its 28"),
        (number(1) + number(100) + bytes(20), "100 bytes at 8"),
        (number(1) + number(1 << 30) + bytes(20), "a text of 1073741824 bytes"),
        (number(1) + number(1) + b"\xff" + bytes(20), "the text that ends at 9 is not UTF-8"),
        (number(1) + number(1) + b"a" + number(1) + number(0) + bytes(9), "'a' has 0 sums"),
        (number(1) + number(1) + b"a" + number(1) + number(9) + bytes(9), "'a' has 9 sums at 17, of 26 bytes"),
        (legacy_importance({"a": SUMS}, 1) + b"x", "4 bytes at"),
        (GgufFile(tensors(), METADATA[:2]).to_bytes(), "lacks imatrix.datasets, imatrix.chunk_count or"),
        (GgufFile(tensors(), [METADATA[0], *METADATA[2:], ("imatrix.datasets", u32(1))]).to_bytes(), "lacks"),
        (GgufFile(tensors()[:1], METADATA).to_bytes(), "without their counts, or other types than F32"),
        (GgufFile([tensors()[0], Tensor("a.weight.counts", [2], 26, bytes(8))], METADATA).to_bytes(), "other types"),
        (GgufFile([Tensor("a", [1], 0, bytes(4))], METADATA).to_bytes(), "has no importance of any weight"),
        (b"GGUF" + bytes(40), "cannot be read as a GGUF file"),
    ],
)
def test_files_that_are_no_importance_matrix(data: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=message):
        read(tmp_path, data)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        read_importance(LocalStore(tmp_path), "i.gguf", "i.gguf")
