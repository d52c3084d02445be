"""GGUF files converted as a whole: what becomes of tensors and keys, what is refused, when the file is there."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.checkpoint.gguf.header import read_header
from requant.checkpoint.gguf.importance import read_importance
from requant.checkpoint.gguf.plan import plan_gguf
from requant.checkpoint.gguf.quantize import quantize_gguf
from requant.checkpoint.gguf.tensor_types import TENSOR_TYPES, write_elements
from requant.checkpoint.run.work import Progress
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.storage.local_writer import LocalWriter
from requant.checkpoint.storage.store import file_named
from requant.errors import CheckpointError, DestinationError, UnknownNameError
from tests.support.gguf_files import GgufFile, Tensor, legacy_importance, string, u32

Array = NDArray[Any]

RANDOM = np.random.default_rng(11)


def f32(*shape: int) -> Array:
    return (RANDOM.standard_normal(shape) * 0.1).astype("<f4")


def tensor(name: str, values: Array, type_: str = "F32") -> Tensor:
    stored = write_elements(values.reshape(-1), TENSOR_TYPES[type_])
    return Tensor(name, list(reversed(values.shape)), TENSOR_TYPES[type_].number, stored.tobytes())


WEIGHTS = {name: f32(12, 256) for name in ("blk.10.ffn_up.weight", "blk.9.ffn_up.weight", "output.weight")}


def source(
    directory: Path, *more: Tensor, type_: str = "F32", keys: list[tuple[str, bytes]] | None = None
) -> LocalStore:
    tensors = [tensor(name, values, type_) for name, values in WEIGHTS.items()]
    norm = tensor("blk.9.attn_norm.weight", f32(256))
    made = GgufFile([*tensors, norm, *more])
    if keys is not None:
        made.keys = keys
    (directory / "m.gguf").write_bytes(made.to_bytes())
    return LocalStore(directory)


def tensors_of(store: LocalStore, name: str) -> dict[str, tuple[str, bytes]]:
    header = read_header(store, file_named(store, name))
    data = (store.directory / name).read_bytes()
    return {
        each.name: (each.type.name, data[header.data + each.offset : header.data + each.offset + each.size])
        for each in header.tensors
    }


def test_weights_are_converted_and_the_rest_is_copied(tmp_path: Path) -> None:
    keys = [
        ("general.architecture", string("llama")),
        ("general.file_type", u32(0)),
        ("general.name", string("tiny")),
    ]
    bias, router = f32(256), f32(4, 256)
    store = source(tmp_path, tensor("a.bias", bias), tensor("blk.9.ffn_gate_inp.weight", router), keys=keys)
    seen: list[Progress] = []
    result = quantize_gguf(store, "m.gguf", store, "q.gguf", "Q8_0", threads=2, progress=seen.append)
    header = read_header(store, file_named(store, "q.gguf"))
    assert [(key.name, key.value) for key in header.keys] == [
        keys[0],
        keys[2],
        ("general.quantization_version", u32(2)),
        ("general.file_type", u32(7)),
    ]
    found = tensors_of(store, "q.gguf")
    assert list(found) == [
        "a.bias",
        "output.weight",
        "blk.9.attn_norm.weight",
        "blk.9.ffn_gate_inp.weight",
        "blk.9.ffn_up.weight",
        "blk.10.ffn_up.weight",
    ]
    before = tensors_of(store, "m.gguf")
    for name, (type_, stored) in found.items():
        if name in WEIGHTS:
            expected = write_elements(WEIGHTS[name].reshape(-1), TENSOR_TYPES["Q8_0"]).tobytes()
            assert (type_, stored) == ("Q8_0", expected)
        else:
            assert (type_, stored) == before[name]
    assert (tmp_path / "q.gguf").stat().st_size == result.files[0].size == seen[-1].bytes_written
    assert seen[-1].bytes_read == seen[-1].bytes_to_read
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.gguf", "q.gguf"]


def test_pieces_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = source(tmp_path, tensor("blk.0.exps.weight", f32(3, 5, 256)), type_="BF16")
    at_once = quantize_gguf(store, "m.gguf", store, "a.gguf", "MXFP4", threads=1)
    monkeypatch.setattr("requant.checkpoint.gguf.quantize._ELEMENTS", 256)
    monkeypatch.setattr(LocalStore, "read_size", 100)
    in_pieces = quantize_gguf(store, "m.gguf", store, "b.gguf", "MXFP4", threads=3)
    assert in_pieces.files[0].sha256 == at_once.files[0].sha256
    assert (tmp_path / "a.gguf").read_bytes() == (tmp_path / "b.gguf").read_bytes()


def test_quantized_tensors_become_floats_again(tmp_path: Path) -> None:
    store = source(tmp_path, type_="Q4_1")
    quantize_gguf(store, "m.gguf", store, "f.gguf", "F16")
    quantize_gguf(store, "f.gguf", store, "q.gguf", "Q4_1")
    again, before = tensors_of(store, "q.gguf"), tensors_of(store, "m.gguf")
    same = sum(a == b for name in WEIGHTS for a, b in zip(again[name][1], before[name][1], strict=True))
    assert tensors_of(store, "f.gguf")["output.weight"][0] == "F16"
    assert same > 0.99 * sum(len(before[name][1]) for name in WEIGHTS)


def test_ignored_tensors_and_alignment_stay(tmp_path: Path) -> None:
    made = GgufFile([tensor(name, values) for name, values in WEIGHTS.items()], alignment=256)
    made.keys.append(("general.alignment", u32(256)))
    (tmp_path / "m.gguf").write_bytes(made.to_bytes())
    store = LocalStore(tmp_path)
    ignore = ["output.weight", r"re:blk\.9\."]
    quantize_gguf(store, "m.gguf", store, "q.gguf", "Q4_0", ignore=ignore)
    plan = plan_gguf(store, "m.gguf", "q.gguf", "Q4_0", ignore=ignore)
    assert {step.source.name: step.skip_reason for step in plan.steps} == {
        "output.weight": "ignored",
        "blk.9.ffn_up.weight": "ignored",
        "blk.10.ffn_up.weight": None,
    }
    assert all(step.output_begin % 256 == 0 for step in plan.steps)
    assert tensors_of(store, "q.gguf")["output.weight"] == tensors_of(store, "m.gguf")["output.weight"]


def test_rows_that_are_not_whole_blocks(tmp_path: Path) -> None:
    odd = tensor("blk.0.odd.weight", f32(4, 96))
    store = source(tmp_path, odd, tensor("blk.0.odder.weight", f32(4, 20)))
    for asked, found in (("Q8_0", ["Q8_0", "F16", "Q8_0"]), ("TQ2_0", ["Q4_0", "F16", "TQ2_0"])):
        plan = plan_gguf(store, "m.gguf", "q.gguf", asked)
        types = {step.source.name: step.output.type.name for step in plan.steps}
        assert [types[name] for name in ("blk.0.odd.weight", "blk.0.odder.weight", "output.weight")] == found


def test_what_is_quantized_is_not_quantized_again(tmp_path: Path) -> None:
    store = source(tmp_path, type_="Q8_0")
    with pytest.raises(CheckpointError, match="is Q8_0 already"):
        plan_gguf(store, "m.gguf", "q.gguf", "Q4_0")
    store = source(tmp_path, Tensor("blk.0.k.weight", [256, 1, 2], TENSOR_TYPES["Q6_K"].number, bytes(420)))
    with pytest.raises(CheckpointError, match="is Q6_K already"):
        plan_gguf(store, "m.gguf", "q.gguf", "Q4_0")
    store = source(tmp_path, Tensor("blk.0.a.weight", [32, 1, 2], TENSOR_TYPES["Q8_1"].number, bytes(72)))
    with pytest.raises(CheckpointError, match="is Q8_1, which cannot be converted"):
        plan_gguf(store, "m.gguf", "q.gguf", "F16")
    with pytest.raises(UnknownNameError):
        plan_gguf(store, "m.gguf", "q.gguf", "Q6_0")


def test_a_value_that_is_not_finite_leaves_nothing(tmp_path: Path) -> None:
    values = f32(3000, 256)
    values[2999, 7] = np.nan
    made = GgufFile([Tensor("blk.0.w.weight", [256, 3000], 0, values.tobytes())])
    (tmp_path / "m.gguf").write_bytes(made.to_bytes())
    store = LocalStore(tmp_path)
    with pytest.raises(
        CheckpointError, match=r"'blk.0.w.weight' cannot be converted to Q8_0: the value at index 767,751"
    ):
        quantize_gguf(store, "m.gguf", store, "q.gguf", "Q8_0")
    assert os.listdir(tmp_path) == ["m.gguf"]


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    store = source(tmp_path)
    for output in ("m.gguf", "q.gguf"):
        (tmp_path / "q.gguf").write_bytes(b"mine")
        with pytest.raises(DestinationError, match=r"holds '[mq].gguf' already"):
            quantize_gguf(store, "m.gguf", store, output, "Q8_0")
    assert (tmp_path / "q.gguf").read_bytes() == b"mine"


def test_later_files_of_a_split_model_keep_their_keys(tmp_path: Path) -> None:
    keys = [("split.no", struct.pack("<IH", 2, 1)), ("split.count", struct.pack("<IH", 2, 3))]
    store = source(tmp_path, keys=keys)
    quantize_gguf(store, "m.gguf", store, "q.gguf", "Q8_0")
    assert [(key.name, key.value) for key in read_header(store, file_named(store, "q.gguf")).keys] == keys


def test_a_file_without_tensors_keeps_its_keys(tmp_path: Path) -> None:
    """A vocabulary, or the first file of a split model."""
    for name, end in (("padded.gguf", None), ("short.gguf", -3)):
        made = GgufFile(keys=[("general.architecture", string("llama")), ("a", u32(1))])
        (tmp_path / name).write_bytes(made.to_bytes()[:end])
        store = LocalStore(tmp_path)
        seen: list[Progress] = []
        result = quantize_gguf(store, name, store, f"q-{name}", "Q8_0", progress=seen.append)
        set_here = [("general.quantization_version", u32(2)), ("general.file_type", u32(7))]
        assert (tmp_path / f"q-{name}").read_bytes() == GgufFile(keys=made.keys + set_here).to_bytes()
        assert (tmp_path / f"q-{name}").stat().st_size == result.files[0].size == seen[-1].bytes_written


def test_every_byte_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Object stores count what was written."""
    ranges: list[tuple[int, int]] = []
    write = LocalWriter.write

    def noted(self: LocalWriter, offset: int, data: bytes | memoryview) -> None:
        ranges.append((offset, offset + len(data)))
        write(self, offset, data)

    copy = LocalWriter.copy

    def noted_copy(self: LocalWriter, offset: int, source: int, begin: int, size: int) -> bool:
        copied = copy(self, offset, source, begin, size)
        ranges.extend([(offset, offset + size)] if copied else [])
        return copied

    monkeypatch.setattr(LocalWriter, "write", noted)
    monkeypatch.setattr(LocalWriter, "copy", noted_copy)
    store = source(tmp_path, tensor("a.bias", f32(3)), tensor("b.bias", f32(5)))
    quantize_gguf(store, "m.gguf", store, "q.gguf", "Q8_0")
    ends = [0, *(end for _, end in sorted(ranges))]
    assert [begin for begin, _ in sorted(ranges)] == ends[:-1]
    assert ends[-1] == (tmp_path / "q.gguf").stat().st_size


