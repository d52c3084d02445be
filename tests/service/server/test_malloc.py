"""The allocator's settings: made where there is an allocator that has them, and left alone elsewhere."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from requant_service.runtime.memory_budget import MemoryBudget
from requant_service.server import malloc as allocator


def test_memory_of_large_blocks_is_kept() -> None:
    """In a process of its own: what was touched once is resident after it was freed."""
    program = """
import os
import sys
from pathlib import Path
import numpy as np
from requant_service.server.malloc import keep_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

if not keep_memory():
    sys.exit("skip")
before = resident()
np.zeros(32 << 20, np.uint8).fill(1)
assert resident() - before > 30 << 20, resident() - before
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    if done.stderr.strip() == "skip":
        pytest.skip("the C library has no mallopt")
    assert done.returncode == 0, done.stderr


def test_a_c_library_without_the_setting_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    allocator._c_library.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert allocator.keep_memory() is False
    allocator._c_library.cache_clear()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert allocator.keep_memory() is False
    budget = MemoryBudget(8 << 20, 0, 0.0)
    kept = allocator.KeptMemory(budget)
    assert budget.try_take(4 << 20)
    budget.give_back(4 << 20)
    kept.tick()
    allocator._c_library.cache_clear()
