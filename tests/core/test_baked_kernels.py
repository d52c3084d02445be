"""The kernels that an image bakes: which level is taken, and that a start with them compiles nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from llvmlite import binding

from core.kernels import baked

_PINS = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_CACHE_DIR")


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An image with one file for each level, and an empty place for the cache."""
    for name in _PINS:
        monkeypatch.delenv(name, raising=False)
    for level in baked.LEVELS:
        (tmp_path / "baked" / level).mkdir(parents=True)
        (tmp_path / "baked" / level / level).touch()
    return tmp_path


@pytest.mark.parametrize("level", baked.LEVELS)
def test_the_best_level_of_the_cpu_is_used(image: Path, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    has = dict.fromkeys(baked.LEVELS[level], True)
    monkeypatch.setattr(binding, "get_host_cpu_features", lambda: has)
    baked.use_baked(image / "baked", image / "cache")
    assert os.environ["NUMBA_CPU_NAME"] == level.partition("+")[0]
    assert os.environ["NUMBA_CPU_FEATURES"].split(",") == [f"+{feature}" for feature in baked.LEVELS[level]]
    assert [path.name for path in (image / "cache").iterdir()] == [level]


def test_a_cpu_below_every_level_compiles_for_itself(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "get_host_cpu_features", lambda: {"avx": True})
    baked.use_baked(image / "baked", image / "cache")
    assert "NUMBA_CPU_NAME" not in os.environ
    assert not (image / "cache").exists()


def test_a_level_that_was_chosen_stays(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    baked.use_baked(image / "baked", image / "cache")
    assert os.environ["NUMBA_CPU_NAME"] == "generic"
    assert not (image / "cache").exists()


def test_a_baked_kernel_is_loaded_and_not_compiled(tmp_path: Path) -> None:
    """One kernel stands for all: baked in one process, and found in the cache by the next, which is told its level."""
    compile_one = "from core.kernels.packing import pack; pack.compile()\n"
    compile_one += "print(sum(pack._dispatcher.stats.cache_misses.values()))\n"
    use = "import sys; from pathlib import Path; from core.kernels.baked import use_baked\n"
    use += "use_baked(Path(sys.argv[1]), Path(sys.argv[2]))\n"
    level = next(iter(baked.LEVELS))
    clean = {name: value for name, value in os.environ.items() if name not in _PINS}

    def compiled(script: str, *arguments: Path, **environment: str) -> int:
        command = [sys.executable, "-c", script, *map(str, arguments)]
        run = subprocess.run(command, env={**clean, **environment}, check=True, capture_output=True, text=True)
        return int(run.stdout)

    directory = tmp_path / "baked"
    assert compiled(compile_one, **baked._pinned(level), NUMBA_CACHE_DIR=str(directory / level)) > 0
    host = binding.get_host_cpu_features()
    if not all(host.get(feature, False) for feature in baked.LEVELS[level]):
        pytest.skip("this CPU is below the level")
    assert compiled(use + compile_one, directory, tmp_path / "cache") == 0
