"""Models and external data as they are read: without large initializers, and with nothing trusted."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto

from requant.checkpoint.onnx.block_quantization import form_named
from requant.checkpoint.onnx.graph import TensorFiles
from requant.checkpoint.onnx.plan import plan_onnx
from requant.checkpoint.onnx.skeleton import read_skeleton
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.storage.store import file_named
from requant.errors import CheckpointError, StorageError
from tests.support import onnx_models as models

Array = NDArray[Any]

WEIGHT = (np.arange(64 * 48, dtype="<f4") - 1000).reshape(64, 48)


def product(weight: TensorProto, **options: int) -> ModelProto:
    nodes = [models.node("MatMul", ["x", weight.name], ["y"], "product")]
    return models.model(nodes, [weight], [models.value("x", "n", 64)], [models.value("y", "n", 48)], **options)


def skeleton(directory: Path, made: ModelProto) -> ModelProto:
    models.save(made, directory / "m.onnx")
    store = LocalStore(directory)
    found = ModelProto()
    found.ParseFromString(read_skeleton(store, file_named(store, "m.onnx")))
    return found


def test_large_initializers_stay_in_the_file(tmp_path: Path) -> None:
    then = models.model([], [models.tensor("inner", WEIGHT)], [], []).graph
    small = models.tensor("small", WEIGHT[:2, :3].copy())
    packed = TensorProto(name="packed", data_type=1, dims=(64, 48), float_data=WEIGHT.reshape(-1))
    made = models.model(
        [models.node("If", ["c"], ["y"], then_branch=then)], [models.tensor("w", WEIGHT), small, packed], [], []
    )
    found = skeleton(tmp_path, made)
    inner = found.graph.node[0].attribute[0].g.initializer[0]
    assert found.graph.initializer[1] == small
    for each in (found.graph.initializer[0], found.graph.initializer[2], inner):
        assert models.bytes_of(each, tmp_path) == WEIGHT.tobytes()
    assert found.ByteSize() < 1000
    files = TensorFiles(LocalStore(tmp_path), "m.onnx")
    assert files.data_of(inner).read(LocalStore(tmp_path), 48 * 4, 8).tobytes() == WEIGHT[1, :2].tobytes()


def test_small_weights_of_all_encodings_are_read(tmp_path: Path) -> None:
    values = WEIGHT[:4, :4].copy()
    as_halves = values.astype("<f2")
    tensors = {
        models.tensor("raw", values).SerializeToString(): values.tobytes(),
        TensorProto(data_type=1, dims=(4, 4), float_data=values.reshape(-1)).SerializeToString(): values.tobytes(),
        TensorProto(
            data_type=10, dims=(4, 4), int32_data=as_halves.view("<u2").astype("<i4").reshape(-1)
        ).SerializeToString(): as_halves.tobytes(),
    }
    files = TensorFiles(LocalStore(tmp_path), "m.onnx")
    for encoded, expected in tensors.items():
        tensor = TensorProto()
        tensor.ParseFromString(encoded)
        assert files.data_of(tensor).read(LocalStore(tmp_path), 0, len(expected)).tobytes() == expected
    tensor.dims[0] = 5
    with pytest.raises(CheckpointError, match="holds 32 bytes; its shape and type require 40"):
        files.data_of(tensor)


SIZE = WEIGHT.nbytes
EXTERNAL: dict[str, tuple[dict[str, str], str]] = {
    "no location": ({"location": ""}, "not a plain relative path"),
    "parent": ({"location": "../data"}, "not a plain relative path"),
    "parent below": ({"location": "sub/../data"}, "not a plain relative path"),
    "absolute": ({"location": "/etc/passwd"}, "not a plain relative path"),
    "dot": ({"location": "./data"}, "not a plain relative path"),
    "backslash": ({"location": "..\\data"}, "not a plain relative path"),
    "drive": ({"location": "C:data"}, "not a plain relative path"),
    "missing": ({"location": "other"}, "which does not exist"),
    "a directory": ({"location": "folder"}, "which does not exist"),
    "link out": ({"location": "link"}, "a link that points outside"),
    "link to a folder out": ({"location": "linked/data"}, "a link that points outside"),
    "negative offset": ({"offset": "-1"}, "not a byte count"),
    "offset in hexadecimal": ({"offset": "0x10"}, "not a byte count"),
    "offset beyond": ({"offset": "100"}, "end at 12388 of"),
    "offset of 2^64": ({"offset": str(1 << 64)}, "not a byte count"),
    "short length": ({"length": str(SIZE - 4)}, f"have {SIZE - 4} bytes; its shape and type require {SIZE}"),
    "long length": ({"length": str(SIZE + 4)}, "require"),
    "unknown entry": ({"compression": "zip"}, "is unknown"),
}


@pytest.mark.parametrize("name", EXTERNAL)
def test_external_data_are_in_the_directory_and_whole(name: str, tmp_path: Path) -> None:
    entries, message = EXTERNAL[name]
    directory, outside = tmp_path / "model", tmp_path / "outside"
    for each in (directory / "folder", outside):
        each.mkdir(parents=True)
    for each in (directory / "data", outside / "data"):
        each.write_bytes(WEIGHT.tobytes())
    (directory / "link").symlink_to(outside / "data")
    (directory / "linked").symlink_to(outside)
    whole = {"location": "data", "offset": "0", "length": str(SIZE)}
    models.save(product(models.external("w", WEIGHT.shape, **{**whole, **entries})), directory / "m.onnx")
    with pytest.raises(CheckpointError, match=message) as error:
        plan_onnx(LocalStore(directory), "m.onnx", "q.onnx", form_named("MatMulNBits4"))
    assert error.value.tensor == "w"
    models.save(product(models.external("w", WEIGHT.shape, "data")), directory / "m.onnx")
    assert plan_onnx(LocalStore(directory), "m.onnx", "q.onnx", form_named("MatMulNBits4")).weights


def test_a_key_of_external_data_twice_is_refused(tmp_path: Path) -> None:
    tensor = models.external("w", WEIGHT.shape, "data")
    tensor.external_data.add(key="location", value="data")
    models.save(product(tensor), tmp_path / "m.onnx")
    with pytest.raises(CheckpointError, match="twice"):
        plan_onnx(LocalStore(tmp_path), "m.onnx", "q.onnx", form_named("MatMulNBits4"))


@pytest.mark.parametrize("names", [("m\udcff.onnx", "q.onnx"), ("m.onnx", "q\udcff.onnx")])
def test_names_of_files_that_are_not_utf_8_are_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    """They would be locations of external data, which are texts of protobuf."""
    models.save(product(models.tensor("w", WEIGHT)), tmp_path / names[0])
    with pytest.raises(CheckpointError, match=r"\\udcff\.onnx' is not UTF-8"):
        plan_onnx(LocalStore(tmp_path), *names, form_named("MatMulNBits4"))


# A graph with a field of wire type 3, which protobuf has given up.
_GROUP = b"\x3a\x05" + b"\x0b" * 5


def test_other_files_are_no_models(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with pytest.raises(StorageError, match=r"no file 'm\.onnx'"):
        plan_onnx(store, "m.onnx", "q.onnx", form_named("MatMulNBits4"))
    for data in (
        b"",
        b"{}",
        b"\x3a\xff",
        b"\x08\x0a",
        random.Random(6).randbytes(5000),
        b"\x80" * 40,
        b"\x3a\x05" + b"\x0b" * 5,
    ):
        (tmp_path / "m.onnx").write_bytes(data)
        with pytest.raises(CheckpointError, match=r"an ONNX model"):
            plan_onnx(store, "m.onnx", "q.onnx", form_named("MatMulNBits4"))


def message_field(number: int, data: bytes) -> bytes:
    length = bytes([len(data) & 0x7F | 0x80, len(data) >> 7 & 0x7F | 0x80, len(data) >> 14])
    return bytes([number << 3 | 2]) + length + data


def test_graphs_that_are_nested_too_deep_are_refused(tmp_path: Path) -> None:
    graph = models.model([], [models.tensor("w", WEIGHT)], [], []).graph.SerializeToString()
    for _ in range(1000):
        graph = message_field(1, message_field(5, message_field(6, graph)))
    (tmp_path / "m.onnx").write_bytes(b"\x08\x0a" + message_field(7, graph))
    with pytest.raises(CheckpointError, match="nested more than"):
        plan_onnx(LocalStore(tmp_path), "m.onnx", "q.onnx", form_named("MatMulNBits4"))


def test_graphs_of_very_many_fields_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two bytes of an empty attribute are hundreds in memory."""
    monkeypatch.setattr("requant.checkpoint.onnx.skeleton._MAX_FIELDS", 20_000)
    node = message_field(1, b"\x2a\x00" * 500)
    (tmp_path / "m.onnx").write_bytes(b"\x08\x0a" + b"".join(message_field(7, node * 10) for _ in range(5)))
    with pytest.raises(CheckpointError, match="more than 20,000 fields"):
        plan_onnx(LocalStore(tmp_path), "m.onnx", "q.onnx", form_named("MatMulNBits4"))
    (tmp_path / "m.onnx").write_bytes(b"\x08\x0a" + message_field(7, message_field(13, b"\x2a\x00" * 500) * 10))
    with pytest.raises(CheckpointError, match="nothing can be quantized"):
        plan_onnx(LocalStore(tmp_path), "m.onnx", "q.onnx", form_named("MatMulNBits4"))