MODEL_KEYS = [
    ("general.architecture", string("llama")),
    ("llama.block_count", u32(16)),
    ("llama.attention.head_count", u32(4)),
]


def test_a_mixture_gives_tensors_their_types(tmp_path: Path) -> None:
    more = {f"blk.{i}.attn_v.weight": f32(4, 512) for i in (0, 1, 2)}
    more["blk.0.ffn_down.weight"], more["blk.0.odd.weight"] = f32(4, 256), f32(4, 96)
    store = source(tmp_path, *(tensor(name, values) for name, values in more.items()), keys=list(MODEL_KEYS))
    quantize_gguf(store, "m.gguf", store, "q.gguf", "q4_k_m")
    found = tensors_of(store, "q.gguf")
    expected = dict.fromkeys(more, "Q4_K") | dict.fromkeys(WEIGHTS, "Q4_K") | {"output.weight": "Q6_K"}
    # Of three, the second at 0 + 3 * 0 + 2, and the last eighth from 21 // 8 on.
    expected |= {"blk.2.attn_v.weight": "Q6_K", "blk.0.ffn_down.weight": "Q6_K", "blk.0.odd.weight": "Q5_0"}
    values = WEIGHTS | more
    assert {name: type_ for name, (type_, _) in found.items() if name in values} == expected
    for name, type_ in expected.items():
        assert found[name][1] == write_elements(values[name].reshape(-1), TENSOR_TYPES[type_]).tobytes()
    pure = plan_gguf(store, "m.gguf", "q.gguf", "Q4_K_M", pure=True)
    assert {step.output.type.name for step in pure.steps if not step.skip_reason} == {"Q4_K", "Q5_0"}
    ignored = plan_gguf(store, "m.gguf", "q.gguf", "Q4_K_M", ignore=["blk.1.attn_v.weight"])
    types = {step.source.name: step.output.type.name for step in ignored.steps}
    assert types == {**{name: type_ for name, (type_, _) in found.items()}, "blk.1.attn_v.weight": "F32"}


