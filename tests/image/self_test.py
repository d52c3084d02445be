"""The self-test and the digests of all conversions, by the Python and the kernels of the image."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from requant.kernels.jit.baked import LEVELS_BY_MACHINE
from requant.kernels.jit.host_features import host_features
from requant.kernels.jit.target import HOST_MACHINE
from tests.image.container import CONFINED, LIMITS, PYTHON
from tests.image.engine import IMAGE, REPOSITORY, Engine

# What the digests import beside the image's own packages. The others of the lock are tools, and large.
_PACKAGES = (
    "anyio", "certifi", "grpcio", "grpcio-health-checking", "grpcio-reflection", "h11", "httpcore", "httpx",
    "hypothesis", "idna", "iniconfig", "packaging", "pluggy", "pygments", "pytest", "pyyaml", "sortedcontainers",
    "zstandard",
)  # fmt: skip


def level_of_this_cpu() -> str:
    """Return the best of the CPU levels with kernels that this CPU has."""
    found = host_features()
    return next(level for level, features in LEVELS_BY_MACHINE[HOST_MACHINE].items() if found.issuperset(features))


def _pinned(lock: Path) -> dict[str, str]:
    """Return the requirements of a lock by name, with their hashes."""
    entries = re.split(r"\n(?=\S)", lock.read_text())
    return {entry.partition("==")[0]: entry for entry in entries if "==" in entry}


def _install_packages(engine: Engine) -> Path:
    """Install what the digests need, as the lock has it, for the image's version of Python."""
    locks = REPOSITORY / "requirements"
    pinned, own = _pinned(locks / "check.lock"), _pinned(locks / "image.lock")
    wanted = "\n".join(pinned[name] for name in _PACKAGES if name not in own)
    directory = engine.work / "packages"
    requirements = engine.work / "packages.txt"
    if not directory.is_dir() or not requirements.is_file() or requirements.read_text() != wanted:
        requirements.unlink(missing_ok=True)
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(wanted)
            file.flush()
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            command += ["--require-hashes", "--only-binary=:all:", "--python-version", "3.13", "--upgrade"]
            subprocess.run([*command, "--target", str(directory), "-r", file.name], check=True)
        requirements.write_text(wanted)
    return directory


def run_self_test(engine: Engine) -> None:
    """Repeat every known answer in the image, and compare the digests with those of this machine's Python and kernels.

    Raise CalledProcessError if anything differs.
    """
    packages = _install_packages(engine)
    subprocess.run([sys.executable, "-m", "requant.kernels.jit.warmup"], cwd=REPOSITORY, check=True)
    with tempfile.TemporaryDirectory() as directory:
        own, image = Path(directory) / "own.txt", Path(directory) / "image.txt"
        Path(directory).chmod(0o777)
        volumes = [f"--volume={REPOSITORY / name}:/checks/{name}:ro" for name in ("openapi", "pyproject.toml", "tests")]
        command = engine.command(
            *("podman", "run", "--rm", "--no-healthcheck", *CONFINED, *LIMITS, "--tmpfs", "/tmp"),
            *(*volumes, f"--volume={packages}:/checks/packages:ro", f"--volume={directory}:/digests"),
            *("--workdir", "/checks", "--env", "PYTHONPATH=/app:/checks:/checks/packages"),
            *("--entrypoint", PYTHON, IMAGE),
            *("-m", "tests.digests.baked", "/app/kernels", level_of_this_cpu(), f"/digests/{image.name}"),
        )
        digests = [sys.executable, "-m", "tests.digests"]
        # Side by side, for each takes one core.
        with subprocess.Popen([*digests, "--write", str(own)], cwd=REPOSITORY) as here:
            try:
                subprocess.run(command, check=True)
            except BaseException:
                here.kill()
                raise
        if here.returncode:
            raise subprocess.CalledProcessError(here.returncode, digests)
        subprocess.run([*digests, "--compare", str(own), str(image)], cwd=REPOSITORY, check=True)
