"""Machine code comes only from where nobody else can put any: owners, modes, links, and the parents of a directory."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from requant.kernels.jit import baked
from requant.kernels.jit import cache_directory as module
from requant.kernels.jit.baked import LEVELS
from requant.kernels.jit.cache_directory import CacheDirectoryError, check_directory, named_directory

SOMEBODY = 12345

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to somebody else")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place for directories, in which nothing is named by the environment."""
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "NUMBA_CPU_NAME"):
        monkeypatch.delenv(name, raising=False)
    module.cache_directory.cache_clear()
    yield tmp_path.resolve()
    module.cache_directory.cache_clear()


def made(path: Path, mode: int = 0o755, owner: int | None = None) -> Path:
    path.mkdir(parents=True)
    path.chmod(mode)
    if owner is not None:
        os.chown(path, owner, owner)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(CacheDirectoryError) as caught:
        check_directory(path)
    return str(caught.value)


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o500])
def test_a_directory_of_our_own_is_taken(mode: int, place: Path) -> None:
    assert check_directory(made(place / "cache", mode)) == place / "cache"


@pytest.mark.parametrize("mode", [0o775, 0o777, 0o1777, 0o707, 0o702, 0o720])
def test_one_that_others_can_write_to_is_not(mode: int, place: Path) -> None:
    text = refusal(made(place / "cache", mode))
    assert text.startswith(f"others can write to {place / 'cache'} (mode {mode:o})")
    assert "chmod go-w" in text


@pytest.mark.parametrize("mode", [0o775, 0o777, 0o707])
def test_nor_one_that_others_can_replace(mode: int, place: Path) -> None:
    made(place / "shared" / "below" / "cache")
    (place / "shared").chmod(mode)
    assert refusal(place / "shared" / "below" / "cache").startswith(f"others can write to {place / 'shared'} (mode")


def test_a_sticky_parent_keeps_others_from_replacing_it(place: Path) -> None:
    made(place / "tmp" / "cache")
    (place / "tmp").chmod(0o1777)
    assert check_directory(place / "tmp" / "cache") == place / "tmp" / "cache"


@needs_root
def test_somebody_elses_directory_is_not_taken(place: Path) -> None:
    text = refusal(made(place / "cache", 0o755, SOMEBODY))
    assert f"{place / 'cache'} belongs to the user {SOMEBODY}" in text
    assert "make a directory that belongs to the user 0" in text


@needs_root
def test_nor_one_of_our_own_in_somebody_elses(place: Path) -> None:
    made(place / "theirs" / "cache")
    os.chown(place / "theirs", SOMEBODY, SOMEBODY)
    assert f"{place / 'theirs'} belongs to the user {SOMEBODY}" in refusal(place / "theirs" / "cache")


@needs_root
def test_roots_directory_is_taken_by_everybody(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY)
    assert check_directory(made(place / "cache")) == place / "cache"


def test_a_link_is_not_taken_whatever_it_leads_to(place: Path) -> None:
    made(place / "cache")
    (place / "link").symlink_to(place / "cache")
    assert "is a symbolic link" in refusal(place / "link")


def test_a_parent_that_is_a_link_is_followed_and_checked(place: Path) -> None:
    made(place / "real" / "cache")
    (place / "link").symlink_to(place / "real")
    assert check_directory(place / "link" / "cache") == place / "real" / "cache"
    (place / "real").chmod(0o777)
    assert f"others can write to {place / 'real'}" in refusal(place / "link" / "cache")


def test_what_is_no_directory_is_not_taken(place: Path) -> None:
    (place / "file").touch()
    assert "is not a directory" in refusal(place / "file")
    assert "cannot be read" in refusal(place / "nothing")


def test_the_named_directory_is_made_for_its_user_alone(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert named_directory() is None
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(place / "a" / "b"))
    before = os.umask(0)
    try:
        assert named_directory() == place / "a" / "b"
    finally:
        os.umask(before)
    for path in (place / "a", place / "a" / "b"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o755
    found = module.cache_directory("kernels")
    assert found == place / "a" / "b" / "kernels"


def test_the_named_directory_is_refused_and_not_replaced(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(made(place / "cache", 0o777)))
    for use in (named_directory, lambda: module.cache_directory("kernels")):
        with pytest.raises(CacheDirectoryError, match="others can write"):
            use()
    (place / "file").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(place / "file" / "cache"))
    with pytest.raises(CacheDirectoryError, match=r"cannot be made: .*; make it or name another"):
        named_directory()


def test_a_folder_in_it_is_checked_too(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(made(place / "cache")))
    made(place / "cache" / "kernels", 0o777)
    with pytest.raises(CacheDirectoryError, match="kernels"):
        module.cache_directory("kernels")


def test_the_user_has_a_directory_where_the_installation_has_none(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(place / "installed" / "__pycache__", 0o777)
    monkeypatch.setattr(module, "__file__", str(place / "installed" / "jit" / "cache_directory.py"))
    monkeypatch.setenv("HOME", str(place / "home"))
    assert module.cache_directory("kernels") == place / "home" / ".cache" / "requant" / "kernels"
    module.cache_directory.cache_clear()
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "shared"))
    assert module.cache_directory("kernels") == place / "shared" / "requant" / "kernels"
    module.cache_directory.cache_clear()
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert module.cache_directory("kernels") == place / "home" / ".cache" / "requant" / "kernels"


def test_without_a_safe_one_nothing_is_kept(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made(place / "installed" / "__pycache__", 0o777)
    monkeypatch.setattr(module, "__file__", str(place / "installed" / "jit" / "cache_directory.py"))
    monkeypatch.setenv("HOME", str(made(place / "home", 0o777)))
    assert module.cache_directory("kernels") is None
    (line,) = caplog.messages
    assert line.startswith("Compiled kernels are not kept for the next start.")
    assert str(place / "installed" / "__pycache__") in line
    assert str(place / "home") in line
    assert line.endswith("Name a directory of your own by NUMBA_CACHE_DIR.")


def test_baked_kernels_that_others_can_change_are_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for level in LEVELS:
        made(place / "baked" / level)
    (place / "baked").chmod(0o777)
    monkeypatch.setattr(baked, "host_features", lambda: frozenset(LEVELS[next(iter(LEVELS))]))
    monkeypatch.setattr(baked, "in_use", None)
    with pytest.raises(CacheDirectoryError, match="others can write"):
        baked.use_baked(place / "baked")
    assert baked.in_use is None
    assert "NUMBA_CPU_NAME" not in os.environ
