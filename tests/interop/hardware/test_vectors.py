"""docs/vectors.md: its programs are compiled and run on vectors, and the expected bits compared with the real systems.

What is compared is what gcc and Icarus Verilog read from the files, so that the files are tested with the numbers.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("tosa_reference_model")

from tests.interop.hardware.icarus import compile_and_run, simulate, simulated
from tests.interop.onnxruntime_linear import run as run_onnx
from tests.interop.quantized_case import Case
from tests.interop.tosa_model import Verdict, rescale
from tests.oracles.tosa import Rescale
from tests.support.asgi import post, ready_app

pytestmark = pytest.mark.interop

Array = NDArray[Any]
Row = dict[str, int]

PAGE = (Path(__file__).parents[3] / "docs" / "vectors.md").read_text(encoding="utf-8")
QUANTIZE_LINEAR, RESCALE = (json.loads(body) for body in re.findall(r"-d '(.*?)'\n", PAGE, re.DOTALL))
PROGRAMS = {name: text for _, name, text in re.findall(r"```(c|verilog)\n// (\S+)\n(.*?)```", PAGE, re.DOTALL)}
FIELD = re.compile(r"^//     \[(\d+):(\d+)\] (\w+) \((\w+)\)$", re.MULTILINE)


def vectors(request: dict[str, Any], form: str) -> str:
    body = json.dumps({**request, "format": form}).encode()
    json_type = [(b"content-type", b"application/json")]
    reply = asyncio.run(post(ready_app(), "/v1/vectors", {}, [body], declared=len(body), headers=json_type))
    assert reply.status == 200, reply.body
    return reply.body.decode()


def rows_of_header(directory: Path, header: str) -> list[Row]:
    """The rows as gcc reads them: all arrays that are no stages."""
    found = re.findall(r"^static const u?int\d+_t ([a-z0-9]+_[a-z0-9]+)_(\w+)\[(\w+)\]", header, re.MULTILINE)
    columns = [(f"{name}_{column}", column, count) for name, column, count in found if "stage" not in column]
    name = found[0][0]
    prints = "".join(
        f'printf("{column} %lld ", (long long){array}[{"i" if count.endswith("_COUNT") else "set"}]);\n'
        for array, column, count in columns
    )
    (directory / "vectors.h").write_text(header)
    (directory / "print.c").write_text(
        '#include <stdio.h>\n#include "vectors.h"\nint main(void) {\n'
        f"for (int i = 0; i < {name.upper()}_COUNT; i++) {{ int set = {name}_parameter_set[i]; (void)set;\n"
        f'{prints}printf("\\n"); }}\nreturn 0; }}\n'
    )
    status, text = compile_and_run(directory, "print.c")
    assert status == 0
    words = [line.split() for line in text.splitlines()]
    return [dict(zip(row[::2], map(int, row[1::2]), strict=True)) for row in words]


def rows_of_memory(directory: Path, memory: str) -> list[Row]:
    """The rows as Icarus Verilog reads them, taken apart as the comment at the top says."""
    fields = [(int(high), int(low), name, kind) for high, low, name, kind in FIELD.findall(memory)]
    (directory / "vectors.memh").write_text(memory)
    (directory / "print.sv").write_text(
        f"module print; reg [{fields[0][0]}:0] words [0:2047]; integer i; initial begin\n"
        '$readmemh("vectors.memh", words);\n'
        'for (i = 0; ^words[i] !== 1\'bx; i = i + 1) $display("word %h", words[i]); end endmodule\n'
    )
    lines = [line for line in simulate(directory, "print.sv").splitlines() if line.startswith("word ")]
    return [{name: _field(int(line[5:], 16), high, low, kind) for high, low, name, kind in fields} for line in lines]


def _field(word: int, high: int, low: int, kind: str) -> int:
    width = high - low + 1
    bits = word >> low & ((1 << width) - 1)
    return bits - (1 << width) if kind == "signed" and bits >> (width - 1) else bits


def both_files(directory: Path, request: dict[str, Any]) -> list[Row]:
    """The rows of the two files, which are the same."""
    of_header = rows_of_header(directory, vectors(request, "c_header"))
    of_memory = rows_of_memory(directory, vectors(request, "readmemh"))
    assert [{name: row[name] for name in of_memory[0]} for row in of_header] == of_memory
    return of_header


@pytest.mark.parametrize("mode", ["SINGLE_ROUND", "DOUBLE_ROUND"])
def test_rescale_as_the_reference_model_computes_it(mode: str, tmp_path: Path) -> None:
    rows = both_files(tmp_path, {**RESCALE, "rounding_mode": mode})
    names = ("multiplier", "shift", "input_zp", "output_zp")
    sets = {tuple(row[name] for name in names) for row in rows}
    for parameters in sets:
        same = [row for row in rows if tuple(row[name] for name in names) == parameters]
        multiplier, shift, input_zp, output_zp = parameters
        case = Rescale(
            in_t="i32", out_t="i8", shape=(len(same),), multiplier=(multiplier,), shift=(shift,), input_zp=input_zp,
            output_zp=output_zp, rounding_mode=mode,
        )  # fmt: skip
        verdict, theirs = rescale(case, np.array([row["input"] for row in same], np.int32))
        assert verdict is Verdict.VALID
        assert theirs is not None
        assert theirs.tolist() == [row["expected"] for row in same]
    sys.stdout.write(
        f"TOSA reference model, vectors: {len(rows)} elements of {len(sets)} conversions compared, 0 excluded\n"
    )
    assert len(sets) == 12
    assert len(rows) > 350


@pytest.mark.parametrize("output_type", [QUANTIZE_LINEAR["output_type"], "i8"])
def test_quantize_linear_as_onnxruntime_computes_it(output_type: str, tmp_path: Path) -> None:
    rows = both_files(tmp_path, {**QUANTIZE_LINEAR, "output_type": output_type})
    sets = {(row["y_scale"], row["y_zero_point"]) for row in rows}
    for scale, zero_point in sets:
        same = [row for row in rows if (row["y_scale"], row["y_zero_point"]) == (scale, zero_point)]
        source = np.array([row["input"] for row in same], np.uint32).view(np.float32)
        scales = np.array(scale, np.uint32).view(np.float32)
        case = Case(source.shape, "i8", "f32", scales, np.array(zero_point, np.int8), None, None)
        assert run_onnx("QuantizeLinear", case, source).tolist() == [row["expected"] for row in same]
    sys.stdout.write(f"onnxruntime, vectors: {len(rows)} elements of {len(sets)} conversions compared, 0 excluded\n")
    assert len(rows) > 200


def test_the_programs_of_the_page_and_that_they_notice_one_bit(tmp_path: Path) -> None:
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(text)
    header, memory = vectors(RESCALE, "c_header"), vectors(RESCALE, "readmemh")

    def run_both() -> tuple[tuple[int, str], tuple[int, str]]:
        (tmp_path / "rescale.h").write_text(header)
        (tmp_path / "rescale.memh").write_text(memory)
        ended, printed = simulated(tmp_path, "rescale.sv", "rescale_testbench.sv")
        (said,) = re.findall(r"^\d+ words.*$", printed, re.MULTILINE)
        return compile_and_run(tmp_path, "rescale_test.c"), (ended, said)

    (status, printed), simulation = run_both()
    assert status == 0, printed
    count = len(re.findall(r"^[0-9a-f]+ //", memory, re.MULTILINE))
    assert count > 350
    assert printed == f"{count} vectors, 0 failed\n"
    assert simulation == (0, f"{count} words, 0 failed")
    for index in range(0, count, count // 3):
        whole_header, whole_memory = header, memory
        array = header[header.index("tosa_rescale_expected[") :]
        ((old, number),) = re.findall(rf"(    INT8_C\((-?\d+)\), /\* {index}: )", array)
        header = header.replace(array, array.replace(old, old.replace(f"({number})", f"({int(number) ^ 1})")))
        (word,) = re.findall(rf"^([0-9a-f]+) // {index}: ", memory, re.MULTILINE)
        memory = memory.replace(f"{word} // {index}: ", f"{int(word, 16) ^ 1:030x} // {index}: ")
        (status, printed), simulation = run_both()
        assert (status, printed.splitlines()[-1]) == (1, f"{count} vectors, 1 failed")
        assert simulation == (1, f"{count} words, 1 failed")
        header, memory = whole_header, whole_memory
