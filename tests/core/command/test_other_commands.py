"""Commands beside those of whole checkpoints: single files, places in job arrays, and serve."""

from __future__ import annotations

import json
import os
import shlex
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from requant.command.checkpoint.work import place_in_job_array
from requant.command.exit_status import DONE, FAILED, WRONG_USAGE
from requant.command.main import main
from tests.support.gguf_files import legacy_importance
from tests.support.model_directory import make_model

_F32, _Q8_0 = 0, 8
_VECTORS = ["vectors", "--operation", "quantize", "--input-type", "f32", "--profile", "onnx", "--count", "8"]
_VECTORS += ["--output-type", "!quant.uniform<i8:f32, 0.5:3>", "--format"]


def checkpoint(*arguments: object) -> int:
    return main(["checkpoint", *map(str, arguments)])


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    """A file with one matrix, [4, 64] of f32, and no keys but the architecture."""
    key = text("general.architecture") + struct.pack("<I", 8) + text("llama")
    info = text("blk.0.attn_q.weight") + struct.pack("<IQQIQ", 2, 64, 4, _F32, 0)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + key + info
    path = tmp_path / "model.gguf"
    path.write_bytes(head + bytes(-len(head) % 32) + np.linspace(-1, 1, 256, dtype=np.float32).tobytes())
    return path


