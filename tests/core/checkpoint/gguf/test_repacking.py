"""Codes and scales of GGUF files moved to safetensors and back: proven number by number, or refused."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import isnan, prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from requant.checkpoint.gguf.header import read_header
from requant.checkpoint.gguf.repack import GgufTarget, plan_repack_to_gguf, run_repack
from requant.checkpoint.gguf.tensor_types import FLOATS, READABLE, TENSOR_TYPES, read_elements
from requant.checkpoint.plan.model import Direction, Repack
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.run.run import run_plan
from requant.checkpoint.run.steps import kernels_of
from requant.checkpoint.run.verdicts import Outcome
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.storage.store import file_named
from requant.checkpoint.verify.difference import diff
from requant.checkpoint.verify.verification import verify
from requant.checkpoints import (
    conversion_request,
    dequantize_checkpoint,
    open_source,
    quantize_checkpoint,
    repack_checkpoint,
)
from requant.errors import CheckpointError, ParameterError
from tests.core.checkpoint.run.test_kernels_of_plans import called
from tests.support.cases import sample
from tests.support.gguf_blocks import ODD_F16, any_blocks
from tests.support.gguf_files import GgufFile, Tensor, string, u32
from tests.support.gguf_models import MODELS, PairedModel
from tests.support.gguf_numbers import Number, numbers

Array = NDArray[Any]

LLAMA = MODELS["llama"]
Q_PROJ, GATE = "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.gate_proj"
INTEGERS = {"Q8_0": "W8A16:group=32", "Q5_0": "W5A16:group=32", "Q4_0": "W4A16:group=32"}
"""For each type the scheme that holds its numbers."""


ARRAYS = {"BF16": "<u2", "F16": "<f2", "F32": "<f4", "I32": "<i4", "I64": "<i8", "U8": "|u1", "F8_E4M3": "|u1"}


def tensors_of(directory: Path) -> dict[str, tuple[str, Array]]:
    """The dtype and the elements of each tensor: read with json alone."""
    found = {}
    for file in sorted(directory.glob("*.safetensors")):
        data = file.read_bytes()
        begin = 8 + int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:begin]).items():
            if name != "__metadata__":
                first, last = (begin + each for each in entry["data_offsets"])
                array = np.frombuffer(data[first:last], ARRAYS[entry["dtype"]]).reshape(entry["shape"])
                found[name] = (entry["dtype"], array)
    return found


def gguf_tensors(path: Path) -> dict[str, tuple[str, bytes]]:
    store = LocalStore(path.parent)
    header, data = read_header(store, file_named(store, path.name)), path.read_bytes()
    return {each.name: (each.type.name, data[header.data + each.offset :][: each.size]) for each in header.tensors}


def parts_of(model: PairedModel, path: Path) -> dict[str, tuple[str, bytes]]:
    """The type and the bytes of each tensor of a file by its name in the directory, in the order of its rows."""
    found = {}
    for name, (type_, data) in gguf_tensors(path).items():
        if name not in model.shapes():
            continue
        shape, names = model.shapes()[name], model.names(name)
        rows = shape[-2] if len(shape) > 1 else shape[0]
        for each, part in zip(names, np.frombuffer(data, np.uint8).reshape(len(names), rows, -1), strict=True):
            found[each] = (type_, model.of_model(name, part).tobytes())
    return found


def integers(tensors: Mapping[str, tuple[str, Array]], module: str, bits: int) -> list[Number]:
    """The numbers of a weight of compressed-tensors' packed integers, in groups of 32."""
    packed, (_, scales) = tensors[f"{module}.weight_packed"][1], tensors[f"{module}.weight_scale"]
    found: list[Number] = []
    for row, of_row in zip(packed, scales, strict=True):
        stream = int.from_bytes(row.astype("<i4").tobytes(), "little")
        for column in range(32 * len(of_row)):
            code, scale = (stream >> bits * column) & ((1 << bits) - 1), of_row[column // 32]
            finite = np.isfinite(scale)
            offset = code - (1 << (bits - 1))
            found.append(Fraction(float(scale)) * offset if finite else float(scale) * offset)
    return found


def assert_equal(found: Iterable[Number], expected: Iterable[Number]) -> None:
    for place, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert a == b or (isinstance(a, float) and isinstance(b, float) and isnan(a) and isnan(b)), (place, a, b)


def is_linear(name: str) -> bool:
    return name.endswith(".weight") and ("_proj." in name or ".w1." in name or ".w2." in name or ".w3." in name)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", MODELS)
def test_models_there_and_back(name: str, tmp_path: Path) -> None:
    model = MODELS[name]
    like, floats = model.write_directory(tmp_path / "like"), model.write_gguf(tmp_path / "f32.gguf", "F32")
    source, out = model.write_gguf(tmp_path / "model.gguf", "Q4_0"), tmp_path / "out"
    report = repack_checkpoint(source, out, "W4A16:group=32", like=like)
    for weight, verdict in report.verdicts.items():
        assert verdict.outcome is not Outcome.ROUNDED
        assert (verdict.outcome is Outcome.EXACT) == is_linear(weight)
    tensors, expected = tensors_of(out), parts_of(model, source)
    checked = 0
    for weight, (type_, data) in expected.items():
        if is_linear(weight) and ("layers.1.self_attn" in weight or "experts.1" in weight):
            assert_equal(integers(tensors, weight.removesuffix(".weight"), 4), numbers(type_, data))
            checked += 1
        elif not is_linear(weight):
            dtype, values = tensors[weight]
            assert dtype == "F32"
            held: Iterable[Number] = map(Fraction, np.frombuffer(data, "<f4").tolist())
            if type_ != "F32":
                held = numbers(type_, data)
            if weight.endswith("norm.weight") and model.is_gemma:
                held = (number - 1 for number in held)
            assert_equal(map(Fraction, values.reshape(-1).tolist()), held)
    assert checked == (10 if model.experts else 4)
    # Each tensor is in the file in which the directory has it, and what lies beside is there.
    index = json.loads((out / "model.safetensors.index.json").read_text())["weight_map"]
    theirs = json.loads((like / "model.safetensors.index.json").read_text())["weight_map"]
    assert {each: index.get(each, index.get(f"{each}_packed")) for each in theirs} == theirs
    assert (out / "tokenizer.json").read_text() == "{}"
    config = json.loads((out / "config.json").read_text())
    assert (config["dtype"], config["quantization_config"]["format"]) == ("float32", "pack-quantized")
    assert verify(LocalStore(out), open_source(source, like)).faults == ()
    assert diff(open_source(source, out), LocalStore(out), numbers=True).differences == ()

    back = repack_checkpoint(out, tmp_path / "back.gguf", "q4_0", like=floats)
    assert {each.outcome for each in back.verdicts.values()} <= {Outcome.EXACT, Outcome.COPIED, Outcome.WIDENED}
    before, after = gguf_tensors(source), gguf_tensors(tmp_path / "back.gguf")
    assert list(after) == list(gguf_tensors(floats))
    for each, (type_, data) in before.items():
        quantized = type_ == "Q4_0" and each.startswith("blk.")
        assert after[each][0] == ("Q4_0" if quantized else "F32")
        assert not quantized or after[each][1] == data
        assert type_ == "Q4_0" or after[each] == (type_, data)
    assert diff(open_source(tmp_path / "back.gguf", like), LocalStore(out), numbers=True).differences == ()


def hostile(type_: str) -> Any:
    """Blocks with every odd f16 as a scale, and all codes."""

    def blocks(name: str, count: int) -> Array:
        return any_blocks(type_, TENSOR_TYPES[type_].block_bytes, count, np.random.default_rng(list(name.encode())))

    return blocks


@pytest.mark.sample(1)
@pytest.mark.parametrize("type_", INTEGERS)
def test_hostile_scales_of_integers(type_: str, tmp_path: Path) -> None:
    """Negative, subnormal, 0, NaN and infinite d: F32 scales hold the numbers of them all."""
    like = LLAMA.write_directory(tmp_path / "like")
    source = LLAMA.write_gguf(tmp_path / "model.gguf", type_, blocks=hostile(type_))
    report = repack_checkpoint(source, tmp_path / "out", INTEGERS[type_], like=like)
    assert report.verdicts[f"{Q_PROJ}.weight"].outcome is Outcome.EXACT
    tensors, expected = tensors_of(tmp_path / "out"), parts_of(LLAMA, source)
    for module in (Q_PROJ, GATE):
        assert_equal(integers(tensors, module, int(INTEGERS[type_][1])), numbers(*expected[f"{module}.weight"]))
    floats = LLAMA.write_gguf(tmp_path / "f32.gguf", "F32")
    repack_checkpoint(tmp_path / "out", tmp_path / "back.gguf", type_, like=floats)
    before, after = (
        np.frombuffer(gguf_tensors(path)["blk.1.ffn_gate.weight"][1], np.uint8).reshape(
            -1, TENSOR_TYPES[type_].block_bytes
        )
        for path in (source, tmp_path / "back.gguf")
    )
    d = before[:, :2].copy().view("<f2")[:, 0]
    # Of scales that are 0 or no numbers, no code is told from another.
    unique = np.isfinite(d) & (d != 0)
    assert (after[unique] == before[unique]).all()
    assert len(set(d[unique].view("<u2").tolist()) & set(ODD_F16)) == 7


def mxfp4(scales: Iterable[int]) -> Any:
    def blocks(name: str, count: int) -> Array:
        random = np.random.default_rng(list(name.encode()))
        made = random.integers(0, 256, (count, 17), np.uint8)
        made[:, 0] = random.choice(np.array(list(scales), np.uint8), count)
        return made

    return blocks


def test_mxfp4_moves_every_scale_but_the_last(tmp_path: Path) -> None:
    like, floats = LLAMA.write_directory(tmp_path / "like"), LLAMA.write_gguf(tmp_path / "f.gguf", "F32")
    source = LLAMA.write_gguf(tmp_path / "model.gguf", "MXFP4", blocks=mxfp4(range(240)))
    repack_checkpoint(source, tmp_path / "out", "MXFP4A16", like=like, dtype="F32")
    repack_checkpoint(tmp_path / "out", tmp_path / "back.gguf", "MXFP4", like=floats)
    before, after = parts_of(LLAMA, source), parts_of(LLAMA, tmp_path / "back.gguf")
    for module in (Q_PROJ, GATE):
        name = f"{module}.weight"
        assert_equal(numbers(*after[name]), numbers(*before[name]))
        largest = (np.frombuffer(before[name][1], np.uint8).reshape(-1, 17)[:, 1:, None] >> [0, 4] & 7).max(axis=(1, 2))
        same = np.frombuffer(after[name][1], np.uint8) == np.frombuffer(before[name][1], np.uint8)
        # A block without 4 or 6 is held by a smaller scale too. -0 stays.
        assert same.reshape(-1, 17)[largest >= 6].all()
        assert (largest >= 6).mean() > 0.9


def nvfp4(scales: Iterable[int]) -> Any:
    def blocks(name: str, count: int) -> Array:
        random = np.random.default_rng(list(name.encode()))
        made = random.integers(0, 256, (count, 36), np.uint8)
        made[:, :4] = random.choice(np.array(list(scales), np.uint8), (count, 4))
        return made

    return blocks


@pytest.mark.sample(1)
@pytest.mark.parametrize("scale", [1.0, 2.0**-20, None])
def test_nvfp4_moves_with_a_power_of_two(scale: float | None, tmp_path: Path) -> None:
    """All bytes of scales that ggml reads, 0 and the one that is NaN elsewhere too; without a tensor it is 1."""
    like, floats = LLAMA.write_directory(tmp_path / "like"), LLAMA.write_gguf(tmp_path / "f.gguf", "F32")
    scales = None if scale is None else dict.fromkeys(LLAMA.shapes(), scale)
    source = LLAMA.write_gguf(tmp_path / "model.gguf", "NVFP4", blocks=nvfp4(range(128)), scales=scales)
    report = repack_checkpoint(source, tmp_path / "out", "NVFP4A16", like=like, dtype="F32")
    assert report.verdicts[f"{GATE}.weight"].outcome is Outcome.EXACT
    _, whole = tensors_of(tmp_path / "out")[f"{GATE}.weight_global_scale"]
    assert whole.reshape(-1).tolist() == [1 / (scale or 1.0)]
    repack_checkpoint(tmp_path / "out", tmp_path / "back.gguf", "NVFP4", like=floats)
    before, after = parts_of(LLAMA, source), parts_of(LLAMA, tmp_path / "back.gguf")
    factor = Fraction(scale or 1)
    for module in (Q_PROJ, GATE):
        name = f"{module}.weight"
        assert_equal(numbers(*after[name], factor), numbers(*before[name], factor))
    stored = gguf_tensors(tmp_path / "back.gguf")
    assert list(stored).index("blk.1.ffn_gate.scale") == list(stored).index("blk.1.ffn_gate.weight") + 1
    assert stored["blk.1.ffn_gate.scale"] == ("F32", struct.pack("<f", scale or 1.0))
    dequantize_checkpoint(tmp_path / "out", tmp_path / "plain", dtype="F32")
    values = tensors_of(tmp_path / "plain")[f"{GATE}.weight"][1].reshape(-1).tolist()
    # In BF16, which the library computes in: it has all but some products of subnormal scales and 2^-20.
    expected = map(Fraction, np.array(values, "<f4").tolist())
    assert_equal(expected, numbers(*before[f"{GATE}.weight"], factor))


def test_nvfp4_of_experts_has_a_scale_for_each(tmp_path: Path) -> None:
    model = MODELS["qwen3_moe"]
    like, floats = model.write_directory(tmp_path / "like"), model.write_gguf(tmp_path / "f.gguf", "F32")
    quantize_checkpoint(like, tmp_path / "mx", "MXFP4A16")
    report = repack_checkpoint(tmp_path / "mx", tmp_path / "out.gguf", "NVFP4", like=floats)
    assert report.verdicts["model.layers.1.mlp.experts.2.down_proj.weight"].outcome is Outcome.EXACT
    type_, scales = gguf_tensors(tmp_path / "out.gguf")["blk.1.ffn_down_exps.scale"]
    assert (type_, len(scales)) == ("F32", 4 * model.experts)
    assert diff(open_source(tmp_path / "out.gguf", like), LocalStore(tmp_path / "mx"), numbers=True).differences == ()


def refused(source: Path, target: Path, to: str, like: Path, **options: Any) -> CheckpointError:
    with pytest.raises(CheckpointError) as found:
        repack_checkpoint(source, target, to, like=like, **options)
    return found.value


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("type_", "scheme"),
    [("Q8_0", "W4A16:group=32"), ("Q4_1", "W4A16:group=32"), ("Q4_1", "W4A16_ASYM:group=32"), ("NVFP4", "NVFP4A16"),
     ("NVFP4", "MXFP4A16"), ("MXFP4", "W4A16:group=32"), ("Q5_1", "W8A16:group=32")],
)  # fmt: skip
def test_what_a_scheme_does_not_hold_is_refused(type_: str, scheme: str, tmp_path: Path) -> None:
    like = LLAMA.write_directory(tmp_path / "like")
    blocks = {"MXFP4": mxfp4(range(100, 130)), "NVFP4": nvfp4(range(1, 120))}.get(type_)
    scales = dict.fromkeys(LLAMA.shapes(), 0.3) if type_ == "NVFP4" else None
    source = LLAMA.write_gguf(tmp_path / "model.gguf", type_, blocks=blocks, scales=scales)
    error = refused(source, tmp_path / "out", scheme, like, dtype="F32")
    assert error.tensor is not None
    assert error.tensor.endswith(".weight")
    assert error.file == "model.gguf"
    assert "--allow-rounding" in error.detail
    assert not (tmp_path / "out" / "config.json").exists()
    verdicts = repack_checkpoint(
        source, tmp_path / "rounded", scheme, like=like, dtype="F32", allow_rounding=True
    ).verdicts
    rounded = [each for each in verdicts.values() if each.outcome is Outcome.ROUNDED]
    assert rounded
    found = diff(open_source(source, like), LocalStore(tmp_path / "rounded"), numbers=True).differences
    assert sorted(each.differing for each in rounded) == sorted(each.differing for each in found)


