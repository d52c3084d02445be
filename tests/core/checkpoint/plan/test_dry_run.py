"""What a dry run says: warnings, numbers, text; and that plans of large models are quick and small."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from requant.checkpoint.plan.dry_run import plan_document, plan_text
from tests.support.cpu_time import within_cpu_seconds
from tests.support.planned_checkpoint import Tensors, checkpoint, outputs_of, planned

LAYER = "model.layers.0"
Q, K = (f"{LAYER}.self_attn.{name}_proj.weight" for name in "qk")
DOWN = f"{LAYER}.mlp.down_proj.weight"


BOTH: Tensors = [(Q, "BF16", (8, 128)), (K, "BF16", (8, 128))]


def gate_up(parent: str) -> Tensors:
    return [(f"{LAYER}.{parent}.{name}.weight", "BF16", (8, 64)) for name in ("gate_proj", "up_proj")]


def warnings(tensors: Tensors, scheme: str = "W4A16", config: Any = None, **others: Any) -> list[str]:
    return list(planned(checkpoint({"model.safetensors": tensors}, config), scheme, **others).warnings)


@pytest.mark.parametrize(
    ("tensors", "scheme", "others", "expected"),
    [
        ([(Q, "BF16", (8, 128)), (DOWN, "BF16", (8, 1024))], "W4A16", {}, None),
        ([("model.embed_tokens.weight", "BF16", (8, 128))], "W4A16", {}, "loaders expect quantized weights"),
        ([("bert.embeddings.word_embeddings.weight", "BF16", (8, 128))], "W8A8", {}, "loaders expect quantized"),
        ([("transformer.wte.weight", "BF16", (8, 128))], "W8A8", {}, 'Usually ignored: "re:(.*\\.)?wte$"'),
        ([("lm_head.weight", "BF16", (8, 128))], "W4A16", {}, "this costs more accuracy"),
        (
            [("lm_head.weight", "BF16", (8, 128))],
            "W8A8",
            {"config": {"tie_word_embeddings": True}},
            "ties it to the embeddings",
        ),
        ([(f"{LAYER}.mlp.gate.weight", "BF16", (8, 128))], "W4A16", {}, "expert routers"),
        ([(Q, "BF16", (8, 128))], "W4A16", {"ignore": ["lm_haed"]}, "ignore: 'lm_haed' matches no module"),
        ([(Q, "BF16", (8, 128))], "W4A16", {"ignore": ["re:x"]}, "ignore: 're:x' matches no module"),
        ([(Q, "BF16", (8, 128))], "W4A16", {"ignore": ["lm_head"]}, None),
        ([(Q, "BF16", (8, 128))], "W4A16", {"targets": ("Linear", "x")}, "targets: 'x' matches no module"),
        (BOTH, "W4A16", {"ignore": [K[:-7]]}, "only part of "),
        ([*BOTH, (DOWN, "BF16", (8, 1024))], "W4A16", {"ignore": [K[:-7], Q[:-7]]}, None),
        ([(Q, "BF16", (8, 128))], "W4A16_ASYM", {}, None),
        ([(Q, "BF16", (8, 128))], "W8A8:asymmetric", {}, None),
        ([(DOWN, "BF16", (8, 640))], "W4A16", {}, "ranks of vLLM cannot divide the 5 groups of the 640 columns of "),
        ([(DOWN, "BF16", (8, 1280))], "W4A16", {}, "mlp.down_proj among 4 or 8"),
        ([(DOWN, "BF16", (8, 640))], "W8A8", {}, None),
        ([(Q, "BF16", (8, 640))], "W4A16", {}, None),
        (gate_up("mlp.experts.0"), "NVFP4A16", {}, "get separate global scales"),
        (gate_up("mlp"), "NVFP4A16", {}, None),
        ([(Q, "BF16", (32, 128))], "GPTQ_W4A16", {"profile": "auto-round"}, None),
        ([(Q, "BF16", (32, 128))], "GPTQ_W4A16:asymmetric", {"profile": "auto-round"}, None),
        ([(DOWN, "BF16", (32, 640))], "GPTQ_W4A16", {"profile": "auto-round"}, "mlp.down_proj among 2 or 4 or 8"),
        (
            [(DOWN, "BF16", (128, 384))],
            "MODELOPT_FP8_PB_WO",
            {"profile": "modelopt"},
            "the 3 groups of the 384 columns of model.layers.0.mlp.down_proj among 2 or 4 or 8",
        ),
        (
            [(Q, "BF16", (128, 128)), (DOWN, "BF16", (64, 128))],
            "FINE_GRAINED_FP8",
            {"profile": "transformers"},
            "mlp.down_proj will not be quantized: the shapes",
        ),
    ],
)
def test_warnings(tensors: Tensors, scheme: str, others: dict[str, Any], expected: str | None) -> None:
    found = warnings(tensors, scheme, **others)
    assert len(found) == (expected is not None)
    assert expected is None or expected in found[0]


def test_tensor_parallelism_is_one_line_and_the_last() -> None:
    shapes = [(8, 128 * groups) for groups in (3, 5, 7, 9, 10)]
    tensors: Tensors = [(f"model.layers.{at}.mlp.down_proj.weight", "BF16", shape) for at, shape in enumerate(shapes)]
    store = checkpoint({"model.safetensors": [*tensors, ("lm_head.weight", "BF16", (8, 128))]})
    store.add("model.gguf", bytes(10))
    *others, last = planned(store, "W4A16").warnings
    assert [other.partition(" ")[0] for other in others] == ["lm_head", "not"]
    assert last.startswith("tensor-parallel ranks of vLLM cannot divide the 3 groups of the 384 columns of ")
    assert last.endswith("; and 2 other shapes")


def layers(count: int) -> Tensors:
    return [
        tensor
        for at in range(count)
        for tensor in (
            (f"model.layers.{at}.self_attn.o_proj.weight", "BF16", (1024, 1024)),
            (f"model.layers.{at}.mlp.down_proj.weight", "BF16", (1024, 4096)),
            (f"model.layers.{at}.norm.weight", "BF16", (1024,)),
        )
    ]


def test_text() -> None:
    store = checkpoint({"model.safetensors": [*layers(3), ("lm_head.weight", "BF16", (100, 1024))]})
    store.add("tokenizer.json", bytes(2000))
    plan = planned(store, "W4A16", ignore=["lm_head"])
    before, after = plan.sources[0].size, plan.tasks[0].header.size
    assert (before, after) == (31669264, 8323440)
    assert plan_text(plan).splitlines() == [
        "Quantize to W4A16, profile compressed-tensors-cpu",
        "1 file, 31.67 MB -> 1 file, 8.32 MB (26%)",
        f"plan {plan.digest}",
        "",
        "Quantized: 6 weights, 31.46 MB -> 8.11 MB",
        "       3 x BF16 1024x4096         model.layers.*.mlp.down_proj.weight",
        "       3 x BF16 1024x1024         model.layers.*.self_attn.o_proj.weight",
        "Kept: 4 tensors, 210.94 kB",
        "       1 in ignore: lm_head.weight",
        "       3 of a module whose name ends in norm: model.layers.*.norm.weight",
        "Copied: 1 file, 2.00 kB: tokenizer.json",
    ]


def test_text_of_dequantization() -> None:
    store = outputs_of(planned(checkpoint({"model.safetensors": layers(1)}), "W8A8"))
    text = plan_text(planned(store, None, dtype="F32"))
    assert text.startswith("Dequantize to F32\n")
    assert "Dequantized: 2 weights, 5.25 MB -> 20.97 MB\n       1 x F32 1024x4096 " in text
    assert "       1 not quantized: model.layers.0.norm.weight\n" not in text  # A name with numbers is told once.
    assert "       1 not quantized: model.layers.*.norm.weight\n" in text


def test_document() -> None:
    store = checkpoint({"model.safetensors": layers(2)})
    plan = planned(store, "W8A8", ignore=["re:.*o_proj"])
    document = json.loads(json.dumps(plan_document(plan, "/here", "/there")))
    assert document["digest"] == plan.digest
    assert document["request"]["ignore"] == ["re:.*o_proj"]
    assert document["bytes"] == {"before": plan.sources[0].size, "after": plan.tasks[0].header.size, "carried": 0}
    assert document["outputs"] == [
        {"file": "model.safetensors", "bytes": plan.tasks[0].header.size, "tensors": 8, "quantized": 2}
    ]
    assert document["converted"] == [
        {
            "dtype": "BF16", "shape": [1024, 4096], "count": 2, "bytes_before": 2 * 2 * 1024 * 4096,
            "bytes_after": 2 * (1024 * 4096 + 2048), "names": ["model.layers.*.mlp.down_proj.weight"],
        }
    ]  # fmt: skip
    assert [(kept["reason"], kept["count"]) for kept in document["kept"]] == [
        ("of a module whose name ends in norm", 2), ("in ignore", 2),
    ]  # fmt: skip


@pytest.mark.exhaustive
def test_many_experts_take_little_memory_and_time() -> None:
    """Some 1.8 kB for a tensor: a mixture of 60,000 tensors takes about 100 MB, and 3 s on a quiet machine."""
    shapes = (("gate_proj", (2048, 7168)), ("up_proj", (2048, 7168)), ("down_proj", (7168, 2048)))
    shards: dict[str, Tensors] = {
        f"model-{layer:05}-of-00004.safetensors": [
            (f"model.layers.{layer}.mlp.experts.{expert}.{name}.weight", "BF16", shape)
            for expert in range(256)
            for name, shape in shapes
        ]
        for layer in range(4)
    }
    store = checkpoint(shards)
    assert within_cpu_seconds(lambda: planned(store, "W4A16"), 3)  # 0.1 on a quiet machine
    plan = planned(store, "W4A16")
    tensors = sum(len(found) for found in shards.values())
    assert sum(len(task.header.tensors) for task in plan.tasks) == 3 * tensors
    assert len(json.dumps(plan_document(plan, "", None))) < 3000
    del plan
    tracemalloc.start()
    try:
        planned(store, "W4A16")
        assert tracemalloc.get_traced_memory()[1] < 2000 * tensors
    finally:
        tracemalloc.stop()
