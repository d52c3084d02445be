"""Whole files of mixtures beside those of llama-quantize: on models of several architectures, with and without an
importance matrix."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from requant.checkpoint.gguf.importance import read_importance
from requant.checkpoint.gguf.mixtures import TARGETS
from requant.checkpoint.gguf.quantize import quantize_gguf
from requant.checkpoint.storage.local import LocalStore
from requant.errors import CheckpointError
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import checkpoint
from tests.interop.llama_cpp import tiny_model
from tests.interop.llama_cpp.library import logits, needs_llama_cpp, quantize
from tests.interop.llama_cpp.small_models import MODELS, write_importance
from tests.support.cases import OF_THE_DAY

pytestmark = [pytest.mark.interop, needs_llama_cpp]

MIXTURES = [name for name, target in TARGETS.items() if target.mixed]
# Those that an importance matrix changes.
PURE = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", *MIXTURES)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@cache
def written(directory: Path, model: str) -> Path:
    path = directory / f"{model}.gguf"
    MODELS[model].write(path)
    return path


def by_importance(directory: Path, model: str, file: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What ours and theirs are told of an importance matrix, which is written."""
    path = directory / file
    meant = write_importance(path, MODELS[model].sums())
    keys = {
        "quantize.imatrix.file": str(path)[:127],
        "quantize.imatrix.dataset": "wiki",
        "quantize.imatrix.entries_count": len(meant),
        "quantize.imatrix.chunks_count": 12,
    }
    ours = read_importance(LocalStore(directory), path.name, str(path))
    return {"importance": ours}, {"importance": meant, "keys": keys}


def compare(source: Path, target: str, how: dict[str, Any], theirs: dict[str, Any]) -> int:
    """Return the size of the files, or 0 where both refuse to write one."""
    store, expected = LocalStore(source.parent), source.with_name("theirs.gguf")
    found = source.with_name("ours.gguf")
    found.unlink(missing_ok=True)
    if quantize(source, expected, TARGETS[target].file_type, **theirs) != 0:
        with pytest.raises(CheckpointError, match="demands an importance"):
            quantize_gguf(store, source.name, store, found.name, target, **how)
        return 0
    quantize_gguf(store, source.name, store, found.name, target, **how)
    assert found.read_bytes() == expected.read_bytes()
    return found.stat().st_size


FORMS = ("none", "dat", "gguf")


@pytest.mark.parametrize(
    ("model", "form"), [(model, FORMS[(place + OF_THE_DAY) % 3]) for place, model in enumerate(MODELS)]
)
def test_mixtures_equal_those_of_llama_quantize(model: str, form: str, directory: Path) -> None:
    """Each model with one form of an importance matrix each day."""
    source = written(directory, model)
    how, theirs = ({}, {}) if form == "none" else by_importance(directory, model, f"importance of {model}.{form}")
    sizes = [compare(source, mixture, how, theirs) for mixture in MIXTURES]
    # Q2_K_S is refused without the importance of each weight.
    assert sum(size > 0 for size in sizes) in (len(MIXTURES) - 1, len(MIXTURES))
    print(f"llama-quantize: {sum(sizes):,} bytes of files of {model} compared, importance: {form}")  # noqa: T201


@pytest.mark.parametrize("important", [False, True])
@pytest.mark.parametrize("model", ["llama with odd rows", "four experts"])
def test_files_of_one_type_equal_those_of_llama_quantize(model: str, important: bool, directory: Path) -> None:
    source = written(directory, model)
    how, theirs = by_importance(directory, model, f"more of {model}.gguf") if important else ({}, {})
    how["pure"] = theirs["pure"] = True
    for target in PURE:
        size = compare(source, target, how, theirs)
        if size:
            record(systems.LLAMA_CPP, [checkpoint(TARGETS[target].type.name, "quantize", "GGUF")], size)


def test_llama_cpp_evaluates_the_files(tmp_path: Path) -> None:
    path, tokens = tmp_path / "tiny.gguf", [1, 20, 30, 40, 50, 263, 270]
    tiny_model.write(path, "F16")
    store, reference = LocalStore(tmp_path), logits(path, tokens, tiny_model.VOCABULARY)
    for mixture in MIXTURES:
        if mixture == "Q2_K_S":
            continue
        quantize_gguf(store, path.name, store, f"{mixture}.gguf", mixture)
        found = logits(tmp_path / f"{mixture}.gguf", tokens, tiny_model.VOCABULARY)
        assert np.isfinite(found).all()
        least = {"2": 0.5, "3": 0.75, "4": 0.9}.get(mixture.removeprefix("I")[1], 0.97)
        assert np.corrcoef(found, reference)[0, 1] > least, mixture
