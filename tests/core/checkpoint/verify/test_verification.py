"""Verification finds each byte that is wrong, and each tensor and file that is missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from requant.checkpoint.plan.model import Direction, Request, SchemeFor
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.run.run import run_plan
from requant.checkpoint.safetensors.header import TensorEntry
from requant.checkpoint.storage.location import open_store
from requant.checkpoint.verify.verification import Verification, verify
from requant.errors import CheckpointError, ParameterError, VerificationError
from tests.support.hand_made_plan import write_safetensors
from tests.support.model_directory import make_model
from tests.support.safetensors_files import read_safetensors, tensor_places

SCHEMES = ("W4A16", "W8A8", "W4A16_ASYM", "FP8_BLOCK", "NVFP4A16", "MXFP4A16")
SHARD = "model-00002-of-00002.safetensors"


def _quantized(folder: Path, scheme: str) -> tuple[Path, Path]:
    source = make_model(folder / "source")
    destination = folder / "destination"
    request = Request(Direction.QUANTIZE, (SchemeFor(scheme),), "compressed-tensors-cpu", ("re:.*q_proj",))
    store = open_store(source)
    run_plan(plan_conversion(store, request), store, open_store(destination))
    return source, destination


@pytest.fixture
def model(tmp_path: Path) -> tuple[Path, Path]:
    return _quantized(tmp_path, "W4A16")


def _verified(
    model: tuple[Path, Path], *, with_source: bool = True, sample: float = 1.0, seed: int = 0
) -> Verification:
    source = open_store(model[0]) if with_source else None
    return verify(open_store(model[1]), source, sample=sample, seed=seed, hashes=False)


@pytest.mark.parametrize("threads", [0, -1])
def test_at_least_one_thread(tmp_path: Path, threads: int) -> None:
    """Asked first: a large model is hashed for minutes."""
    with pytest.raises(ParameterError, match=f"threads is {threads}; expected 1 or more"):
        verify(open_store(tmp_path / "none"), threads=threads)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_tensor_is_compared(tmp_path: Path, scheme: str) -> None:
    model = _quantized(tmp_path, scheme)
    found = _verified(model)
    assert not found.faults
    assert found.tensors == found.tensors_compared
    assert found.bytes_compared == sum(path.stat().st_size for path in model[1].glob("*.safetensors")) + 2
    # Each tensor on its own: one bit of its last byte is changed.
    for entry in tensor_places(model[1] / SHARD):
        with Changed(model[1] / SHARD, entry.end - 1):
            faults = _verified(model).faults
            compared = [fault for fault in faults if "differ" in fault.detail]
            assert [(fault.file, fault.tensor) for fault in compared] == [(SHARD, entry.name)], entry.name
            assert f"at byte {entry.end - entry.begin - 1} of the tensor" in compared[0].detail
            # The shape that a tensor states disagrees with the others of its module, too.
            assert len(faults) == (2 if entry.name.endswith("weight_shape") else 1)


class Changed:
    """One bit of a file is another one for a while."""

    def __init__(self, path: Path, offset: int) -> None:
        self.path, self.offset = path, offset

    def flip(self) -> None:
        data = bytearray(self.path.read_bytes())
        data[self.offset] ^= 1
        self.path.write_bytes(data)

    def __enter__(self) -> None:
        self.flip()

    def __exit__(self, *_: object) -> None:
        self.flip()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json", "tokenizer.json"])
def test_other_files_are_compared(model: tuple[Path, Path], name: str) -> None:
    path = model[1] / name
    # A byte of white space or of a word: the text stays of one length, and may stay JSON.
    path.write_bytes(path.read_bytes()[:-1] + b" ")
    assert name in {fault.file for fault in _verified(model).faults}


def test_the_manifest_has_the_hashes(model: tuple[Path, Path]) -> None:
    assert verify(open_store(model[1])).files_hashed == 5
    with Changed(model[1] / SHARD, -1):
        assert not _verified(model, with_source=False).faults
        (fault,) = verify(open_store(model[1])).faults
    assert (fault.file, "SHA-256" in fault.detail) == (SHARD, True)
    with pytest.raises(VerificationError, match="SHA-256"), Changed(model[1] / SHARD, -1):
        verify(open_store(model[1])).raise_faults()


def _without(suffix: str) -> Callable[[Path], None]:
    def change(directory: Path) -> None:
        tensors = {
            name: each for name, each in read_safetensors(directory / SHARD).items() if not name.endswith(suffix)
        }
        write_safetensors(directory / SHARD, tensors)
        _index(directory, lambda name: not (name.endswith(suffix) and ".1." in name))

    return change


def _index(directory: Path, keep: Callable[[str], bool]) -> None:
    path = directory / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"] = {name: file for name, file in index["weight_map"].items() if keep(name)}
    path.write_text(json.dumps(index))


def _as_it_was(directory: Path) -> None:
    """Put the weight of the source in place of the quantized one."""
    tensors = read_safetensors(directory / SHARD)
    module = "model.layers.1.mlp.up_proj"
    for name in [name for name in tensors if name.startswith(module)]:
        del tensors[name]
    tensors[f"{module}.weight"] = read_safetensors(directory.parent / "source" / SHARD)[f"{module}.weight"]
    write_safetensors(directory / SHARD, tensors)
    path = directory / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    others = {name: file for name, file in index["weight_map"].items() if not name.startswith(module)}
    index["weight_map"] = {**others, f"{module}.weight": SHARD}
    path.write_text(json.dumps(index))


def _half_of_the_scales(directory: Path) -> None:
    tensors = read_safetensors(directory / SHARD)
    dtype, array = tensors["model.layers.1.mlp.up_proj.weight_scale"]
    tensors["model.layers.1.mlp.up_proj.weight_scale"] = (dtype, array[: len(array) // 2])
    write_safetensors(directory / SHARD, tensors)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda directory: (directory / SHARD).unlink(), "is missing"),
        (lambda directory: (directory / "config.json").unlink(), "config.json"),
        (lambda directory: _index(directory, lambda name: "up_proj.weight_scale" not in name), "does not name it"),
        (_without("up_proj.weight_scale"), "model.layers.1.mlp.up_proj"),
        (_without("up_proj.weight_packed"), "model.layers.1.mlp.up_proj"),
        (_half_of_the_scales, "model.layers.1.mlp.up_proj"),
        (_as_it_was, "not quantized"),
    ],
)
def test_structure(model: tuple[Path, Path], change: Callable[[Path], None], expected: str) -> None:
    (model[1] / "requant-manifest.json").unlink()
    assert not _verified(model, with_source=False).faults
    change(model[1])
    faults = _verified(model, with_source=False).faults
    assert faults
    assert any(expected in f"{fault.file} {fault.tensor} {fault.detail}" for fault in faults), faults


def test_a_sample(model: tuple[Path, Path]) -> None:
    wholes = _verified(model)
    found = _verified(model, sample=0.3, seed=5)
    assert 0 < found.tensors_compared < wholes.tensors_compared
    assert 0 < found.bytes_compared < wholes.bytes_compared
    # Whatever is wrong in one tensor is found by some seed, and not by all.
    entry: TensorEntry = next(each for each in tensor_places(model[1] / SHARD) if each.name.endswith("weight_packed"))
    with Changed(model[1] / SHARD, entry.begin):
        results = {bool(_verified(model, sample=0.2, seed=seed).faults) for seed in range(12)}
    assert results == {True, False}


def test_without_a_manifest_the_request_is_needed(model: tuple[Path, Path]) -> None:
    (model[1] / "requant-manifest.json").unlink()
    with pytest.raises(CheckpointError, match="no requant-manifest"):
        _verified(model)
    request = Request(Direction.QUANTIZE, (SchemeFor("W4A16"),), "compressed-tensors-cpu", ("re:.*q_proj",))
    assert not verify(open_store(model[1]), open_store(model[0]), request=request).faults


def test_expressions_that_take_forever_are_not_matched(model: tuple[Path, Path]) -> None:
    path = model[1] / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"]["ignore"] += ["re:(?=((.|[^!])+)+!)x"]
    path.write_text(json.dumps(config))
    (model[1] / "requant-manifest.json").unlink()
    assert not _verified(model, with_source=False).faults


def test_embeddings_may_stay_as_they_are(model: tuple[Path, Path]) -> None:
    (model[1] / "requant-manifest.json").unlink()
    tensors = read_safetensors(model[1] / SHARD)
    embeddings = read_safetensors(model[0] / SHARD)["model.layers.1.mlp.up_proj.weight"]
    write_safetensors(model[1] / SHARD, {**tensors, "model.embed_tokens.weight": embeddings})
    path = model[1] / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["model.embed_tokens.weight"] = SHARD
    path.write_text(json.dumps(index))
    assert not _verified(model, with_source=False).faults
