"""Whole directories beside llm-compressor's: the same files, byte for byte, and a config.json that says the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from compressed_tensors.quantization import QuantizationConfig
from safetensors.torch import load_file

from requant.checkpoint.plan.model import Direction, NotFinite, Request, SchemeFor
from requant.checkpoint.profiles import COMPRESSED_TENSORS_CPU
from requant.checkpoint.storage.location import open_store
from requant.checkpoint.verify.verification import verify
from requant.command.main import main
from requant.errors import CheckpointError
from tests.interop.checkpoint import llm_compressor
from tests.interop.checkpoint.conversion import CPU, MANIFEST, convert, quantize
from tests.interop.checkpoint.schemes import OPTIONS, PRESETS, SEARCHED, theirs
from tests.interop.checkpoint.source_model import DTYPES, SourceModel, llama, mixture_of_experts, with_dtypes_in_turn
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import checkpoint

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

MODELS: dict[str, tuple[Callable[[torch.dtype], SourceModel], tuple[str, ...]]] = {
    "llama": (lambda dtype: llama(dtype), ("lm_head", "model.embed_tokens")),
    "tied": (lambda dtype: llama(dtype, tied=True), ("re:.*embed_tokens",)),
    "everything": (lambda dtype: llama(dtype), ()),
    "experts": (
        lambda dtype: mixture_of_experts(dtype),
        ("lm_head", "re:.*visual", r"re:.*mlp\.gate$", "re:.*conv$"),
    ),
}
"""How each is made, and what is ignored. `everything`: embeddings and lm_head are quantized too."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    folder = tmp_path_factory.mktemp("sources")
    return {
        (model, dtype): make(DTYPES[dtype]).save(folder / model / dtype)
        for model, (make, _) in MODELS.items()
        for dtype in DTYPES
    }


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def assert_same_directories(ours: Path, other: Path, source: Path) -> int:
    """Compare all files; return how many bytes of tensors were the same."""
    mine, expected, before = files(ours), files(other), files(source)
    mine.pop(MANIFEST)
    assert sorted(mine) == sorted(expected)
    compared = 0
    for name, content in expected.items():
        if name.endswith(".safetensors"):
            assert mine[name] == content, name
            compared += len(content)
        elif name == "model.safetensors.index.json":
            assert json.loads(mine[name]) == json.loads(content)
        elif name == "config.json":
            assert_same_config(json.loads(mine[name]), json.loads(content))
        else:
            assert mine[name] == content == before[name], name
    return compared


def assert_same_config(ours: dict[str, Any], other: dict[str, Any]) -> None:
    """Compare what compressed-tensors reads; the names of config groups are free, and each states its own version."""
    mine, expected = ours.pop("quantization_config"), other.pop("quantization_config")
    assert ours == other
    assert mine["quant_method"] == expected["quant_method"]
    assert (mine.pop("version"), expected.pop("version")) == (
        COMPRESSED_TENSORS_CPU.version,
        version("compressed-tensors"),
    )
    parsed = [QuantizationConfig.model_validate(of).model_dump() for of in (mine, expected)]
    groups = [list(of.pop("config_groups").values()) for of in parsed]
    assert groups[0] == groups[1]
    if ours.get("tie_word_embeddings"):
        # Where it is missing, transformers looks for the quantized weight of a head that has none (test_transformers).
        parsed[1]["ignore"].append("lm_head")
    assert parsed[0] == parsed[1]


@pytest.mark.parametrize(("scheme", "dtype"), with_dtypes_in_turn([*PRESETS, *OPTIONS]))
def test_directories(scheme: str, dtype: str, sources: dict[tuple[str, str], Path], tmp_path: Path) -> None:
    compared = 0
    for model, (_, ignore) in MODELS.items():
        source = sources[model, dtype]
        expected = llm_compressor.quantize(source, tmp_path / f"{model}-theirs", theirs(scheme), ignore)
        ours = quantize(source, tmp_path / f"{model}-ours", scheme, ignore)
        compared += assert_same_directories(ours, expected, source)
        # What the library writes is found faultless.
        assert verify(open_store(expected)).faults == ()
    # Bytes of files, of which nearly all are weights.
    record(systems.LLM_COMPRESSOR, [checkpoint(scheme.partition(":")[0], "quantize", CPU)], compared)
    print(f"llm-compressor, {scheme.replace(':', ' ')}, {dtype}: {compared:,} bytes of files equal")  # noqa: T201


@pytest.mark.parametrize(("scheme", "dtype"), with_dtypes_in_turn(SEARCHED))
def test_searched_scales(scheme: str, dtype: str, sources: dict[tuple[str, str], Path], tmp_path: Path) -> None:
    """One model: llm-compressor takes minutes for a search."""
    source, ignore = sources["llama", dtype], MODELS["llama"][1]
    expected = llm_compressor.quantize(source, tmp_path / "theirs", theirs(scheme), ignore)
    compared = assert_same_directories(quantize(source, tmp_path / "ours", scheme, ignore), expected, source)
    record(systems.LLM_COMPRESSOR, [checkpoint(scheme.partition(":")[0], "quantize", CPU)], compared)
    print(f"llm-compressor, {scheme.replace(':', ' ')}, {dtype}: {compared:,} bytes of files equal")  # noqa: T201


