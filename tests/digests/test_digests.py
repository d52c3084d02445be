"""The comparison of digests, and that their inputs are the same everywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.digests.__main__ import compare, digest
from tests.digests.patterns import ELEMENTS, LENGTHS, any_f32, integers, reals, specials


def written(path: Path, digests: dict[str, str]) -> Path:
    path.write_text("# a machine\n" + "".join(f"{value} {name}\n" for name, value in digests.items()))
    return path


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"cast a": "00", "cast b": "11"}, None),
        ({"cast a": "00", "cast b": "12"}, "cast b (11, 12)"),
        ({"cast a": "00"}, "cast b (11, none)"),
        ({"cast a": "00", "cast b": "11", "cast c": "22"}, "cast c (none, 22)"),
    ],
)
def test_a_difference_is_named(
    other: dict[str, str], named: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [written(tmp_path / "x86.txt", {"cast a": "00", "cast b": "11"}), written(tmp_path / "arm.txt", other)]
    assert compare(files) is (named is None)
    said = capsys.readouterr().out
    assert (named or "2 of 2 digests equal") in said


def test_files_without_digests_are_not_equal(tmp_path: Path) -> None:
    assert not compare([written(tmp_path / name, {}) for name in ("x86.txt", "arm.txt")])


def test_inputs_are_the_same_everywhere() -> None:
    """Else every digest would differ, and none of them say why."""
    made = [*map(specials, ("f16", "bf16", "f32", "f64")), *map(reals, ("f16", "bf16", "f32", "f64"))]
    assert digest([*made, any_f32(999, 1).view(np.uint32), integers(-(1 << 63), (1 << 63) - 1)]) == "8bbb19c2138d9d7b"
    assert sum(LENGTHS) <= ELEMENTS