@pytest.mark.parametrize(("type_", "scheme"), [("Q4_1", "W4A16_ASYM:group=32"), ("Q5_1", "W5A16:group=32,asymmetric")])
def test_minimums_that_are_zero_points(type_: str, scheme: str, tmp_path: Path) -> None:
    """m = -z d for an integer z: the numbers are (q - z) d. One block that is not so is named."""
    most = 1 << int(type_[1])

    def blocks(name: str, count: int) -> Array:
        random = np.random.default_rng(list(name.encode()))
        made = random.integers(0, 256, (count, TENSOR_TYPES[type_].block_bytes), np.uint8)
        scales = np.exp2(random.integers(-8, 2, count)) * random.integers(1, 8, count)
        heads = np.stack([scales, -scales * random.integers(0, most, count) + 0.0], axis=1)
        if name == "blk.1.ffn_gate.weight":
            heads[130, 1] *= 1.0625
        if name == "blk.0.ffn_up.weight":
            # All elements are the minimum, whatever the codes are.
            heads[7] = 0, 1.5
        made[:, :4] = heads.astype("<f2").view(np.uint8)
        return made

    like, floats = LLAMA.write_directory(tmp_path / "like"), LLAMA.write_gguf(tmp_path / "f.gguf", "F32")
    source = LLAMA.write_gguf(tmp_path / "model.gguf", type_, blocks=blocks)
    error = refused(source, tmp_path / "out", scheme, like)
    assert error.tensor == f"{GATE}.weight"
    # Four blocks make a row.
    assert "at row 32, column 6" in error.detail
    verdicts = repack_checkpoint(source, tmp_path / "rounded", scheme, like=like, allow_rounding=True).verdicts
    assert [name for name, each in verdicts.items() if each.differing] == [f"{GATE}.weight"]
    assert verdicts[f"{GATE}.weight"].differing <= 32
    back = repack_checkpoint(tmp_path / "rounded", tmp_path / "back.gguf", type_, like=floats).verdicts
    assert back[f"{GATE}.weight"].outcome is Outcome.EXACT
    before, after = gguf_tensors(source), gguf_tensors(tmp_path / "back.gguf")
    assert after["blk.0.ffn_down.weight"] == before["blk.0.ffn_down.weight"]


