"""Paths below roots: links that lead out, before and after they were looked at, with and without openat2."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from requant.checkpoint.storage import paths
from requant.checkpoint.storage.local import LOCK_FILE, MAX_DEPTH, LocalStore
from requant.checkpoint.storage.paths import FOLDER, MAX_FOLDERS, MAX_LINKS, OutsideRootsError, PathsBelow
from requant.checkpoint.storage.store import StoredFile
from requant.errors import DestinationError, StorageError

SECRET = b"of another user"
ASKED_OF_THE_KERNEL = paths._kernel_opens_beneath.__wrapped__


@pytest.fixture(params=["openat2", "by hand"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "by hand":
        monkeypatch.setattr(paths, "_kernel_opens_beneath", lambda: False)
    elif not paths._kernel_opens_beneath():
        pytest.skip("the kernel has no openat2, or a sandbox refuses it")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two roots and what is outside of them."""
    for name in ("root/model", "second/model", "outside/model"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "data").write_bytes(SECRET if "outside" in name else name.encode())
    return tmp_path / "root"


@pytest.fixture
def below(root: Path) -> PathsBelow:
    return PathsBelow([str(root), str(root.parent / "second")])


def read(below: PathsBelow, path: Path) -> bytes:
    descriptor = below.open(str(path), os.O_RDONLY)
    try:
        return os.read(descriptor, 100)
    finally:
        os.close(descriptor)


LINKS: list[tuple[str, str | None]] = [
    ("model", "root/model"),
    ("./model/", "root/model"),
    ("model/../model", "root/model"),
    ("../root/model", "root/model"),
    ("../../{name}/root/model", "root/model"),
    ("{tmp}/root/model", "root/model"),
    ("{tmp}/second/model", "second/model"),
    ("../second/model", "second/model"),
    ("{tmp}/outside/../root/model", "root/model"),
    ("{tmp}/alias/model", "root/model"),
    ("../outside/model", None),
    ("{tmp}/outside/model", None),
    ("{tmp}/root-2/model", None),
    ("../outside-alias", None),
    ("/proc/self/cwd", None),
    ("/", None),
    ("..", None),
]


@pytest.mark.parametrize(("target", "leads_to"), LINKS)
def test_links(root: Path, below: PathsBelow, target: str, leads_to: str | None) -> None:
    (root.parent / "root-2").symlink_to(root.parent / "outside")
    (root.parent / "alias").symlink_to("root")
    (root.parent / "outside-alias").symlink_to("outside/model")
    (root / "link").symlink_to(target.format(tmp=root.parent, name=root.parent.name))
    (root / "twice").symlink_to("link")
    for name in ("link", "twice"):
        if leads_to is None:
            for path in (root / name, root / name / "data"):
                with pytest.raises(OutsideRootsError):
                    below.resolve(str(path))
                with pytest.raises(OutsideRootsError):
                    below.open(str(path), os.O_RDONLY)
        else:
            assert below.resolve(str(root / name)) == str(root.parent / leads_to)
            assert read(below, root / name / "data") == leads_to.encode()


def test_a_root_is_no_place_for_a_checkpoint(root: Path, below: PathsBelow) -> None:
    (root / "up").symlink_to(".")
    for path in (root, root / "model" / "..", root / "up", root.parent, "/"):
        with pytest.raises(OutsideRootsError):
            below.resolve(str(path))
    os.close(below.open(str(root / "up" / "model"), FOLDER))


def test_what_does_not_exist_yet(root: Path, below: PathsBelow) -> None:
    (root / "link").symlink_to("model")
    assert below.resolve(f"{root}/link/a//./b/") == str(root / "model" / "a" / "b")
    assert below.resolve(f"{root.parent}/second/new") == f"{root.parent}/second/new"
    with pytest.raises(FileNotFoundError):
        below.resolve(f"{root}/new/../../outside")
    assert PathsBelow([f"{root}/no/root"]).resolve(f"{root}/no/root/a/b") == f"{root}/no/root/a/b"
    for path in (f"{root.parent}/new", f"{root}/../new/x"):
        with pytest.raises(OutsideRootsError):
            below.resolve(path)
    fresh = PathsBelow([f"{root}/no/root"])
    fresh.make_directory(f"{root}/no/root/a/b")
    assert (root / "no" / "root" / "a" / "b").is_dir()


def test_links_that_never_end(root: Path, below: PathsBelow) -> None:
    (root / "loop").symlink_to("loop")
    for number in range(3000):
        (root / f"link{number}").symlink_to(f"link{number + 1}")
    (root / "link3000").symlink_to("model")
    for name in ("loop", "link0", f"link{3000 - MAX_LINKS}"):
        for call in (lambda: below.resolve(f"{root}/{name}"), lambda: below.open(f"{root}/{name}/data", 0)):  # noqa: B023
            with pytest.raises(OSError, match="symbolic links") as caught:
                call()
            assert caught.value.errno == errno.ELOOP
    assert below.resolve(f"{root}/link{3001 - MAX_LINKS}") == str(root / "model")


