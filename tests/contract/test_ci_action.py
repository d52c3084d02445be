"""deploy/action: its script verifies checkpoints and packs, with an engine that runs the command here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from requant.command.main import main
from requant.packs.pack import pack_files
from tests.conftest import ROOT
from tests.support.model_directory import make_model

ACTION = yaml.safe_load((ROOT / "deploy/action/action.yml").read_text())
# What is behind the image is the command in the image.
ENGINE = f"""#!/bin/bash
[[ " $* " == *" --network none "* && " $* " == *" -v $PWD:/workspace "* ]] || exit 9
while [[ $1 != the-image ]]; do shift; done
shift
exec {sys.executable} "$@"
"""


def run(folder: Path, **inputs: str) -> tuple[int, ElementTree.Element]:
    [step] = ACTION["runs"]["steps"]
    given = {name: str(each.get("default", "")) for name, each in ACTION["inputs"].items()} | inputs
    variables = {name: given[value.split(".")[1].split()[0]] for name, value in step["env"].items()}
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin/docker").write_text(ENGINE)
    (folder / "bin/docker").chmod(0o755)
    environment = {**os.environ, **variables, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (folder / given["junit"]).exists(), ended.stderr
    return ended.returncode, ElementTree.parse(folder / given["junit"]).getroot()


def test_a_checkpoint(tmp_path: Path) -> None:
    make_model(tmp_path / "model")
    assert main(["checkpoint", "quantize", str(tmp_path / "model"), str(tmp_path / "out"), "--scheme", "W8A8"]) == 0
    status, suite = run(tmp_path, image="the-image", checkpoint="out", source="model")
    assert (status, suite.get("tests"), suite.get("failures")) == (0, "1", "0")
    stored = next((tmp_path / "out").glob("*.safetensors"))
    content = bytearray(stored.read_bytes())
    content[-1] ^= 1
    stored.write_bytes(content)
    status, suite = run(tmp_path, image="the-image", checkpoint="out", source="model", junit="verdict.xml")
    assert (status, suite.get("failures")) == (1, "1")


@pytest.mark.sample(1)
@pytest.mark.parametrize(("program", "status"), [("exit 3", 1), ("cp expected $2", 0)])
def test_a_pack(tmp_path: Path, program: str, status: int) -> None:
    for name, content in pack_files("vnclip_rne").items():
        path = tmp_path / "pack" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "kernel").write_text(f"#!/bin/bash\n{program.replace('expected', '$3')}\n")
    (tmp_path / "kernel").chmod(0o755)
    for case in (tmp_path / "pack").glob("*/vectors.npz"):
        import numpy as np

        with np.load(case) as arrays:
            (tmp_path / case.parent.name).write_text("\n".join(map(str, arrays["expected"].tolist())))
    command = "./kernel {in} {out} {case}"
    found, suite = run(tmp_path, image="the-image", pack="pack", command=command)
    assert found == status
    assert (suite.get("failures") == "0") == (status == 0)
