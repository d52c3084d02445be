"""`requant serve`: the service, under the name by which it was started."""

from __future__ import annotations

import subprocess
import sys


def test_messages_name_the_command() -> None:
    command = [sys.executable, "-m", "requant", "serve", "--prot", "1"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert refused.stderr == "--prot: unknown flag; did you mean --port? `requant serve --help` lists all\n"