def test_a_number_that_does_not_end_is_not_followed(tmp_path: Path) -> None:
    """Digits of a number that is as long as its message would be put together for minutes."""
    (tmp_path / "m.onnx").write_bytes(b"\x08\x0a" + message_field(7, message_field(13, b"\xff" * 2_000_000)))
    with pytest.raises(CheckpointError, match="protobuf cannot read it"):
        plan_onnx(LocalStore(tmp_path), "m.onnx", "q.onnx", form_named("MatMulNBits4"))


def test_any_cut_and_any_changed_byte_is_read_or_refused(tmp_path: Path) -> None:
    """Nothing but CheckpointError is raised, whatever the bytes."""
    models.save(product(models.tensor("w", WEIGHT)), tmp_path / "whole")
    whole, store, chosen = (tmp_path / "whole").read_bytes(), LocalStore(tmp_path), random.Random(5)
    end = whole.index(WEIGHT.tobytes())
    tail = end + SIZE
    places = [*range(end), *range(tail, len(whole))]
    changed = [whole[:place] for place in (*places, end + 5000)]
    for _ in range(300):
        data = bytearray(whole)
        data[chosen.choice(places)] = chosen.choice([0, 1, 0x7F, 0x80, 0xFF, chosen.randrange(256)])
        changed.append(bytes(data))
    refused = 0
    for each in changed:
        (tmp_path / "m.onnx").write_bytes(each)
        try:
            plan_onnx(store, "m.onnx", "q.onnx", form_named("MatMulNBits4"))
        except CheckpointError:
            refused += 1
    assert 200 < refused < len(changed)
