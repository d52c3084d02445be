"""Environments for the watch: made as all others are, with other releases of what is watched."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.interop.drift.watched import ROOT, Environment, release_key

FOLDER = ROOT / ".drift"


class NotInstalledError(Exception):
    """A release cannot be installed here; the text is the installer's last line."""


def newer_releases(package: str, than: str) -> list[str]:
    """Return the releases of a package after another one, oldest first, as far as this Python takes them."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", package], capture_output=True, text=True, check=False
    )
    found = re.search(r"^Available versions: (.+)$", listed.stdout, re.MULTILINE)
    if found is None:
        raise NotInstalledError(f"no releases of {package} are listed: {_last_line(listed.stderr)}")
    plain = {release for release in found[1].split(", ") if re.fullmatch(r"[\d.]+", release)}
    return sorted((each for each in plain if release_key(each) > release_key(than)), key=release_key)


class Installation:
    """An environment on disk, and the one whose Python runs its tests."""

    def __init__(self, environment: Environment, torch: str) -> None:
        self.environment = environment
        self._folder = self._made(environment.target.format(torch=torch))
        self._running = self._folder if environment.run_by is None else self._made(environment.run_by)

    def _made(self, target: str) -> Path:
        prefix = FOLDER / self.environment.name
        made = subprocess.run(
            ["make", "--no-print-directory", f"VENV={prefix}", f"{prefix}-{target}"],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if made.returncode:
            raise NotInstalledError(f"{target}: {_last_line(made.stderr)}")
        return Path(f"{prefix}-{target.rpartition('/')[0]}")

    def install(self, releases: Mapping[str, str]) -> None:
        """Install these releases over those that are there."""
        for alone in (False, True):
            wanted = [
                f"{name}=={release}" for name, release in releases.items() if (name in self.environment.alone) is alone
            ]
            if wanted:
                self._pip(wanted, ["--no-deps"] if alone else [])

    def _pip(self, wanted: Sequence[str], options: Sequence[str]) -> None:
        command = [
            str(self._folder / "bin/python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            *options,
            *wanted,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotInstalledError(f"{' '.join(wanted)}: {_last_line(done.stderr)}")

    def compare(self, tests: Sequence[str], expected: Mapping[str, str], records: Path) -> Path:
        """Run tests against what is installed, as if it were `expected`. Return the JUnit report; `records` fills."""
        records.mkdir(parents=True)
        report = records / "junit.xml"
        variables = {
            "REQUANT_EXHAUSTIVE": "1",
            "CONFORMANCE_RECORDS": str(records),
            "ONEDNN_ENVIRONMENT": str(self._folder.relative_to(ROOT)),
            "EXPECTED_RELEASES": " ".join(f"{name}=={release}" for name, release in expected.items()),
        }
        parallel = ["-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder"]
        python = str(self._running / "bin/python")
        subprocess.run(
            [python, "-m", "pytest", "-q", *parallel, "-m", "interop", f"--junitxml={report}", *tests],
            cwd=ROOT, env=os.environ | variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        return report


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no output"])[-1]
