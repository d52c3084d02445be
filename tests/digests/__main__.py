"""Make digests, or compare them."""

from __future__ import annotations

import argparse
import hashlib
import platform
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import RequantError
from tests.digests.cases import Case

Array = NDArray[Any]

_SHOWN = 20


def all_cases() -> Iterator[Case]:
    """Yield every case."""
    from tests.digests import sources

    for module in sources.MODULES:
        yield from module.cases()


def arrays_of(case: Case) -> list[Array]:
    """Return the arrays of a case; of one that is refused, the error."""
    try:
        with np.errstate(all="ignore"):
            return [np.ascontiguousarray(each) for each in case.run()]
    except RequantError as error:
        said = f"{error.code} {getattr(error, 'index', None)}"
        return [np.frombuffer(said.encode(), np.uint8)]


def digest(arrays: Sequence[Array]) -> str:
    """Return the start of the SHA-256 of the dtypes and bytes of arrays."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype.str}{array.size};".encode())
        found.update(array.tobytes())
    return found.hexdigest()[:16]


def write(path: Path, only: str) -> None:
    """Write the digest of each case, in lines with its name."""
    from numba.core.registry import cpu_target

    _, name, _ = cpu_target.target_context.codegen().magic_tuple()
    began, lines = monotonic(), {}
    for case in all_cases():
        if not case.name.startswith(only):
            continue
        if case.name in lines:
            raise SystemExit(f"two cases are called {case.name!r}")
        lines[case.name] = digest(arrays_of(case))
    path.parent.mkdir(parents=True, exist_ok=True)
    machine = f"{platform.machine()} {name}, Python {platform.python_version()}, numpy {np.__version__}"
    path.write_text(f"# {machine}\n" + "".join(f"{value} {name}\n" for name, value in lines.items()))
    sys.stdout.write(f"{machine}: {len(lines)} digests in {monotonic() - began:.0f} s\n")


def read(path: Path) -> dict[str, str]:
    """Return the digests of a file by the names of their cases."""
    lines = (line.partition(" ") for line in path.read_text().splitlines() if not line.startswith("#"))
    return {name: value for value, _, name in lines}


def compare(paths: Sequence[Path]) -> bool:
    """Compare files with the first one, and say which cases differ. Return whether none does."""
    first, *others = paths
    expected = read(first)
    equal = bool(expected)
    for path in others:
        found = read(path)
        names = [*expected, *(name for name in found if name not in expected)]
        different = [name for name in names if expected.get(name) != found.get(name)]
        sys.stdout.write(f"{first.stem} and {path.stem}: {len(names) - len(different)} of {len(names)} digests equal\n")
        for name in different[:_SHOWN]:
            sys.stdout.write(f"  different: {name} ({expected.get(name, 'none')}, {found.get(name, 'none')})\n")
        equal = equal and not different
    return equal


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says; return 1 if digests differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.digests", description="Digests of what every case gives.")
    parser.add_argument("--write", type=Path, metavar="FILE", help="run every case and write its digest")
    parser.add_argument("--compare", type=Path, nargs="+", metavar="FILE", help="compare such files")
    parser.add_argument("--only", default="", metavar="START", help="of the cases whose names begin so")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the arrays of those cases, as .npz")
    given = parser.parse_args(arguments)
    if given.write:
        write(given.write, given.only)
    if given.save:
        arrays = {
            f"{case.name} {index}".replace("/", "_"): array
            for case in all_cases()
            if case.name.startswith(given.only)
            for index, array in enumerate(arrays_of(case))
        }
        np.savez(given.save, **arrays)  # type: ignore[arg-type]
    return 0 if not given.compare or compare(given.compare) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
