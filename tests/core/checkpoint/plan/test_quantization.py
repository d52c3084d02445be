"""Plans that quantize: which tensors, in which files, of which shapes."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from requant.checkpoint.plan.model import CopyStep, Plan, QuantizeStep, SourceRange
from requant.checkpoint.plan.refusals import MAX_SHOWN
from requant.checkpoint.selection import Selection
from requant.errors import DETAIL_LIMIT, CheckpointError, ParameterError
from tests.support.planned_checkpoint import HeadersOnly, Tensors, checkpoint, planned, tensors_of

Q, K, V = (f"model.layers.0.self_attn.{name}_proj.weight" for name in "qkv")
GATE, UP, DOWN = (f"model.layers.0.mlp.{name}_proj.weight" for name in ("gate", "up", "down"))


def w8a8(module: str, rows: int, columns: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {f"{module}.weight": ("I8", (rows, columns)), f"{module}.weight_scale": ("BF16", (rows, 1))}


def steps(plan: Plan) -> dict[str, QuantizeStep]:
    return {step.module: step for task in plan.tasks for step in task.steps if isinstance(step, QuantizeStep)}


def place(step: QuantizeStep) -> SourceRange:
    assert isinstance(step.source, SourceRange)
    return step.source


def copies(plan: Plan) -> dict[str, SourceRange]:
    return {step.output: step.source for task in plan.tasks for step in task.steps if isinstance(step, CopyStep)}


def test_what_each_tensor_becomes() -> None:
    store = checkpoint(
        {
            "model-00001-of-00002.safetensors": [
                ("model.embed_tokens.weight", "BF16", (100, 16)),
                ("model.layers.0.input_layernorm.weight", "BF16", (16,)),
                (Q, "BF16", (32, 16)),
                ("model.layers.0.self_attn.q_proj.bias", "BF16", (32,)),
            ],
            "model-00002-of-00002.safetensors": [
                ("lm_head.weight", "BF16", (100, 16)),
                ("model.scale", "F32", ()),
                ("model.nothing", "I64", (0, 3)),
                (DOWN, "BF16", (16, 48)),
            ],
        }
    )
    plan = planned(store, "W8A8", ignore=["lm_head", "re:.*embed"])
    assert tensors_of(plan) == {
        "model-00001-of-00002.safetensors": {
            "model.embed_tokens.weight": ("BF16", (100, 16)),
            "model.layers.0.input_layernorm.weight": ("BF16", (16,)),
            "model.layers.0.self_attn.q_proj.bias": ("BF16", (32,)),
            **w8a8("model.layers.0.self_attn.q_proj", 32, 16),
        },
        "model-00002-of-00002.safetensors": {
            "lm_head.weight": ("BF16", (100, 16)),
            "model.scale": ("F32", ()),
            "model.nothing": ("I64", (0, 3)),
            **w8a8("model.layers.0.mlp.down_proj", 16, 48),
        },
    }
    assert plan.index is not None
    index = json.loads(plan.index)
    assert index["weight_map"] == {name: file for file, tensors in tensors_of(plan).items() for name in tensors}
    assert index["metadata"] == {"total_size": 2 * 2 * 100 * 16 + 16 * 2 + 32 * 2 + 4 + 32 * 18 + 16 * 50}
    assert plan.index == json.dumps(index, indent=2, sort_keys=True).encode()
    assert json.loads(plan.config)["quantization_config"]["ignore"] == ["lm_head", "re:.*embed"]


def test_sources_of_steps_are_the_tensors_of_the_headers() -> None:
    store = checkpoint({"model.safetensors": [(Q, "F16", (8, 8)), ("x.bias", "F16", (8,)), (DOWN, "BF16", (4, 16))]})
    plan = planned(store)
    found = {each.tensor: each for each in [step.source for step in steps(plan).values()] + list(copies(plan).values())}
    start = len(store.start["model.safetensors"])
    assert found == {
        DOWN: SourceRange("model.safetensors", DOWN, "BF16", (4, 16), start, start + 128),
        Q: SourceRange("model.safetensors", Q, "F16", (8, 8), start + 128, start + 256),
        "x.bias": SourceRange("model.safetensors", "x.bias", "F16", (8,), start + 256, start + 272),
    }


# Which tensors: written from compressed-tensors' documentation of `ignore` and `targets`, with Python's `re`.
def chosen(name: str, targets: list[str], ignore: list[str]) -> bool:
    module, dot, last = name.rpartition(".")

    def hit(entries: list[str]) -> bool:
        return any(re.match(each[3:], module) if each.startswith("re:") else each == module for each in entries)

    named = last == "weight" and (dot == "." or name == "weight") and not module.endswith("norm")
    return named and (not targets or "Linear" in targets or hit(targets)) and not hit(ignore)


PARTS = ["model", "layers", "0", "1", "q_proj", "norm", "input_layernorm", "weight", "bias", "weight_scale", "", "Norm"]
ENTRIES = st.sampled_from(
    [
        "Linear",
        "model.0",
        "re:model",
        "re:.*0$",
        "re:.*q_proj",
        "re:",
        "re:$",
        "model",
        "q_proj",
        "re:layers|q",
        "re:(?i).*NORM",
    ]
)


@given(
    st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map(".".join),
    st.lists(ENTRIES, max_size=2),
    st.lists(ENTRIES, max_size=2),
)
@example(".weight", [], [])
@example("weight", [], [])
def test_the_choice_is_that_of_compressed_tensors(name: str, targets: list[str], ignore: list[str]) -> None:
    module, _, _ = name.rpartition(".")
    # compressed-tensors fails at a weight without a module, and so at `.weight`, whose module has no name.
    assert (Selection(targets, ignore).skip_reason(name) is None) == (chosen(name, targets, ignore) and module != "")


def test_a_weight_without_a_module_keeps_its_name() -> None:
    alone: Tensors = [("weight", "BF16", (8, 16)), (".weight", "BF16", (8, 16))]
    plan = planned(checkpoint({"model.safetensors": [*alone, (DOWN, "BF16", (16, 48))]}), "W8A8")
    assert copies(plan).keys() == {"weight", ".weight"}
    assert steps(plan).keys() == {DOWN.removesuffix(".weight")}


def test_experts_are_taken_apart() -> None:
    base = "model.layers.0.mlp.experts"
    store = checkpoint(
        {
            "model.safetensors": [
                (f"{base}.gate_up_proj", "BF16", (2, 12, 8)),
                (f"{base}.down_proj", "BF16", (2, 8, 6)),
                (f"{base}.gate_up_proj_bias", "BF16", (2, 12)),
            ]
        },
        {"hidden_size": 8},
    )
    plan = planned(store, ignore=["re:.*experts.1.down_proj"])
    names = {
        **w8a8(f"{base}.0.gate_proj", 6, 8), **w8a8(f"{base}.0.up_proj", 6, 8), **w8a8(f"{base}.0.down_proj", 8, 6),
        **w8a8(f"{base}.1.gate_proj", 6, 8), **w8a8(f"{base}.1.up_proj", 6, 8),
        f"{base}.1.down_proj.weight": ("BF16", (8, 6)),
        f"{base}.gate_up_proj_bias": ("BF16", (2, 12)),
    }  # fmt: skip
    assert tensors_of(plan) == {"model.safetensors": names}
    start = len(store.start["model.safetensors"])
    # down_proj is first in the file: 2 matrices of 96 bytes.
    assert copies(plan)[f"{base}.1.down_proj.weight"].begin == start + 96
    places = [(place(step).begin - start - 192, place(step).end - start - 192) for step in steps(plan).values()]
    gate_up = sorted(place for place in places if place[0] >= 0)
    assert gate_up == [(0, 96), (96, 192), (192, 288), (288, 384)]
    assert place(steps(plan)[f"{base}.0.up_proj"]).begin == start + 192 + 96


@pytest.mark.parametrize(
    ("name", "shape", "config", "message"),
    [
        ("gate_up_proj", (2, 5, 8), {}, "5 is odd"),
        ("gate_up_proj", (2, 8, 12), {"hidden_size": 8}, "2 * intermediate, 8"),
        ("down_proj", (2, 6, 8), {"text_config": {"hidden_size": 8}}, "[experts, 8, intermediate]"),
        ("down_proj.gate_up_proj", (2, 6, 8), {}, "gate_up_proj and down_proj"),
    ],
)
def test_experts_stored_another_way_are_refused(name: str, shape: Any, config: Any, message: str) -> None:
    store = checkpoint({"model.safetensors": [(f"x.{name}", "BF16", shape), (Q, "BF16", (8, 8))]}, config)
    with pytest.raises(CheckpointError) as raised:
        planned(store)
    assert message in raised.value.detail
    assert raised.value.tensor == f"x.{name}"


def nvfp4(module: str, rows: int, columns: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {
        f"{module}.weight_packed": ("U8", (rows, columns // 2)),
        f"{module}.weight_scale": ("F8_E4M3", (rows, columns // 16)),
        f"{module}.weight_global_scale": ("F32", (1,)),
    }


def test_fused_sets_are_brought_together_and_share_a_scale() -> None:
    """q/k/v in three shards, of which one is left empty; gate/up in two. The order of members does not matter."""
    store = checkpoint(
        {
            "1.safetensors": [(K, "BF16", (16, 32)), (UP, "BF16", (64, 32))],
            "2.safetensors": [(Q, "BF16", (32, 32)), ("x.bias", "BF16", (1,))],
            "3.safetensors": [(V, "BF16", (16, 32))],
            "4.safetensors": [(GATE, "BF16", (64, 32)), (DOWN, "BF16", (32, 64))],
            "5.safetensors": [("a.w1.weight", "BF16", (16, 16)), ("a.w3.weight", "BF16", (16, 16))],
        }
    )
    plan = planned(store, "NVFP4A16")
    assert {file: set(tensors) for file, tensors in tensors_of(plan).items()} == {
        "2.safetensors": {
            "x.bias", *nvfp4(Q[:-7], 32, 32), *nvfp4(K[:-7], 16, 32), *nvfp4(V[:-7], 16, 32)
        },
        "4.safetensors": {*nvfp4(GATE[:-7], 64, 32), *nvfp4(UP[:-7], 64, 32), *nvfp4(DOWN[:-7], 32, 64)},
        "5.safetensors": {*nvfp4("a.w1", 16, 16), *nvfp4("a.w3", 16, 16)},
    }  # fmt: skip
    partners = {module: {other.tensor for other in step.shares_scale_with} for module, step in steps(plan).items()}
    assert partners == {
        Q[:-7]: {K, V}, K[:-7]: {Q, V}, V[:-7]: {Q, K}, GATE[:-7]: {UP}, UP[:-7]: {GATE}, DOWN[:-7]: set(),
        "a.w1": {"a.w3.weight"}, "a.w3": {"a.w1.weight"},
    }  # fmt: skip
    assert steps(plan)[Q[:-7]].shares_scale_with[0].file in ("1.safetensors", "3.safetensors")


def test_other_schemes_leave_tensors_in_their_files() -> None:
    store = checkpoint({"1.safetensors": [(K, "BF16", (16, 32))], "2.safetensors": [(Q, "BF16", (32, 32))]})
    plan = planned(store, "W8A8")
    assert list(tensors_of(plan)) == ["1.safetensors", "2.safetensors"]
    assert all(not step.shares_scale_with for step in steps(plan).values())


# As the patterns of llm-compressor's `microscale.py` say. `moved`: brought into one file; `sharing`: one global scale,
# and `in_one_file`: if they are there to begin with.
@pytest.mark.parametrize(
    ("parent", "members", "moved", "sharing", "in_one_file"),
    [
        ("a.attn.", ("q_proj", "k_proj", "v_proj"), True, True, True),
        ("a.self_attention.", ("q_proj", "k_proj", "v_proj"), True, True, True),
        ("attn.", ("q_proj", "k_proj", "v_proj"), False, False, True),
        ("a.cross_attn.", ("q_proj", "k_proj", "v_proj"), False, False, True),
        ("a.attn.", ("q_proj", "k_proj"), True, False, False),
        ("a.attn.", ("k_proj", "v_proj"), False, False, False),
        ("a.attn.", ("wq_a", "wkv_a_with_mqa"), True, True, True),
        ("a.self_attention.", ("wq_a", "wkv_a_with_mqa"), False, False, True),
        ("a.mlp.", ("gate_proj", "up_proj"), True, True, True),
        ("a.feed_forward.", ("gate_proj", "up_proj"), True, False, False),
        ("a.mlp.experts.0.", ("gate_proj", "up_proj"), False, False, False),
        ("a.experts.0.", ("w1", "w3"), True, True, True),
        ("", ("w1", "w3"), False, False, True),
    ],
)
def test_which_sets_are_brought_together(
    parent: str, members: tuple[str, ...], moved: bool, sharing: bool, in_one_file: bool
) -> None:
    tensors = [(f"{parent}{member}.weight", "BF16", (16, 16)) for member in members]
    apart = planned(checkpoint({f"{at}.safetensors": [tensor] for at, tensor in enumerate(tensors)}), "NVFP4A16")
    assert (list(tensors_of(apart)) == ["0.safetensors"]) == moved
    assert [bool(step.shares_scale_with) for step in steps(apart).values()] == [sharing] * len(members)
    alone = planned(checkpoint({"model.safetensors": tensors}), "NVFP4A16")
    assert [bool(step.shares_scale_with) for step in steps(alone).values()] == [in_one_file] * len(members)


def test_an_ignored_member_moves_and_does_not_count() -> None:
    store = checkpoint(
        {"1.safetensors": [(K, "BF16", (16, 32)), (V, "BF16", (16, 32))], "2.safetensors": [(Q, "BF16", (32, 32))]}
    )
    plan = planned(store, "NVFP4A16", ignore=[K[:-7]])
    assert list(tensors_of(plan)) == ["2.safetensors"]
    assert K in copies(plan)
    assert [other.tensor for other in steps(plan)[Q[:-7]].shares_scale_with] == [V]
    assert any("only part of " in warning for warning in plan.warnings)


def test_an_empty_file_is_left_out() -> None:
    store = checkpoint({"a.safetensors": [], "b.safetensors": [(Q, "BF16", (8, 8))]}, index=False)
    assert list(tensors_of(planned(store))) == ["b.safetensors"]


def test_all_refusals_at_once_with_what_to_do() -> None:
    store = checkpoint(
        {
            "1.safetensors": [("bert.embeddings.LayerNorm.weight", "BF16", (8,)), (Q, "BF16", (8, 130))],
            "2.safetensors": [("visual.patch_embed.weight", "BF16", (8, 3, 2, 2)), ("x.weight", "I8", (8, 128))],
            "3.safetensors": [("empty.weight", "BF16", (0, 128)), (DOWN, "BF16", (8, 128))],
        }
    )
    with pytest.raises(CheckpointError) as raised:
        planned(store, "W4A16")
    detail = raised.value.detail
    assert detail.startswith("5 problems:")
    for part in (
        "1.safetensors, bert.embeddings.LayerNorm.weight: has shape [8]",
        f"1.safetensors, {Q}: ",
        "2.safetensors, visual.patch_embed.weight: has shape [8, 3, 2, 2]",
        "2.safetensors, x.weight: is I8",
        "3.safetensors, empty.weight: ",
        'add to ignore: "re:(.*\\.)?LayerNorm$", "re:(.*\\.)?q_proj$", "re:(.*\\.)?patch_embed$", "re:(.*\\.)?x$"',
    ):
        assert part in detail
    ignore = re.findall(r'"(re:[^"]*)"', detail)
    assert list(steps(planned(store, "W4A16", ignore=ignore))) == [DOWN[:-7]]


@pytest.mark.parametrize("length", [1, 60])
def test_a_long_list_of_problems_ends_between_two(length: int) -> None:
    """Each that is told is told whole; the rest is counted."""
    names = [f"{chr(97 + at) * length}.{'long_' * length}.weight" for at in range(26)]
    tensors: Tensors = [(name, "BF16", (8,)) for each in names for name in (each, f"0.{each}", f"1.{each}")]
    with pytest.raises(CheckpointError) as raised:
        planned(checkpoint({f"{'file' * 8}.safetensors": [*tensors, (Q, "BF16", (8, 8))]}))
    detail = raised.value.detail
    first, *told, more, advice = detail.splitlines()
    assert first == "78 problems:"
    assert len(detail) <= DETAIL_LIMIT
    assert all(line.endswith("only matrices [out, in] can be quantized") for line in told)
    counted = sum(2 if "(and 1 like it)" in line else 1 for line in told)
    assert more == f"- and {78 - counted} more"
    assert (len(told) == MAX_SHOWN) == (length == 1)
    assert advice.startswith("To leave them")


def test_problems_of_one_kind_are_told_once() -> None:
    norms: Tensors = [(f"encoder.layer.{at}.LayerNorm.weight", "BF16", (8,)) for at in range(40)]
    with pytest.raises(CheckpointError) as raised:
        planned(checkpoint({"model.safetensors": [*norms, ("x.weight", "I8", (8, 8)), (Q, "BF16", (8, 8))]}))
    assert raised.value.detail.splitlines() == [
        "41 problems:",
        "- model.safetensors, encoder.layer.0.LayerNorm.weight (and 39 like it): has shape [8]; "
        "only matrices [out, in] can be quantized",
        "- model.safetensors, x.weight: is I8; only BF16, F16, F32 can be quantized",
        'To leave them unquantized, add to ignore: "re:(.*\\.)?LayerNorm$", "re:(.*\\.)?x$"',
    ]


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ([(Q, "BF16", (8, 8)), (f"{Q}_scale", "BF16", (8, 1))], "two tensors would be named"),
        ([("x.0.down_proj.weight", "BF16", (8, 8)), ("x.down_proj", "BF16", (1, 8, 8))], "two tensors would be named"),
        ([("x.norm.weight", "BF16", (8,))], "nothing to quantize"),
        ([("x.weight", "F64", (8, 8))], "only BF16, F16, F32"),
        ([("x.weight", "F8_E4M3", (8, 8))], "only BF16, F16, F32"),
    ],
)
def test_is_refused(tensors: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        planned(checkpoint({"model.safetensors": tensors}))


@pytest.mark.parametrize(("scheme", "profile"), [("FINE_GRAINED_FP8", "transformers"), ("GPTQ_W4A16", "auto-round")])
def test_a_model_of_shapes_that_the_scheme_leaves(scheme: str, profile: str) -> None:
    tensors = [(f"a.{number}.weight", "BF16", (40, 72)) for number in range(3)]
    with pytest.raises(CheckpointError) as refused:
        planned(checkpoint({"model.safetensors": tensors}), scheme, profile=profile)
    assert "weights of such shapes as they are, all 3 that were chosen" in refused.value.detail
    assert "'a.0.weight' [40, 72]" in refused.value.detail
    assert "ignore" not in refused.value.detail


def test_names_that_clash_in_two_files_are_refused() -> None:
    store = checkpoint({"1.safetensors": [(Q, "BF16", (8, 8))], "2.safetensors": [(f"{Q}_scale", "BF16", (8, 1))]})
    with pytest.raises(CheckpointError, match="would have a tensor of the same name"):
        planned(store)


@pytest.mark.parametrize(
    "config",
    [
        {"quantization_config": {"quant_method": "gptq"}},
        {"text_config": {"quantization_config": {"quant_method": "gptq"}}},
        {"compression_config": {"quant_method": "gptq"}},
    ],
)
def test_a_quantized_checkpoint_that_its_config_does_not_describe_is_refused(config: Any) -> None:
    with pytest.raises(CheckpointError, match="bits is None; expected an integer"):
        planned(checkpoint({"model.safetensors": [(Q, "BF16", (8, 8))]}, config))


@pytest.mark.parametrize(("entry", "where"), [("re:(", "ignore"), ("re:*", "targets")])
def test_a_wrong_expression_is_named(entry: str, where: str) -> None:
    store = checkpoint({"model.safetensors": [(Q, "BF16", (8, 8))]})
    with pytest.raises(ParameterError, match=where) as raised:
        planned(store, ignore=(entry,) if where == "ignore" else (), targets=(entry,) if where == "targets" else ())
    assert entry in raised.value.detail


@pytest.mark.parametrize("where", ["ignore", "targets"])
def test_names_of_modules_are_utf_8(where: str) -> None:
    store = checkpoint({"model.safetensors": [(Q, "BF16", (8, 8))]})
    with pytest.raises(ParameterError, match=rf"{where}: 'x\\udcff' is not UTF-8"):
        planned(store, ignore=["x\udcff"]) if where == "ignore" else planned(store, targets=("x\udcff",))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a\udcff.txt", r"'a\udcff.txt' is not UTF-8: rename"),
        ("a\udcff/b.txt", "is not UTF-8"),
        ("é" * 126, "has 252 bytes, but at most 250"),
        (f"a/{'x' * 251}/b", "has 251 bytes"),
    ],
)
def test_file_names_that_cannot_be_written(name: str, said: str) -> None:
    store = checkpoint({"model.safetensors": [(Q, "BF16", (8, 8))]})
    store.add(name, b"")
    with pytest.raises(CheckpointError) as refused:
        planned(store)
    assert said in refused.value.detail
    # What is not written may have any name.
    store = checkpoint({"model.safetensors": [(Q, "BF16", (8, 8))]})
    store.add(f".{name}", b"")
    store.add("x" * 240 + ".safetensors", b"")
    assert not planned(store).carried


def test_a_tied_output_layer_is_ignored_in_config() -> None:
    store = checkpoint({"model.safetensors": [(Q, "BF16", (8, 8))]}, {"architectures": ["LlamaForCausalLM"]})
    assert json.loads(planned(store).config)["quantization_config"]["ignore"] == ["lm_head"]
    assert json.loads(planned(store, ignore=["re:lm_.*"]).config)["quantization_config"]["ignore"] == ["re:lm_.*"]
    bert = checkpoint({"model.safetensors": [(Q, "BF16", (8, 8))]}, {"architectures": ["BertModel"]})
    assert json.loads(planned(bert).config)["quantization_config"]["ignore"] == []


def test_config_keeps_what_it_says() -> None:
    config = {"b": [1.5, None, float("inf")], "a": {"ä": "重"}, "architectures": ["X"]}
    found = json.loads(planned(checkpoint({"model.safetensors": [(Q, "BF16", (8, 8))]}, config)).config)
    assert found.pop("quantization_config")["quant_method"] == "compressed-tensors"
    assert found == config


def test_which_other_files_are_carried() -> None:
    store = checkpoint({"model.safetensors": [(Q, "BF16", (8, 8))]}, index=True)
    carried = {
        "tokenizer.json", "generation_config.json", "chat_template.jinja", "modeling_x.py", "README.md", "LICENSE",
        "1_Pooling/config.json", "2_Dense/model.safetensors", "2_Dense/pytorch_model.bin", "merges.txt",
    }  # fmt: skip
    other_weights = {
        "pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.safetensors", "tf_model.h5", "x.gguf",
        "consolidated.safetensors.index.json", "quantize_config.json", "original/consolidated.00.pth",
        "original/params.json", "onnx/model.onnx", "training_args.bin", "model.safetensors.part",
        "merges.txt.part", "2_Dense/model.safetensors.part",
    }  # fmt: skip
    silent = {".gitattributes", ".git/config", ".cache/huggingface/x.json", "requant-manifest.json", "x/.y/z"}
    for name in carried | other_weights | silent:
        store.add(name, b"x")
    plan = planned(store)
    assert {file.name for file in plan.carried} == carried
    (warning,) = (warning for warning in plan.warnings if "not copied" in warning)
    assert f"({len(other_weights)})" in warning


def test_the_digest_follows_all_that_the_outputs_follow() -> None:
    def digest(**others: Any) -> str:
        return planned(store(), **others).digest

    def store() -> HeadersOnly:
        return checkpoint({"model.safetensors": [(Q, "BF16", (8, 128)), (DOWN, "BF16", (8, 128))]}, {"x": 1})

    touched, carried, config, swapped = store(), store(), store(), store()
    touched.versions["model.safetensors"] = "2"
    config.add("config.json", b'{"x":2}')
    swapped.add_tensors("model.safetensors", [(Q, "BF16", (128, 8)), (DOWN, "BF16", (8, 128))])
    carried.add("tokenizer.json", b"x")
    digests = [
        digest(),
        digest(scheme="W4A16"),
        digest(profile="compressed-tensors-cuda"),
        digest(ignore=["x"]),
        digest(targets=("re:.*",)),
        *(planned(each).digest for each in (touched, carried, config, swapped)),
    ]
    assert len(set(digests)) == len(digests)
    assert digest() == digests[0]
    assert re.fullmatch("[0-9a-f]{64}", digests[0])


def test_files_are_written_in_one_order_without_gaps() -> None:
    names = [f"model.layers.{at}.mlp.down_proj.weight" for at in range(12)]
    plan = planned(checkpoint({"model.safetensors": [(name, "BF16", (4, 128)) for name in names]}), "W4A16_ASYM")
    (task,) = plan.tasks
    assert task.header.tensors[0].begin == len(task.head)
    assert task.header.tensors[-1].end == task.header.size
    assert all(first.end == second.begin for first, second in pairwise(task.header.tensors))
    begins = [place(step).begin for step in steps(plan).values()]
    assert begins == sorted(begins)