@pytest.mark.parametrize(
    ("type_", "scheme"),
    [
        ("Q6_K", "W6A16:group=16"),
        ("Q3_K", "W3A16:group=16"),
        ("IQ4_NL", "W8A16:group=32"),
        ("IQ4_XS", "W8A16:group=32"),
    ],
)
def test_types_without_minimums_are_integers(type_: str, scheme: str, tmp_path: Path) -> None:
    model = PairedModel(width=256, layers=1)
    like, source = model.write_directory(tmp_path / "like"), model.write_gguf(tmp_path / "model.gguf", type_)
    verdicts = repack_checkpoint(source, tmp_path / "out", scheme, like=like).verdicts
    assert {verdicts[name].outcome for name in verdicts if is_linear(name)} == {Outcome.EXACT}
    assert diff(open_source(source, like), LocalStore(tmp_path / "out"), numbers=True).differences == ()


@pytest.mark.parametrize("type_", sample([name for name in READABLE if name not in FLOATS], 10))
def test_every_type_becomes_floats(type_: str, tmp_path: Path) -> None:
    """As ggml computes them: in F32 always the same numbers, with finite scales."""
    model = PairedModel(width=256, layers=1)
    like = model.write_directory(tmp_path / "like", weights=False)
    source = model.write_gguf(tmp_path / "model.gguf", type_, blocks=hostile(type_))
    dequantize_checkpoint(source, tmp_path / "plain", like=like, dtype="F32")
    tensors = tensors_of(tmp_path / "plain")
    for name, (stored_as, data) in parts_of(model, source).items():
        dtype, values = tensors[name]
        assert dtype == "F32"
        expected = read_elements(np.frombuffer(data, np.uint8).copy(), TENSOR_TYPES[stored_as])
        held = values.reshape(-1)
        assert ((held.view("<u4") == expected.view("<u4")) | (np.isnan(held) & np.isnan(expected))).all()
    # The largest products of two types are beyond f32.
    verdicts = repack_checkpoint(source, tmp_path / "exact", like=like, dtype="F32", allow_rounding=True).verdicts
    assert all(each.outcome is not Outcome.ROUNDED for each in verdicts.values()) or type_ in ("MXFP4", "Q8_K")


