"""Operations on texts: a type or a module in a file or on the standard input, and what needs xDSL without it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import ml_dtypes
import numpy as np
import pytest

import requant
from requant.command.main import main
from requant.operations import OPERATIONS
from requant_service.json_api.routes import lowering

TYPES = (
    OPERATIONS["parse_type"].example["text"],
    "tensor<4x4x!quant.uniform<u4:f32:{0:2, 1:2}, {{0.5:1, 0.1}, {1.0e-30, 3.0:15}}>>",
    "!quant.calibrated<f32<-0.1:2.5>>",
    "tuple<i8, tensor<*xf32>>",
    'tensor<2xi8, "ü">',
    "index",
)
# In JSON these are texts, since not every reader of it keeps numbers.
DECIMALS = ("scales", "table", "range_min", "range_max")


def decimal(value: Any) -> Any:
    return [repr(each) for each in value] if isinstance(value, list) else repr(value)


@pytest.mark.parametrize("text", TYPES)
@pytest.mark.parametrize("from_file", [True, False], ids=["file", "stdin"])
def test_a_type_is_parsed_as_by_the_route(
    client: httpx.Client,
    text: str,
    from_file: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    reply = client.post("/v1/types/parse", json={"text": text}).json()
    (file := tmp_path / "type.mlir").write_text(f"{text}\n", encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
    assert main(["parse_type", str(file) if from_file else "-"]) == 0
    said = json.loads(capsys.readouterr().out)
    said = {name: decimal(value) if name in DECIMALS else value for name, value in said.items()}
    # A list that a type of this kind does not have is empty in the route.
    assert said == {name: value for name, value in reply.items() if name in said or value != []}


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [(b"tensor<2x", 1, ", at "), (b"\xff", 1, "is no text in UTF-8"), (None, 1, "cannot be read: No such file")],
)
@pytest.mark.parametrize("name", ["parse_type", "lower"])
def test_a_text_that_is_wrong_is_named(
    name: str, content: bytes | None, status: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "text.mlir"
    if content is not None:
        file.write_bytes(content)
    assert main([name, str(file)]) == status
    assert words in capsys.readouterr().err


def test_passes_are_named_by_their_place() -> None:
    with pytest.raises(requant.RequantError) as error:
        requant.lower("func.func @main() {\n  return\n}\n", passes=["strip-func-quant-types", "nope"])
    assert error.value.pointer == "/passes/1"
    with pytest.raises(requant.RequantError, match="takes a list of texts"):
        requant.lower("", passes="strip-func-quant-types")


def test_a_module_without_passes_is_printed() -> None:
    text = OPERATIONS["lower"].example["module"]
    assert "quant.qcast" in requant.lower(text)["module"]


WITHOUT_XDSL = """
import sys
sys.modules["xdsl"] = None
import requant
requant.lower
assert not {"fastapi", "grpc", "pydantic"} & sys.modules.keys()
try:
    requant.lower("")
except requant.RequantError as error:
    print(error)
"""


def test_without_xdsl_it_is_said_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_XDSL], capture_output=True, text=True, check=True)
    assert done.stdout == "MLIR modules need xDSL: run pip install '.[mlir]' in the repository\n"


def test_a_description_imports_no_xdsl() -> None:
    code = "import sys, requant; requant.lower; assert 'xdsl' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


EVALUATED: dict[str, Any] = lowering._EVALUATED
ADDED = [np.array(given["values"][0], np.int8) for given in EVALUATED["inputs"]]


def test_a_function_of_a_module_is_evaluated_as_by_the_route(
    client: httpx.Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reply = client.post("/v1/evaluate", json=EVALUATED).json()
    expected = [each["values"] for each in reply["outputs"]]
    results = requant.evaluate(EVALUATED["module"], *ADDED, function="add")
    assert [each.reshape(-1).tolist() for each in results] == expected

    (module := tmp_path / "module.mlir").write_text(EVALUATED["module"])
    for index, each in enumerate(ADDED):
        np.save(tmp_path / f"{index}.npy", each)
    arguments = ["evaluate", str(module), str(tmp_path / "0.npy"), str(tmp_path / "1.npy")]
    assert main(arguments) == 0
    shown = json.loads(capsys.readouterr().out)["outputs"]
    assert [np.reshape(each, -1).tolist() for each in shown] == expected
    assert main([*arguments, "-o", str(tmp_path / "sum.npy")]) == 0
    assert np.load(tmp_path / "sum.npy").reshape(-1).tolist() == expected[0]


def test_truths_and_bf16_go_in_and_out_as_they_are() -> None:
    text = (
        "func.func @main(%t: tensor<2xi1>, %x: tensor<2xbf16>) -> (tensor<2xi1>, tensor<2xbf16>) {\n"
        "  %n = stablehlo.not %t : tensor<2xi1>\n  %s = stablehlo.add %x, %x : tensor<2xbf16>\n"
        "  return %n, %s : tensor<2xi1>, tensor<2xbf16>\n}\n"
    )
    values = np.array([0.5, -3], ml_dtypes.bfloat16)
    negated, doubled = requant.evaluate(text, np.array([True, False]), values)
    assert negated.dtype == np.bool_
    assert negated.tolist() == [False, True]
    assert doubled.dtype == ml_dtypes.bfloat16
    assert doubled.tolist() == [1.0, -6.0]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (ADDED[:1], "takes 2 arrays; there are 1"),
        ([np.zeros(2, np.int8), ADDED[1]], "the tensor that it is put on"),
        ([np.float32(1), ADDED[1]], "input 0 is an array of float32"),
        ([np.int16(300), ADDED[1]], "300"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs: list[Any], words: str) -> None:
    with pytest.raises(requant.RequantError, match=words):
        requant.evaluate(EVALUATED["module"], *inputs)
