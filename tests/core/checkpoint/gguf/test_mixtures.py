"""Which type each tensor of a mixture gets: the tables of llama.cpp 0.5.0's llama-quant.cpp, and what is refused."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pytest

from requant.checkpoint.gguf.header import Key, string_value, u32_value
from requant.checkpoint.gguf.mixtures import TARGETS, MixedTypes, ModelShape, model_shape, target_named
from requant.checkpoint.gguf.tensor_types import TENSOR_TYPES
from requant.errors import CheckpointError, UnknownNameError

LLAMA = ModelShape("llama", 16, 0, 2, False)


def types(mixture: str, names: Sequence[str], model: ModelShape = LLAMA, row: int = 256, **how: Any) -> list[str]:
    """The types of the tensors, which are all that there are."""
    mixed = MixedTypes(TARGETS[mixture], model, [*names, *how.pop("others", ())], how.pop("important", False), "m.gguf")
    assert not how
    return [mixed.type_of(name, row).name for name in names]


def layers(part: str, count: int = 16) -> list[str]:
    return [f"blk.{i}.{part}.weight" for i in range(count)]


def runs(found: list[str]) -> str:
    """Such as Q6_K*2 Q4_K: how often each type comes in a row."""
    parts: list[tuple[str, int]] = []
    for each in found:
        if parts and parts[-1][0] == each:
            parts[-1] = each, parts[-1][1] + 1
        else:
            parts.append((each, 1))
    return " ".join(name if count == 1 else f"{name}*{count}" for name, count in parts)


# Layers 0, 1 of 16 are the first eighth, 14 and 15 the last one; and of the others those at 2 + 2 + 3 k.
MORE = "{0}*2 {1}*2 {0} {1}*2 {0} {1}*2 {0} {1}*2 {0}*3"


@pytest.mark.parametrize(
    ("mixture", "attn_v", "ffn_down", "attn_output", "others"),
    [
        ("Q2_K", "Q3_K*16", "Q3_K*16", "Q3_K*16", "Q2_K"),
        ("Q2_K_S", "Q2_K*16", "Q4_K*2 Q2_K*14", "Q2_K*16", "Q2_K"),
        ("Q3_K_S", "Q3_K*16", "Q3_K*16", "Q3_K*16", "Q3_K"),
        ("Q3_K_M", "Q5_K*2 Q4_K*14", "Q5_K Q4_K*15", "Q4_K*16", "Q3_K"),
        ("Q3_K_L", "Q5_K*16", "Q5_K*16", "Q5_K*16", "Q3_K"),
        ("Q4_K_S", "Q5_K*4 Q4_K*12", "Q5_K*2 Q4_K*14", "Q4_K*16", "Q4_K"),
        ("Q4_K_M", MORE.format("Q6_K", "Q4_K"), MORE.format("Q6_K", "Q4_K"), "Q4_K*16", "Q4_K"),
        ("Q5_K_S", "Q5_K*16", "Q5_K*16", "Q5_K*16", "Q5_K"),
        ("Q5_K_M", MORE.format("Q6_K", "Q5_K"), MORE.format("Q6_K", "Q5_K"), "Q5_K*16", "Q5_K"),
        ("Q6_K", "Q6_K*16", "Q6_K*16", "Q6_K*16", "Q6_K"),
        ("IQ4_NL", "IQ4_NL*16", "Q5_K*2 IQ4_NL*14", "IQ4_NL*16", "IQ4_NL"),
        ("IQ4_XS", "IQ4_XS*16", "Q5_K*2 IQ4_XS*14", "IQ4_XS*16", "IQ4_XS"),
    ],
)
def test_the_types_of_a_llama(mixture: str, attn_v: str, ffn_down: str, attn_output: str, others: str) -> None:
    assert runs(types(mixture, layers("attn_v"))) == attn_v
    assert runs(types(mixture, layers("ffn_down"))) == ffn_down
    assert runs(types(mixture, layers("attn_output"))) == attn_output
    rest = [f"blk.0.{part}.weight" for part in ("attn_q", "attn_k", "ffn_up", "ffn_gate", "ssm_in")]
    assert types(mixture, ["output.weight", "token_embd.weight", *rest]) == ["Q6_K", others, *[others] * len(rest)]
    # Without output.weight it is the token embeddings that make the output.
    assert types(mixture, ["token_embd.weight", *rest]) == ["Q6_K", *[others] * len(rest)]


def test_every_mixture_is_tested() -> None:
    """And has a name and a number of its own."""
    (mark,) = test_the_types_of_a_llama.pytestmark  # type: ignore[attr-defined]
    assert {row[0] for row in mark.args[1]} == {name for name, target in TARGETS.items() if target.mixed}
    assert len({target.file_type for target in TARGETS.values()}) == len(TARGETS)


def test_heads_that_share_keys() -> None:
    shared = ModelShape("llama", 16, 0, 4, False)
    for mixture, expected in (("Q2_K", "Q4_K"), ("Q2_K_S", "Q4_K"), ("IQ4_NL", "Q5_K"), ("IQ4_XS", "Q5_K")):
        assert types(mixture, layers("attn_v", 2), shared) == [expected] * 2
    assert types("Q2_K", layers("ffn_down", 2), shared) == ["Q3_K"] * 2


def test_a_model_of_70b() -> None:
    large = ModelShape("llama", 80, 0, 8, True)
    assert runs(types("Q4_K_S", layers("attn_v", 80), large)) == "Q5_K*80"
    assert runs(types("Q3_K_S", layers("attn_v", 80), large)) == "Q5_K*80"
    assert "Q4_K" not in types("Q4_K_M", layers("attn_v", 80), large)
    assert types("Q2_K", layers("attn_output", 1), large) == ["Q3_K"]


def test_eight_experts() -> None:
    mixtral = ModelShape("llama", 16, 8, 4, False)
    for mixture in ("Q4_K_M", "Q2_K", "Q6_K"):
        assert types(mixture, layers("attn_v", 1) + layers("attn_k", 1), mixtral) == ["Q8_0", "Q8_0"]
    expected = {"Q5_K_M": "Q5_K", "Q6_K": "Q6_K", "Q3_K_L": "Q3_K"}
    for mixture in ("Q2_K", "Q3_K_S", "Q3_K_M", "Q4_K_S", "Q4_K_M", "IQ4_NL", "IQ4_XS", *expected):
        assert types(mixture, layers("attn_output", 1), mixtral) == [expected.get(mixture, "Q5_K")]
    # The layer is that in the name, whatever came before.
    assert types("Q4_K_M", ["blk.2.ffn_down_exps.weight", "blk.1.ffn_down_exps.weight"], mixtral) == ["Q4_K", "Q6_K"]
    for name in ("blk.16.ffn_down_exps.weight", "ffn_down_exps.weight"):
        with pytest.raises(CheckpointError, match="has no layer of the 16 in its name"):
            types("Q4_K_M", [name], mixtral)


def test_falcon() -> None:
    falcon = ModelShape("falcon", 16, 0, 1, False)
    assert types("Q4_K_M", ["output.weight"], falcon) == ["Q8_0"]
    assert runs(types("Q3_K_M", layers("ffn_down"), falcon)) == "Q5_K " + MORE.format("Q4_K", "Q3_K").replace(
        "*2", "", 1
    )
    assert runs(types("Q4_K_M", layers("ffn_down"), falcon)) == "Q6_K " + MORE.format("Q5_K", "Q4_K").replace(
        "*2", "", 1
    )
    assert runs(types("Q4_K_S", layers("ffn_down"), falcon)) == "Q4_K*16"
    assert types("Q3_K_L", [*layers("ffn_down", 1), *layers("attn_output", 1)], falcon) == ["Q4_K", "Q4_K"]
    assert types("Q2_K", layers("attn_output", 1), falcon) == ["Q2_K"]


def test_an_importance_matrix_frees_the_first_layers_of_iq4() -> None:
    for mixture in ("IQ4_NL", "IQ4_XS"):
        assert types(mixture, layers("ffn_down", 2), important=True) == [mixture] * 2


def test_values_are_counted_under_all_their_names() -> None:
    names = ["blk.0.attn_qkv.weight", "blk.1.attn_kv_b.weight", "blk.2.attn_v.weight"]
    assert types("Q3_K_M", names) == ["Q5_K", "Q5_K", "Q4_K"]
    # With five more that are not quantized: none of 8 // 8 = 1 layers and beyond 7.
    assert types("Q4_K_M", names, others=layers("attn_v", 8)[3:]) == ["Q6_K", "Q4_K", "Q4_K"]


def test_an_output_whose_rows_are_not_whole_blocks() -> None:
    assert types("Q4_K_M", ["output.weight"], row=96) == ["Q8_0"]
    assert types("IQ4_NL", ["output.weight"], row=96) == ["Q6_K"]


def keys(architecture: str = "llama", /, **values: bytes) -> list[Key]:
    made = {"general.architecture": string_value(architecture.encode())}
    made |= {f"{architecture}.{name.replace('__', '.')}": value for name, value in values.items()}
    return [Key(name, value) for name, value in made.items()]


def array(*numbers: int) -> bytes:
    return struct.pack(f"<IIQ{len(numbers)}i", 9, 5, len(numbers), *numbers)


def test_what_the_keys_say() -> None:
    heads = {"attention__head_count": u32_value(32), "attention__head_count_kv": u32_value(8)}
    found = model_shape(keys(block_count=u32_value(32), **heads), "m.gguf")
    assert found == ModelShape("llama", 32, 0, 4, False)
    found = model_shape(keys(block_count=u32_value(24), expert_count=u32_value(8)), "m.gguf")
    assert found == ModelShape("llama", 24, 8, 0, False)
    # Of lists the first layer counts; a layer without keys shares none.
    lists = {"attention__head_count": array(16, 8), "attention__head_count_kv": array(2, 0)}
    assert model_shape(keys(block_count=u32_value(2), **lists), "m.gguf").sharing == 8
    lists["attention__head_count_kv"] = array(0, 2)
    assert model_shape(keys(block_count=u32_value(2), **lists), "m.gguf").sharing == 0


@pytest.mark.parametrize(
    ("architecture", "key_heads", "experts", "expected"),
    [
        ("llama", 8, 0, True),
        ("llama", 64, 0, False),
        ("llama", 8, 8, False),
        ("llama-embed", 8, 0, True),
        ("qwen2", 64, 0, True),
        ("deci", 64, 0, True),
        ("olmo", 64, 0, True),
        ("qwen3", 8, 0, False),
    ],
)
def test_which_models_count_as_70b(architecture: str, key_heads: int, experts: int, expected: bool) -> None:
    values = {
        "attention__head_count": u32_value(64),
        "attention__head_count_kv": u32_value(key_heads),
        "expert_count": u32_value(experts),
    }
    for count in (80, 81):
        found = model_shape(keys(architecture, block_count=u32_value(count), **values), "m.gguf")
        assert found.has_70b is (expected and count == 80)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "has no general.architecture"),
        (keys(), r"has no 'llama.block_count' that is a number"),
        (keys(block_count=string_value(b"2")), r"has no 'llama.block_count' that is a number"),
        (keys(block_count=array()), r"has no 'llama.block_count' that is a number"),
        (
            [*keys(block_count=u32_value(2)), Key("split.count", struct.pack("<IH", 2, 3))],
            "is one of 3 files of a model",
        ),
    ],
)
def test_a_mixture_needs_to_know_the_model(given: list[Key], message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as error:
        model_shape(given, "m.gguf")
    assert "convert with --pure" in error.value.detail


def test_names_in_any_case() -> None:
    assert target_named("q4_k_m") is TARGETS["Q4_K_M"]
    assert target_named("iq4_nl").type is TENSOR_TYPES["IQ4_NL"]
    with pytest.raises(UnknownNameError, match="did you mean Q4_K_S"):
        target_named("Q4_K")
    for name in ("IQ2_XXS", "iq3_m", "NVFP4"):
        with pytest.raises(UnknownNameError, match=f"{name.upper()} is not written; use llama-quantize for it"):
            target_named(name)