def test_floats_of_other_dtypes_are_exact_or_refused(tmp_path: Path) -> None:
    """Norms in F32 become BF16 if they are: there, and in the file that is made of them."""
    like = LLAMA.write_directory(tmp_path / "like")
    source = LLAMA.write_gguf(tmp_path / "model.gguf", "MXFP4")
    verdicts = repack_checkpoint(source, tmp_path / "out", "MXFP4A16", like=like).verdicts
    assert verdicts["model.norm.weight"].outcome is Outcome.WIDENED
    assert tensors_of(tmp_path / "out")["model.norm.weight"][0] == "BF16"
    data = bytearray(source.read_bytes())
    norm = struct.pack("<f", float(LLAMA.values("output_norm.weight")[5]))
    row = LLAMA.values("output_norm.weight").astype("<f4").tobytes()
    assert data.count(row) == 1
    data[data.index(row) + 20 : data.index(row) + 24] = (int.from_bytes(norm, "little") | 1).to_bytes(4, "little")
    source.write_bytes(data)
    error = refused(source, tmp_path / "other", "MXFP4A16", like)
    assert error.tensor == "model.norm.weight"
    assert "at row 5, column 0" in error.detail
    assert repack_checkpoint(source, tmp_path / "f32", "MXFP4A16", like=like, dtype="F32").verdicts

    floats = LLAMA.write_gguf(tmp_path / "bf16.gguf", "BF16")
    quantize_checkpoint(like, tmp_path / "quantized", "W8A16:group=32", ignore=["default", "re:.*q_proj$"])
    verdicts = repack_checkpoint(tmp_path / "quantized", tmp_path / "out.gguf", "Q8_0", like=floats).verdicts
    assert verdicts["model.norm.weight"].outcome is Outcome.WIDENED
    # In BF16 as it was, in the order of the file.
    assert verdicts[f"{Q_PROJ}.weight"].outcome is Outcome.WIDENED
    assert gguf_tensors(tmp_path / "out.gguf")["blk.0.attn_q.weight"] == gguf_tensors(floats)["blk.0.attn_q.weight"]
    assert gguf_tensors(tmp_path / "out.gguf")["token_embd.weight"] == gguf_tensors(floats)["token_embd.weight"]


