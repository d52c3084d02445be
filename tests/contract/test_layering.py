"""The import graph of the code: rooms in one order, imported downward only, without circles.

`requant` and `requant_service` are each a stack of rooms: the folders and modules right below them. CONTRIBUTING draws
the stacks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# From top to bottom: a room imports those below it. The rooms in one tuple do not import each other.
SERVICE: tuple[tuple[str, ...], ...] = (
    ("server",),
    ("app",),
    ("reference",),
    ("openapi", "profile_pages"),
    ("meta", "playground"),
    ("json_api", "oip", "npy_api"),
    ("operations",),
    ("middleware",),
    ("http",),
    ("http2",),
    ("runtime",),
)
LIBRARY: tuple[tuple[str, ...], ...] = (
    ("command", "function_stubs", "operation_reference", "pytest_plugin"),
    ("packs", "testing"),
    ("functions",),
    ("engines", "verification"),
    ("checkpoints", "evaluation"),
    ("self_test",),
    ("checkpoint",),
    ("operations",),
    ("identification",),
    ("arrays",),
    ("lowering",),
    ("translation",),
    ("operators",),
    ("equality",),
    ("integer",),
    ("comparison",),
    ("calibration",),
    ("convert",),
    ("description",),
    ("plan",),
    ("profiles",),
    ("schemes",),
    ("mlir",),
    ("kernels",),
    ("formats",),
    ("errors", "version"),
)
# `requant_service` is above all of `requant`. The constants in a package's own `__init__.py` are below everything.
STACKS = {"requant_service": SERVICE, "requant": LIBRARY}
FOLDERS = {"requant_service": ROOT / "service" / "requant_service", "requant": ROOT / "core" / "requant"}
ENTRY_POINTS = {"requant_service.main", "requant.command.serve"}
WEB = {
    "requant_service",
    "fastapi",
    "starlette",
    "pydantic",
    "pydantic_settings",
    "uvicorn",
    "httptools",
    "hpack",
    "uvloop",
    "pybase64",
}
COMPILERS = {"numba", "llvmlite"}
# A signal handler cannot be Python.
NATIVE = {FOLDERS["requant_service"] / "runtime" / "shared_memory" / "bus_errors.py": {"llvmlite"}}


def sources(folder: Path) -> list[Path]:
    found = sorted(folder.rglob("*.py"))
    assert found
    return found


def name_of(package: str, path: Path) -> str:
    return ".".join(path.relative_to(FOLDERS[package].parent).with_suffix("").parts).removesuffix(".__init__")


@cache
def imported(path: Path) -> frozenset[str]:
    """Everything that a file imports, in its functions and for its annotations too, as `package.module.name`."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(names)


def packages(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imported(path)}


@cache
def graph() -> dict[str, set[str]]:
    """All modules, each with those that it imports. A package is its `__init__.py`."""
    files = {name_of(package, path): path for package, folder in FOLDERS.items() for path in sources(folder)}
    # What is not a module is a name in one.
    return {
        name: {target if target in files else target.rpartition(".")[0] for target in imported(path)} & files.keys()
        for name, path in files.items()
    }


def room(module: str) -> tuple[str, str] | None:
    """The package and the room of a module; None for an entry point, which may import everything, and for constants."""
    package, *inner = module.split(".")
    return (package, inner[0]) if inner and module not in ENTRY_POINTS and inner[-1] != "__main__" else None


def arrows() -> Iterator[tuple[str, str, tuple[str, str], tuple[str, str]]]:
    for module, targets in graph().items():
        for target in targets:
            above, below = room(module), room(target)
            if above and below and above != below:
                yield module, target, above, below


def test_every_room_has_its_place() -> None:
    for package, stack in STACKS.items():
        found = {path.stem for path in FOLDERS[package].iterdir() if path.is_dir() or path.suffix == ".py"}
        assert found - {"__init__", "__main__", "__pycache__", "main"} == {name for level in stack for name in level}


def test_rooms_import_downward_only() -> None:
    height = {
        (package, name): -depth
        for package, stack in STACKS.items()
        for depth, level in enumerate(stack)
        for name in level
    }
    packages = list(STACKS)
    upward = [
        f"{module} imports {target}"
        for module, target, above, below in arrows()
        if (above[0] == below[0] and height[above] <= height[below])
        or packages.index(above[0]) > packages.index(below[0])
    ]
    assert not upward, "\n".join(upward)


def circle(members: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a circle, if there are any."""
    finished: set[str] = set()
    for start in members:
        trail: list[str] = []
        branches = [iter([start])]
        while branches:
            following = next(branches[-1], None)
            if following is None:
                branches.pop()
                if trail:
                    finished.add(trail.pop())
            elif following in trail:
                return [*trail[trail.index(following) :], following]
            elif following not in finished:
                trail.append(following)
                branches.append(iter(sorted(members[following])))
    return []


def test_modules_do_not_import_each_other() -> None:
    assert not circle(graph()), " -> ".join(circle(graph()))


@pytest.mark.parametrize("members", [{"a": {"b"}, "b": {"a"}}, {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}])
def test_a_circle_is_found(members: dict[str, set[str]]) -> None:
    found = circle(members)
    assert found[0] == found[-1]
    assert all(second in members[first] for first, second in pairwise(found))


def test_without_a_circle_none_is_found() -> None:
    assert circle({"a": {"b", "c"}, "b": {"c", "d"}, "c": {"d"}, "d": set()}) == []


def test_the_library_knows_nothing_of_the_web() -> None:
    allowed = FOLDERS["requant"] / "command" / "serve.py"
    assert not [path for path in sources(FOLDERS["requant"]) if packages(path) & WEB and path != allowed]


def test_numba_is_only_in_the_kernels() -> None:
    kernels = FOLDERS["requant"] / "kernels"
    outside = [path for folder in FOLDERS.values() for path in sources(folder) if kernels not in path.parents]
    assert not [path for path in outside if packages(path) & COMPILERS - NATIVE.get(path, set())]


def test_the_service_reaches_kernels_only_through_plans() -> None:
    for path in sources(FOLDERS["requant_service"]):
        # What chooses the compiled kernels has to run before anything else is imported.
        before_all = ("requant.kernels.jit.",) if path.name == "main.py" else ()
        found = (name for name in imported(path) if name.startswith("requant.kernels"))
        names = [name for name in found if not name.startswith(before_all)]
        assert not names, path


def test_kernels_see_arrays_and_scalars_only() -> None:
    for path in sources(FOLDERS["requant"] / "kernels"):
        ours = {name for name in imported(path) if name.startswith(("requant.", "requant_service."))}
        assert all(f"{name}.".startswith(("requant.kernels.", "requant.formats.")) for name in ours), path


def test_one_decorator_holds_numbas_options() -> None:
    """No njit outside of jit/jit.py, and in it no fast-math, no parallel loops, and the GIL released."""
    decorator = FOLDERS["requant"] / "kernels" / "jit" / "jit.py"
    for path in sources(FOLDERS["requant"]):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        jits = [call for call in calls if getattr(call.func, "attr", getattr(call.func, "id", "")) in ("njit", "jit")]
        assert bool(jits) == (path == decorator), path
        for call in jits:
            options = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
            assert options["nogil"] is True
            assert options["error_model"] == "numpy"
            assert not options.get("fastmath", False)
            assert not options.get("parallel", False)


def test_no_file_is_named_for_nothing_in_particular() -> None:
    names = {path.stem for folder in (*FOLDERS.values(), ROOT / "tests") for path in sources(folder)}
    assert not names & {"utils", "util", "helpers", "helper", "common", "misc"}
