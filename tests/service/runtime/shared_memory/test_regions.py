"""Regions of shared memory: what may be registered, and what a use of one gets when its object has changed."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from requant.errors import InvalidRequestError, LimitError, RequantError, SharedMemoryError, UnknownNameError
from requant_service.runtime.shared_memory.regions import DIRECTORY, LONGEST_NAME, SharedMemory
from requant_service.runtime.shared_memory.registry import RegionStatus

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="objects of shared memory are files on Linux")

SIZE = 10_000


@pytest.fixture
def path() -> Iterator[Path]:
    """An object of `SIZE` bytes."""
    made = DIRECTORY / f"requant-test-{uuid4().hex}"
    made.write_bytes(b"\1" * SIZE)
    yield made
    made.unlink(missing_ok=True)


@pytest.fixture
def regions() -> SharedMemory:
    return SharedMemory(3)


def open_files() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_registered_and_forgotten(regions: SharedMemory, path: Path) -> None:
    before = open_files()
    regions.register("a", f"/{path.name}", 0, SIZE)
    regions.register("b", path.name, 4097, 10)
    a, b = RegionStatus("a", f"/{path.name}", 0, SIZE), RegionStatus("b", path.name, 4097, 10)
    assert regions.statuses() == [a, b]
    assert regions.status("b") == b
    assert (len(regions), regions.mapped_bytes) == (2, SIZE + 10)
    span = regions.span("b", 3, 7)
    span.data[:] = 5
    assert path.read_bytes().count(b"\5") == 7
    assert path.read_bytes().index(b"\5") == 4100
    regions.unregister("b")
    assert regions.statuses() == [a]
    # A use outlives its region.
    span.data[:] = 6
    assert path.read_bytes().count(b"\6") == 7
    regions.unregister_all()
    assert regions.statuses() == []
    del span
    assert open_files() == before


@pytest.mark.parametrize(
    "key",
    [
        "", "/", ".", "..", "/.", "/..", "//{}", "a/../{}", "/shm/{}", "../shm/{}", "/dev/shm/{}", "{}/", "{}\0", "\0",
        "{}\ud800", "a" * 256, "é" * 128,
    ],
)  # fmt: skip
def test_a_key_is_no_path(regions: SharedMemory, path: Path, key: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        regions.register("a", key.format(path.name), 0, 1)
    assert caught.value.faults[0].pointer == "/key"
    assert len(str(caught.value)) < 200


def test_what_is_no_shared_memory_object(regions: SharedMemory, path: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"secret")
    path.unlink()
    before = open_files()
    ways: dict[str, Callable[[], object]] = {
        "no such object": lambda: None,
        "symbolic link": lambda: path.symlink_to(outside),
        "a directory": path.mkdir,
        "not a shared memory object": lambda: os.mkfifo(path),
    }
    for says, make in ways.items():
        make()
        with pytest.raises(SharedMemoryError, match=says) as caught:
            regions.register("a", path.name, 0, 1)
        assert caught.value.pointer == "/key"
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
    assert open_files() == before
    assert not regions.statuses()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may open everything")
def test_an_object_of_another_user(regions: SharedMemory, path: Path) -> None:
    path.chmod(0)
    with pytest.raises(SharedMemoryError, match=f"runs as user {os.geteuid()}"):
        regions.register("a", path.name, 0, 1)


@pytest.mark.parametrize(
    ("offset", "size", "place"),
    [
        (0, SIZE + 1, "/byte_size"), (1, SIZE, "/byte_size"), (SIZE, 1, "/offset"), (1 << 63, 1, "/offset"),
        (0, 1 << 63, "/byte_size"), ((1 << 64) - 1, (1 << 64) + 1, "/offset"), (1, 10**40, "/byte_size"),
        (-1, 1, "/offset"), (0, 0, "/byte_size"), (0, -1, "/byte_size"),
    ],
)  # fmt: skip
def test_offset_and_size_fit_the_object(regions: SharedMemory, path: Path, offset: int, size: int, place: str) -> None:
    before = open_files()
    with pytest.raises(RequantError) as caught:
        regions.register("a", path.name, offset, size)
    faults = getattr(caught.value, "faults", ())
    assert (faults[0].pointer if faults else caught.value.pointer) == place
    del caught
    assert open_files() == before


def test_names_and_their_number(regions: SharedMemory, path: Path) -> None:
    for name in ("", "a" * (LONGEST_NAME + 1)):
        with pytest.raises(InvalidRequestError, match="1 to 256 characters"):
            regions.register(name, path.name, 0, 1)
    regions.register("a" * LONGEST_NAME, path.name, 0, 1)
    with pytest.raises(SharedMemoryError, match="registered already"):
        regions.register("a" * LONGEST_NAME, path.name, 0, 1)
    regions.register("b", path.name, 0, 1)
    regions.register("c", path.name, 0, 1)
    with pytest.raises(LimitError) as caught:
        regions.register("d", path.name, 0, 1)
    assert caught.value.limit == 3
    regions.unregister("b")
    regions.register("d", path.name, 0, 1)
    for unknown in (regions.unregister, regions.status):
        with pytest.raises(UnknownNameError, match="'b'"):
            unknown("b")


def test_a_part_that_is_not_there(regions: SharedMemory, path: Path) -> None:
    regions.register("a", path.name, 100, 1000)
    assert len(regions.span("a", 1000, 0).data) == 0
    for offset, size in ((0, 1001), (1000, 1), (1 << 64, 0), (0, 1 << 64)):
        with pytest.raises(InvalidRequestError, match="which has 1000"):
            regions.span("a", offset, size)
    with pytest.raises(UnknownNameError, match="'b'"):
        regions.span("b", 0, 1)


def test_an_object_that_shrinks(regions: SharedMemory, path: Path) -> None:
    regions.register("a", path.name, 0, SIZE)
    used = regions.span("a", 0, SIZE)
    os.truncate(path, 5000)
    used.check()
    assert regions.span("a", 0, 5000).data.sum() == 5000
    with pytest.raises(SharedMemoryError, match="has shrunk to 5000 bytes"):
        regions.span("a", 0, 5001)
    assert used.data[-1] == 0
    with pytest.raises(SharedMemoryError, match="shrank while it was used"):
        used.check()
    os.truncate(path, SIZE)
    again = regions.span("a", 0, SIZE)
    again.data[-1] = 9
    assert path.read_bytes()[-1] == 9
    again.check()


def test_an_object_that_vanishes_is_still_shared(regions: SharedMemory, path: Path) -> None:
    """As after shm_unlink(3): whoever has it mapped goes on with it."""
    with path.open("rb") as opened:
        regions.register("a", path.name, 0, SIZE)
        path.unlink()
        regions.span("a", 0, 1).data[0] = 7
        assert opened.read(1) == b"\7"
    with pytest.raises(SharedMemoryError, match="no such object"):
        regions.register("b", path.name, 0, 1)


def test_overlap_is_a_matter_of_the_object(regions: SharedMemory, path: Path) -> None:
    regions.register("a", path.name, 0, 5000)
    regions.register("b", f"/{path.name}", 4000, 5000)
    assert regions.span("a", 4000, 1).overlaps(regions.span("b", 0, 1))
    assert not regions.span("a", 3999, 1).overlaps(regions.span("b", 0, 1))
    assert not regions.span("a", 0, 100).overlaps(regions.span("a", 100, 100))
