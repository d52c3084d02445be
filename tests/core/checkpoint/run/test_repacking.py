"""From one quantized form to another without rounding: proven number by number, or refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from requant.checkpoint.plan.model import Direction, Repack, Request, SchemeFor
from requant.checkpoint.run.verdicts import Outcome, Verdict
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.verify.attestation import statement_of
from requant.checkpoint.verify.difference import diff
from requant.checkpoint.verify.verification import verify
from requant.checkpoints import dequantize_checkpoint, quantize_checkpoint, repack_checkpoint
from requant.errors import CheckpointError, VerificationError
from tests.core.checkpoint.run import conversion_matrix
from tests.support.cases import sample
from tests.support.model_directory import contents, make_model

FLOATS = ("BF16", "F32")
INTEGERS = ("W8A16", "W4A16", "W4A16_ASYM", "GPTQ_W4A16", "GPTQ_W8A16", "GPTQ_W4A16:asymmetric", "AWQ")
EXACT = {
    "W8A16": ("W8A16", "GPTQ_W8A16"),
    "W4A16": INTEGERS[1:],
    "W4A16_ASYM": ("W4A16_ASYM", "GPTQ_W4A16:asymmetric", "AWQ"),
    "W4A16:group=32": ("GPTQ_W4A16:group=32",),
    "FP8_DYNAMIC:tensor": ("FP8_DYNAMIC", "FP8_BLOCK", "FINE_GRAINED_FP8"),
    "FP8_DYNAMIC": ("FP8_DYNAMIC", "MODELOPT_FP8_PER_CHANNEL_PER_TOKEN"),
    "FP8_BLOCK": ("FP8_BLOCK", "FP8_DYNAMIC", "FINE_GRAINED_FP8", "MODELOPT_FP8_PB_WO"),
    "MODELOPT_FP8_PER_CHANNEL_PER_TOKEN": ("MODELOPT_FP8_PER_CHANNEL_PER_TOKEN",),
    "MODELOPT_FP8_PB_WO": ("FINE_GRAINED_FP8", "FP8_BLOCK", "MODELOPT_FP8_PER_CHANNEL_PER_TOKEN"),
    "NVFP4A16": ("NVFP4A16",),
    "MODELOPT_W4A16_NVFP4": ("MODELOPT_W4A16_NVFP4",),
    "MXFP4A16": (
        "NVFP4A16",
        "MODELOPT_W4A16_NVFP4",
        "MXFP6A16",
        "MXFP8A16",
        "FP8_BLOCK",
        "FINE_GRAINED_FP8_UE8M0",
        *FLOATS,
    ),
    "MXFP6A16": ("MXFP8A16", "FP8_BLOCK", *FLOATS),
    "MXFP8A16": ("FP8_BLOCK", "FINE_GRAINED_FP8_UE8M0", *FLOATS),
    "FINE_GRAINED_FP8": ("FP8_BLOCK",),
    "FINE_GRAINED_FP8_UE8M0": ("FINE_GRAINED_FP8", "FP8_BLOCK", "MXFP8A16", *FLOATS),
    "GPTQ_W4A16": ("W4A16", "W4A16_ASYM", "AWQ", "F32"),
    "GPTQ_W8A16": ("W8A16:group=128",),
    "GPTQ_W4A16:asymmetric": ("W4A16_ASYM", "AWQ"),
    "AWQ": ("W4A16_ASYM", "GPTQ_W4A16:asymmetric"),
}
"""Pairs that hold the same numbers, for weights of ordinary magnitudes."""
PAIRS = [(first, second) for first, others in EXACT.items() for second in others]
INEXACT = [
    ("W8A16", "W4A16"), ("W4A16_ASYM", "W4A16"), ("FP8_DYNAMIC", "FP8_BLOCK"), ("FP8_BLOCK", "MXFP8A16"),
    ("NVFP4A16", "MXFP4A16"), ("MXFP8A16", "MXFP4A16"), ("MXFP6A16", "NVFP4A16"), ("FINE_GRAINED_FP8", "BF16"),
    ("W4A16", "BF16"), ("NVFP4A16", "F16"), ("NF4", "FP8_BLOCK"), ("W8A16", "AWQ"),
    ("NVFP4A16", "MODELOPT_W4A16_NVFP4"), ("MODELOPT_W4A16_NVFP4", "NVFP4A16"),
]  # fmt: skip


def repack(source: Path, target: Path, to: str, *, allow_rounding: bool = False) -> Mapping[str, Verdict]:
    """Repack to a scheme, or to a dtype of floats, and return the verdicts."""
    scheme, dtype = (None, to) if to in ("BF16", "F16", "F32") else (to, None)
    report = repack_checkpoint(source, target, scheme, dtype=dtype, allow_rounding=allow_rounding)
    return report.verdicts


def quantized(directory: Path, scheme: str) -> Path:
    quantize_checkpoint(make_model(directory / "plain", size=256), directory / "quantized", scheme)
    return directory / "quantized"


@pytest.mark.sample(2)
@pytest.mark.parametrize(("first", "second"), sample(PAIRS, 20))
def test_pairs_that_hold_the_same_numbers(tmp_path: Path, first: str, second: str) -> None:
    source = quantized(tmp_path, first)
    verdicts = repack(source, tmp_path / "out", second)
    weights = {name: each for name, each in verdicts.items() if "proj" in name}
    expected = Outcome.WIDENED if second in FLOATS else Outcome.EXACT
    assert {each.outcome for each in weights.values()} == {expected}
    assert sum(each.numbers for each in weights.values()) == 2 * 3 * 256 * 256
    assert diff(LocalStore(source), LocalStore(tmp_path / "out"), numbers=True).differences == ()
    assert verify(LocalStore(tmp_path / "out"), LocalStore(source)).faults == ()


@pytest.mark.sample(2)
@pytest.mark.parametrize(("first", "second"), INEXACT)
def test_pairs_that_do_not_are_refused_with_a_number(tmp_path: Path, first: str, second: str) -> None:
    source = quantized(tmp_path, first)
    with pytest.raises(CheckpointError) as refused:
        repack(source, tmp_path / "out", second)
    assert refused.value.tensor is not None
    assert refused.value.tensor.endswith("proj.weight")
    assert "--allow-rounding" in refused.value.detail
    assert not (tmp_path / "out" / "config.json").exists()
    verdicts = repack(source, tmp_path / "rounded", second, allow_rounding=True)
    rounded = [each for each in verdicts.values() if each.outcome is Outcome.ROUNDED]
    found = diff(LocalStore(source), LocalStore(tmp_path / "rounded"), numbers=True).differences
    assert sorted((each.differing, each.largest_error) for each in rounded) == sorted(
        (each.differing, each.largest) for each in found
    )
    assert verify(LocalStore(tmp_path / "rounded"), LocalStore(source)).faults == ()


E2M1 = [Fraction(each) / 2 for each in (0, 1, 2, 3, 4, 6, 8, 12)]


def with_scales(source: Path, change: Mapping[tuple[str, int], bytes]) -> None:
    """Write bytes into stored tensors: by name and offset in the tensor."""
    for file in source.glob("*.safetensors"):
        data = bytearray(file.read_bytes())
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        for (name, offset), new in change.items():
            if name in header:
                begin = 8 + size + header[name]["data_offsets"][0] + offset
                data[begin : begin + len(new)] = new
        file.write_bytes(data)
    (source / "requant-manifest.json").unlink(missing_ok=True)


UP = "model.layers.0.mlp.up_proj"


def test_a_block_whose_scales_lie_too_far_apart(tmp_path: Path) -> None:
    """Scale bytes 110 beside 127 in one block of FP8: the smaller numbers are not multiples of its least step."""
    source = quantized(tmp_path, "MXFP4A16")
    codes = bytes([0x71] * 16 + [0x77] * 16)
    with_scales(source, {(f"{UP}.weight_packed", 0): codes, (f"{UP}.weight_scale", 0): bytes([110, 127])})
    with pytest.raises(CheckpointError) as refused:
        repack(source, tmp_path / "out", "FP8_BLOCK")
    assert refused.value.tensor == f"{UP}.weight"
    smallest = float(E2M1[1] * Fraction(2) ** (110 - 127))
    assert f"holds {smallest!r} at row 0, column 0; it would be stored as " in refused.value.detail


@pytest.mark.sample(1)
@pytest.mark.parametrize("to", ["NVFP4A16", "FP8_BLOCK", "MXFP6A16", "MXFP8A16", "BF16", "F16", "F32"])
def test_each_scale_of_mxfp4(tmp_path: Path, to: str) -> None:
    """A whole weight of one scale byte: which bytes are exact is what fractions say, and all others are refused."""
    source = quantized(tmp_path, "MXFP4A16")
    every_code = bytes([low | high << 4 for high in range(16) for low in range(16)])
    for scale in (0, 1, 2, 5, 9, 100, 118, 127, 140, 230, 246, 250, 252, 253, 254, 255):
        change = {(f"{UP}.weight_packed", 256 * place): every_code for place in range(256)}
        change[f"{UP}.weight_scale", 0] = bytes([scale]) * (512 * 8)
        with_scales(source, change)
        # compressed-tensors takes byte 255 for 2^128, an infinity, which scales of small floats do not have.
        numbers = [each * Fraction(2) ** (scale - 127) for each in E2M1]
        out = tmp_path / f"{to}-{scale}"
        if all(_is_held(number, numbers, to) for number in numbers):
            assert repack(source, out, to)[f"{UP}.weight"].differing == 0, scale
        else:
            with pytest.raises(CheckpointError, match="it would be stored"):
                repack(source, out, to)


def _is_held(number: Fraction, numbers: list[Fraction], to: str) -> bool:
    """Return whether a format holds a number of a weight that has all of these, each block of it having all."""
    match to:
        case "BF16" | "F16" | "F32":
            least, most = {"BF16": (-133, 128), "F16": (-24, 16), "F32": (-149, 128)}[to]
            step = Fraction(2) ** least
            if numbers[2] == 2**128:
                return True
            return (number / step).denominator == 1 and number < 2**most
        case "FP8_BLOCK":
            # In BF16: 6 times a scale is 384 times another.
            return numbers[-1] / 384 >= Fraction(2) ** -133
        case "NVFP4A16":
            return numbers[2] < 2**128
        case _:
            return True


def test_a_certificate_is_derived_again(tmp_path: Path) -> None:
    source, out = quantized(tmp_path, "MXFP4A16"), tmp_path / "out"
    repack(source, out, "NVFP4A16")
    manifest = json.loads((out / "requant-manifest.json").read_text())
    certificate = manifest["certificate"]
    assert manifest["request"]["repack"] == Repack.EXACT
    assert manifest["request"]["certify"] is True
    assert certificate["tensors"][f"{UP}.weight"] == {"verdict": "exact", "numbers": 512 * 256}
    assert certificate["tensors"]["model.layers.0.input_layernorm.weight"] == {"verdict": "copied"}
    assert set(certificate["sources"]) == {file.name for file in source.iterdir()} - {"requant-manifest.json", ".lock"}
    profile = {"name": "compressed-tensors-cpu", "system": "compressed-tensors", "version": "0.20.0"}
    assert certificate["profile"] == profile
    statement = statement_of(LocalStore(out))
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert {each["name"] for each in statement["subject"]} == set(manifest["files"])
    assert statement["predicate"]["tensors"] == certificate["tensors"]

    before = (tmp_path / "quantized" / "tokenizer.json").read_text()
    (source / "tokenizer.json").write_text(before + " ")
    faults = verify(LocalStore(out), LocalStore(source)).faults
    assert any("'tokenizer.json' is not that of the certificate" in fault.detail for fault in faults)


@pytest.mark.parametrize("repack", [Repack.EXACT, Repack.ROUNDED])
def test_a_repack_is_certified_however_it_is_requested(repack: Repack) -> None:
    request = Request(Direction.QUANTIZE, (SchemeFor("NVFP4A16"),), "", repack=repack, certify=False)
    assert request.certify
    assert not replace(request, repack=Repack.NO, certify=False).certify


def test_a_changed_verdict_is_a_fault(tmp_path: Path) -> None:
    source, out = quantized(tmp_path, "W4A16"), tmp_path / "out"
    repack(source, out, "BF16", allow_rounding=True)
    path = out / "requant-manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["sha256"]
    name = next(name for name, each in manifest["certificate"]["tensors"].items() if each["verdict"] == "rounded")
    manifest["certificate"]["tensors"][name]["differing"] -= 1
    path.write_text(json.dumps(manifest))
    faults = verify(LocalStore(out), LocalStore(source)).faults
    assert "its verdict is" in next(fault.detail for fault in faults if fault.tensor == name)


def test_a_model_that_was_changed_is_not_attested(tmp_path: Path) -> None:
    source, out = quantized(tmp_path, "W4A16"), tmp_path / "out"
    with pytest.raises(CheckpointError, match="has no certificate: convert the source again with --certify"):
        statement_of(LocalStore(source))
    repack(source, out, "W4A16")
    (out / "tokenizer.json").write_text("[]")
    with pytest.raises(VerificationError, match="SHA-256"):
        statement_of(LocalStore(out))


def test_what_is_certified_besides(tmp_path: Path) -> None:
    """Quantizing and dequantizing write the same bytes with a certificate as without."""
    plain = make_model(tmp_path / "plain", size=128)
    with_verdicts = quantize_checkpoint(plain, tmp_path / "a", "W8A8", certify=True)
    without = quantize_checkpoint(plain, tmp_path / "b", "W8A8")
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert without.verdicts == {}
    weight = with_verdicts.verdicts[f"{UP}.weight"]
    assert weight.outcome is Outcome.ROUNDED
    assert 0 < weight.differing < weight.numbers
    back = dequantize_checkpoint(tmp_path / "a", tmp_path / "c", dtype="F32", certify=True)
    assert back.verdicts[f"{UP}.weight"].outcome in (Outcome.WIDENED, Outcome.ROUNDED)
    found = diff(LocalStore(tmp_path / "a"), LocalStore(plain), numbers=True).differences
    assert {each.tensor: each.differing for each in found}[f"{UP}.weight"] == weight.differing


@pytest.mark.sample(1)
@pytest.mark.parametrize("scheme", sample(list(conversion_matrix.SCHEMES), 2))
def test_the_page_has_what_is_exact(scheme: str) -> None:
    assert conversion_matrix.lines_of_page()[scheme] == conversion_matrix.line(scheme)


def test_nothing_is_moved_to_one_scale_for_a_tensor(tmp_path: Path) -> None:
    source = quantized(tmp_path, "FP8_DYNAMIC:tensor")
    with pytest.raises(CheckpointError, match="are not moved to one scale for the whole weight"):
        repack(source, tmp_path / "out", "FP8_DYNAMIC:tensor")


def test_fp8_without_blocks_is_refused(tmp_path: Path) -> None:
    source = quantized(tmp_path, "FP8_DYNAMIC:tensor")
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    (source / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="only weights with one scale per block are supported"):
        repack(source, tmp_path / "out", "FP8_BLOCK")


def test_a_plain_model_has_nothing_to_move(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there are no codes and scales to move"):
        repack(make_model(tmp_path / "plain"), tmp_path / "out", "W4A16")


def test_verdicts_outlive_a_run_that_did_not_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = quantized(tmp_path, "MXFP4A16")
    repack(source, tmp_path / "whole", "FP8_BLOCK")

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("requant.checkpoint.run.run.complete_manifest", fail)
        with pytest.raises(KeyboardInterrupt):
            repack(source, tmp_path / "resumed", "FP8_BLOCK")
    report = repack_checkpoint(source, tmp_path / "resumed", "FP8_BLOCK")
    assert len(report.kept) > 1
    manifests = [(tmp_path / name / "requant-manifest.json").read_bytes() for name in ("whole", "resumed")]
    assert manifests[0] == manifests[1]