def test_gguf_to_gguf_and_back(gguf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checkpoint("plan", gguf, "--scheme", "Q8_0", "--json") == DONE
    (tensor,) = json.loads(capsys.readouterr().out)["tensors"]
    assert (tensor["from"], tensor["to"]) == ("F32", "Q8_0")
    assert checkpoint("quantize", gguf, tmp_path / "q.gguf", "--scheme", "Q8_0", "--dry-run") == DONE
    assert not (tmp_path / "q.gguf").exists()
    capsys.readouterr()

    assert checkpoint("quantize", gguf, tmp_path / "q.gguf", "--scheme", "Q8_0", "--progress", "json") == DONE
    done = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [(each["name"], each["bytes"]) for each in done["files"]] == [
        ("q.gguf", (tmp_path / "q.gguf").stat().st_size)
    ]
    assert (tmp_path / "q.gguf").stat().st_size < gguf.stat().st_size / 2
    assert checkpoint("dequantize", tmp_path / "q.gguf", tmp_path / "back.gguf", "--dtype", "F32") == DONE
    assert (tmp_path / "back.gguf").stat().st_size > gguf.stat().st_size
    # It is not written twice.
    assert checkpoint("quantize", gguf, tmp_path / "q.gguf", "--scheme", "Q8_0") == FAILED
    assert checkpoint("quantize", gguf, tmp_path / "r.gguf", "--scheme", "Q8") == WRONG_USAGE


def test_gguf_by_an_importance_matrix(gguf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matrix = tmp_path / "imatrix.dat"
    matrix.write_bytes(legacy_importance({"blk.0.attn_q.weight": np.arange(64, dtype="<f4")}, 1))
    options = ("--scheme", "iq4_nl", "--imatrix", matrix)
    # The file does not say how many layers the model has.
    assert checkpoint("plan", gguf, *options) == FAILED
    assert "convert with --pure" in capsys.readouterr().err
    assert checkpoint("plan", gguf, *options, "--pure") == DONE
    assert f"{matrix}: the importance of the columns of 1 of them" in capsys.readouterr().out
    for name, more in (("a", ("--imatrix", matrix)), ("b", ())):
        assert checkpoint("quantize", gguf, tmp_path / name, "--scheme", "IQ4_NL", "--pure", *more) == DONE
    assert (tmp_path / "a").read_bytes()[-72:] != (tmp_path / "b").read_bytes()[-72:]
    assert checkpoint("plan", gguf, "--scheme", "IQ4_NL", "--pure", "--imatrix", tmp_path / "none.dat") == FAILED
    assert "there is no file 'none.dat'" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore")
def test_onnx(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    weight = onnx.numpy_helper.from_array(np.linspace(-1, 1, 64 * 32, dtype=np.float32).reshape(64, 32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="matmul")],
        "graph",
        [helper.make_tensor_value_info("x", 1, [1, 64])],
        [helper.make_tensor_value_info("y", 1, [1, 32])],
        [weight],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), str(tmp_path / "model.onnx"))
    options = ("--scheme", "MatMulNBits4", "--block-size", 32, "--symmetric")
    assert checkpoint("plan", tmp_path / "model.onnx", *options, "--json") == DONE
    document = json.loads(capsys.readouterr().out)
    assert (document["bits"], document["block_size"], document["symmetric"]) == (4, 32, True)
    assert checkpoint("quantize", tmp_path / "model.onnx", tmp_path / "q.onnx", *options) == DONE
    (node,) = onnx.load(str(tmp_path / "q.onnx"), load_external_data=False).graph.node
    assert node.op_type == "MatMulNBits"
    assert (tmp_path / "q.onnx.data").exists()


@pytest.mark.parametrize("size", [0, -1, 48])
def test_block_sizes_that_onnxruntime_does_not_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    options = ("--scheme", "MatMulNBits4", "--block-size", size)
    assert checkpoint("plan", tmp_path / "model.onnx", *options) == WRONG_USAGE
    assert f"the block size {size} is not one of 16, 32" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("model.gguf", ["--symmetric"]),
        ("model.gguf", ["--profile", "compressed-tensors-cpu"]),
        ("model.onnx", ["--engine", "ray"]),
        ("model.onnx", ["--not-finite", "convert"]),
        ("model.onnx", ["--pure"]),
        ("model", ["--imatrix", "imatrix.gguf"]),
        ("model", ["--block-size", "32"]),
        ("model", ["--block-size", "0"]),
    ],
)
def test_options_without_effect_are_wrong_usage(tmp_path: Path, source: str, options: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        checkpoint("quantize", tmp_path / source, tmp_path / "out", "--scheme", "Q8_0", *options)
    assert ended.value.code == WRONG_USAGE


@pytest.mark.parametrize("name", ["model.gguf", "model.onnx"])
def test_a_directory_is_none_of_these_files_whatever_its_name(tmp_path: Path, name: str) -> None:
    source = make_model(tmp_path / name)
    for given in (source, f"{source}/"):
        assert checkpoint("plan", given, "--scheme", "W8A8", "--targets", "Linear") == DONE


def test_a_gguf_file_is_dequantized_to_a_type_that_is_named(gguf: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        checkpoint("dequantize", gguf, tmp_path / "out.gguf")


def slurm(task: int, count: int, first: int = 0, step: int = 1) -> dict[str, str]:
    """sbatch --array=<first>-...:<step>"""
    return {
        "SLURM_ARRAY_TASK_ID": str(task),
        "SLURM_ARRAY_TASK_COUNT": str(count),
        "SLURM_ARRAY_TASK_MIN": str(first),
        "SLURM_ARRAY_TASK_STEP": str(step),
    }


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({}, (None, None)),
        ({"JOB_COMPLETION_INDEX": "3"}, (3, None)),
        (slurm(0, 4), (0, 4)),
        (slurm(4, 4, first=1), (3, 4)),
        (slurm(14, 3, first=10, step=2), (2, 3)),
        # An older Slurm has no MIN and no STEP.
        ({"SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_TASK_COUNT": "3"}, (2, 3)),
        ({"AWS_BATCH_JOB_ARRAY_INDEX": "5", "AWS_BATCH_JOB_ARRAY_SIZE": "8"}, (5, 8)),
        ({"JOB_COMPLETION_INDEX": ""}, (None, None)),
        ({"JOB_COMPLETION_INDEX": "-1"}, (None, None)),
    ],
)
def test_place_in_job_array(variables: dict[str, str], place: tuple[int | None, int | None]) -> None:
    assert place_in_job_array(variables) == place


def test_messages_name_the_command() -> None:
    command = [sys.executable, "-m", "requant", "serve", "--prot", "1"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stderr == "--prot: unknown flag; did you mean --port? `requant serve --help` lists all\n"


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("arguments", "redirection", "message"),
    [
        (["compare", "x.npy", "x.npy"], ">/dev/full", "stdout cannot be written: No space left on device"),
        (["parse_type", "-"], "<&-", "stdin is closed; name a file"),
        ([*_VECTORS, "npz"], ">&-", "stdout is closed; name a file with -o"),
        pytest.param(
            [*_VECTORS, "c_header"],
            ">/dev/full",
            "stdout cannot be written: No space left on device",
            marks=pytest.mark.exhaustive,
        ),
        ([*_VECTORS, "json", "-o", "v.json"], "", "-o is for the files of --format npz or c_header or readmemh"),
    ],
)
def test_closed_and_full_standard_streams_are_errors(
    tmp_path: Path, arguments: list[str], redirection: str, message: str
) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3, np.float32))
    command = shlex.join([sys.executable, "-m", "requant", *arguments])
    done = subprocess.run(
        ["/bin/sh", "-c", f"{command} {redirection}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (FAILED, WRONG_USAGE)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