@pytest.mark.parametrize("ignore", [(), ("lm_head",), ("lm_head", "re:.*embed_tokens$")])
def test_the_command_without_its_default(
    ignore: tuple[str, ...], sources: dict[tuple[str, str], Path], tmp_path: Path
) -> None:
    source = sources["everything", "bf16"]
    expected = llm_compressor.quantize(source, tmp_path / "theirs", theirs("W4A16"), ignore)
    entries = [option for entry in ("none", *ignore) for option in ("--ignore", entry)]
    assert main(["checkpoint", "quantize", str(source), str(tmp_path / "ours"), "--scheme", "W4A16", *entries]) == 0
    assert_same_directories(tmp_path / "ours", expected, source)


@pytest.mark.parametrize("scheme", PRESETS)
def test_zeros_and_extremes_have_no_fault(scheme: str, tmp_path: Path) -> None:
    """Rows and groups of zeros, small and large weights, as the library stores them."""
    weight = torch.randn(256, 256, generator=torch.Generator().manual_seed(1)).clamp(-2, 2)
    weight[::5] = 0
    weight[:, :32] = 0
    shard = {
        f"model.layers.0.mlp.{name}.weight": (weight * factor).to(torch.bfloat16)
        for name, factor in {"a_proj": 1.0, "b_proj": 1e-30, "c_proj": 1e30}.items()
    }
    source = one_shard_each(tmp_path / "source", shard)
    found = verify(open_store(llm_compressor.quantize(source, tmp_path / "theirs", theirs(scheme))))
    assert (found.faults, found.warnings) == ((), ())


def one_shard_each(folder: Path, *shards: dict[str, torch.Tensor]) -> Path:
    return SourceModel({"model_type": "none", "dtype": "bfloat16"}, shards).save(folder)


def matrix(rows: int, columns: int) -> torch.Tensor:
    return (torch.arange(rows * columns).reshape(rows, columns) % 251 - 125).to(torch.bfloat16) / 64


@pytest.mark.parametrize("weight", [torch.zeros(4, 3, 5, dtype=torch.bfloat16), matrix(8, 100)], ids=["rank 3", "in"])
def test_both_refuse(weight: torch.Tensor, tmp_path: Path) -> None:
    """A weight that the scheme does not fit. llm-compressor leaves a config.json behind; we leave nothing."""
    source = one_shard_each(tmp_path / "source", {"a.weight": weight, "b.weight": matrix(8, 128)})
    with pytest.raises(ValueError, match=r"a\.weight"):
        llm_compressor.quantize(source, tmp_path / "theirs", "W4A16")
    assert (tmp_path / "theirs" / "config.json").exists()
    with pytest.raises(CheckpointError, match=r"a\.weight"):
        quantize(source, tmp_path / "ours", "W4A16")
    assert not (tmp_path / "ours").exists()


def test_a_shard_that_fused_sets_leave_empty(tmp_path: Path) -> None:
    """NVFP4 moves k and v to q's file. llm-compressor fails where nothing is left; we leave that file out."""
    shards = (
        {"l.self_attn.q_proj.weight": matrix(32, 128)},
        {"l.self_attn.k_proj.weight": matrix(16, 128), "l.self_attn.v_proj.weight": matrix(16, 128)},
    )
    source = one_shard_each(tmp_path / "source", *shards)
    with pytest.raises(ValueError, match="inverse_weight_map"):
        llm_compressor.quantize(source, tmp_path / "theirs", "NVFP4A16")
    ours = quantize(source, tmp_path / "ours", "NVFP4A16")
    index = json.loads((ours / "model.safetensors.index.json").read_text())["weight_map"]
    assert set(index.values()) == {"model-00001-of-00002.safetensors"}
    assert [path.name for path in ours.glob("*.safetensors")] == ["model-00001-of-00002.safetensors"]
    together = one_shard_each(tmp_path / "together", shards[0] | shards[1])
    expected = llm_compressor.quantize(together, tmp_path / "expected", "NVFP4A16")
    assert (ours / "model-00001-of-00002.safetensors").read_bytes() == (expected / "model.safetensors").read_bytes()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("scheme", ["W8A8", "W4A16", "W4A16_ASYM", "FP8_DYNAMIC", "FP8_BLOCK"])
def test_not_finite(scheme: str, value: float, tmp_path: Path) -> None:
    """llm-compressor converts them without a word. We refuse, and when told to convert, write the same values.

    A scale that is NaN has other bits, which depend on the instructions that torch uses.
    """
    weight = matrix(160, 256)
    weight[77, 130] = value
    source = one_shard_each(tmp_path / "source", {"a.weight": weight})
    expected = llm_compressor.quantize(source, tmp_path / "theirs", scheme)
    with pytest.raises(CheckpointError, match=r"77.*130"):
        quantize(source, tmp_path / "refused", scheme)
    assert not (tmp_path / "refused" / "config.json").exists()
    ours = tmp_path / "ours"
    convert(source, ours, Request(Direction.QUANTIZE, (SchemeFor(scheme),), CPU, not_finite=NotFinite.CONVERT))
    tensors, others = load_file(ours / "model.safetensors"), load_file(expected / "model.safetensors")
    assert sorted(tensors) == sorted(others)
    for name, tensor in others.items():
        if name.endswith("_scale"):
            assert torch.equal(tensors[name].isnan(), tensor.isnan())
            assert torch.equal(tensors[name].nan_to_num(), tensor.nan_to_num())
        else:
            assert torch.equal(tensors[name].view(torch.uint8), tensor.view(torch.uint8)), name
