"""requant equivalence: rules on the command line, files, certificates, exit status and progress."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from requant.command.exit_status import DONE, FAILED, WRONG_USAGE
from requant.command.main import main

TYPES = ["--input-type", "!quant.uniform<i32:f32, 0.001>", "--output-type", "!quant.uniform<i8:f32, 0.25:-1>"]
SHORT = ["--input-type", "!quant.uniform<i16:f32, 0.001>", "--output-type", "!quant.uniform<i8:f32, 0.25:-1>"]
MODULE = """func.func @main(%x: tensor<4x!quant.uniform<i16:f32, 0.001>>) -> tensor<4x!quant.uniform<i8:f32, 0.25:-1>> {
  %q = stablehlo.uniform_quantize %x : (tensor<4x!quant.uniform<i16:f32, 0.001>>) -> tensor<4x!quant.uniform<i8:f32, 0.25:-1>>
  return %q : tensor<4x!quant.uniform<i8:f32, 0.25:-1>>
}
"""  # noqa: E501


def run(*arguments: str) -> int:
    return main(["equivalence", *arguments])


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_rules_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificate, claim = tmp_path / "certificate.json", tmp_path / "claim.smt2"
    files = ["--certificate", str(certificate), "--smt2", str(claim)]
    assert run("requantize", *TYPES, "--first", "profile=litert", "--second", "profile=tosa", *files) == DONE
    found = said(capsys)
    assert (found["equal"], found["inputs"]) == (True, 1 << 32)
    assert not {"certificate", "smt2"} & found.keys()
    assert claim.read_text().endswith("(check-sat)\n")
    assert run("check", str(certificate)) == DONE
    assert said(capsys)["claim"]["differing"] == 0
    certificate.write_text(certificate.read_text().replace('"differing": 0', '"differing": 1'))
    assert run("check", str(certificate)) == FAILED
    assert said(capsys) == {"proven": False, "fault": "the digest is not that of the document"}


def test_rules_that_differ(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("requantize", *TYPES, "--first", "profile=litert", "--second", '{"profile": "litert_xnnpack"}') == FAILED
    assert said(capsys)["differing"] == 36
    rules = ["--first", "scheme=litert", "multiplier=1073741824", "shift=-5"]
    rules += ["--second", "scheme=tosa", "multiplier=1073741824", "shift=36"]
    assert run("requantize", *TYPES, *rules) == FAILED
    assert said(capsys)["differing"] == 255
    many = ["--multipliers", "1099511680", "1073741824", "--shifts", "-7", "-5"]
    assert run("requantize", *TYPES, "--first", "scheme=litert", "--second", "scheme=tosa", *many) == FAILED
    assert [each["differing"] for each in said(capsys)["multipliers"]] == [0, 255]


def test_a_module_with_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path := tmp_path / "module.mlir").write_text(MODULE)
    given = ["--first", "profile=stablehlo", "--module", str(path), "--progress", "json"]
    assert run("requantize", *SHORT, *given) == DONE
    *progress, done = map(json.loads, capsys.readouterr().out.splitlines())
    assert progress[-1] == {"event": "progress", "inputs": 1 << 16, "total_inputs": 1 << 16}
    assert (done["event"], done["equal"]) == ("done", True)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["check"], WRONG_USAGE, "requant equivalence check FILE"),
        (["requantize", *TYPES, "--first", "profile=litert"], WRONG_USAGE, "exactly one of second and module"),
        (["requantize", *TYPES, "--first", "profile=litrt", "--second", "profile=tosa"], WRONG_USAGE, "did you mean"),
        (["check", "/dev/null"], FAILED, "is no JSON document"),
        (["check", "/does/not/exist"], FAILED, "cannot be read"),
    ],
)
def test_what_is_wrong(arguments: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == status
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("rule", ["litert", "profil=litert", "shift=x", "{"])
def test_rules_that_are_none(rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("requantize", *TYPES, "--first", rule, "--second", "profile=tosa")
    assert "--first" in capsys.readouterr().err
