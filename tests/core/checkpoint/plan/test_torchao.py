"""Plans for what torchao stores: the metadata of files say how, and what they do not say rightly is refused."""

from __future__ import annotations

import json
from time import process_time
from typing import Any

import pytest

from requant.checkpoint.plan.model import DequantizeStep
from requant.checkpoint.quantization_config import torchao
from requant.checkpoint.safetensors.reader import MAX_METADATA_BYTES
from requant.errors import CheckpointError
from tests.support.planned_checkpoint import HeadersOnly, Tensors, checkpoint, planned

CONFIG = {"quantization_config": {"quant_method": "torchao", "quant_type": {"default": {}}}}
FLOAT8: dict[str, Any] = {"_type": "Float8Tensor", "_data": {}, "_tensor_data_names": ["qdata", "scale"]}
STORED: Tensors = [("a._weight_qdata", "F8_E4M3", (64, 32)), ("a._weight_scale", "F32", (64, 1))]
BF16 = {"_type": "torch.dtype", "_data": "bfloat16"}


def described(**tensors: Any) -> dict[str, str]:
    """Metadata of tensors, whose names have `_` for a dot."""
    texts = {
        name.replace("_", "."): each if isinstance(each, str) else json.dumps(each) for name, each in tensors.items()
    }
    return {"format": "pt", "tensor_names": json.dumps(list(texts)), **texts}


def store(metadata: dict[str, str] | None, tensors: Tensors = STORED) -> HeadersOnly:
    found = checkpoint({"model.safetensors": tensors}, CONFIG)
    found.add_tensors("model.safetensors", tensors, metadata)
    return found


def test_what_is_read() -> None:
    scale: Tensors = [("a._weight_act_quant_scale", "F32", ())]
    (step,) = planned(store(described(a_weight=FLOAT8, a_bias={"_type": "Tensor"}), [*STORED, *scale]), None).steps
    assert isinstance(step, DequantizeStep)
    assert step.output == "a.weight"
    assert set(step.source.stored) == {"_weight_qdata", "_weight_scale"}


def test_metadata_of_all_files_count() -> None:
    """A file may have none of its own, and tensors that are nowhere are those that are tied."""
    found = checkpoint({"1.safetensors": STORED[:1], "2.safetensors": STORED[1:]}, CONFIG)
    metadata = described(a_weight=FLOAT8, lm_head_weight=FLOAT8)
    found.add_tensors("2.safetensors", STORED[1:], metadata)
    (step,) = planned(found, None).steps
    assert isinstance(step, DequantizeStep)


def test_other_metadata_are_another_plan() -> None:
    """The codes would be read differently, though no header is another."""
    stored: Tensors = [("a._weight_qdata", "U8", (32, 128)), ("a._weight_scale", "F8_E8M0", (32, 4))]
    digests = set()
    for element, width in (("fp6_e2m3", 32), ("fp6_e3m2", 32)):
        data = {"elem_dtype": element, "block_size": width}
        digests.add(
            planned(store(described(a_weight={**FLOAT8, "_type": "MXTensor", "_data": data}), stored), None).digest
        )
    assert len(digests) == 2


