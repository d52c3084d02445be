"""What is not supported is refused when `core` is imported, in words."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("sys.byteorder = 'big'", "needs a little-endian CPU"),
        ("sys.platform = 'win32'", "does not support"),
        ("sys.platform, platform.machine = 'darwin', lambda: 'x86_64'", "does not support"),
        ("sys.platform, platform.machine = 'darwin', lambda: 'arm64'", ""),
    ],
)
def test_import(change: str, said: str) -> None:
    code = f"import platform, sys; {change}; import requant"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) is (said == "")
    assert said in done.stderr
    assert not said or "ImportError: Requant " in done.stderr
