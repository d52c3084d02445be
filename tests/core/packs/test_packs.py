"""Packs of vectors: the same bytes whenever they are made, and a runner that tells right kernels from wrong ones."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from requant.command.exit_status import DONE, FAILED, WRONG_USAGE
from requant.command.main import main
from requant.errors import StorageError, UnknownNameError
from requant.packs.cases import NAMES
from requant.packs.pack import pack_archive, pack_files, pack_name, read_pack
from requant.profiles import PROFILES
from requant.schemes import SCHEMES

KERNEL = """
import sys
given, found, extra = sys.argv[1], sys.argv[2], int(sys.argv[3])
with open(given) as lines, open(found, "w") as results:
    assert next(lines).split() == ["#", "input_zero_point", "output_zero_point", "multiplier", "shift", "input"]
    for line in lines:
        input_zero_point, output_zero_point, multiplier, shift, value = map(int, line.split())
        total = (value - input_zero_point) * multiplier * 2 ** max(shift, 0)
        right = 31 - min(shift, 0)
        rounded = (total + (1 << (right - 1)) + extra) >> right
        print(min(max(rounded + output_zero_point, -128), 127), file=results)
"""
CASE = "requantize-i32-i8"


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return pack_files("litert_single_rounding")


@pytest.fixture
def folder(tmp_path: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = tmp_path / "pack" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "kernel.py").write_text(KERNEL)
    return tmp_path


def verified(folder: Path, pack: Path, extra: int, *options: str) -> int:
    command = f"{sys.executable} {folder / 'kernel.py'} {{in}} {{out}} {extra}"
    return main(["vectors", "verify", str(pack), "--command", command, "--case", CASE, *options])


@pytest.mark.exhaustive
def test_a_pack_is_the_same_whenever_it_is_made(files: dict[str, bytes], tmp_path: Path) -> None:
    name = "litert_single_rounding"
    assert pack_files(name) == files
    archive = pack_archive(name)
    assert pack_archive(name) == archive
    (tmp_path / "pack.tar.zst").write_bytes(archive)
    assert dict(read_pack(tmp_path / "pack.tar.zst")) == files
    assert pack_name(name) == "requant-vectors-litert_single_rounding-1.0"


def test_what_is_in_a_case(files: dict[str, bytes]) -> None:
    of_case = {path.partition("/")[2] for path in files if path.startswith(f"{CASE}/")}
    assert of_case == {"vectors.json", "vectors.npz", "vectors.h", "vectors.mem", "testbench.c", "testbench.sv"}
    manifest = json.loads(files["manifest.json"])
    [case] = [each for each in manifest["cases"] if each["name"] == CASE]
    assert case["vectors"] == len(json.loads(files[f"{CASE}/vectors.json"])["vectors"])
    assert f"localparam integer COUNT = {case['vectors']};" in files[f"{CASE}/testbench.sv"].decode()
    assert "requantize-i8-i8" in {each["name"] for each in manifest["cases"]}


def test_a_header_names_double_rounding() -> None:
    header = pack_files("gemmlowp")[f"{CASE}/vectors.h"].decode()
    assert " * Scheme: gemmlowp\n * Rounding: double\n" in header


def test_headers_of_two_schemes_share_no_names() -> None:
    """And those of a profile have the name of the operation alone."""
    names = {}
    for pack in ("gemmlowp", "cmsis_nn", "onnx"):
        found = pack_files(pack)
        header = found[f"{CASE}/vectors.h"].decode()
        names[pack] = set(re.findall(r"^#define (\w+)|^static const \w+ (\w+)\[", header, re.MULTILINE))
        name = "requantize" if pack == "onnx" else f"requantize_{pack}"
        assert f"#define REQUANT_VECTORS_{name.upper()}_H" in header
        assert f"{name}_expected[i]" in found[f"{CASE}/testbench.c"].decode()
    assert names["gemmlowp"]
    assert not names["gemmlowp"] & names["cmsis_nn"] | names["gemmlowp"] & names["onnx"]


def test_a_right_kernel_and_a_wrong_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verified(folder, folder / "pack", 0) == DONE
    total = len(json.loads((folder / "pack" / CASE / "vectors.json").read_text())["vectors"])
    assert capsys.readouterr().out.splitlines() == [
        f"{CASE}: {total} vectors, all right",
        f"requant vectors litert_single_rounding 1.0: {total} of {total}",
    ]
    assert verified(folder, folder / "pack", -1, "--json", "--junit", str(folder / "verdict.xml")) == FAILED
    said = json.loads(capsys.readouterr().out)
    [case] = said["cases"]
    assert 0 < case["wrong"] < total
    assert all("tie" in each["why"] for each in case["first"])  # a half less turns ties, and nothing else
    suite = ElementTree.parse(folder / "verdict.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")


@pytest.mark.parametrize(
    ("program", "failure"),
    [
        ("import sys; sys.exit('no such luck')", "the command ended with 1: no such luck"),
        ("", "there are 0 results"),
        ("import sys; open(sys.argv[2], 'w').write('1 2 3')", "there are 3 results"),
    ],
)
def test_a_program_without_results(
    folder: Path, capsys: pytest.CaptureFixture[str], program: str, failure: str
) -> None:
    (folder / "kernel.py").write_text(program)
    assert verified(folder, folder / "pack", 0) == FAILED
    assert failure in capsys.readouterr().out


def test_what_is_refused(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vectors", "verify", str(folder / "pack"), "--command", "./kernel"]) == WRONG_USAGE
    assert "does not contain {in}" in capsys.readouterr().err
    command = ["--command", "./no-such-kernel {in} {out}"]
    assert main(["vectors", "verify", str(folder / "pack"), *command, "--case", "matmul"]) == WRONG_USAGE
    assert main(["vectors", "verify", str(folder / "pack"), *command]) == FAILED
    (folder / "pack" / CASE / "vectors.h").write_text("")
    with pytest.raises(StorageError, match=r"damaged: requantize-i32-i8/vectors\.h"):
        read_pack(folder / "pack")
    (tmp_path / "no.tar.zst").write_bytes(b"no")
    for path in (tmp_path / "no.tar.zst", tmp_path / "nowhere.tar", tmp_path):
        with pytest.raises(StorageError, match="is no pack of vectors"):
            read_pack(path)
    with pytest.raises(UnknownNameError, match="litert"):
        pack_files("litrt")


def test_every_profile_and_scheme_has_a_pack() -> None:
    assert set(NAMES) == {*PROFILES, *SCHEMES}