def test_folders_in_one_another(root: Path, below: PathsBelow) -> None:
    deep = root / "model" / "/".join("d" * MAX_DEPTH)
    deep.mkdir(parents=True)
    (deep / "x").touch()
    store = LocalStore(root / "model", below)
    assert [file.name for file in store.files()] == [f"{'d/' * MAX_DEPTH}x", "data"]
    (deep / "d").mkdir()
    with pytest.raises(StorageError, match="more than 100 folders in one another"):
        store.files()


def test_a_path_longer_than_the_system_takes(root: Path, below: PathsBelow) -> None:
    for call in (below.resolve, lambda path: below.open(path, os.O_RDONLY)):
        with pytest.raises(OSError, match="name too long"):
            call(f"{root}/{'d/' * 3000}")


def test_folders_that_are_open_at_a_time(root: Path, below: PathsBelow) -> None:
    place = root / "model" / "/".join("d" * MAX_FOLDERS)
    place.mkdir(parents=True)
    assert below.resolve(str(place.parent)) == str(place.parent)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="name too long"):
        below.resolve(str(place))
    assert len(os.listdir("/proc/self/fd")) == before


def test_no_descriptor_stays_open(root: Path) -> None:
    (root / "out").symlink_to("../outside/model")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        below = PathsBelow([str(root), str(root.parent / "second")])
        store = LocalStore(root / "model", below)
        store.put("a/b", b"1")
        (file, *_) = store.files()
        store.read_into(file, 0, memoryview(bytearray(1)))
        with store.lock(), store.create("x", 0) as writer:
            writer.commit()
        assert not store.overlaps(LocalStore(root / "x", below))
        with suppress(StorageError):
            LocalStore(root / "out", below).files()
        with suppress(OSError):
            below.resolve(f"{root}/out/data")
        store.remove("a/b")
        del below, store, writer
    # Others' may have been closed meanwhile: those that the tests before have left in cycles.
    assert len(os.listdir("/proc/self/fd")) <= before


def calls(store: LocalStore, file: StoredFile) -> Iterator[tuple[str, Callable[[], object]]]:
    """All that a store can be asked for."""

    def write() -> None:
        with store.create("folder/new", 3) as writer:
            writer.write(0, b"abc")
            writer.commit()

    def lock() -> None:
        with store.lock():
            pass

    yield "files", store.files
    yield "folders", store.below("folder").folders
    yield "find", lambda: store.find("folder/data")
    yield "get", lambda: store.get("folder/data")
    yield "read_into", lambda: store.read_into(file, 0, memoryview(bytearray(file.size)))
    yield "put", lambda: store.put("folder/small", b"abc")
    yield "put if absent", lambda: store.put("folder/small", b"abc", only_if_absent=True)
    yield "create", write
    yield "remove", lambda: store.remove("folder/data")
    yield "lock", lock


@pytest.mark.parametrize("swapped", ["root/a", "root/a/store", "root/a/store/folder"])
@pytest.mark.parametrize("absolute", [False, True])
def test_a_link_in_the_place_of_a_folder(tmp_path: Path, swapped: str, absolute: bool) -> None:
    """After the path was looked at: the store is open, and what it had found is a link to what looks the same."""
    for top in ("root", "outside"):
        folder = tmp_path / top / "a" / "store" / "folder"
        folder.mkdir(parents=True)
        (folder / "data").write_bytes(SECRET)
        os.utime(folder / "data", ns=(1, 1))
    below = PathsBelow([str(tmp_path / "root")])
    store = LocalStore(below.resolve(str(tmp_path / "root" / "a" / "store")), below)
    file = store.find("folder/data")
    assert file is not None
    place = tmp_path / swapped
    place.rename(tmp_path / "kept")
    outside = str(place).replace("root", "outside", 1) if absolute else None
    place.symlink_to(outside or f"{'../' * (swapped.count('/'))}{swapped.replace('root', 'outside', 1)}")
    before = sorted(tmp_path.joinpath("outside").rglob("*"))
    times = [os.stat(path).st_ctime_ns for path in before]
    for name, call in calls(store, file):
        if name == "lock" and swapped.endswith("folder"):
            continue
        with pytest.raises(StorageError) as caught:
            call()
        assert SECRET.decode() not in str(caught.value)
        assert str(tmp_path / "outside") not in str(caught.value)
    assert sorted(tmp_path.joinpath("outside").rglob("*")) == before
    assert [os.stat(path).st_ctime_ns for path in before] == times


