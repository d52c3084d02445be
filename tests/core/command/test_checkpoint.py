"""`requant checkpoint`: what it prints, its exit status, what it leaves behind."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import requant
from requant.checkpoint.gguf.mixtures import TARGETS
from requant.checkpoint.gguf.tensor_types import FLOATS
from requant.checkpoint.name_patterns import NamePatterns
from requant.checkpoint.plan.model import Direction
from requant.checkpoint.plan.planner import plan_conversion
from requant.checkpoint.run.work import Progress
from requant.checkpoint.schemes import GIVEN_SCHEMES, SCHEMES
from requant.checkpoints import conversion_request, open_source
from requant.command.checkpoint.conversion import serving_command
from requant.command.exit_status import DONE, FAILED, INTERRUPTED, TERMINATED, WRONG_USAGE
from requant.command.main import main
from requant.command.output import Output, ProgressForm, output_for, size_text, time_text
from tests.support.gguf_models import MODELS
from tests.support.hand_made_plan import Tensors, read_safetensors, write_safetensors
from tests.support.model_directory import contents, make_model
from tests.support.published_models import gpt_oss
from tests.support.safetensors_files import tensor_places


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("source") / "model")


def checkpoint(*arguments: object) -> int:
    return main(["checkpoint", *map(str, arguments)])


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_quantize_says_what_it_wrote_and_how_to_serve_it(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checkpoint("quantize", model, tmp_path / "out", "--scheme", "W8A8", "--progress", "plain") == DONE
    printed = capsys.readouterr()
    first, last = printed.out.splitlines()
    assert first.startswith("Wrote 5 files and requant-manifest.json, ")
    assert last == f"To serve it: vllm serve {tmp_path / 'out'}"
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["quantization_config"]["format"] == "int-quantized"

    assert checkpoint("quantize", model, tmp_path / "out", "--scheme", "W8A8") == DONE
    assert capsys.readouterr().out.startswith("Nothing to do: all 5 files exist")
    (tmp_path / "out" / "tokenizer.json").unlink()
    assert checkpoint("quantize", model, tmp_path / "out", "--scheme", "W8A8") == DONE
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first.startswith("Wrote 2 files and requant-manifest.json, ")
    assert second == "3 of 5 files were kept from an earlier run."
    assert checkpoint("verify", tmp_path / "out") == DONE
    assert capsys.readouterr().out.endswith("the SHA-256 of 5 files\n")


@pytest.mark.parametrize(
    ("scheme", "architectures", "served"),
    [
        ("W4A16", ["Qwen3ForCausalLM"], True),
        ("FINE_GRAINED_FP8", ["Gemma3ForConditionalGeneration"], True),
        ("GPTQ_W4A16", ["LlamaForCausalLM"], True),
        ("W4A16", ["BertModel"], False),
        ("W4A16", None, False),
        ("W8A16:tensor", ["LlamaForCausalLM"], False),
        ("W8A8:asymmetric", ["LlamaForCausalLM"], False),
        ("W8A8:group=32", ["LlamaForCausalLM"], False),
        ("GPTQ_W4A16:asymmetric", ["LlamaForCausalLM"], False),
        ("GPTQ_W2A16", ["LlamaForCausalLM"], False),
        ("NF4", ["LlamaForCausalLM"], False),
    ],
)
def test_a_command_to_serve_is_named_only_where_vllm_serves(
    tmp_path: Path, scheme: str, architectures: list[str] | None, served: bool
) -> None:
    source = make_model(tmp_path / "model", shards=1)
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "architectures": architectures}))
    plan = plan_conversion(open_source(source), conversion_request(Direction.QUANTIZE, scheme=scheme))
    assert serving_command(plan, "/models/it's") == ("vllm serve '/models/it'\"'\"'s'" if served else None)
    assert serving_command(plan, "s3://bucket/model") is None


def test_the_function_and_the_command_write_the_same(model: Path, tmp_path: Path) -> None:
    ignore = ["re:.*up_proj", "lm_head"]
    report = requant.quantize_checkpoint(model, tmp_path / "a", "W4A16", ignore=ignore, threads=1)
    assert [file.name for file in report.files][-1] == "tokenizer.json"
    assert (
        checkpoint("quantize", model, tmp_path / "b", "--scheme", "W4A16", "--ignore", ignore[0], "--ignore", ignore[1])
        == DONE
    )
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    assert config["quantization_config"]["ignore"] == ignore
    assert not config["quantization_config"]["config_groups"]["group_0"]["input_activations"]


WHOLE = {
    "model.embed_tokens.weight": (64, 128),
    "model.layers.0.self_attn.q_proj.weight": (64, 128),
    "model.layers.0.mlp.gate.weight": (8, 128),
    "lm_head.weight": (64, 128),
}


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ([], {"model.embed_tokens", "model.layers.0.mlp.gate", "lm_head"}),
        (["--ignore", "lm_head"], {"model.embed_tokens", "model.layers.0.mlp.gate", "lm_head"}),
        (["--ignore", "none"], set()),
        (["--ignore", "none", "--ignore", "lm_head"], {"lm_head"}),
    ],
)
def test_embeddings_heads_and_routers_stay_unless_none_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], left: set[str]
) -> None:
    tensors: Tensors = {name: ("F32", np.ones(shape, np.float32)) for name, shape in WHOLE.items()}
    source = tmp_path / "model"
    source.mkdir()
    write_safetensors(source / "model.safetensors", tensors)
    (source / "config.json").write_text('{"architectures": ["Qwen3MoeForCausalLM"]}')
    assert checkpoint("quantize", source, tmp_path / "out", "--scheme", "W8A16:channel", *options) == DONE
    said = capsys.readouterr()
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    matching = NamePatterns(config["quantization_config"]["ignore"])
    modules = {name.removesuffix(".weight") for name in WHOLE}
    assert {module for module in modules if matching.match(module)} == left
    assert set(read_safetensors(tmp_path / "out" / "model.safetensors")) >= {f"{module}.weight" for module in left}
    # A command to serve is for what loads, and a list of what was left out for what was.
    whole = left >= {"model.embed_tokens", "model.layers.0.mlp.gate", "lm_head"}
    assert ("To serve it: vllm serve" in said.out) == whole
    assert ("will be quantized" in said.err) == (not whole)
    listed = [line for line in said.out.splitlines() if line.startswith("Not quantized, by --ignore or its default: ")]
    assert len(listed) == bool(left)
    assert all(each in listed[0] for each in (module.replace(".0.", ".*.") for module in left))
    # As the function does with such a list.
    entries = [each for each in options if each not in ("--ignore", "none")]
    ignore = entries if "none" in options else [*entries, "default"]
    requant.quantize_checkpoint(source, tmp_path / "same", "W8A16:channel", ignore=ignore)
    assert contents(tmp_path / "same") == contents(tmp_path / "out")
    if ignore == ["default"]:
        requant.quantize_checkpoint(source, tmp_path / "again", "W8A16:channel")
        assert contents(tmp_path / "again") == contents(tmp_path / "out")
    assert checkpoint("verify", tmp_path / "out", "--source", source) == DONE


def test_schemes_are_listed_with_their_bits_and_loaders(capsys: pytest.CaptureFixture[str]) -> None:
    assert checkpoint("schemes", "--json") == 0
    listed = {each["name"]: each for each in json.loads(capsys.readouterr().out)["schemes"] if each["of"] != "GGUF"}
    assert [name for name, each in listed.items() if each["of"] == "safetensors"] == [*SCHEMES, *GIVEN_SCHEMES]
    bits = {"W4A16": 4.125, "W4A16_ASYM": 4.156, "NVFP4A16": 4.5, "MXFP6A8": 6.25, "W4A8": 8.125, "MatMulNBits4": 4.156}
    bits |= {"MODELOPT_FP8_PER_CHANNEL_PER_TOKEN": 8.008, "MODELOPT_FP8_PB_WO": 8.002, "MODELOPT_W4A16_NVFP4": 4.5}
    assert {name: round(listed[name]["bits"], 3) for name in bits} == bits
    loaders = {"W8A8": ["vLLM", "transformers"], "W4A16_ASYM": ["vLLM"], "MXFP6A16": ["transformers"]}
    loaders |= {name: ["vLLM", "transformers"] for name in GIVEN_SCHEMES}
    loaders |= {name: ["vLLM"] for name in SCHEMES if name.startswith("MODELOPT_")}
    assert {name: listed[name]["loaders"] for name in loaders} == loaders
    assert checkpoint("schemes") == 0
    lines = capsys.readouterr().out.splitlines()
    assert next(line for line in lines if line.startswith("W4A16 ")).split()[1] == "4.125"


def test_types_and_mixtures_of_gguf_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert checkpoint("schemes", "--json") == 0
    listed = {each["name"]: each for each in json.loads(capsys.readouterr().out)["schemes"] if each["of"] == "GGUF"}
    assert list(listed) == [name for name in TARGETS if name not in FLOATS]
    assert listed["Q4_K_M"]["bits"] == 4.5
    assert "mixture" in listed["Q4_K_M"]["description"]
    assert "mixture" not in listed["Q8_0"]["description"]


@pytest.mark.parametrize(
    ("scheme", "advised"),
    [
        ("Q4_K", "--scheme Q4_K_S or Q4_K_M;"),
        ("q3_k", "--scheme Q3_K_S or Q3_K_M or Q3_K_L;"),
        ("q4_k_m", "--scheme Q4_K_M;"),
        ("IQ2_XS", "llama-quantize;"),
    ],
)
def test_a_type_of_gguf_is_no_scheme_of_safetensors(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], scheme: str, advised: str
) -> None:
    """The advice names what a GGUF file can be quantized to."""
    assert checkpoint("quantize", model, tmp_path / "out", "--scheme", scheme) == WRONG_USAGE
    assert f"quantize MODEL.gguf with {advised}" in capsys.readouterr().err


def test_a_plan_says_what_is_rounded_twice(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = "quantized in the source already, and rounded a second time"
    assert checkpoint("plan", model, "--scheme", "W4A16") == 0
    assert said not in capsys.readouterr().out
    assert checkpoint("quantize", model, tmp_path / "first", "--scheme", "W8A8") == 0
    capsys.readouterr()
    assert checkpoint("plan", tmp_path / "first", "--scheme", "W4A16") == 0
    assert said in capsys.readouterr().out
    assert checkpoint("plan", tmp_path / "first", "--dequantize") == 0
    assert said not in capsys.readouterr().out
    assert checkpoint("repack", tmp_path / "first", tmp_path / "second", "--scheme", "W8A16:channel", "--dry-run") == 0
    assert said not in capsys.readouterr().out


def test_the_name_of_a_model_is_no_directory(
    model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    download = "hf download Qwen/Qwen3-8B --local-dir Qwen3-8B"
    for command in (("plan", "Qwen/Qwen3-8B", "--scheme", "W8A8"), ("verify", "Qwen/Qwen3-8B")):
        assert checkpoint(*command) == FAILED
        assert download in capsys.readouterr().err
    for other in ("Qwen3-8B", "models/Qwen/Qwen3-8B", "./Qwen", f"{tmp_path}/Qwen"):
        assert checkpoint("plan", other, "--scheme", "W8A8") == FAILED
        assert "hf download" not in capsys.readouterr().err


def test_names_in_any_case_give_the_same(model: Path, tmp_path: Path) -> None:
    for name, scheme in (("upper", "W4A16"), ("lower", "w4a16")):
        assert checkpoint("quantize", model, tmp_path / name, "--scheme", scheme) == 0
    assert contents(tmp_path / "upper") == contents(tmp_path / "lower")


@pytest.mark.parametrize("given", ["lm_head", b"lm_head", None, 3, ["lm_head", 3], [None]])
@pytest.mark.parametrize("name", ["ignore", "targets"])
def test_a_text_is_no_list_of_names(model: Path, tmp_path: Path, name: str, given: Any) -> None:
    with pytest.raises(requant.RequantError, match=rf"^{name} (is|has the entry) .*expected") as refused:
        requant.quantize_checkpoint(model, tmp_path / "out", "W8A8", **{name: given})
    assert refused.value.code == "parameter_invalid"
    assert not (tmp_path / "out").exists()


def test_the_report_has_the_warnings_of_the_plan(model: Path, tmp_path: Path) -> None:
    report = requant.quantize_checkpoint(model, tmp_path / "out", "W8A8", ignore=["lm_haed"])
    assert report.warnings == ("ignore: 'lm_haed' matches no module with a .weight",)
    # Of the next run too, which finds all files there.
    again = requant.quantize_checkpoint(model, tmp_path / "out", "W8A8", ignore=["lm_haed"])
    assert again.warnings == report.warnings
    assert requant.dequantize_checkpoint(tmp_path / "out", tmp_path / "back").warnings == ()


def test_there_and_back(model: Path, tmp_path: Path) -> None:
    assert checkpoint("quantize", model, tmp_path / "q", "--scheme", "W8A16") == DONE
    assert checkpoint("dequantize", tmp_path / "q", tmp_path / "d", "--dtype", "f32") == DONE
    config = json.loads((tmp_path / "d" / "config.json").read_text())
    assert "quantization_config" not in config
    requant.dequantize_checkpoint(tmp_path / "q", tmp_path / "e", dtype="F32")
    assert contents(tmp_path / "d") == contents(tmp_path / "e")


def test_a_repack_says_what_became_of_each_tensor(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    assert main(["checkpoint", "quantize", str(model), first, "--scheme", "AWQ"]) == 0
    capsys.readouterr()
    assert main(["checkpoint", "repack", first, second, "--scheme", "FP8_BLOCK", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "Repack to FP8_BLOCK" in said
    assert "numbers are rounded, by at most" in said
    assert not (tmp_path / "second").exists()
    assert main(["checkpoint", "repack", first, second, "--scheme", "FP8_BLOCK"]) == 1
    assert "allow rounding (--allow-rounding)" in capsys.readouterr().err
    exact = str(tmp_path / "exact")
    assert main(["checkpoint", "repack", first, exact, "--scheme", "W4A16_ASYM"]) == 0
    assert re.search(r"Verdicts: \d+ copied, \d+ exact$", capsys.readouterr().out, re.MULTILINE)
    assert main(["checkpoint", "diff", "--numbers", first, exact]) == 0
    capsys.readouterr()
    assert main(["checkpoint", "attest", exact]) == 0
    assert json.loads(capsys.readouterr().out)["predicateType"] == "urn:requant:checkpoint-conversion:v1"
    with pytest.raises(SystemExit):
        main(["checkpoint", "repack", first, second])


def test_a_plan_is_printed_and_nothing_written(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checkpoint("plan", model, "--scheme", "W4A16", "--ignore", "re:.*q_proj", "--json") == DONE
    document = json.loads(capsys.readouterr().out)
    assert document["request"]["ignore"] == ["re:.*q_proj"]
    assert sum(output["quantized"] for output in document["outputs"]) == 2
    assert checkpoint("quantize", model, tmp_path / "out", "--scheme", "W4A16", "--dry-run") == DONE
    assert "W4A16" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_the_longest_file_names(tmp_path: Path) -> None:
    source = make_model(tmp_path / "model", shards=1)
    (source / "model.safetensors.index.json").unlink()
    shard = "x" * (250 - len(".safetensors")) + ".safetensors"
    (source / "model-00001-of-00001.safetensors").rename(source / shard)
    (source / ("y" * 250)).write_text("y")
    assert checkpoint("quantize", source, tmp_path / "out", "--scheme", "W8A8") == DONE
    assert {shard, "y" * 250} < contents(tmp_path / "out").keys()
    plan, others = tmp_path / "plan.json", tmp_path / "others"
    options = ("--scheme", "W8A8", "--destination", others, "--output", plan)
    assert checkpoint("plan", source, *options) == DONE
    assert checkpoint("work", "--plan", plan) == DONE
    assert contents(others) == contents(tmp_path / "out")


@pytest.mark.exhaustive
def test_places_that_are_not_utf_8(tmp_path: Path) -> None:
    source = make_model(tmp_path / "model\udcff")
    plan = tmp_path / "plan.json"
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    for arguments in (
        ["plan", source, "--scheme", "W8A8", "--destination", tmp_path / "out\udcff", "--output", plan, "--json"],
        ["quantize", source, tmp_path / "out\udcff", "--scheme", "W8A8"],
        ["verify", tmp_path / "out\udcff", "--source", source, "--json"],
        ["work", "--plan", plan],
    ):
        command = [sys.executable, "-m", "requant", "checkpoint", *map(str, arguments)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == DONE, done.stderr
        assert "\\udcff" in done.stdout


def test_workers_make_a_checkpoint_together(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = ["plan", model, "--scheme", "W8A8", "--destination", tmp_path / "out", "--output", tmp_path / "plan"]
    assert checkpoint(*plan) == DONE
    for index in range(2):
        assert checkpoint("work", "--plan", tmp_path / "plan", "--index", index, "--of", 2) == DONE
        assert (tmp_path / "out" / "config.json").exists() == bool(index)
    assert capsys.readouterr().out.endswith("All files are complete.\n")
    assert checkpoint("quantize", model, tmp_path / "alone", "--scheme", "W8A8") == DONE
    assert contents(tmp_path / "out") == contents(tmp_path / "alone")
    assert checkpoint("work", "--plan", tmp_path / "none") == FAILED
    assert checkpoint("work", "--plan", tmp_path / "plan", "--index", 2, "--of", 2) == WRONG_USAGE


def test_verify_finds_a_byte_that_is_wrong(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert checkpoint("quantize", model, out, "--scheme", "W8A8") == DONE
    verify = ["verify", out, "--source", model]
    assert checkpoint(*verify, "--report", tmp_path / "report.json") == DONE
    assert "no faults" in capsys.readouterr().out
    assert json.loads((tmp_path / "report.json").read_text())
    assert requant.verify_checkpoint(out, model).verification.faults == ()
    assert checkpoint("diff", out, out) == DONE

    shard = out / "model-00002-of-00002.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    capsys.readouterr()
    assert checkpoint("verify", out) == FAILED
    assert shard.name in capsys.readouterr().out
    assert checkpoint("diff", model, out, "--json") == FAILED
    assert json.loads(capsys.readouterr().out)["differences"]
    assert requant.quantize_checkpoint(model, tmp_path / "good", "W8A8").kept == ()
    assert checkpoint("diff", tmp_path / "good", out) == FAILED
    line, empty, kind, last = capsys.readouterr().out.splitlines()
    assert empty == ""
    assert kind.startswith("1 tensor: codes differ, 1 of ")
    assert re.fullmatch(r"1 difference; \d+ tensors in both, \d+ of them equal", last)
    assert checkpoint("diff", tmp_path / "good", out, "--summary") == FAILED
    assert capsys.readouterr().out.splitlines() == [kind, last]
    assert checkpoint("diff", tmp_path / "good", out, "--summary", "--json") == FAILED
    summary = json.loads(capsys.readouterr().out)
    assert [(each["tensors"], each["differing"], each["unit"]) for each in summary["kinds"]] == [(1, 1, "steps")]
    assert summary["equal"] == summary["compared"] - 1
    (difference,) = requant.diff_checkpoints(tmp_path / "good", out).differences
    assert line.startswith(f"{difference.tensor}: ")


def test_numbers_of_gpt_oss_are_those_of_its_bf16(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = gpt_oss(tmp_path / "source")
    assert checkpoint("dequantize", source, tmp_path / "plain") == DONE
    capsys.readouterr()
    assert checkpoint("diff", source, tmp_path / "plain", "--numbers") == DONE
    assert capsys.readouterr().out.splitlines()[-1] == "0 differences; 17 tensors in both, 17 of them equal"


def test_json_is_one_object_to_a_line(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    json_lines = ["--scheme", "W8A8", "--progress", "json"]
    assert checkpoint("quantize", model, tmp_path / "out", *json_lines) == DONE
    events = lines_of(capsys.readouterr().out)
    progress = [event for event in events if event["event"] == "progress"]
    assert progress[-1]["bytes"] == progress[-1]["total_bytes"]
    assert (progress[-1]["files"], progress[-1]["total_files"]) == (3, 3)
    done = events[-1]
    assert (done["event"], done["serve"]) == ("done", f"vllm serve {tmp_path / 'out'}")
    assert {file["name"] for file in done["files"]} == contents(tmp_path / "out").keys()

    assert checkpoint("quantize", tmp_path / "none", tmp_path / "out2", *json_lines) == FAILED
    (error,) = lines_of(capsys.readouterr().out)
    assert (error["event"], error["code"]) == ("error", "checkpoint")
    assert "config.json" in error["message"]


def test_a_nan_is_refused_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = make_model(tmp_path / "model", not_finite=True)
    assert checkpoint("quantize", source, tmp_path / "out", "--scheme", "W8A8") == FAILED
    said = capsys.readouterr().err
    assert "model-00002-of-00002.safetensors" in said
    assert "model.layers.1.mlp.up_proj.weight" in said
    assert not (tmp_path / "out" / "config.json").exists()
    convert = ("--scheme", "W8A8", "--not-finite", "convert")
    assert checkpoint("quantize", source, tmp_path / "converted", *convert) == DONE


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["quantize", "{model}", "{out}", "--scheme", "W8B8"], "did you mean W8A8?"),
        (["quantize", "{model}", "{out}", "--scheme", "W8A8", "--profile", "cuda"], "compressed-tensors-cuda"),
        (["quantize", "{model}", "{out}", "--scheme", "W8A8", "--profile", "bitsandbytes"], "not defined by profile"),
        (["quantize", "{model}", "{out}", "--scheme", "W4A16:grup=32"], "not a scheme option"),
        (["quantize", "{model}", "{out}", "--scheme", "W4A16:group=0"], "group size"),
        (["quantize", "{model}", "{out}", "--scheme", "NVFP4A16:channel"], "available: mse"),
        (["quantize", "{model}", "{out}", "--scheme", "NF4:channel"], "there are none"),
        (["quantize", "{model}", "{out}", "--scheme", "W8A8", "--ignore", "re:("], "regular expression"),
        (["verify", "{model}", "--source", "{model}", "--sample", "2"], "(0, 1]"),
    ],
)
def test_wrong_values_of_arguments_are_wrong_usage(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    given = [each.format(model=model, out=tmp_path / "out") for each in arguments]
    assert checkpoint(*given) == WRONG_USAGE
    assert said in capsys.readouterr().err


def test_places_that_are_none(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for source, said in (
        (tmp_path / "none", "none does not exist or has no files"),
        (model / "config.json", "is a file"),
    ):
        for arguments in (
            ["quantize", source, tmp_path / "out", "--scheme", "W8A8"],
            ["verify", source],
            ["verify", model, "--source", source],
            ["attest", source],
            ["diff", model, source, "--numbers"],
        ):
            assert checkpoint(*arguments) == FAILED
            assert said in capsys.readouterr().err
    for wrong in (["quantize", "", "out"], ["quantize", "model", ""], ["verify", ""], ["diff", "", "b"]):
        with pytest.raises(SystemExit) as ended:
            checkpoint(*wrong)
        assert ended.value.code == WRONG_USAGE
        assert "the working directory is '.'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        checkpoint("quantize", "a", "b", "--scheme", "W8A8", "--threads", "x")
    assert "'x' is not a whole number of at least 1" in capsys.readouterr().err


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "changes", [{"scheme": "W8B8"}, {"profile": "cuda"}, {"scheme": "W8A8:rows"}, {"ignore": ["re:("]}]
)
def test_a_wrong_manifest_is_a_faulty_file(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any]
) -> None:
    other = tmp_path / "other"
    assert checkpoint("quantize", model, other, "--scheme", "W8A8") == DONE
    manifest = json.loads((other / "requant-manifest.json").read_text())
    manifest["request"] |= changes
    (other / "requant-manifest.json").write_text(json.dumps(manifest))
    capsys.readouterr()
    assert checkpoint("verify", other, "--source", model) == FAILED
    assert "the request in requant-manifest.json cannot be planned" in capsys.readouterr().err
    # With the arguments instead of the manifest it can be verified, and wrong arguments are told from wrong files.
    assert checkpoint("verify", other, "--source", model, "--scheme", "W8A8") == FAILED
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("requant-manifest.json: it was changed")
    assert "1 fault" in last
    (other / "requant-manifest.json").unlink()
    assert checkpoint("verify", other, "--source", model, "--scheme", "W8A8") == DONE
    assert checkpoint("verify", other, "--source", model, "--scheme", "W8B8") == WRONG_USAGE


def test_verify_shows_a_wrong_scale_with_its_index_in_every_report(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, file = tmp_path / "other", "model-00002-of-00002.safetensors"
    assert checkpoint("quantize", model, other, "--scheme", "W8A8") == DONE
    name = "model.layers.1.mlp.up_proj.weight_scale"
    place = next(entry for entry in tensor_places(other / file) if entry.name == name)
    data = bytearray((other / file).read_bytes())
    data[place.begin + 10 : place.begin + 12] = b"\xc0\x7f"
    (other / file).write_bytes(data)
    capsys.readouterr()
    said = "1 of 256 values are NaN, the first at [5, 0]"
    assert checkpoint("verify", other, "--no-hashes", "--report", tmp_path / "x.html") == FAILED
    assert f"{file}: {name}: {said}" in capsys.readouterr().out
    assert f"<li>{file}, {name}, {said}</li>" in (tmp_path / "x.html").read_text()
    assert checkpoint("verify", other, "--no-hashes", "--json") == FAILED
    members = json.loads(capsys.readouterr().out)
    assert members["faults"] == [{"detail": said, "file": file, "tensor": name, "index": [5, 0]}]
    assert members["warnings"] == []


def test_verify_counts_what_the_source_gives(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    assert checkpoint("quantize", model, other, "--scheme", "W8A8") == DONE
    (other / "model-00002-of-00002.safetensors").unlink()
    assert checkpoint("verify", other, "--source", model) == FAILED
    found = re.search(r"checked: (\d+) tensors, (\d+) that there should be byte by byte", capsys.readouterr().out)
    assert found
    assert int(found[1]) < int(found[2])


@pytest.mark.parametrize(
    "arguments",
    [
        ["checkpoint"],
        ["checkpoint", "quantize", "a", "b"],
        ["checkpoint", "quantize", "a", "b", "--scheme", "W8A8", "--threads", "0"],
        ["checkpoint", "quantize", "a", "b", "--scheme", "W8A8", "--progress", "bar"],
        ["checkpoint", "plan", "a"],
        ["checkpoint", "dequantize", "a", "b", "--dtype", "F8"],
        ["checkpoint", "plan", "a", "--scheme", "W8A8", "--output", "x"],
        ["checkpoint", "plan", "a.onnx", "--scheme", "MatMulNBits4", "--dtype", "F16"],
        ["checkpoint", "plan", "a.gguf", "--scheme", "Q8_0", "--dtype", "F16"],
        ["checkpoint", "plan", "a", "--dequantize", "--ignore", "lm_head"],
        ["checkpoint", "plan", "a", "--dequantize", "--not-finite", "convert"],
        ["checkpoint", "verify", "a", "--source", "b", "--profile", "transformers"],
        ["checkpoint", "work", "--plan", "x", "--of", "2"],
    ],
)
def test_wrong_arguments_are_wrong_usage(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOB_COMPLETION_INDEX", raising=False)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == WRONG_USAGE


@pytest.mark.exhaustive
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, TERMINATED)])
def test_a_signal_leaves_what_the_same_command_continues(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    status: int,
) -> None:
    source, command = make_model(tmp_path / "model", shards=4), ["--scheme", "W4A16", "--threads", "1"]
    before = signal.getsignal(number)

    class Killing(type(output_for(_namespace("none")))):  # type: ignore[misc]
        """Sends the signal to its own process, once, when the first file is there."""

        sent = False

        def progress(self, state: Progress) -> None:
            if state.outputs_finished == 1 and not self.sent:
                self.sent = True
                os.kill(os.getpid(), number)
                time.sleep(0.5)

    with monkeypatch.context() as patched:
        patched.setattr("requant.command.main.output_for", lambda _: Killing())
        assert checkpoint("quantize", source, tmp_path / "out", *command) == status
    assert signal.getsignal(number) is before
    assert "run the same command again" in capsys.readouterr().err
    assert not (tmp_path / "out" / "config.json").exists()

    assert checkpoint("quantize", source, tmp_path / "out", *command) == DONE
    said = capsys.readouterr().out
    assert " files were kept from an earlier run." in said or "1 file was there from an earlier run." in said
    assert checkpoint("quantize", source, tmp_path / "whole", *command) == DONE
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def _namespace(form: str) -> Any:
    from argparse import Namespace

    return Namespace(progress=form)


def test_a_model_in_hugging_face_s_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cached, commit = tmp_path / "models--org--name", "0123456789abcdef" * 2 + "01234567"
    make_model(cached / "snapshots" / commit)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(commit)
    make_model(cached / "snapshots" / "other")
    assert checkpoint("plan", cached, "--scheme", "W8A8", "--json") == DONE
    assert json.loads(capsys.readouterr().out)["source"] == str(cached / "snapshots" / commit)
    (cached / "refs" / "main").unlink()
    assert checkpoint("plan", cached, "--scheme", "W8A8") == FAILED
    assert "name one of them" in capsys.readouterr().err


@pytest.mark.parametrize("size", [(30, 100), pytest.param((0, 0), marks=pytest.mark.exhaustive)])
def test_a_terminal_has_a_bar(model: Path, tmp_path: Path, size: tuple[int, int]) -> None:
    """Also one that does not know its size."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    command = [sys.executable, "-m", "requant", "checkpoint", "quantize", model, tmp_path / "out", "--scheme", "W8A8"]
    with subprocess.Popen([str(each) for each in command], stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # the end of a terminal
            while data := os.read(ours, 4096):
                shown += data
    os.close(ours)
    assert process.returncode == DONE
    assert b"100%" in shown
    assert b"3/3 files" in shown


def test_a_log_has_one_line_about_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    output = output_for(_namespace("plain"))
    for compiled in range(4):
        output.kernels(compiled, 3)
    assert capsys.readouterr().err == "requant: compiling 3 kernels (once; they are kept for the next run)\n"


def test_a_log_has_lines_a_few_seconds_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [100.0]
    monkeypatch.setattr("requant.command.output.monotonic", lambda: clock[0])
    output: Output = output_for(_namespace("auto"))
    for second in range(25):
        clock[0] = 100.0 + second
        output.progress(Progress(second * 10**9, 25 * 10**9, outputs_finished=second // 10, outputs=3))
    assert capsys.readouterr().err.splitlines() == [
        "requant: 10.0 GB of 25.0 GB, 1 of 3 files, 15.0 s left",
        "requant: 20.0 GB of 25.0 GB, 2 of 3 files, 5.0 s left",
    ]
    assert [str(form) for form in ProgressForm] == ["auto", "json", "plain", "none"]
    assert [size_text(number) for number in (0, 999, 1000, 16_060_522_240)] == [
        "0 bytes",
        "999 bytes",
        "1.0 kB",
        "16.1 GB",
    ]
    assert [time_text(seconds) for seconds in (0.04, 59.9, 59.97, 3661)] == ["0.0 s", "59.9 s", "1:00", "1:01:01"]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "requant", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.exhaustive
def test_as_a_process(model: Path, tmp_path: Path) -> None:
    done = run("checkpoint", "quantize", model, tmp_path / "out", "--scheme", "W8A8", "--progress", "json")
    assert (done.returncode, done.stderr) == (DONE, "")
    assert lines_of(done.stdout)[-1]["event"] == "done"
    failed = run("checkpoint", "quantize", model, tmp_path / "out", "--scheme", "W4A16")
    assert (failed.returncode, failed.stdout) == (FAILED, "")
    assert failed.stderr.startswith("requant: error: ")
    assert "Traceback" not in failed.stderr


def test_gguf_files_become_safetensors_and_are_made_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = MODELS["llama"]
    like, floats = model.write_directory(tmp_path / "like"), model.write_gguf(tmp_path / "f32.gguf", "F32")
    source, out, back = model.write_gguf(tmp_path / "m.gguf", "Q8_0"), tmp_path / "out", tmp_path / "back.gguf"
    options = ("--scheme", "W8A16:group=32", "--like", like, "--progress", "none")
    assert checkpoint("repack", source, out, *options, "--dry-run") == DONE
    assert "Verdicts: 5 copied, 14 exact, 2 widened" in capsys.readouterr().out
    assert not out.exists()
    assert checkpoint("repack", source, out, *options) == DONE
    assert "Verdicts: 5 copied, 14 exact, 2 widened" in capsys.readouterr().out
    assert checkpoint("verify", out, "--source", source, "--like", like, "--progress", "none") == DONE
    assert checkpoint("diff", "--numbers", source, out) == DONE
    assert checkpoint("diff", source, floats, "--like", like, "--summary") == FAILED
    capsys.readouterr()

    options = ("--scheme", "q8_0", "--like", floats, "--progress", "none")
    assert checkpoint("repack", out, back, *options, "--dry-run") == DONE
    printed = capsys.readouterr().out
    assert "back.gguf: 383,040 bytes, 22 tensors, 14 of them Q8_0" in printed
    assert "Verdicts: 7 copied, 14 exact" in printed
    assert not back.exists()
    assert checkpoint("repack", out, back, *options) == DONE
    assert "and back.gguf.requant-manifest.json, in" in capsys.readouterr().out
    assert back.stat().st_size == 383_040
    assert checkpoint("verify", back, "--source", out, "--like", floats, "--progress", "none") == DONE
    assert "checked: 22 tensors, 22 of them byte by byte with" in capsys.readouterr().out
    assert checkpoint("attest", back) == DONE
    assert json.loads(capsys.readouterr().out)["subject"][0]["name"] == "back.gguf"
    assert checkpoint("diff", "--numbers", back, out) == DONE
    assert checkpoint("repack", out, back, *options) == FAILED
    capsys.readouterr()
    assert checkpoint("plan", source, "--scheme", "W8A8", "--like", like) == DONE
    assert "2 dequantized to BF16" in capsys.readouterr().out
    assert checkpoint("dequantize", source, tmp_path / "plain", "--like", like, "--progress", "none") == DONE


def test_a_gguf_file_is_certified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = MODELS["llama"].write_gguf(tmp_path / "m.gguf", "F32"), tmp_path / "q.gguf"
    options = ("--scheme", "Q8_0", "--certify", "--progress", "none")
    said = "Verdicts: 6 copied, 16 rounded"
    assert checkpoint("quantize", source, out, *options, "--dry-run") == DONE
    assert said in capsys.readouterr().out
    assert not out.exists()
    assert checkpoint("quantize", source, out, *options) == DONE
    printed = capsys.readouterr().out
    assert "Wrote 1 file and q.gguf.requant-manifest.json, " in printed
    assert said in printed
    assert checkpoint("verify", out, "--source", source, "--json", "--progress", "none") == DONE
    report = json.loads(capsys.readouterr().out)
    assert (report["faults"], report["request"]["type"], report["tensors_compared"]) == ([], "Q8_0", 22)
    assert checkpoint("verify", out, "--no-hashes", "--progress", "none") == DONE
    data = bytearray(out.read_bytes())
    data[-1] ^= 1
    out.write_bytes(data)
    assert checkpoint("verify", out, "--progress", "none") == FAILED
    capsys.readouterr()
    assert checkpoint("attest", out) == FAILED
    assert "its SHA-256 differs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("quantize", "m.onnx", "o.onnx", "--scheme", "MatMulNBits4", "--certify"), "--certify is for safetensors and"),
        (("verify", "m.gguf", "--scheme", "Q8_0"), "--scheme is not for GGUF files, whose manifest says how they were"),
        (("verify", "m.gguf", "--like", "x.gguf"), "--like needs --source"),
        (("verify", "m.gguf", "--source", "d", "--imatrix", "i"), "--imatrix is only for a GGUF file that was made of"),
        (("verify", "m.gguf", "--source", "f.gguf", "--like", "l.gguf"), "--like is not for a GGUF file that was made"),
        (("verify", "m.gguf", "--sample", "0.5"), "--sample is not for GGUF files"),
        (("verify", "m", "--imatrix", "i"), "--imatrix is only for GGUF files"),
        (("repack", "m.gguf", "out", "--scheme", "W8A16"), "a GGUF file needs --like, the directory of the same model"),
        (("repack", "m.gguf", "out.gguf", "--scheme", "Q8_0"), "becomes another by quantize and dequantize"),
        (("repack", "m", "out.gguf", "--scheme", "Q8_0", "--dtype", "F16"), "--dtype is not for GGUF files"),
        (("quantize", "m", "out", "--scheme", "W8A8", "--like", "x"), "--like is only for a GGUF file that becomes"),
        (("quantize", "m.gguf", "out", "--scheme", "W8A8", "--like", "x", "--pure"), "--pure is only for GGUF files"),
        (("plan", "m.gguf", "--scheme", "W8A8", "--like", "x", "--output", "p", "--destination", "d"), "--output is"),
    ],
)  # fmt: skip
def test_options_for_gguf_files(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        checkpoint(*arguments)
    assert ended.value.code == WRONG_USAGE
    assert message in capsys.readouterr().err


def test_the_command_imports_no_web_framework() -> None:
    """What a command imports is paid for by each run: numba alone takes as long as a gigabyte of weights."""
    listing = (
        "import sys; from requant.command.main import main\n"
        "try: main(['checkpoint', '--help'])\n"
        "except SystemExit: pass\n"
        "print(*[m for m in ('numpy', 'numba', 'pydantic', 'fastapi', 'tqdm', 'obstore') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""
    assert run("--version").stdout == "requant 1.0.0\n"


def test_an_unsafe_kernel_cache_is_named(model: Path, tmp_path: Path) -> None:
    (shared := tmp_path / "shared").mkdir()
    shared.chmod(0o777)
    command = [sys.executable, "-m", "requant", "checkpoint", "plan", str(model), "--scheme", "W8A8"]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(shared)}
    refused = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (FAILED, "")
    assert refused.stderr.startswith(f"requant: error: NUMBA_CACHE_DIR: others can write to {shared}")
