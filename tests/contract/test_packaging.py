"""The package: what a wheel holds, and that it runs where it is installed. Building takes hatchling from the index."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from requant.kernels.jit.baked import PACKAGED
from requant.kernels.jit.sources import FOLDER
from requant.version import VERSION
from tests.conftest import ROOT
from tests.support.model_directory import make_model

pytestmark = pytest.mark.exhaustive

PACKAGES = ("core/requant", "service/requant_service")


def run(*command: object, cwd: Path, **environment: str) -> str:
    ran = subprocess.run(
        [str(each) for each in command],
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=580,
    )
    assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def _built(folder: Path, **environment: str) -> Path:
    command = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    run(*command, cwd=folder, **environment)
    (built,) = folder.glob("*.whl")
    return built


def _files(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _built(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of an environment with the wheel. Its dependencies are those of this one."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", folder, cwd=folder)
    programs = folder / "bin"
    run(programs / "python", "-m", "pip", "install", "--quiet", "--no-deps", wheel, cwd=folder)
    (packages,) = (folder / "lib").glob("*/site-packages")
    ours = next(path for path in sys.path if path.endswith("site-packages"))
    (packages / "dependencies.pth").write_text(f"{ours}\n")
    return programs


def test_a_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    found = _files(wheel)
    tracked = run("git", "ls-files", *PACKAGES, cwd=ROOT).splitlines()
    assert found == {path.partition("/")[2] for path in tracked}
    data = ("playground/static/index.html", "openapi/example_replies.json")
    assert {"requant/py.typed", *(f"requant_service/{each}" for each in data)} < found


def test_a_wheel_with_kernels_is_for_their_machine_and_this_python(wheel: Path, tmp_path: Path) -> None:
    """`make wheels` compiles them all for each level. That they are used: tests/core/kernels/test_baked_kernels.py."""
    kernel = tmp_path / "aarch64" / "neoverse-n1" / FOLDER / "one.kernel"
    kernel.parent.mkdir(parents=True)
    kernel.write_bytes(b"machine code")
    built = _built(tmp_path, REQUANT_WHEEL_KERNELS=str(tmp_path / "aarch64"))
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert built.name == f"requant-{VERSION}-{python}-{python}-manylinux_2_17_aarch64.whl"
    assert _files(built) - _files(wheel) == {f"requant/{PACKAGED.name}/neoverse-n1/{FOLDER}/one.kernel"}
    assert wheel.name == f"requant-{VERSION}-py3-none-any.whl"


def test_an_installed_package_works_elsewhere(installed: Path, tmp_path: Path) -> None:
    # The sources are the same, and so are the kernels that were compiled from them.
    cache = str(ROOT / "core" / "requant" / "kernels" / "__pycache__")
    model = make_model(tmp_path / "model")
    assert run(installed / "requant", "--version", cwd=tmp_path).startswith("requant ")
    said = run(
        installed / "requant",
        *("checkpoint", "quantize", model, tmp_path / "out", "--scheme", "W8A8"),
        cwd=tmp_path,
        NUMBA_CACHE_DIR=cache,
    )
    assert said.startswith("Wrote 5 files and requant-manifest.json")
    script = "import requant; print(requant.quantize([1.0], '!quant.uniform<i8:f32, 0.5>'), requant.__file__)"
    result, place = run(installed / "python", "-c", script, cwd=tmp_path, NUMBA_CACHE_DIR=cache).rsplit(" ", 1)
    assert result == "[2]"
    assert Path(place.strip()).is_relative_to(installed.parent)
    assert "--port" in run(installed / "requant", "serve", "--help", cwd=tmp_path)


def test_folders_named_core_and_service_are_not_in_the_way(installed: Path, tmp_path: Path) -> None:
    for name in ("core", "service"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('of another project')")
    script = "import requant, requant.operators.registry, requant_service.app; print(requant.__file__)"
    place = run(installed / "python", "-c", script, cwd=tmp_path)
    assert Path(place.strip()).is_relative_to(installed.parent)
