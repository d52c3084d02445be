"""What the command's exit status says. docs/command_line.md has the same table."""

from __future__ import annotations

DONE = 0
FAILED = 1
"""Refused, or failed on the way. stderr says why; the same command continues where it can."""
WRONG_USAGE = 2
"""The arguments are wrong. Nothing was done."""
INTERRUPTED = 130
"""Ended by SIGINT. The same command continues."""
TERMINATED = 143
"""Ended by SIGTERM. The same command continues."""