def changed(directory: Path, suffix: str, data: bytes, module: str = GATE) -> None:
    """Write bytes at the start of a stored tensor."""
    for file in directory.glob("*.safetensors"):
        stored = bytearray(file.read_bytes())
        size = int.from_bytes(stored[:8], "little")
        place = json.loads(stored[8 : 8 + size]).get(f"{module}.{suffix}")
        if place is not None:
            begin = 8 + size + place["data_offsets"][0]
            stored[begin : begin + len(data)] = data
            file.write_bytes(stored)
    (directory / "requant-manifest.json").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("scheme", "type_", "suffix", "data"),
    [
        # 2^-25 and 2^16 are no f16; 12 bits are not either.
        ("W8A16:group=32", "Q8_0", "weight_scale", struct.pack("<H", 0x3300)),
        ("W8A16:group=32", "Q8_0", "weight_scale", struct.pack("<H", 0x4780)),
        ("W4A16:group=32", "Q4_0", "weight_scale", struct.pack("<H", 0x3380 | 0x7F)),
        # 2^128, of which ggml makes twice the half of it; compressed-tensors an infinity.
        ("MXFP4A16", "MXFP4", "weight_scale", b"\xff"),
        # The NaN of e4m3, which is 0 to ggml.
        ("NVFP4A16", "NVFP4", "weight_scale", b"\x7f"),
        # No power of two, and 1.25 / 3 is not the nearest to 1.25 * f32(1 / 3).
        ("NVFP4A16", "NVFP4", "weight_global_scale", struct.pack("<f", 3.0)),
    ],
)  # fmt: skip
def test_blocks_that_a_type_does_not_hold(scheme: str, type_: str, suffix: str, data: bytes, tmp_path: Path) -> None:
    like, floats = LLAMA.write_directory(tmp_path / "like"), LLAMA.write_gguf(tmp_path / "f.gguf", "F32")
    directory = tmp_path / "quantized"
    if scheme == "NVFP4A16":
        quantize_checkpoint(like, tmp_path / "mx", "MXFP4A16")
        repack_checkpoint(tmp_path / "mx", directory, scheme)
        changed(directory, "weight_scale", b"\x3a")
        assert repack_checkpoint(directory, tmp_path / "exact.gguf", type_, like=floats).verdicts
    else:
        quantize_checkpoint(like, directory, scheme)
    changed(directory, suffix, data)
    error = refused(directory, tmp_path / "out.gguf", type_, floats)
    assert error.tensor == f"{GATE}.weight"
    assert "at row 0, column " in error.detail
    assert not list(tmp_path.glob("out.gguf*"))
    verdicts = repack_checkpoint(directory, tmp_path / "rounded.gguf", type_, like=floats, allow_rounding=True).verdicts
    assert [name for name, each in verdicts.items() if each.outcome is Outcome.ROUNDED] == [f"{GATE}.weight"]


