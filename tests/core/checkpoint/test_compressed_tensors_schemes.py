"""Names and options of the schemes of compressed-tensors, and what they say in config.json."""

from __future__ import annotations

import pytest

from requant.checkpoint.profiles import COMPRESSED_TENSORS_CPU, COMPRESSED_TENSORS_CUDA
from requant.checkpoint.quantization_config.compressed_tensors import GIVEN_PRESETS, PRESETS
from requant.checkpoint.schemes import scheme_named
from requant.errors import CheckpointError, ParameterError, UnknownNameError
from tests.support.page_table import DOCS


@pytest.mark.parametrize("name", [*PRESETS, *GIVEN_PRESETS])
def test_each_has_a_format_for_both_profiles(name: str) -> None:
    scheme = scheme_named(name)
    assert scheme.name == name
    assert scheme.profiles == (COMPRESSED_TENSORS_CPU.name, COMPRESSED_TENSORS_CUDA.name)
    for profile in scheme.profiles:
        assert scheme.format(profile).stored("BF16", (256, 256))
    assert scheme.fused == (name in ("NVFP4A16", "NVFP4"))
    config = scheme.quantization_config(["Linear"], ["lm_head"])
    assert (config["quant_method"], config["ignore"]) == ("compressed-tensors", ["lm_head"])
    assert config["version"] == COMPRESSED_TENSORS_CPU.version == COMPRESSED_TENSORS_CUDA.version
    (group,) = config["config_groups"].values()
    assert group["format"] == config["format"]
    # With activations as they are, integers and FP8 have formats of other names.
    assert (group["input_activations"] is None) == ("A16" in name)


def test_the_page_says_which_version_the_files_equal() -> None:
    page = (DOCS / "checkpoints.md").read_text(encoding="utf-8").replace("\n", " ")
    version = COMPRESSED_TENSORS_CPU.version
    assert f"with compressed-tensors {version}, and `version` in config.json is {version}." in page


def of_weights(name: str) -> dict[str, object]:
    (group,) = scheme_named(name).quantization_config(["Linear"], [])["config_groups"].values()
    return {key: group["weights"][key] for key in ("num_bits", "symmetric", "strategy", "group_size")}


def test_options() -> None:
    group = {"num_bits": 4, "symmetric": True, "strategy": "group", "group_size": 32}
    assert of_weights("W4A16:group=32") == group
    assert of_weights("W4A16:group=32,asymmetric") == {**group, "symmetric": False}
    assert of_weights("W4A16_ASYM:group=32") == {**group, "symmetric": False}
    assert of_weights("W8A16:tensor") == {"num_bits": 8, "symmetric": True, "strategy": "tensor", "group_size": None}
    assert of_weights("FP8_DYNAMIC:tensor")["strategy"] == "tensor"
    assert of_weights("FP8A16")["strategy"] == "channel"


@pytest.mark.parametrize(
    "name",
    [
        "W4A16:group=0",
        "W4A16:group=-1",
        "W4A16:group=٣",
        "W4A16:group=",
        "W4A16:group=99999999999999999999",
        "W4A16:rows",
        "W4A16:tensor,asymmetric",
        "W8A8:channel,tensor",
        "W8A8:tensor,group=64",
        "W4A16:group=32,asymmetric,group=64",
        "W4A16:asymmetric,asymmetric",
        "FP8_DYNAMIC:tensor,tensor",
        "FP8_DYNAMIC:channel,tensor",
        "FP8_DYNAMIC:group=32",
        "FP8_DYNAMIC:asymmetric",
        "FP8_BLOCK:tensor",
        "NVFP4A16:group=32",
        "FP8:channel",
        "FP8:mse",
        "NVFP4:group=32",
        "MXFP4A16:channel",
        "W8A8:" + "x" * 5000,
    ],
)
def test_wrong_options_are_refused(name: str) -> None:
    with pytest.raises((ParameterError, UnknownNameError)) as refused:
        scheme_named(name)
    assert name[:8] in str(refused.value)
    assert len(str(refused.value)) < 400


def test_names_in_any_case() -> None:
    assert scheme_named("w8a8").name == "W8A8"
    assert scheme_named("nvfp4a16").name == "NVFP4A16"
    assert scheme_named("w4a16_Asym:group=32").name == "W4A16_ASYM:group=32"


@pytest.mark.parametrize("name", ["Q8_0", "q4_k_m", "Q6_K", "IQ4_XS", "TQ2_0"])
def test_names_of_gguf_files_point_to_their_converter(name: str) -> None:
    with pytest.raises(UnknownNameError, match=rf"convert_hf_to_gguf\.py .* --scheme {name.upper()};"):
        scheme_named(name)


def test_unknown_names_get_a_suggestion() -> None:
    with pytest.raises(UnknownNameError, match="did you mean W4A16"):
        scheme_named("w4-a16")
    with pytest.raises(UnknownNameError, match="compressed-tensors-cpu"):
        scheme_named("W8A8").format("compressed-tensors")


@pytest.mark.parametrize(
    ("name", "dtype", "shape", "said"),
    [
        ("W4A16", "BF16", (8, 200), "groups of 128"),
        ("MXFP4A16", "F16", (8, 48), "groups of 32"),
        ("NVFP4A16", "F32", (8, 24), "groups of 16"),
        ("W8A8", "F64", (8, 8), "dtype F64"),
        ("W8A8", "BF16", (0, 8), "no elements"),
        ("FP8_BLOCK", "BF16", (8, 0), "no elements"),
    ],
)
def test_weights_that_do_not_fit_are_refused(name: str, dtype: str, shape: tuple[int, int], said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        scheme_named(name).format("compressed-tensors-cpu").stored(dtype, shape)
