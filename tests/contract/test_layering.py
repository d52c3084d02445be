"""The one way through the code: service -> core operation -> plan -> kernel. Never back, and never around."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
WEB = {"service", "fastapi", "starlette", "pydantic", "pydantic_settings", "uvicorn", "httptools", "uvloop", "pybase64"}
COMPILERS = {"numba", "llvmlite"}
ABOVE_KERNELS = {
    "core.mlir",
    "core.profiles",
    "core.plan.plan",
    "core.plan.operands",
    "core.errors",
    "core.formats.elements",
}


def sources(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found
    return found


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def packages(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imported(path)}


def test_core_knows_nothing_of_the_web() -> None:
    assert not [path for path in sources("core") if packages(path) & WEB]


def test_numba_is_only_in_the_kernels() -> None:
    outside = [path for path in (*sources("core"), *sources("service")) if path.parent != ROOT / "core" / "kernels"]
    assert not [path for path in outside if packages(path) & COMPILERS]


def test_service_reaches_kernels_only_through_core() -> None:
    for path in sources("service"):
        # What chooses the compiled kernels has to run before anything else of core is imported.
        before_all = (
            ("core.kernels.jit.baked", "core.kernels.jit.cache_directory") if path.name == "__main__.py" else ()
        )
        found = (name for name in imported(path) if name.startswith("core.kernels"))
        names = [name for name in found if not name.startswith(before_all)]
        assert not names, path


def test_kernels_see_arrays_and_scalars_only() -> None:
    for path in sources("core/kernels"):
        names = set(imported(path))
        above = [name for name in names if any(name == top or name.startswith(f"{top}.") for top in ABOVE_KERNELS)]
        assert not above, path


def test_one_decorator_holds_numbas_options() -> None:
    """No njit outside of _jit.py, and in it no fast-math, no parallel loops, and the GIL released."""
    for path in sources("core"):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        jits = [call for call in calls if getattr(call.func, "attr", getattr(call.func, "id", "")) in ("njit", "jit")]
        assert path.name == "_jit.py" or not jits
        for call in jits:
            options = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
            assert options["nogil"] is True
            assert options["error_model"] == "numpy"
            assert not options.get("fastmath", False)
            assert not options.get("parallel", False)


def test_no_file_is_named_for_nothing_in_particular() -> None:
    names = {path.stem for folder in ("core", "service", "tests") for path in sources(folder)}
    assert not names & {"utils", "util", "helpers", "helper", "common", "misc"}