def test_a_negative_scale_of_nvfp4_moves_with_the_signs_of_codes(tmp_path: Path) -> None:
    like, floats = LLAMA.write_directory(tmp_path / "like"), LLAMA.write_gguf(tmp_path / "f.gguf", "F32")
    quantize_checkpoint(like, tmp_path / "mx", "MXFP4A16")
    repack_checkpoint(tmp_path / "mx", tmp_path / "nv", "NVFP4A16")
    changed(tmp_path / "nv", "weight_scale", b"\xb8\xb0")
    assert repack_checkpoint(tmp_path / "nv", tmp_path / "out.gguf", "NVFP4", like=floats).verdicts
    assert diff(open_source(tmp_path / "out.gguf", like), LocalStore(tmp_path / "nv"), numbers=True).differences == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gemma"}, "the names of tensors are known of llama"),
        ({"model_type": "qwen2"}, "the names of tensors are known of llama"),
        ({"num_key_value_heads": 4}, "4 heads of queries and 2 of keys; config.json has 4 and 4"),
        ({"num_attention_heads": "4"}, "num_attention_heads of config.json is 4; expected a positive integer"),
    ],
)
def test_a_directory_of_another_model_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    like, source = LLAMA.write_directory(tmp_path / "like"), LLAMA.write_gguf(tmp_path / "model.gguf", "Q8_0")
    (like / "config.json").write_text(json.dumps(LLAMA.config | change))
    assert message in refused(source, tmp_path / "out", "W8A16:group=32", like).detail


