"""Kernels are compiled before a module is evaluated: its deadline is for the module, as in the service."""

from __future__ import annotations

import pytest

from requant.kernels.jit.warmup import compile_kernels


@pytest.fixture(scope="session", autouse=True)
def _compiled_kernels() -> None:
    compile_kernels()