def test_a_link_to_another_folder_of_the_root_is_not_written_through(root: Path, below: PathsBelow) -> None:
    store = LocalStore(root / "model", below)
    (root / "model" / "folder").symlink_to("../other")
    (root / "other").mkdir()
    for write in (lambda: store.put("folder/x", b""), lambda: store.create("folder/x", 1)):
        with pytest.raises(StorageError):
            write()
    assert not list((root / "other").iterdir())


def test_a_folder_that_is_replaced_while_a_file_of_it_is_written(root: Path, below: PathsBelow) -> None:
    store = LocalStore(root / "model", below)
    with store.create("folder/x", 3) as writer:
        writer.write(0, b"abc")
        (root / "model" / "folder").rename(root / "moved")
        (root / "model" / "folder").symlink_to(root.parent / "outside")
        with pytest.raises(StorageError):
            writer.commit()
    (root / "model" / "folder").unlink()
    with store.create("folder/x", 3) as writer:
        writer.write(0, b"abc")
        part = root / "model" / "folder" / "x.part"
        part.unlink()
        part.write_bytes(b"of another")
        with pytest.raises(StorageError, match="was replaced while it was written"):
            writer.commit()
    assert part.read_bytes() == b"of another"


@pytest.mark.parametrize("name", ["x.part", LOCK_FILE])
@pytest.mark.parametrize("kind", ["link", "hard link"])
def test_names_of_files_that_are_opened_to_be_written(root: Path, below: PathsBelow, name: str, kind: str) -> None:
    """`.part` and the lock file are opened if they exist: not where the name is one of a file outside."""
    secret, store = root.parent / "outside" / "model" / "data", LocalStore(root / "model", below)
    if kind == "link":
        (root / "model" / name).symlink_to(secret)
    else:
        (root / "model" / name).hardlink_to(secret)
    with suppress(StorageError), store.lock(), store.create("x", 3) as writer:
        writer.write(0, b"abc")
        writer.commit()
    assert secret.read_bytes() == SECRET


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        folder = os.open(path.parent, FOLDER)
        bound.bind(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)


def make_link_to_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [make_fifo, make_socket, os.mkdir, make_link_to_device])
def test_what_is_no_regular_file(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Nothing waits for the other end of a FIFO, with or without roots."""
    for name in ("x", "y.part"):
        make(tmp_path / name)
    plain = LocalStore(tmp_path)

    def ask() -> None:
        for store in (plain, LocalStore(tmp_path, PathsBelow([str(tmp_path.parent)]))):
            outside = make is make_link_to_device and store is not plain
            if not outside:
                assert store.find("x") is None
                assert store.files() == ()
            refused = r"expected a|is a directory|leads out"
            with pytest.raises(StorageError, match=refused):
                store.get("x")
            with pytest.raises(StorageError, match=refused):
                store.read_into(StoredFile("x", 1, ""), 0, memoryview(bytearray(1)))
            with pytest.raises(StorageError):
                store.create("y", 1)
        passed.append(True)

    passed: list[bool] = []
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(20)
    assert passed, "it waits, or failed"


def test_a_fifo_as_the_lock(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / LOCK_FILE)
    with pytest.raises(StorageError, match="a FIFO"), LocalStore(tmp_path).lock():
        pass


def test_overlaps(root: Path, below: PathsBelow) -> None:
    (root / "link").symlink_to("model")
    model = LocalStore(root / "model", below)
    for place, overlaps in (
        ("model", True),
        ("model/new/x", True),
        ("link/x", True),
        ("new", False),
        ("model2", False),
    ):
        assert LocalStore(root / place, below).overlaps(model) is overlaps, place
        assert LocalStore(root / place).overlaps(LocalStore(root / "link")) is overlaps, place
    assert not LocalStore(root / "no" / "root" / "x", PathsBelow([f"{root}/no/root"])).overlaps(model)


def test_more_entries_than_a_checkpoint_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("requant.checkpoint.storage.local.MAX_ENTRIES", 20)
    for number in range(21):
        (tmp_path / str(number)).touch()
    with pytest.raises(StorageError, match="more than 20 entries"):
        LocalStore(tmp_path).files()


def test_the_lock_is_held_through_one_name(tmp_path: Path) -> None:
    first, second = LocalStore(tmp_path), LocalStore(tmp_path)
    with first.lock(), pytest.raises(DestinationError, match="another run"), second.lock():
        pass


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM, errno.E2BIG])
def test_a_kernel_or_a_sandbox_without_openat2(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refused(*_: object) -> int:
        ctypes.set_errno(code)
        return -1

    monkeypatch.setattr(paths, "_openat2", refused)
    assert not ASKED_OF_THE_KERNEL()
