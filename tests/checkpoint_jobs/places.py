"""A root with models, links and other things in it, and what is outside of it, which nothing may touch.

The model outside has the names, sizes and times of the one inside, so that a job that got hold of it would not notice.
Its files hold `CANARY`, and have never been read: reading one would set its time of access.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.model_directory import make_model

CANARY = "a secret of somebody else"
LINKED = "linked"
"""A file outside that has names below the root, too: hard links may be read, and are not written."""
_NEVER = 1_000_000_000
_MAX_BYTES = 1 << 24
FOLDER = os.O_RDONLY | os.O_DIRECTORY


@dataclass(frozen=True)
class Places:
    """`root`: what jobs may use. `outside`: what they may not."""

    root: Path
    outside: Path
    before: dict[Path, tuple[int, ...]]

    def touched(self) -> list[str]:
        """Return what was read, written or created outside."""
        now = _state(self.outside)
        found = [f"{path} is new" for path in now.keys() - self.before.keys()]
        found += [f"{path} is gone" for path in self.before.keys() - now.keys()]
        return found + [
            f"{path} was touched" for path in now.keys() & self.before.keys() if now[path] != self.before[path]
        ]

    def leaks(self) -> Iterator[str]:
        """Yield the files below the root that hold what only files outside held."""
        for folder, _, names in os.walk(self.root):
            for name in names:
                path = Path(folder, name)
                status = path.lstat()
                # Other names of a file outside are the attacker's.
                plain = stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_size < _MAX_BYTES
                if plain and CANARY.encode() in path.read_bytes():
                    yield str(path)


def make_places(directory: Path) -> Places:
    """Write both. Raises RuntimeError for a file system that keeps no times of access."""
    root, outside = directory / "root", directory / "outside"
    inside = make_model(root / "source", size=32)
    (inside / "tokenizer.json").write_text("x" * len(CANARY))
    make_model(root / "second", size=32, shards=1)
    hidden = make_model(outside / "source", size=32)
    for path in hidden.iterdir():
        if path.suffix == ".json" and path.name != "model.safetensors.index.json":
            path.write_text(CANARY if path.name == "tokenizer.json" else f'{{"architectures": ["{CANARY}"]}}')
    (outside / LINKED).write_text("{}")
    for folder in (outside / "new", outside / "requant-progress"):
        folder.mkdir()
    _make_oddities(root, outside)
    for path in (*outside.rglob("*"), outside):
        other = root / path.relative_to(outside)
        os.utime(path, ns=(_NEVER, os.stat(other).st_mtime_ns if other.is_file() else 2 * _NEVER))
    before = _state(outside)
    _check_times_of_access(directory)
    return Places(root, outside, before)


def _make_oddities(root: Path, outside: Path) -> None:
    """Put everything below the root that is not a directory or a regular file, and links to all of it."""
    odd = root / "odd"
    odd.mkdir()
    targets: dict[str, str | Path] = {
        "out": outside / "source",
        "out-relative": "../../outside/source",
        "passwd": "/etc/passwd",
        "zero": "/dev/zero",
        "here": "/proc/self/cwd",
        "fd": "/proc/self/fd/0",
        "loop": "loop",
        "dangling": "nothing",
        "up": "..",
        "in": "../source",
        "in-absolute": root / "source",
        "around": "../../root/source",
    }
    for name, target in targets.items():
        (odd / name).symlink_to(target)
    for number in range(1200):
        (odd / f"chain{number}").symlink_to(f"chain{number + 1}")
    os.mkfifo(odd / "fifo")
    _listen(odd / "socket")
    (odd / "file").write_bytes(b"x")
    for name in ("config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json"):
        for kind in ("fifo", "folder", "out", "zero", "sparse", "socket"):
            model = make_model(odd / f"{name}-{kind}", size=32)
            (model / name).unlink(missing_ok=True)
            if kind == "fifo":
                os.mkfifo(model / name)
            elif kind == "folder":
                (model / name).mkdir()
            elif kind == "out":
                (model / name).symlink_to(outside / "source" / name)
            elif kind == "zero":
                (model / name).symlink_to("/dev/zero")
            elif kind == "sparse":
                with (model / name).open("wb") as sparse:
                    sparse.truncate(1 << 31)
            else:
                _listen(model / name)
    for kind in ("fifo", "out", "sparse", "bytes", "up"):
        cache = odd / f"models--owner--{kind}"
        make_model(cache / "snapshots" / ("0" * 40), size=32)
        make_model(cache / "snapshots" / ("1" * 40), size=32)
        (cache / "refs").mkdir()
        main = cache / "refs" / "main"
        if kind == "fifo":
            os.mkfifo(main)
        elif kind == "out":
            main.symlink_to(outside / "source" / "config.json")
        elif kind == "sparse":
            with main.open("wb") as sparse:
                sparse.truncate(1 << 31)
        else:
            main.write_bytes(b"\xff\xfe" if kind == "bytes" else b"../../../../../../outside/source")
    for kind in ("fifo", "out", "hard"):
        # Destinations in which something already has the names of what a job writes.
        for name in ("requant-manifest.json", "requant-progress", ".requant.lock", "config.json.part"):
            folder = odd / f"destination-{kind}-{name}"
            folder.mkdir()
            if kind == "fifo":
                os.mkfifo(folder / name)
            elif kind == "out":
                (folder / name).symlink_to(outside / "new")
            elif name != "requant-progress":
                (folder / name).hardlink_to(outside / LINKED)
    (odd / "\N{GREEK SMALL LETTER ALPHA}\N{COMBINING ACUTE ACCENT}").mkdir()
    names = make_model(odd / "names", size=32)
    for name in (os.fsdecode(b"\xff.json"), "new\nline.json", "\u202e.json", "a\\b.json", "-rf"):
        (names / name).write_bytes(b"{}")
    os.symlink(b"bytes-\xff", os.fsencode(odd / "to-bytes"))
    os.mkdir(os.path.join(os.fsencode(odd), b"bytes-\xff"))


def _listen(path: Path) -> None:
    # The name of a socket has at most 107 bytes.
    folder = os.open(path.parent, FOLDER)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)


def _state(directory: Path) -> dict[Path, tuple[int, ...]]:
    """Return what reading, writing and creating changes. Nothing is read here."""
    found: dict[Path, tuple[int, ...]] = {}
    for path in (directory, *directory.rglob("*")):
        status = path.lstat()
        kept = (status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode)
        # This lists folders, which sets their times.
        found[path] = kept if path.is_dir() or path.name == LINKED else (*kept, status.st_atime_ns)
    return found


def _check_times_of_access(directory: Path) -> None:
    probe = directory / "probe"
    probe.write_bytes(b"x")
    os.utime(probe, ns=(_NEVER, 2 * _NEVER))
    probe.read_bytes()
    if probe.stat().st_atime_ns == _NEVER:
        raise RuntimeError(f"the file system of {directory} keeps no times of access (noatime): choose another TMPDIR")
    probe.unlink()
