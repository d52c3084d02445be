"""Certificates of GGUF files: what stands in the manifest beside the file, derived again, and what was changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from requant.checkpoint.gguf.importance import read_importance
from requant.checkpoint.gguf.plan import plan_gguf
from requant.checkpoint.gguf.quantize import quantize_gguf, verdicts_of_gguf
from requant.checkpoint.gguf.tensor_types import FLOATS, TENSOR_TYPES, read_elements, write_elements
from requant.checkpoint.gguf.weights import numbers_of
from requant.checkpoint.storage.local import LocalStore
from requant.checkpoint.verify.attestation import statement_of_file
from requant.checkpoint.verify.gguf_file import MadeOf, verify_file
from requant.checkpoints import repack_checkpoint
from requant.errors import CheckpointError, DestinationError, ParameterError, VerificationError
from tests.core.checkpoint.gguf.test_repacking import gguf_tensors
from tests.support.gguf_blocks import any_blocks
from tests.support.gguf_files import GgufFile, Tensor, legacy_importance
from tests.support.gguf_models import MODELS
from tests.support.gguf_numbers import SIZES, numbers

VALUES = np.random.default_rng(29).standard_normal((12, 256)).astype("<f4")
NAMES = ("blk.9.ffn_up.weight", "output.weight")
NORM = "blk.9.attn_norm.weight"
BESIDE = "q.gguf.requant-manifest.json"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def source(directory: Path) -> LocalStore:
    """A file with two weights of BF16, and a norm."""
    stored = {name: write_elements(VALUES.reshape(-1), TENSOR_TYPES["BF16"]) for name in NAMES}
    tensors = [Tensor(name, [256, 12], TENSOR_TYPES["BF16"].number, data.tobytes()) for name, data in stored.items()]
    norm = Tensor(NORM, [256], 0, VALUES[0].tobytes())
    (directory / "m.gguf").write_bytes(GgufFile([*tensors, norm]).to_bytes())
    return LocalStore(directory)


def manifest_of(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / BESIDE).read_text())
    return found


def faults(store: LocalStore, made_of: MadeOf | None = None) -> list[tuple[str | None, str | None, str]]:
    found, _ = verify_file(store, "q.gguf", made_of)
    return [(fault.file, fault.tensor, fault.detail) for fault in found.faults]


@pytest.mark.parametrize("name", SIZES)
def test_the_numbers_of_blocks_are_those_of_fractions(name: str) -> None:
    type_ = TENSOR_TYPES[name]
    data = any_blocks(name, type_.block_bytes, 6, np.random.default_rng(5)).reshape(-1)
    found, expected = numbers_of(data, type_), numbers(name, data.tobytes())
    assert found.shape == (1, len(expected))
    for number, wanted in zip(found[0].tolist(), expected, strict=True):
        assert number == wanted or (isnan(number) and isnan(wanted))


@pytest.mark.parametrize("name", [*FLOATS, "Q4_1", "Q5_K"])
def test_the_numbers_of_floats_and_of_minimums_are_values(name: str) -> None:
    type_ = TENSOR_TYPES[name]
    data = write_elements(VALUES.reshape(-1), type_)
    assert np.array_equal(numbers_of(data, type_)[0], read_elements(data, type_).astype(np.float64))


def test_a_quantized_file_has_a_certificate(tmp_path: Path) -> None:
    store = source(tmp_path)
    plain = quantize_gguf(store, "m.gguf", store, "plain.gguf", "Q8_0")
    assert plain.verdicts == {}
    report = quantize_gguf(store, "m.gguf", store, "q.gguf", "Q8_0", ignore=["output.weight"], certify=True)
    assert [file.name for file in report.files] == ["q.gguf"]
    manifest = manifest_of(tmp_path)
    assert manifest["request"] == {"type": "Q8_0", "ignore": ["output.weight"], "pure": False, "imatrix": None}
    size = (tmp_path / "q.gguf").stat().st_size
    assert manifest["files"] == {"q.gguf": {"size": size, "sha256": sha256(tmp_path / "q.gguf")}}
    certificate = manifest["certificate"]
    assert certificate["sources"] == {"m.gguf": sha256(tmp_path / "m.gguf")}
    assert certificate["profile"] == {"name": "llama-quantize", "system": "llama.cpp", "version": "0.5.0"}
    assert certificate["tensors"]["output.weight"] == certificate["tensors"][NORM] == {"verdict": "copied"}
    verdict = certificate["tensors"]["blk.9.ffn_up.weight"]
    before = VALUES.astype("<f4").view("<u4")
    before = ((before + 0x7FFF + (before >> 16 & 1)) & np.uint32(0xFFFF0000)).view("<f4").reshape(-1)
    after = np.array([float(each) for each in numbers("Q8_0", _tensor(store, "blk.9.ffn_up.weight"))])
    errors = np.abs(before.astype(np.float64) - after)
    assert verdict == {
        "verdict": "rounded",
        "numbers": 12 * 256,
        "differing": np.count_nonzero(errors),
        "largest_error": errors.max(),
    }
    assert {name: each.members for name, each in report.verdicts.items()} == certificate["tensors"]
    plan = plan_gguf(store, "m.gguf", "x.gguf", "Q8_0", ignore=["output.weight"])
    assert verdicts_of_gguf(plan, store) == report.verdicts
    result, request = verify_file(store, "q.gguf", MadeOf(store, "m.gguf"), threads=2)
    assert (result.faults, request) == ((), manifest["request"])
    assert (result.tensors, result.tensors_compared, result.files_hashed) == (3, 3, 1)
    assert result.bytes_compared == size

    statement = statement_of_file(store, "q.gguf")
    assert statement["subject"] == [{"name": "q.gguf", "digest": {"sha256": sha256(tmp_path / "q.gguf")}}]
    assert statement["predicate"]["tensors"] == certificate["tensors"]
    assert statement["predicate"]["request"] == manifest["request"]


def _tensor(store: LocalStore, name: str) -> bytes:
    return gguf_tensors(store.directory / "q.gguf")[name][1]


def test_floats_are_widened(tmp_path: Path) -> None:
    store = source(tmp_path)
    report = quantize_gguf(store, "m.gguf", store, "q.gguf", "F32", certify=True)
    assert {name: each.members for name, each in report.verdicts.items()} == {
        NORM: {"verdict": "copied"},
        **{name: {"verdict": "widened", "numbers": 12 * 256} for name in NAMES},
    }
    assert manifest_of(tmp_path)["certificate"]["profile"] is None


def test_numbers_that_a_type_holds_are_exact(tmp_path: Path) -> None:
    store = source(tmp_path)
    quantize_gguf(store, "m.gguf", store, "first.gguf", "Q8_0")
    floats = quantize_gguf(store, "first.gguf", store, "floats.gguf", "F32", certify=True)
    report = quantize_gguf(store, "floats.gguf", store, "q.gguf", "Q8_0", certify=True)
    for name in NAMES:
        assert floats.verdicts[name].members == {"verdict": "widened", "numbers": 12 * 256}
        assert report.verdicts[name].members == {"verdict": "exact", "numbers": 12 * 256}


def test_pieces_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = source(tmp_path)
    quantize_gguf(store, "m.gguf", store, "q.gguf", "Q4_1", certify=True)
    at_once = (tmp_path / BESIDE).read_bytes()
    monkeypatch.setattr("requant.checkpoint.gguf.quantize._ELEMENTS", 256)
    for name in ("q.gguf", BESIDE):
        (tmp_path / name).unlink()
    quantize_gguf(store, "m.gguf", store, "q.gguf", "Q4_1", certify=True, threads=3)
    assert (tmp_path / BESIDE).read_bytes() == at_once


def other_bytes(directory: Path) -> None:
    data = bytearray((directory / "q.gguf").read_bytes())
    data[-1] ^= 1
    (directory / "q.gguf").write_bytes(data)


def other_source(directory: Path) -> None:
    data = bytearray((directory / "m.gguf").read_bytes())
    data[data.index(VALUES[0].tobytes())] ^= 1
    (directory / "m.gguf").write_bytes(data)


def stated_otherwise(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    """A manifest that was changed, and sealed again."""

    def forge(directory: Path) -> None:
        manifest = manifest_of(directory)
        del manifest["sha256"]
        change(manifest)
        text = json.dumps(manifest, indent=2, ensure_ascii=False)
        manifest["sha256"] = hashlib.sha256(text.encode()).hexdigest()
        (directory / BESIDE).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")

    return forge


def one_less(manifest: dict[str, Any]) -> None:
    manifest["certificate"]["tensors"]["output.weight"]["differing"] -= 1


def unsealed(directory: Path) -> None:
    (directory / BESIDE).write_text((directory / BESIDE).read_text().replace('"pure": false', '"pure": true'))


@pytest.mark.parametrize(
    ("change", "place", "detail", "shows_alone"),
    [
        (other_bytes, ("q.gguf", None), "its SHA-256 differs from requant-manifest.json: the file was changed", True),
        (
            other_bytes,
            ("q.gguf", "blk.9.ffn_up.weight"),
            "1 bytes differ from the conversion of the source, the",
            False,
        ),
        (other_source, (BESIDE, None), "the SHA-256 of the source's file 'm.gguf' is not that of the", False),
        (stated_otherwise(one_less), (BESIDE, "output.weight"), 'its verdict is {"verdict": "rounded", ', False),
        (stated_otherwise(lambda each: each.pop("certificate")), (BESIDE, None), "it has no certificate", True),
        (unsealed, (BESIDE, None), "it was changed: it has other members, or another SHA-256, than", True),
        (
            stated_otherwise(lambda each: each["files"].update({"m.gguf": each["files"]["q.gguf"]})),
            (BESIDE, None),
            "it does not name 'q.gguf' alone",
            True,
        ),
    ],
)
def test_what_was_changed_is_found(
    change: Callable[[Path], None], place: tuple[str, str | None], detail: str, shows_alone: bool, tmp_path: Path
) -> None:
    store = source(tmp_path)
    quantize_gguf(store, "m.gguf", store, "q.gguf", "Q8_0", certify=True)
    assert faults(store, MadeOf(store, "m.gguf")) == []
    change(tmp_path)
    found = faults(store, MadeOf(store, "m.gguf"))
    assert any((file, tensor) == place and said.startswith(detail) for file, tensor, said in found), found
    assert any(said.startswith(detail) for *_, said in faults(store)) == shows_alone
    if shows_alone:
        with pytest.raises((VerificationError, CheckpointError)):
            statement_of_file(store, "q.gguf")


def test_an_importance_matrix_is_stated(tmp_path: Path) -> None:
    store = source(tmp_path)
    (tmp_path / "i.dat").write_bytes(legacy_importance({"output.weight": VALUES[0] ** 2}, 3))
    importance = read_importance(store, "i.dat", "some/i.dat")
    quantize_gguf(store, "m.gguf", store, "q.gguf", "Q4_0", importance=importance, certify=True)
    manifest = manifest_of(tmp_path)
    assert manifest["request"]["imatrix"] == "some/i.dat"
    digests = {"m.gguf": sha256(tmp_path / "m.gguf"), "imatrix/i.dat": sha256(tmp_path / "i.dat")}
    assert manifest["certificate"]["sources"] == digests
    # At another path: the key of the file has the one that was given.
    again = MadeOf(store, "m.gguf", read_importance(store, "i.dat", "i.dat"))
    assert faults(store, again) == []
    with pytest.raises(ParameterError, match=r"give it too \(imatrix, --imatrix\)"):
        verify_file(store, "q.gguf", MadeOf(store, "m.gguf"))
    quantize_gguf(store, "m.gguf", store, "without.gguf", "Q4_0", certify=True)
    with pytest.raises(ParameterError, match=r"without\.gguf was made without an importance matrix"):
        verify_file(store, "without.gguf", again)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    store = source(tmp_path)
    (tmp_path / BESIDE).write_text("{}")
    for certify in (False, True):
        with pytest.raises(DestinationError, match=r"holds 'q\.gguf\.requant-manifest\.json' already"):
            quantize_gguf(store, "m.gguf", store, "q.gguf", "Q8_0", certify=certify)
    assert not (tmp_path / "q.gguf").exists()


def test_a_file_without_a_manifest(tmp_path: Path) -> None:
    store = source(tmp_path)
    quantize_gguf(store, "m.gguf", store, "q.gguf", "Q8_0")
    assert faults(store) == []
    with pytest.raises(CheckpointError, match=r"there is no q\.gguf\.requant-manifest\.json"):
        verify_file(store, "q.gguf", MadeOf(store, "m.gguf"))
    with pytest.raises(CheckpointError, match=r"q\.gguf\.requant-manifest\.json has no certificate: convert"):
        statement_of_file(store, "q.gguf")
    (tmp_path / BESIDE).write_text("[]")
    assert [said for *_, said in faults(store)] == [f"{BESIDE} is not a manifest: remove it"]
    (tmp_path / "q.gguf").write_bytes(b"GGUF")
    assert len(faults(store)) == 2


@pytest.mark.parametrize("scheme", ["Q4_0", "NVFP4"])
def test_a_repacked_file_has_a_certificate(scheme: str, tmp_path: Path) -> None:
    model = MODELS["llama"]
    like, floats = model.write_directory(tmp_path / "like"), model.write_gguf(tmp_path / "f32.gguf", "F32")
    blocks, to = ("Q4_0", "W4A16:group=32") if scheme == "Q4_0" else ("MXFP4", "MXFP4A16")
    repack_checkpoint(model.write_gguf(tmp_path / "m.gguf", blocks), tmp_path / "out", to, like=like)
    report = repack_checkpoint(tmp_path / "out", tmp_path / "q.gguf", scheme, like=floats)
    manifest = manifest_of(tmp_path)
    assert manifest["certificate"]["tensors"] == {name: each.members for name, each in report.verdicts.items()}
    assert manifest["certificate"]["sources"] == {
        "like/f32.gguf": sha256(floats),
        **{
            file.name: sha256(file)
            for file in (tmp_path / "out").iterdir()
            if file.suffix == ".safetensors" or file.name in ("config.json", "model.safetensors.index.json")
        },
    }
    assert (manifest["request"]["scheme"], manifest["request"]["repack"]) == (scheme, "exact")
    store, made_of = LocalStore(tmp_path), MadeOf(LocalStore(tmp_path / "out"), like=(LocalStore(tmp_path), "f32.gguf"))
    result, _ = verify_file(store, "q.gguf", made_of)
    assert result.faults == ()
    assert result.bytes_compared == (tmp_path / "q.gguf").stat().st_size
    other_bytes(tmp_path)
    assert len(faults(store, made_of)) == 2
    with pytest.raises(ParameterError, match=r"give it too \(like, --like\)"):
        verify_file(store, "q.gguf", MadeOf(LocalStore(tmp_path / "out")))
    with pytest.raises(CheckpointError, match="is not that of a GGUF file that was made of another"):
        verify_file(store, "q.gguf", MadeOf(store, "f32.gguf"))


def test_a_quantized_file_is_not_made_of_a_directory(tmp_path: Path) -> None:
    store = source(tmp_path)
    quantize_gguf(store, "m.gguf", store, "q.gguf", "Q8_0", certify=True)
    with pytest.raises(CheckpointError, match="is not that of a directory that was repacked"):
        verify_file(store, "q.gguf", MadeOf(store))
    stated_otherwise(lambda each: each["request"].update(type="Q9_9"))(tmp_path)
    with pytest.raises(CheckpointError, match=r"the request in q\.gguf\.requant-manifest\.json cannot be planned"):
        verify_file(store, "q.gguf", MadeOf(store, "m.gguf"))