def test_other_tensors_are_refused(tmp_path: Path) -> None:
    source = LLAMA.write_gguf(tmp_path / "model.gguf", "Q8_0")
    deeper = PairedModel(layers=3).write_directory(tmp_path / "deeper")
    error = refused(source, tmp_path / "out", "W8A16:group=32", deeper)
    assert "has tensors that model.gguf lacks: model.layers.*.input_layernorm.weight" in error.detail
    larger = PairedModel(vocabulary=96).write_directory(tmp_path / "larger")
    error = refused(source, tmp_path / "out", "W8A16:group=32", larger)
    assert "model.embed_tokens.weight has the shape [64, 128]; in the directory of the model it has [96, 128]" in (
        error.detail
    )
    quantize_checkpoint(deeper, tmp_path / "quantized", "W8A16:group=32")
    shallow = LLAMA.write_gguf(tmp_path / "shallow.gguf", "BF16")
    error = refused(tmp_path / "quantized", tmp_path / "out.gguf", "Q8_0", shallow)
    assert "shallow.gguf lacks tensors of the checkpoint: model.layers.*.mlp.down_proj.weight" in error.detail
    floats = PairedModel(layers=3).write_gguf(tmp_path / "deeper.gguf", "BF16")
    quantize_checkpoint(LLAMA.write_directory(tmp_path / "like"), tmp_path / "shallow", "W8A16:group=32")
    assert (
        "the checkpoint has no model.layers.2."
        in refused(tmp_path / "shallow", tmp_path / "out.gguf", "Q8_0", floats).detail
    )
    # What stays has no floats to become.
    assert (
        "'token_embd.weight' is Q8_0 in model.gguf"
        in refused(tmp_path / "shallow", tmp_path / "out.gguf", "Q8_0", source).detail
    )


def test_one_file_of_several_is_refused(tmp_path: Path) -> None:
    keys = [("general.architecture", string("llama")), ("split.count", u32(2))]
    source = tmp_path / "model.gguf"
    source.write_bytes(
        GgufFile([Tensor("output.weight", [32, 1], TENSOR_TYPES["Q8_0"].number, bytes(34))], keys).to_bytes()
    )
    like = LLAMA.write_directory(tmp_path / "like")
    error = refused(source, tmp_path / "out", "W8A16:group=32", like)
    assert "model.gguf is one of several files" in error.detail


def test_what_is_asked_for_wrongly(tmp_path: Path) -> None:
    like, floats = LLAMA.write_directory(tmp_path / "like"), LLAMA.write_gguf(tmp_path / "bf16.gguf", "BF16")
    with pytest.raises(ParameterError, match=r"is a GGUF file: give the directory of the same model .* \(like, --like"):
        repack_checkpoint(floats, tmp_path / "out", "W8A16")
    with pytest.raises(ParameterError, match="like is for GGUF files"):
        quantize_checkpoint(like, tmp_path / "out", "W8A16:group=32", like=floats)
    assert (
        "has only floats, so there are no codes and scales to move"
        in refused(floats, tmp_path / "out", "W8A16:group=32", like).detail
    )
    with pytest.raises(ParameterError, match="like that of the same model in floats"):
        repack_checkpoint(like, tmp_path / "out.gguf", "Q8_0")
    assert "no quantization_config, so there are no codes" in refused(like, tmp_path / "o.gguf", "Q8_0", floats).detail
    quantize_checkpoint(like, tmp_path / "quantized", "W8A16:group=32")
    error = refused(tmp_path / "quantized", tmp_path / "o.gguf", "Q6_K", floats)
    assert "not moved to 'Q6_K' of GGUF: choose one of Q8_0, Q4_0" in error.detail
    narrow = PairedModel(width=96, heads=(2, 1))
    quantize_checkpoint(narrow.write_directory(tmp_path / "narrow"), tmp_path / "narrow-mx", "MXFP4A16")
    error = refused(tmp_path / "narrow-mx", tmp_path / "o.gguf", "NVFP4", narrow.write_gguf(tmp_path / "n.gguf", "F32"))
    assert "its rows of 96 are not a multiple of 64. Choose another type" in error.detail


