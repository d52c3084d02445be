"""What stays unquantized unless `ignore` is stated, by the names of published models."""

from __future__ import annotations

import json
import re

import pytest

from requant.checkpoint.name_patterns import NamePatterns, check_linear
from requant.checkpoint.plan.model import Plan, QuantizeStep
from requant.checkpoint.selection import DEFAULT_IGNORE, Role, default_entries, role_of
from tests.support.cpu_time import within_cpu_seconds
from tests.support.planned_checkpoint import Tensors, checkpoint, planned

LAYER = "model.layers.3"
LINEAR = f"""
{LAYER}.self_attn.q_proj {LAYER}.self_attn.o_proj {LAYER}.mlp.gate_proj {LAYER}.mlp.up_proj {LAYER}.mlp.down_proj
{LAYER}.mlp.gate_up_proj {LAYER}.mlp.experts.7.gate_proj {LAYER}.mlp.shared_expert.gate_proj {LAYER}.mlp.fc1
{LAYER}.mlp.shared_experts.down_proj {LAYER}.block_sparse_moe.experts.0.w1 {LAYER}.self_attn.kv_a_proj_with_mqa
{LAYER}.linear_attn.in_proj_qkvz {LAYER}.linear_attn.out_proj {LAYER}.conv.in_proj {LAYER}.mixer.in_proj
layers.0.attention.wq layers.0.feed_forward.w2 transformer.h.0.attn.c_attn transformer.h.0.mlp.c_proj
bert.encoder.layer.0.attention.self.query bert.encoder.layer.0.attention.output.dense bert.encoder.layer.0.output.dense
model.language_model.layers.0.self_attn.k_proj language_model.model.layers.0.mlp.up_proj model.decoder.layers.0.fc2
gpt_neox.layers.0.attention.query_key_value transformer.encoder.layers.0.mlp.dense_h_to_4h model.layers.61.eh_proj
encoder.block.0.layer.0.SelfAttention.q encoder.block.0.layer.1.DenseReluDense.wi_0 vit.encoder.layer.0.output.dense
embedder.encoder.layer.0.intermediate.dense transformer_blocks.0.img_mlp.net.2
""".split()
ROLES = {
    Role.EMBEDDING: """model.embed_tokens embed_tokens model.language_model.embed_tokens transformer.wte transformer.wpe
        bert.embeddings.word_embeddings layers.tok_embeddings tok_embeddings shared model.embed_tokens_per_layer
        model.decoder.embed_positions encoder.block.0.layer.0.SelfAttention.relative_attention_bias
        vit.embeddings.patch_embeddings.projection gpt_neox.embed_in model.embed_vision.embedding_projection
        time_embedding.linear_1""",
    Role.HEAD: """lm_head model.lm_head language_model.lm_head embed_out output model.output score classifier
        transformer.output_layer model.layers.61.shared_head.head qa_outputs proj_out lm_head.decoder""",
    Role.ROUTER: f"""{LAYER}.mlp.gate {LAYER}.block_sparse_moe.gate {LAYER}.mlp.router {LAYER}.feed_forward.router
        {LAYER}.mlp.shared_expert_gate transformer.blocks.0.ffn.router.layer {LAYER}.mlp.gate.wg
        backbone.layers.1.mixer.gate encoder.block.1.layer.1.mlp.router.classifier""",
    Role.NORM: f"""transformer.ln_f transformer.h.0.ln_1 bert.encoder.layer.0.output.LayerNorm model.norm_f
        {LAYER}.norm1 encoder.layers.0.self_attn_layer_norm vision.ln_post {LAYER}.input_layernorm""",
    Role.CONVOLUTION: f"{LAYER}.linear_attn.conv1d {LAYER}.mixer.conv1d {LAYER}.conv.conv model.encoder.conv1",
    Role.TOWER: """visual.blocks.0.attn.qkv model.visual.merger.mlp.0 vision_tower.vision_model.encoder.layers.0.mlp.fc1
        model.vision_tower.timm_model.blocks.0.attn.qkv multi_modal_projector.linear_1 model.mm_projector.0 vpm.x.fc1
        vision_encoder.transformer.layers.0.attention.wq vision_language_adapter.w_in patch_merger.merging_layer
        model.vision_embed_tokens.img_processor.x thinker.audio_tower.layers.0.fc1 resampler.attn.out_proj mlp1.1
        model.connector.modality_projection.proj vision_model.encoder.layers.0.mlp.gate audio_encoder.layers.0.fc2""",
}
TENSORS: Tensors = [
    ("model.embed_tokens.weight", "BF16", (64, 128)),
    ("model.layers.0.self_attn.q_proj.weight", "BF16", (64, 128)),
    ("model.layers.0.mlp.gate.weight", "BF16", (64, 128)),
    ("model.layers.1.mlp.gate.weight", "BF16", (64, 128)),
    ("model.layers.0.input_layernorm.weight", "BF16", (128,)),
    ("model.layers.0.ln_2.weight", "BF16", (128,)),
    ("model.visual.blocks.0.attn.qkv.weight", "BF16", (64, 128)),
    ("model.visual.patch_embed.proj.weight", "BF16", (64, 3, 2, 2)),
    ("lm_head.weight", "BF16", (64, 128)),
]
STATED = (r"re:.*\bvisual\b", r"re:.*\bembed_tokens$", r"re:.*\blm_head$", r"re:.*\bgate$", r"re:.*\bln_2$")


