"""The kernels that an image bakes: which level is taken, and that a start with them compiles nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from llvmlite import binding

from service import kernel_cache

_PINS = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_CACHE_DIR", "REQUANT_BAKED_KERNELS")


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An image with one file for each level, and an empty place for the cache."""
    for name in _PINS:
        monkeypatch.delenv(name, raising=False)
    for level in kernel_cache.LEVELS:
        (tmp_path / "baked" / level).mkdir(parents=True)
        (tmp_path / "baked" / level / level).touch()
    monkeypatch.setenv("REQUANT_BAKED_KERNELS", str(tmp_path / "baked"))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("level", kernel_cache.LEVELS)
def test_the_best_level_of_the_cpu_is_used(image: Path, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    has = dict.fromkeys(kernel_cache.LEVELS[level], True)
    monkeypatch.setattr(binding, "get_host_cpu_features", lambda: has)
    kernel_cache.use_baked_kernels()
    assert os.environ["NUMBA_CPU_NAME"] == level
    assert os.environ["NUMBA_CPU_FEATURES"].split(",")[0] == "+avx"
    assert [path.name for path in (image / "cache").iterdir()] == [level]


def test_a_cpu_below_every_level_compiles_for_itself(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "get_host_cpu_features", lambda: {"avx": True})
    kernel_cache.use_baked_kernels()
    assert "NUMBA_CPU_NAME" not in os.environ
    assert not (image / "cache").exists()


def test_a_level_that_was_chosen_stays(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    kernel_cache.use_baked_kernels()
    assert os.environ["NUMBA_CPU_NAME"] == "generic"
    assert not (image / "cache").exists()


def test_a_baked_kernel_is_loaded_and_not_compiled(tmp_path: Path) -> None:
    """One kernel stands for all: baked in one process, and found in the cache by the next, which is told its level."""
    script = (
        "from service.kernel_cache import use_baked_kernels; use_baked_kernels()\n"
        "from core.kernels.packing import pack\n"
        "pack.compile()\n"
        "print(sum(pack._dispatcher.stats.cache_misses.values()))\n"
    )
    level = next(iter(kernel_cache.LEVELS))
    clean = {name: value for name, value in os.environ.items() if name not in _PINS}
    pinned = {**clean, **kernel_cache._pinned(level), "NUMBA_CACHE_DIR": str(tmp_path / "baked" / level)}
    fresh = subprocess.run([sys.executable, "-c", script], env=pinned, check=True, capture_output=True, text=True)
    assert int(fresh.stdout) > 0
    host = binding.get_host_cpu_features()
    if not all(host.get(feature, False) for feature in kernel_cache.LEVELS[level]):
        pytest.skip("this CPU is below the level")
    started = {**clean, "REQUANT_BAKED_KERNELS": str(tmp_path / "baked"), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    again = subprocess.run([sys.executable, "-c", script], env=started, check=True, capture_output=True, text=True)
    assert int(again.stdout) == 0