def test_a_mixture_of_one_file_of_many_is_refused(tmp_path: Path) -> None:
    store = source(tmp_path, keys=[*MODEL_KEYS, ("split.count", struct.pack("<IH", 2, 3))])
    with pytest.raises(CheckpointError, match="is one of 3 files of a model"):
        plan_gguf(store, "m.gguf", "q.gguf", "Q4_K_M")
    assert plan_gguf(store, "m.gguf", "q.gguf", "Q4_K_M", pure=True).steps


@pytest.mark.parametrize(
    "type_", ["Q2_K", "Q4_K_S", "Q6_K", "IQ4_NL", "IQ4_XS", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]
)
def test_the_importance_is_that_of_the_column_and_the_expert(
    type_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And pieces do not show: they are whole rows."""
    experts, one = f32(3, 5, 512), f32(7, 256)
    sums = {"blk.0.exps.weight": np.abs(f32(3 * 512)), "blk.0.one.weight": np.abs(f32(256))}
    (tmp_path / "i.dat").write_bytes(legacy_importance(sums, 4))
    weights = [tensor("blk.0.exps.weight", experts), tensor("blk.0.one.weight", one)]
    store = source(tmp_path, *weights, keys=list(MODEL_KEYS))
    matrix = read_importance(store, "i.dat", "i.dat")
    how: dict[str, Any] = {"pure": True, "importance": matrix}
    at_once = quantize_gguf(store, "m.gguf", store, "a.gguf", type_, threads=1, **how)
    monkeypatch.setattr("requant.checkpoint.gguf.quantize._ELEMENTS", 1280)
    in_pieces = quantize_gguf(store, "m.gguf", store, "b.gguf", type_, threads=3, **how)
    assert in_pieces.files[0].sha256 == at_once.files[0].sha256
    found, to = tensors_of(store, "a.gguf"), TENSOR_TYPES[type_.removesuffix("_S")]
    parts = [
        write_elements(values.reshape(-1), to, importance=of_columns / np.float32(4))
        for values, of_columns in zip(experts, sums["blk.0.exps.weight"].reshape(3, 512), strict=True)
    ]
    assert found["blk.0.exps.weight"][1] == b"".join(part.tobytes() for part in parts)
    expected = write_elements(one.reshape(-1), to, importance=sums["blk.0.one.weight"] / np.float32(4))
    assert found["blk.0.one.weight"][1] == expected.tobytes()
    # Of which there is no importance.
    plain = write_elements(WEIGHTS["output.weight"].reshape(-1), to)
    assert found["output.weight"] == (to.name, plain.tobytes())
    assert (expected.tobytes() == write_elements(one.reshape(-1), to).tobytes()) is (type_ == "Q8_0")
    plan = plan_gguf(store, "m.gguf", "c.gguf", type_, **how)
    assert "i.dat: the importance of the columns of 2 of them" in list(plan.lines())
    document = plan.as_json()
    assert document["imatrix"] == "i.dat"
    assert {each["name"]: each.get("imatrix") for each in document["tensors"]} == {
        **dict.fromkeys(WEIGHTS, False), **dict.fromkeys(sums, True), "blk.9.attn_norm.weight": None
    }  # fmt: skip
    keys = [key.name for key in read_header(store, file_named(store, "a.gguf")).keys]
    assert keys[-2:] == ["quantize.imatrix.file", "quantize.imatrix.entries_count"]


def test_some_mixtures_demand_an_importance(tmp_path: Path) -> None:
    store = source(tmp_path, keys=list(MODEL_KEYS))
    with pytest.raises(CheckpointError, match=r"Q2_K_S makes 'blk.9.ffn_up.weight' Q2_K, .* demands an importance"):
        plan_gguf(store, "m.gguf", "q.gguf", "Q2_K_S")


def test_an_importance_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    (tmp_path / "i.dat").write_bytes(legacy_importance({"output.weight": np.full(256, np.nan, "<f4")}, 1))
    store = source(tmp_path, keys=list(MODEL_KEYS))
    with pytest.raises(CheckpointError, match=r"a sum of 'output.weight' that is not finite"):
        quantize_gguf(
            *(store, "m.gguf", store, "q.gguf", "Q4_K_S"), importance=read_importance(store, "i.dat", "i.dat")
        )
    assert not (tmp_path / "q.gguf").exists()


def test_the_plan_is_printed(tmp_path: Path) -> None:
    plan = plan_gguf(source(tmp_path), "m.gguf", "q.gguf", "Q8_0")
    assert list(plan.lines())[1:] == [
        f"q.gguf: {plan.size:,} bytes, 3 tensors converted to Q8_0",
        "  output.weight [12x256] F32 -> Q8_0",
        "  blk.9.attn_norm.weight [256] F32 (one dimension)",
        "  blk.9.ffn_up.weight [12x256] F32 -> Q8_0",
        "  blk.10.ffn_up.weight [12x256] F32 -> Q8_0",
    ]
    assert plan.as_json()["tensors"][1] == {
        "name": "blk.9.attn_norm.weight",
        "shape": [256],
        "from": "F32",
        "to": "F32",
        "kept": "one dimension",
    }