MX = {"_type": "MXTensor", "_tensor_data_names": ["qdata", "scale"]}
REFUSED: dict[str, tuple[dict[str, str] | None, str]] = {
    "no metadata": (None, "no safetensors file has tensor_names"),
    "other metadata": ({"format": "pt"}, "no safetensors file has tensor_names"),
    "names that are no list": ({"tensor_names": '{"a": 1}'}, "not a list of strings"),
    "names that are no strings": ({"tensor_names": '["a", 1]'}, "not a list of strings"),
    "names that are no JSON": ({"tensor_names": "["}, "tensor_names in the metadata is not JSON"),
    "an endless list": ({"tensor_names": "[" * 100_000}, "more than .* deep"),
    "many values": ({"tensor_names": f"[{'1,' * 300_000}1]"}, "more than 250000 values"),
    "a tensor that is not described": ({"tensor_names": '["a.weight"]'}, "do not describe it"),
    "no JSON": (described(a_weight="{"), "a.weight: the description in the metadata is not JSON"),
    "a long description": (described(a_weight=f'{{"_type": "{"x" * 5000}"}}'), "at most 4096 are read"),
    "a list": (described(a_weight=[]), "not a JSON object"),
    "a class that is a number": (described(a_weight={"_type": 4}), "'?_type'? is 4; expected a string"),
    "no class": (described(a_weight={}), "is stored as None, which is not supported"),
    "another class": (described(a_weight={"_type": "UintxTensor"}), "is stored as UintxTensor, which is not supported"),
    "tiles": (described(a_weight={"_type": "Int4TilePackedTo4dTensor"}), "order of the tiles of a GPU's matrix"),
    "mslk": (described(a_weight={"_type": "Int4Tensor"}), "torchao defines no values"),
    "xpu": (described(a_weight={"_type": "Int4PlainInt32Tensor"}), "XPU and NPU"),
    "attributes that are a list": (described(a_weight={**FLOAT8, "_data": [1]}), "_data'? is .1.; expected an object"),
    "scaled activations": (
        described(a_weight={**FLOAT8, "_tensor_data_names": ["qdata", "scale", "act_pre_scale"]}),
        "multiplies the activations",
    ),
    "experts": (described(a_gate={**FLOAT8}), "only the `weight` of a module is read"),
    "a weight without a module": (described(weight=FLOAT8), "only the `weight` of a module is read"),
    "another module": (described(b_weight=FLOAT8), "a: has quantized parameters, but nothing"),
    "a plain tensor": (described(a_weight={"_type": "Tensor"}), "a: has quantized parameters, but nothing"),
    "elements of no type": (described(a_weight={**MX, "_data": {"block_size": 32}}), "elem_dtype is None"),
    "elements of another type": (
        described(a_weight={**MX, "_data": {"elem_dtype": BF16, "block_size": 32}}),
        "elem_dtype is bfloat16; expected one of float8_e4m3fn",
    ),
    "blocks of 0": (
        described(a_weight={**MX, "_data": {"elem_dtype": "fp6_e2m3", "block_size": 0}}),
        "block_size is 0",
    ),
    "blocks of lists": (
        described(a_weight={**MX, "_data": {"elem_dtype": "fp6_e2m3", "block_size": [1, 32]}}),
        "block_size'? is .1, 32.; expected an integer",
    ),
    "huge blocks": (
        described(a_weight={**MX, "_data": {"elem_dtype": {"_data": "float8_e4m3fn"}, "block_size": 10**300}}),
        "no whole blocks",
    ),
    "NVFP4 of 32": (described(a_weight={**MX, "_type": "NVFP4Tensor", "_data": {"block_size": 32}}), "expected 16"),
    "integers of one dimension": (
        described(a_weight={**FLOAT8, "_type": "Int8Tensor", "_data": {"block_size": [1]}}),
        "expected two positive integers",
    ),
    "integers of blocks of 0": (
        described(a_weight={**FLOAT8, "_type": "Int8Tensor", "_data": {"block_size": [0, 1]}}),
        "expected two positive integers",
    ),
    "integers of 9 bits": (
        described(
            a_weight={
                **FLOAT8,
                "_type": "IntxUnpackedToInt8Tensor",
                "_data": {"block_size": [1, 1], "target_dtype": {"_type": "torch.dtype", "_data": "int9"}},
            }
        ),
        "target_dtype is int9",
    ),
    "a scale of another shape": (
        described(a_weight={**FLOAT8, "_type": "Int8Tensor", "_data": {"block_size": [1, 16]}}),
        "_weight_qdata is F8_E4M3 .64, 32.; expected I8",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("metadata", "message"), REFUSED.values(), ids=REFUSED)
def test_is_refused(metadata: dict[str, str] | None, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        planned(store(metadata), None)


def test_two_descriptions_are_refused() -> None:
    found = checkpoint({"1.safetensors": STORED[:1], "2.safetensors": STORED[1:]}, CONFIG)
    found.add_tensors("1.safetensors", STORED[:1], described(a_weight=FLOAT8))
    found.add_tensors("2.safetensors", STORED[1:], described(a_weight={**FLOAT8, "_type": "Int8Tensor"}))
    with pytest.raises(CheckpointError, match="two files describe the tensor differently"):
        planned(found, None)


@pytest.mark.parametrize("scheme", [None, "W8A8"])
def test_a_config_that_says_nothing(scheme: str | None) -> None:
    """The codes would be copied as they are."""
    found = store(described(a_weight=FLOAT8))
    found.add("config.json", b"{}")
    with pytest.raises(CheckpointError, match="say that torchao quantized the weights"):
        planned(found, scheme)


@pytest.mark.exhaustive
def test_as_many_metadata_as_a_header_may_have_take_seconds() -> None:
    text = json.dumps({"_type": "Float8Tensor", "_data": {}})
    count = MAX_METADATA_BYTES // (len(text) + 40)
    texts = {f"model.layers.{at}.weight": text for at in range(count)}
    metadata = {**texts, "tensor_names": json.dumps(list(texts))}
    begin = process_time()
    assert len(list(torchao.formats_of_metadata([metadata] * 3))) == count
    assert process_time() - begin < 20