def quantized(plan: Plan) -> list[str]:
    return [step.module for task in plan.tasks for step in task.steps if isinstance(step, QuantizeStep)]


def test_linear_layers_have_no_role() -> None:
    assert [module for module in LINEAR if role_of(module) is not None] == []


@pytest.mark.parametrize("role", Role)
def test_modules_that_stay_are_recognized(role: Role) -> None:
    found = {module: role_of(module) for module in ROLES[role].split()}
    expected = dict.fromkeys(found, role)
    if role is Role.NORM:
        expected["vision.ln_post"] = Role.TOWER
    assert found == expected


def test_the_entries_match_what_they_were_made_of_and_no_linear_layer() -> None:
    for modules in ROLES.values():
        for module in modules.split():
            entries = default_entries([module, *LINEAR])
            check_linear(entries)
            patterns = NamePatterns(entries)
            assert len(entries) == 1
            assert patterns.match(module)
            assert not [each for each in LINEAR if patterns.match(each)]
            # As compressed-tensors and vLLM do.
            assert all(re.match(each.removeprefix("re:"), module) for each in entries if each.startswith("re:"))


def test_long_names_take_no_time() -> None:
    hostile = ["conv1" * 200_000 + "-", "." * 1_000_000, "\n.lm_head", "a" * 1025 + ".lm_head"]

    def look() -> None:
        assert [role_of(each) for each in hostile] == [None, None, Role.HEAD, None]
        assert [role_of("conv1" * 200 + "-")] * 100 == [role_of("conv1" * 200 + "-") for _ in range(100)]

    assert within_cpu_seconds(look, 2)


def test_the_default_leaves_them_and_states_what_it_left() -> None:
    store = checkpoint({"model.safetensors": TENSORS})
    plan = planned(store, ignore=DEFAULT_IGNORE)
    assert quantized(plan) == ["model.layers.0.self_attn.q_proj"]
    assert plan.request.ignore == STATED
    assert json.loads(plan.config)["quantization_config"]["ignore"] == list(STATED)
    assert plan.warnings == ()
    # Who states these entries gets the same plan, also where they are all that the default would add.
    assert planned(store, ignore=STATED).digest == plan.digest
    assert planned(store, ignore=(*STATED, *DEFAULT_IGNORE)).digest == plan.digest
    names = ("lm_head", "re:.*embed_tokens$", r"re:.*mlp\.gate$", "re:.*visual", "re:.*ln_.*")
    assert planned(store, ignore=(*DEFAULT_IGNORE, *names)).digest == planned(store, ignore=names).digest


def test_stated_entries_come_first_and_what_they_name_needs_no_other() -> None:
    store = checkpoint({"model.safetensors": TENSORS})
    plan = planned(
        store, ignore=("default", "lm_head", "re:.*gate"), targets=("re:.*(gate|head|embed_tokens|q_proj)$",)
    )
    assert plan.request.ignore == ("lm_head", "re:.*gate", r"re:.*\bembed_tokens$")
    assert quantized(plan) == ["model.layers.0.self_attn.q_proj"]


def test_without_the_default_exactly_the_list_is_left_out() -> None:
    tensors = [each for each in TENSORS if len(each[2]) == 2]
    plan = planned(checkpoint({"model.safetensors": tensors}), ignore=())
    assert len(quantized(plan)) == len(tensors)
    assert plan.request.ignore == ()


@pytest.mark.parametrize("scheme", ["GPTQ_W4A16", "AWQ", "FINE_GRAINED_FP8", "NF4"])
def test_schemes_that_never_quantize_embeddings_need_entries_for_towers_alone(scheme: str) -> None:
    profile = {"GPTQ_W4A16": "auto-round", "AWQ": "autoawq", "FINE_GRAINED_FP8": "transformers", "NF4": "bitsandbytes"}
    tensors = [(name, dtype, (128, 128)) for name, dtype, shape in TENSORS if len(shape) == 2]
    plan = planned(checkpoint({"model.safetensors": tensors}), scheme, profile=profile[scheme], ignore=DEFAULT_IGNORE)
    assert quantized(plan) == ["model.layers.0.self_attn.q_proj"]
    assert plan.request.ignore == STATED[:1]
