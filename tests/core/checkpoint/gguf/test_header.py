"""Headers of GGUF files: what is read, and that no number in them is trusted."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from requant.checkpoint.gguf.header import GgufHeader, read_header
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.storage.store import file_named
from requant.errors import CheckpointError
from tests.support.gguf_files import GgufFile, Tensor, string, strings, text, u32


def read(directory: Path, data: bytes) -> GgufHeader:
    (directory / "m.gguf").write_bytes(data)
    store = LocalStore(directory)
    return read_header(store, file_named(store, "m.gguf"))


def file(**changes: object) -> GgufFile:
    made = GgufFile([Tensor("a.weight", [32, 2], 0, bytes(256)), Tensor("b", [3], 0, bytes(12))])
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def with_key(name: str, value: bytes, alignment: int = 32) -> bytes:
    return file(keys=[(name, value)], alignment=alignment).to_bytes()


def test_keys_and_tensors_are_read(tmp_path: Path) -> None:
    keys = [("general.name", string("tiny")), ("list", strings(["a", "", "é"])), ("general.alignment", u32(64))]
    header = read(tmp_path, file(keys=keys, alignment=64).to_bytes())
    assert [(key.name, key.value) for key in header.keys] == keys
    assert [(each.name, each.dimensions, each.type.name, each.offset) for each in header.tensors] == [
        ("a.weight", (32, 2), "F32", 0),
        ("b", (3,), "F32", 256),
    ]
    assert header.alignment == 64
    assert header.data % 64 == 0
    assert read(tmp_path, GgufFile().to_bytes()).tensors == ()


def array(type_: int, count: int, data: bytes) -> bytes:
    return struct.pack("<IIQ", 9, type_, count) + data


def tensor(**changes: object) -> bytes:
    made = Tensor("a.weight", [32, 2], 0, bytes(256))
    for name, value in changes.items():
        setattr(made, name, value)
    return GgufFile([made]).to_bytes()


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "'GGUF'"),
    "magic": (lambda: file(magic=b"GGML").to_bytes(), "'GGUF'"),
    "version 2": (lambda: file(version=2).to_bytes(), "version is 2"),
    "big-endian": (lambda: file(version=3 << 24).to_bytes(), "big-endian"),
    "2^63 tensors": (lambda: file(tensor_count=1 << 63).to_bytes(), "tensors, more than"),
    "2^63 keys": (lambda: file(key_count=1 << 63).to_bytes(), "keys, more than"),
    "one tensor more": (lambda: GgufFile(tensor_count=1).to_bytes(), "beyond the file"),
    "long name of a key": (lambda: file(keys=[]).to_bytes()[:16] + struct.pack("<QQ", 1, 1 << 62) + bytes(64), "bytes"),
    "string beyond the file": (lambda: with_key("k", struct.pack("<IQ", 8, 1 << 40)), "beyond the file"),
    "array beyond the file": (lambda: with_key("k", array(10, 1 << 60, b"")), "elements of an array, more than"),
    "strings beyond the file": (lambda: with_key("k", array(8, 1 << 60, b"")), "elements of an array, more than"),
    "array of arrays": (lambda: with_key("k", array(9, 1, array(4, 0, b""))), "elements of type 9"),
    "type of a value": (lambda: with_key("k", struct.pack("<I", 13)), "type 13"),
    "very many keys": (lambda: file(key_count=70_000).to_bytes() + bytes(1 << 20), "70000 keys; at most 65536"),
    "key twice": (lambda: file(keys=[("k", u32(1)), ("k", u32(1))]).to_bytes(), "twice"),
    "name not UTF-8": (lambda: tensor(name=b"\xff.weight"), "UTF-8"),
    "name of 64 bytes": (lambda: tensor(name="w" * 64), "64 bytes; at most 63"),
    "tensor twice": (lambda: file(tensors=[Tensor("a", [8], 0, bytes(32))] * 2).to_bytes(), "twice"),
    "alignment 0": (lambda: with_key("general.alignment", u32(0)), "power of two"),
    "alignment 48": (lambda: with_key("general.alignment", u32(48)), "power of two"),
    "alignment 2^31": (lambda: with_key("general.alignment", u32(1 << 31)), "power of two"),
    "alignment a string": (lambda: with_key("general.alignment", string("32")), "not a u32"),
    "rank 5": (lambda: tensor(dimensions=[2, 2, 2, 2, 2]), "5 dimensions"),
    "rank 2^32 - 1": (lambda: tensor().replace(struct.pack("<IQQ", 2, 32, 2), b"\xff" * 20), "4294967295 dimensions"),
    "2^64 elements": (lambda: tensor(dimensions=[1 << 32, 1 << 32]), "2\\^63"),
    "0 times 2^64 - 1": (lambda: tensor(dimensions=[0, (1 << 64) - 1]), "2\\^63"),
    "type 4": (lambda: tensor(type=4), "type 4"),
    "half a block": (lambda: tensor(type=8, dimensions=[48, 2]), "multiple of the 32"),
    "hole": (lambda: tensor(offset=32), "0 was expected"),
    "overlap": (
        lambda: file(tensors=[Tensor("a", [8], 0, bytes(32)), Tensor("b", [8], 0, b"", offset=0)]).to_bytes(),
        "32 was expected",
    ),
    "data beyond the file": (lambda: tensor(dimensions=[32, 3]), "beyond the file"),
    "truncated": (lambda: tensor()[:-1], "beyond the file"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(name: str, tmp_path: Path) -> None:
    make, message = HOSTILE[name]
    with pytest.raises(CheckpointError, match=message):
        read(tmp_path, make())


def test_any_cut_and_any_changed_byte_is_read_or_refused(tmp_path: Path) -> None:
    """Nothing but CheckpointError is raised, whatever the bytes."""
    keys = [("general.alignment", u32(32)), ("list", strings(["a", "bc"])), ("f", struct.pack("<If", 6, 1.5))]
    whole = file(keys=keys).to_bytes()
    chosen = random.Random(4)
    refused = 0
    changed = [whole[:length] for length in range(0, len(whole), 7)]
    for _ in range(400):
        data = bytearray(whole)
        data[chosen.randrange(len(whole) - 260)] = chosen.choice([0, 1, 255, chosen.randrange(256)])
        changed.append(bytes(data))
    for each in changed:
        try:
            read(tmp_path, each)
        except CheckpointError:
            refused += 1
    assert 200 < refused < len(changed)


def test_text_is_a_length_and_bytes() -> None:
    assert text("é") == b"\x02\0\0\0\0\0\0\0\xc3\xa9"
