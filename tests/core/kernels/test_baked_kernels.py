"""The kernels that an image bakes: which level is taken, and that a start with them compiles nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from llvmlite import binding

from requant.kernels.jit import bake, baked, jit, machine_code_cache
from requant.kernels.jit import host_features as features_of_host
from requant.kernels.jit.compilation import Compilation
from requant.kernels.jit.host_features import host_features
from requant.kernels.jit.sources import CORE

_PINS = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_CACHE_DIR", "REQUANT_BAKED_KERNELS")


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of an image that has one for each level."""
    for name in _PINS:
        # Set first, so that it is gone again after the test, whoever sets it.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(baked, "in_use", None)
    for level in baked.LEVELS:
        (tmp_path / "baked" / level).mkdir(parents=True)
    return tmp_path.resolve() / "baked"


@pytest.mark.parametrize("level", baked.LEVELS)
def test_the_best_level_of_the_cpu_is_used(image: Path, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    monkeypatch.setattr(baked, "host_features", lambda: frozenset(baked.LEVELS[level]))
    assert baked.use_baked(image) == level
    assert baked.in_use == baked.Level(image / level, *baked.cpu_and_features(level))
    assert jit.target_features() == set(baked.LEVELS[level])
    # Other functions that numba compiles in this process are compiled for this CPU.
    assert not {"NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"} & os.environ.keys()


# What Linux says on each: the lines of two cores, without those that are not read.
_ARM_CPUS = {
    "neoverse-v2": "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma lrcpc "
    "dcpop sha3 sm3 sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs sb dcpodp sve2 sveaes svepmull "
    "svebitperm svesha3 svesm4 flagm2 frint svei8mm svebf16 i8mm bf16 dgh rng bti",
    "neoverse-n1": "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc "
    "dcpop asimddp ssbs",
    # Graviton's first, and the Raspberry Pi 4.
    "generic+neon": "fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid",
}


@pytest.mark.parametrize("level", _ARM_CPUS)
def test_the_level_of_an_arm_cpu_is_that_of_its_weakest_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """LLVM itself finds neither dotprod nor fullfp16."""
    cpuinfo = tmp_path / "cpuinfo"
    lines = [
        f"processor\t: {core}\nFeatures\t: {has}\n"
        for core, has in enumerate((_ARM_CPUS["neoverse-v2"], _ARM_CPUS[level]))
    ]
    cpuinfo.write_text("\n".join(lines))
    monkeypatch.setattr(features_of_host, "CPUINFO", cpuinfo)
    found = host_features()
    levels = baked.LEVELS_BY_MACHINE["aarch64"]
    assert next(each for each, features in levels.items() if found.issuperset(features)) == level


def test_a_machine_that_says_nothing_of_its_cpu_has_what_llvm_finds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(features_of_host, "CPUINFO", tmp_path / "none")
    monkeypatch.setattr(binding, "get_host_cpu_features", lambda: {"neon": True, "sve": False})
    assert host_features() == {"neon"}


def test_a_cpu_below_every_level_compiles_for_itself(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baked, "host_features", lambda: frozenset({"sse3"}))
    assert baked.use_baked(image) is None
    assert baked.in_use is None


def test_a_level_that_was_chosen_stays(image: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    baked.use_baked(image)
    assert os.environ["NUMBA_CPU_NAME"] == "generic"
    assert baked.in_use is None


def _level_of_host() -> str:
    return next(level for level, features in baked.LEVELS.items() if host_features().issuperset(features))


@pytest.mark.exhaustive
def test_a_baked_kernel_is_loaded_and_not_compiled(tmp_path: Path) -> None:
    """One kernel stands for all: baked in one process, and used by the next, which is told its level.

    The directory is read-only then, and so is that of the cache.
    """
    compile_one = "from requant.kernels.convert.packing import pack; pack.compile()\n"
    compile_one += "print(sum(pack._dispatcher.stats.cache_misses.values()))\n"
    use = "import sys; from pathlib import Path; from requant.kernels.jit.baked import use_baked\n"
    use += "use_baked(Path(sys.argv[1]))\n"
    level = _level_of_host()
    clean = {name: value for name, value in os.environ.items() if name not in _PINS}

    def compiled(script: str, *arguments: Path, **environment: str) -> int:
        command = [sys.executable, "-c", script, *map(str, arguments)]
        run = subprocess.run(command, env={**clean, **environment}, check=True, capture_output=True, text=True)
        assert not run.stderr
        return int(run.stdout)

    directory, cache = tmp_path / "baked", tmp_path / "cache"
    assert compiled(compile_one, **baked.pinned(level), NUMBA_CACHE_DIR=str(directory / level)) > 0
    assert compiled(use + compile_one, directory, NUMBA_CACHE_DIR=str(cache)) == 0
    assert not list(cache.rglob("*.kernel"))
    # One that is damaged is compiled for this CPU, and kept where that can be.
    (file,) = directory.rglob("*.kernel")
    file.write_bytes(file.read_bytes()[:-1])
    quiet = "import logging; logging.disable()\n"
    assert compiled(quiet + use + compile_one, directory, NUMBA_CACHE_DIR=str(cache)) == 1
    assert compiled(quiet + use + compile_one, directory, NUMBA_CACHE_DIR=str(cache)) == 0
    assert len(list(cache.rglob("*.kernel"))) == 1


@pytest.mark.exhaustive
def test_kernels_of_a_wheel_are_used_without_being_asked_for(tmp_path: Path) -> None:
    """Whatever numba has compiled before, and although its group may write there, as it may to the code."""
    package, program = tmp_path / "requant", "from requant.kernels.convert.packing import pack; pack.compile()\n"
    shutil.copytree(CORE, package, ignore=shutil.ignore_patterns("__pycache__"))
    clean = {name: value for name, value in os.environ.items() if name not in _PINS}

    def run(script: str, **environment: str) -> str:
        command = [sys.executable, "-c", script]
        environment = {**clean, "PYTHONPATH": str(tmp_path), **environment}
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        assert not done.stderr
        return done.stdout

    level = _level_of_host()
    run(program, **baked.pinned(level), NUMBA_CACHE_DIR=str(package / "machine_code" / level))
    for each in (package, *package.rglob("*")):
        each.chmod(each.stat().st_mode | 0o020)
    before = "import numba; numba.njit(lambda a: a + 1)(1)\n"
    after = "print(sum(pack._dispatcher.stats.cache_misses.values()))\n"
    after += "print(numba.core.registry.cpu_target.target_context.codegen().magic_tuple()[1])"
    assert run(before + program + after).split() == ["0", binding.get_host_cpu_name()]
    # Of another release of numba, as of other sources, nothing is used.
    other = "import numba; numba.__version__ = '0.0'\n"
    assert run(other + program + after, NUMBA_CACHE_DIR=str(tmp_path / "cache")).split()[0] == "1"


def test_with_baked_kernels_no_place_for_others_is_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where none can be written, that would be a warning at each start, although nothing is compiled."""
    monkeypatch.setattr(machine_code_cache, "cache_directory", lambda _: pytest.fail("a directory is looked for"))
    cache_path = vars(machine_code_cache.MachineCodeCache)["cache_path"].fget
    monkeypatch.setattr(baked, "in_use", baked.Level(tmp_path, "generic", ""))
    assert cache_path(None) == ""
    # As a service with several workers begins, which all of its kernels are there for.
    Compilation([]).share()
    monkeypatch.setattr(baked, "in_use", None)
    with pytest.raises(pytest.fail.Exception):
        cache_path(None)


def test_baking_fails_if_a_kernel_was_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bake, "_BAKE", "print(3)")
    with pytest.raises(RuntimeError, match="of 3 files of machine code 0 were written"):
        bake.bake(tmp_path)


def test_a_level_of_another_machine_is_not_baked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bake.main([str(tmp_path), "--machine", "aarch64", "--levels", "neoverse-n1", "x86-64-v3"])
    assert capsys.readouterr().err.endswith("aarch64 has no level x86-64-v3\n")


def test_a_bake_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def compile_kernels(report: Callable[[int, int], None]) -> None:
        for ready in (1, 19, 22, 39, 61, 65):
            report(ready, 65)

    monkeypatch.setattr(bake, "compile_kernels", compile_kernels)
    bake.compile_level("x86-64-v3")
    printed = capsys.readouterr()
    assert int(printed.out) >= len(jit.all_kernels())
    assert [line.split(" kernels")[0] for line in printed.err.splitlines()] == [
        f"x86-64-v3: {ready} of 65" for ready in (22, 61, 65)
    ]


_EMIT = """
import sys
from llvmlite import binding
binding.initialize_all_targets()
binding.initialize_all_asmprinters()
triple, cpu, features = sys.argv[1:]
target = binding.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features)
sum_of = "define <4 x float> @f(<4 x float> %a) { %b = fadd <4 x float> %a, %a ret <4 x float> %b }"
print(target.emit_assembly(binding.parse_assembly(sum_of)))
"""


@pytest.mark.parametrize(
    ("machine", "addition"), [("x86_64", "addps"), ("aarch64", "fadd\tv0.4s, v0.4s")], ids=["x86_64", "aarch64"]
)
def test_llvm_knows_each_level(machine: str, addition: str) -> None:
    """It only warns of a CPU or a feature that it does not know, and compiles without."""
    for level, features in baked.LEVELS_BY_MACHINE[machine].items():
        pinned = [level.partition("+")[0], ",".join(f"+{feature}" for feature in features)]
        command = [sys.executable, "-c", _EMIT, f"{machine}-unknown-linux-gnu", *pinned]
        run = subprocess.run(command, check=True, capture_output=True, text=True)
        assert not run.stderr, level
        assert addition in run.stdout, level


@pytest.mark.exhaustive
def test_what_is_baked_is_all_that_a_service_compiles() -> None:
    """A kernel of which only the service's own imports know would be compiled at each start."""
    count = "from requant.kernels.jit.jit import _registry; print(len(_registry))\n"
    script = f"import requant.kernels.jit.warmup\n{count}import requant_service.app\n{count}"
    run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    baked_kernels, all_kernels = run.stdout.split()
    assert baked_kernels == all_kernels