def test_floats_of_a_gguf_file_are_quantized_as_those_of_the_directory(tmp_path: Path) -> None:
    like, floats = LLAMA.write_directory(tmp_path / "like"), LLAMA.write_gguf(tmp_path / "bf16.gguf", "BF16")
    quantize_checkpoint(floats, tmp_path / "of-file", "NVFP4A16", like=like)
    quantize_checkpoint(like, tmp_path / "of-directory", "NVFP4A16")
    for file in (tmp_path / "of-directory").glob("*.safetensors"):
        assert (tmp_path / "of-file" / file.name).read_bytes() == file.read_bytes()
    assert (tmp_path / "of-file" / "config.json").read_bytes() == (
        tmp_path / "of-directory" / "config.json"
    ).read_bytes()
    assert diff(open_source(floats, like), LocalStore(like), numbers=True).differences == ()


@pytest.mark.exhaustive
def test_pieces_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    like, floats = LLAMA.write_directory(tmp_path / "like"), LLAMA.write_gguf(tmp_path / "f.gguf", "F32")
    source = LLAMA.write_gguf(tmp_path / "model.gguf", "Q8_0")
    at_once = repack_checkpoint(source, tmp_path / "a", "W8A16:group=32", like=like, threads=1)
    file = repack_checkpoint(tmp_path / "a", tmp_path / "a.gguf", "Q8_0", like=floats, threads=1)
    monkeypatch.setattr(LocalStore, "read_size", 1000)
    in_pieces = repack_checkpoint(source, tmp_path / "b", "W8A16:group=32", like=like, threads=3)
    file_in_pieces = repack_checkpoint(tmp_path / "a", tmp_path / "b.gguf", "Q8_0", like=floats, threads=3)
    assert {each.name: each.sha256 for each in at_once.files} == {each.name: each.sha256 for each in in_pieces.files}
    assert at_once.verdicts == in_pieces.verdicts
    assert (file.files[0].sha256, file.verdicts) == (file_in_pieces.files[0].sha256, file_in_pieces.verdicts)
    assert prod(LLAMA.shapes()["blk.0.ffn_up.weight"]) == at_once.verdicts[f"{GATE}.weight"].numbers


@pytest.mark.parametrize(("type_", "scheme"), [*INTEGERS.items(), ("MXFP4", "MXFP4A16"), ("NVFP4", "NVFP4A16")])
def test_plans_state_the_kernels_that_they_call(
    type_: str, scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    like, floats = LLAMA.write_directory(tmp_path / "like"), LLAMA.write_gguf(tmp_path / "f.gguf", "F16")
    scales = dict.fromkeys(LLAMA.shapes(), 0.25) if type_ == "NVFP4" else None
    source = LLAMA.write_gguf(tmp_path / "model.gguf", type_, blocks=hostile(type_), scales=scales)
    store = open_source(source, like)
    for dtype in ("F32", "F16"):
        request = conversion_request(Direction.QUANTIZE, scheme=scheme, dtype=dtype, repack=Repack.ROUNDED)
        plan = plan_conversion(store, request)
        with called(monkeypatch) as found:
            run_plan(plan, store, LocalStore(tmp_path / f"out-{dtype}"))
        assert found <= set(kernels_of(plan))
    target = GgufTarget(LocalStore(tmp_path), "back.gguf", type_, LocalStore(tmp_path), floats.name)
    back = plan_repack_to_gguf(LocalStore(tmp_path / "out-F32"), target, allow_rounding=True)
    with called(monkeypatch) as found:
        run_repack(back, LocalStore(tmp_path / "out-F32"), LocalStore(tmp_path))
    assert found <= set(back.kernels)


def test_a_norm_of_gemma_to_which_f32_cannot_add_1_is_refused(tmp_path: Path) -> None:
    model = MODELS["gemma2"]
    like, floats = model.write_directory(tmp_path / "like"), model.write_gguf(tmp_path / "f32.gguf", "F32")
    repack_checkpoint(model.write_gguf(tmp_path / "m.gguf", "Q8_0"), tmp_path / "a", INTEGERS["Q8_0"], like=like)
    norm = "model.layers.1.post_feedforward_layernorm"
    changed(tmp_path / "a", "weight", struct.pack("<f", 2.0**-40), norm)
    error = refused(tmp_path / "a", tmp_path / "b.gguf", "Q8_0", floats)
    assert error.tensor == f"{norm}.weight"
    assert f"holds {2.0**-40!r} at row 0, column 0; it would be stored as 0.0" in error.detail
    report = repack_checkpoint(tmp_path / "a", tmp_path / "b.gguf", "Q8_0", like=floats, allow_rounding=True)
    assert (report.verdicts[f"{norm}.weight"].differing, report.verdicts[f"{norm}.weight"].largest_error) == (
        1,
        2.0**-40,
    )
