"""Finding the files of a checkpoint, and refusing those that do not make one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from requant.checkpoint.plan.source import read_source
from requant.errors import CheckpointError
from tests.support.planned_checkpoint import INDEX, HeadersOnly, Tensors, checkpoint

A: Tensors = [("a.weight", "BF16", (4, 8))]
B: Tensors = [("b.weight", "BF16", (4, 8)), ("b.bias", "F32", ())]
ONE = {"model.safetensors": A}
TWO = {"model-00001-of-00002.safetensors": A, "model-00002-of-00002.safetensors": B}


def with_index(store: HeadersOnly, text: str | bytes) -> HeadersOnly:
    store.add(INDEX, text if isinstance(text, bytes) else text.encode())
    return store


def weight_map(**changes: str) -> str:
    """An index of `TWO`; a tensor of no file is left out."""
    places = {tensor[0]: name for name, tensors in TWO.items() for tensor in tensors}
    places |= {name.replace("__", "."): place for name, place in changes.items()}
    return json.dumps({"weight_map": {name: place for name, place in places.items() if place != "-"}})


def without(store: HeadersOnly, name: str) -> HeadersOnly:
    del store.start[name], store.sizes[name]
    return store


def plus(store: HeadersOnly, name: str, tensors: Any) -> HeadersOnly:
    store.add_tensors(name, tensors)
    return store


def shards_of(store: HeadersOnly) -> dict[str, list[str]]:
    shards = read_source(store).shards
    return {name: sorted(entry.name for entry in shard.header.tensors) for name, shard in shards.items()}


def test_one_file_with_and_without_an_index() -> None:
    for index in (False, True):
        assert shards_of(checkpoint(ONE, index=index)) == {"model.safetensors": ["a.weight"]}


def test_files_with_and_without_an_index() -> None:
    for index in (False, True):
        assert shards_of(checkpoint(TWO, index=index)) == {
            "model-00001-of-00002.safetensors": ["a.weight"],
            "model-00002-of-00002.safetensors": ["b.bias", "b.weight"],
        }


def test_other_files_beside_a_whole_model_are_not_of_it() -> None:
    """`model.safetensors` is what transformers loads; an index names all that belongs to a model."""
    assert list(shards_of(plus(checkpoint(ONE), "adapter_model.safetensors", B))) == ["model.safetensors"]
    assert list(shards_of(plus(checkpoint(TWO), "consolidated.safetensors", A))) == list(TWO)
    assert list(shards_of(plus(checkpoint(ONE), "2_Dense/model.safetensors", A))) == ["model.safetensors"]


REFUSED: dict[str, tuple[HeadersOnly, str]] = {
    "no config.json": (without(checkpoint(ONE), "config.json"), "has no config.json"),
    "no safetensors file": (without(checkpoint(ONE), "model.safetensors"), "no file name ends in .safetensors"),
    "in a folder alone": (checkpoint({"x/model.safetensors": A}), "no file name ends in .safetensors"),
    "no tensor": (checkpoint({"model.safetensors": []}), "has no tensor"),
    "config is a list": (checkpoint(ONE, []), "not a JSON object"),  # type: ignore[arg-type]
    "a file is missing": (without(checkpoint(TWO), "model-00002-of-00002.safetensors"), "is missing: download"),
    "index is cut short": (with_index(checkpoint(TWO), "{"), "index.json: expected the name"),
    "index is not UTF-8": (with_index(checkpoint(TWO), b'{"\xff":1}'), "is not UTF-8"),
    "index is a list": (with_index(checkpoint(TWO), "[" * 100_000), "expected '{' at the start"),
    "index is deep": (with_index(checkpoint(TWO), '{"a":' + "[" * 100_000), "nested at most"),
    "index goes on": (with_index(checkpoint(TWO), weight_map() + "x"), "only whitespace after the last"),
    "index has a member twice": (with_index(checkpoint(TWO), '{"weight_map":{},"weight_map":{}}'), "a second 'weight"),
    "index has a tensor twice": (with_index(checkpoint(TWO), '{"weight_map":{"a":"x","a":"y"}}'), "a second 'a'"),
    "index has no map": (with_index(checkpoint(TWO), "{}"), "expected a member 'weight_map'"),
    "index is empty": (with_index(checkpoint(TWO), '{"weight_map":{}}'), "names no tensor"),
    "index of numbers": (with_index(checkpoint(TWO), '{"weight_map":{"a":1}}'), "expected a value of weight_map"),
    "index and whole model": (plus(checkpoint(TWO), "model.safetensors", A), "transformers loads the former"),
    "a tensor twice": (
        checkpoint({"a.safetensors": A, "b.safetensors": A}, index=False),
        "b.safetensors, a.weight: the tensor is in a.safetensors as well",
    ),
    "index lacks a tensor": (with_index(checkpoint(TWO), weight_map(b__bias="-")), "does not name it"),
    "index names another file": (
        with_index(checkpoint(TWO), weight_map(b__bias="model-00001-of-00002.safetensors")),
        "names model-00001-of-00002.safetensors for it",
    ),
    "index names a tensor more": (
        with_index(checkpoint(TWO), weight_map(c="model-00001-of-00002.safetensors")),
        "c: model.safetensors.index.json maps a tensor to this file that is not in it",
    ),
    **{
        f"file name {name!r}": (with_index(checkpoint(TWO), weight_map(a__weight=name)), "is not the name of a file")
        for name in (
            "../model.safetensors", "/etc/x.safetensors", "x/model.safetensors", "..\\x.safetensors", "C:x.safetensors",
            ".x.safetensors", "x.safetensors\0", "x\n.safetensors", "model.bin", "", ".safetensors",
        )
    },
}  # fmt: skip


@pytest.mark.parametrize(("store", "message"), REFUSED.values(), ids=REFUSED)
def test_is_refused(store: HeadersOnly, message: str) -> None:
    with pytest.raises(CheckpointError) as raised:
        read_source(store)
    assert message in raised.value.detail


def test_a_malformed_file_is_named_with_its_tensor() -> None:
    store = checkpoint(TWO)
    header = b'{"x.weight":{"dtype":"F9","shape":[],"data_offsets":[0,0]}}'
    for name in TWO:
        store.add(name, len(header).to_bytes(8, "little") + header)
    with pytest.raises(CheckpointError, match="2 problems") as raised:
        read_source(store)
    assert raised.value.file == "model-00001-of-00002.safetensors"
    assert raised.value.tensor == "x.weight"
    for name in TWO:
        assert f"{name}, x.weight: tensor 'x.weight': dtype 'F9' is unknown" in raised.value.detail


def test_an_index_or_config_too_large_is_not_read() -> None:
    for name in (INDEX, "config.json"):
        store = checkpoint(TWO)
        store.sizes[name] = 1 << 30
        with pytest.raises(CheckpointError, match="at most"):
            read_source(store)


def test_only_headers_are_read() -> None:
    store = checkpoint(TWO)
    read_source(store)
    assert store.reads == [(name, *place) for name in TWO for place in ((0, 8), (8, len(store.start[name]) - 8))]


def test_messages_stay_short_however_much_is_wrong() -> None:
    store = with_index(checkpoint(TWO), json.dumps({"weight_map": {f"{at}": next(iter(TWO)) for at in range(5000)}}))
    with pytest.raises(CheckpointError, match="5001 problems") as raised:
        read_source(store)
    assert len(raised.value.detail) < 2100
