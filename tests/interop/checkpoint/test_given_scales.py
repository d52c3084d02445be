"""FP8 and NVFP4 with scales of activations, and scales of keys and values, beside llm-compressor's `oneshot`.

It finds the scales with data; Requant is given those that it wrote, and makes the same file.
"""

from __future__ import annotations

import json
import logging
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import requant
from requant.checkpoint.given_scales import OF_INPUTS, OF_KV_CACHE
from requant.checkpoint.profiles import COMPRESSED_TENSORS_CPU
from requant.checkpoint.storage.location import open_store
from requant.checkpoint.verify.verification import verify
from tests.interop.checkpoint.decompression import tensors
from tests.interop.checkpoint.source_model import DTYPES, LLAMA, llama
from tests.interop.checkpoint.test_transformers import loaded, same
from tests.interop.conformance import systems
from tests.interop.conformance.records import record
from tests.interop.conformance.subject import checkpoint

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

IGNORE = ("lm_head", "model.embed_tokens")
KV_CACHE = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True}
_LENGTH, _SAMPLES = 16, 4
OF_A_LOADED_MODEL = {"sparsity_config", "moe_sparsity_config"}
"""Members of quantization_config that are empty, and that it writes for a model that was loaded only."""


def calibrated(source: Path, target: Path, scheme: str, kv_cache: dict[str, Any] | None) -> Path:
    """Quantize with scales of random texts, and return the new directory."""
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from loguru import logger
    from tokenizers import Tokenizer, models
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

    words = LLAMA["vocab_size"]
    vocabulary = models.WordLevel({str(word): word for word in range(words)}, unk_token="0")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(vocabulary), unk_token="0", pad_token="0")
    generator = torch.Generator().manual_seed(29)
    texts = torch.randint(0, words, (_SAMPLES, _LENGTH), generator=generator).tolist()
    data = Dataset.from_dict({"input_ids": texts, "attention_mask": [[1] * _LENGTH] * _SAMPLES})
    logger.remove()
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = AutoModelForCausalLM.from_pretrained(source, dtype="auto")
            modifier = QuantizationModifier(
                targets="Linear", scheme=scheme, ignore=["lm_head"], kv_cache_scheme=kv_cache
            )
            oneshot(
                model=model,
                processor=tokenizer,
                dataset=data,
                recipe=modifier,
                max_seq_length=_LENGTH,
                num_calibration_samples=_SAMPLES,
                pipeline="basic",
            )
            model.save_pretrained(target, save_compressed=True)
    finally:
        logging.disable(logging.NOTSET)
    return target


def without_minus_zero(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes; of FP8 with 0 for -0. The library adds a zero point to those codes, which is 0."""
    codes = tensor.reshape(-1).view(torch.uint8)
    return torch.where(codes == 0x80, 0, codes) if tensor.dtype == torch.float8_e4m3fn else codes


def config(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "config.json").read_text())["quantization_config"])


CASES = [
    ("FP8", False),
    ("FP8", True),
    ("NVFP4", False),
    ("NVFP4", True),
    ("FP8_DYNAMIC", True),
    ("W4A16", True),
    ("NVFP4A16", True),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("scheme", "kv"), CASES)
def test_the_same_file(scheme: str, kv: bool, dtype: str, tmp_path: Path) -> None:
    made = llama(DTYPES[dtype])
    source = replace(made, shards=({name: each for shard in made.shards for name, each in shard.items()},))
    theirs = calibrated(source.save(tmp_path / "source"), tmp_path / "theirs", scheme, KV_CACHE if kv else None)
    given: dict[str, Any] = {"kv_scales": theirs} if kv else {}
    of_inputs = scheme in ("FP8", "NVFP4")
    if of_inputs:
        given["input_scales"] = theirs
    requant.quantize_checkpoint(tmp_path / "source", tmp_path / "ours", scheme, ignore=IGNORE, certify=True, **given)

    mine, expected = tensors(tmp_path / "ours"), tensors(theirs)
    assert mine.keys() == expected.keys()
    ends = {name.rpartition(".")[2] for name in mine}
    assert len(ends & {*OF_INPUTS}) == of_inputs
    assert ends & {*OF_KV_CACHE} == ({*OF_KV_CACHE} if kv else set())
    for name, value in expected.items():
        assert (mine[name].dtype, mine[name].shape) == (value.dtype, value.shape), name
        assert torch.equal(without_minus_zero(mine[name]), without_minus_zero(value)), name
    if scheme == "NVFP4":
        file = (tmp_path / "ours" / "model.safetensors").read_bytes()
        assert file == (theirs / "model.safetensors").read_bytes()

    stated, other = config(tmp_path / "ours"), config(theirs)
    assert {name for name in other.keys() - stated.keys() if not other[name]} <= OF_A_LOADED_MODEL
    assert stated["kv_cache_scheme"] == other["kv_cache_scheme"]
    group, others = stated["config_groups"]["group_0"], other["config_groups"]["group_0"]
    # What finds the scales of weights is stated of a model that was loaded.
    assert others["weights"].pop("observer") == "memoryless_minmax"
    assert group == others
    for name in stated.keys() - {"config_groups", "ignore"}:
        assert stated[name] == other[name], name

    assert verify(open_store(tmp_path / "ours"), open_store(tmp_path / "source")).faults == ()
    assert verify(open_store(theirs)).faults == ()
    if of_inputs:
        compared = sum(value.nbytes for value in expected.values())
        record(systems.LLM_COMPRESSOR, [checkpoint(scheme, "quantize", COMPRESSED_TENSORS_CPU.name)], compared)

    # In several files each scale lies beside its weight, and nothing else differs.
    requant.quantize_checkpoint(made.save(tmp_path / "parts"), tmp_path / "split", scheme, ignore=IGNORE, **given)
    split = tensors(tmp_path / "split")
    assert split.keys() == mine.keys()
    assert all(torch.equal(without_minus_zero(split[name]), without_minus_zero(mine[name])) for name in mine)


@pytest.mark.parametrize("scheme", ["FP8", "NVFP4"])
def test_transformers_loads_it(scheme: str, tmp_path: Path) -> None:
    source = llama(torch.bfloat16).save(tmp_path / "source")
    theirs = calibrated(source, tmp_path / "theirs", scheme, KV_CACHE)
    requant.quantize_checkpoint(source, tmp_path / "ours", scheme, ignore=IGNORE, input_scales=theirs, kv_scales=theirs)
    (logits, _), (others, _) = loaded(tmp_path / "ours"), loaded(theirs)
    assert logits.isfinite().all()
    assert same(logits, others)
