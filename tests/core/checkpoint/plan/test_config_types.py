"""Each member of a quantization_config, replaced by a value of each other JSON type."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from requant.checkpoint.plan.stored_formats import stored_formats
from requant.checkpoint.schemes import SCHEMES, scheme_named
from requant.checkpoint.verify.structure import check_structure
from requant.checkpoint.weights.weight_format import WeightFormat
from requant.errors import CheckpointError
from tests.support.foreign_models import FOREIGN, LINEAR
from tests.support.planned_checkpoint import checkpoint, outputs_of, planned

Q = "model.layers.0.self_attn.q_proj"
VALUES: list[Any] = [None, True, False, 0, 7, 1.5, float("inf"), "", "4", [], ["x"], [1], {}, {"x": 1}]
VARIANTS = ["W8A16:channel", "W8A16:tensor", "W8A8:asymmetric", "GPTQ_W4A16:asymmetric,group=32", "AWQ:channel"]
UNREAD = {
    "activation_scheme", "autoround_version", "data_type", "dynamic", "fmt", "global_compression_ratio",
    "input_activations", "iters", "kv_cache_scheme", "modules_to_not_convert", "output_activations",
    "quantization_status", "scale_dtype", "scale_fmt", "version",
    # transformers writes these twice, or for weights of 8 bits and for computing with them.
    "_load_in_4bit", "_load_in_8bit", "load_in_8bit", "bnb_4bit_compute_dtype", "bnb_4bit_use_double_quant",
    "llm_int8_enable_fp32_cpu_offload", "llm_int8_has_fp16_weight", "llm_int8_skip_modules", "llm_int8_threshold",
}  # fmt: skip
"""Members that do not say how weights are stored."""
UNREAD_OF_MODEL_OPTIMIZER = UNREAD | {"producer", "config_groups"}
"""Its groups are made for readers of compressed-tensors."""


def unread_by(scheme: str) -> set[str]:
    return UNREAD_OF_MODEL_OPTIMIZER if scheme.startswith("MODELOPT") else UNREAD


Path = tuple[str | int, ...]


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of each member and entry."""
    if path:
        yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield from places(each, (*path, key))


def at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def changes(config: dict[str, Any]) -> Iterator[tuple[Path, Any, dict[str, Any]]]:
    """Yield a path, a value and the configuration that has it there. What is null may be an integer: a group size."""
    for path in places(config):
        own = at(config, path)
        for value in VALUES:
            if type(value) not in (type(own), int if own is None else type(own)):
                changed = deepcopy(config)
                at(changed, path[:-1])[path[-1]] = value
                yield path, value, changed


def formats(config: dict[str, Any]) -> list[WeightFormat | None]:
    found = stored_formats(config, ())
    return [*found.formats, found.embeddings, found.every]


@pytest.mark.parametrize("scheme", [*SCHEMES, *VARIANTS])
def test_members_of_other_types_are_refused(scheme: str) -> None:
    config = scheme_named(scheme).quantization_config(["Linear"], ["lm_head"], ["lm_head"])
    expected = formats(config)
    for path, value, changed in changes(config):
        try:
            found = formats(changed)
        except CheckpointError:
            continue
        # The outer format is that of groups that state none; `ignore` is for the verification.
        unread = not unread_by(scheme).isdisjoint(path) or path[0] == "ignore" or path == ("format",)
        assert unread or value is None, f"{path}: {value!r} is not refused"
        if unread:
            assert found == expected, f"{path}: {value!r}"


@pytest.mark.sample(2)
@pytest.mark.parametrize("scheme", [scheme for scheme in (*SCHEMES, *VARIANTS) if scheme != "NF4"])
def test_verification_finds_a_fault_in_each(scheme: str) -> None:
    source = checkpoint({"1.safetensors": [(f"{Q}.weight", "BF16", (256, 256))]}, {}, index=True)
    profile = scheme_named(scheme).profiles[0]
    store = outputs_of(planned(source, scheme, profile=profile, ignore=["lm_head"]))
    config = json.loads(store.start["config.json"])
    assert not check_structure(store, hashes=False).faults
    for path, value, changed in changes(config):
        store.add("config.json", json.dumps(changed).encode())
        faults = check_structure(store, hashes=False).faults
        unread = not unread_by(scheme).isdisjoint(path) or path == ("quantization_config", "format")
        assert faults or value is None or unread, f"{path}: {value!r} is no fault"


@pytest.mark.parametrize("kind", FOREIGN)
def test_members_of_other_programs(kind: str) -> None:
    """Each member with a value of another type is refused, or is not read; nothing else is raised."""
    foreign = FOREIGN[kind]
    config = json.loads(json.dumps(foreign.quantization))
    modules = [f"model.layers.0.{name}" for name in LINEAR]
    described = {} if foreign.described is None else {f"{each}.weight": foreign.described(each) for each in modules}
    for _, _, changed in changes({"config": config, "described": json.loads(json.dumps(described))}):
        if not isinstance(changed["config"], dict) or not isinstance(changed["described"], dict):
            continue
        texts = {name: json.dumps(each) for name, each in changed["described"].items()}
        try:
            found = stored_formats(changed["config"], modules, [{**texts, "tensor_names": json.dumps(list(texts))}])
        except CheckpointError:
            continue
        for module in modules:
            found.of(module)
