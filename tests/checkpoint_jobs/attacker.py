"""A thread that swaps folders, files, links, FIFOs and sizes below a root while jobs run."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Self

from tests.checkpoint_jobs.places import LINKED, Places

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


class Attacker:
    """Swaps things until it is left. `swaps`: how often."""

    def __init__(self, places: Places, seed: int = 0) -> None:
        self._root, self._outside = places.root, places.outside
        self._random = random.Random(seed)
        self._stopped = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._library = ctypes.CDLL(None, use_errno=True)
        self.swaps = 0
        self.error: BaseException | None = None
        self._decoys = self._root / "decoys"
        self._decoys.mkdir()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def wait(self, seconds: float) -> None:
        """Let it go on. Raises what made it end."""
        self._thread.join(seconds)
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        attacks = (
            self._source_folder, self._source_file, self._sizes, self._destination_folder, self._destination_names,
            self._destination_parent,
        )  # fmt: skip
        try:
            while not self._stopped.is_set():
                # Nothing is at some places yet.
                with suppress(OSError, IndexError):
                    self._random.choice(attacks)()
                    self.swaps += 1
        except BaseException as error:
            self.error = error

    def _exchanged(self, place: Path, decoy: Callable[[Path], None]) -> None:
        """Put something into a place in one step, and then back what was there."""
        other = self._decoys / f"{self._random.randrange(1 << 40)}"
        decoy(other)
        try:
            if self._exchange(place, other):
                # For the time of a few calls of the system, or until somebody has noticed.
                self._stopped.wait(self._random.choice((0, 0, 1e-4, 1e-3, 1e-2)))
                self._exchange(place, other)
        finally:
            if other.is_dir() and not other.is_symlink():
                shutil.rmtree(other, ignore_errors=True)
            else:
                other.unlink(missing_ok=True)

    def _exchange(self, first: Path, second: Path) -> bool:
        return not self._library.renameat2(
            _AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE
        )

    def _link_to(self, target: Path) -> Callable[[Path], None]:
        if self._random.random() < 0.5:
            return lambda place: place.symlink_to(target)
        return lambda place: place.symlink_to(os.path.relpath(target, place.parent))

    def _source_folder(self) -> None:
        self._exchanged(self._root / "source", self._link_to(self._outside / "source"))

    def _source_file(self) -> None:
        place = self._random.choice(sorted((self._outside / "source").iterdir()))
        decoys: tuple[Callable[[Path], None], ...] = (
            self._link_to(place), self._link_to(place), os.mkfifo, os.mkdir, self._link_to(Path("/dev/zero")),
        )  # fmt: skip
        self._exchanged(self._root / "source" / place.name, self._random.choice(decoys))

    def _sizes(self) -> None:
        path = self._root / "source" / "model-00001-of-00002.safetensors"
        data = path.read_bytes()
        for size in (len(data) // 2, 0, 1 << 32):
            os.truncate(path, size)
            self._stopped.wait(1e-4)
        os.truncate(path, 0)
        path.write_bytes(data)

    def _destination_folder(self) -> None:
        out = self._root / "out"
        place = self._random.choice([out, *([*out.iterdir()] if out.exists() else [])])
        self._exchanged(place, self._link_to(self._outside / "new"))

    def _destination_names(self) -> None:
        """Links, FIFOs and folders at the names that a job is going to write."""
        destination = self._random.choice([*(self._root / "out").iterdir()])
        name = self._random.choice(
            (
                "requant-manifest.json", "requant-progress", "requant-progress/.job.json", ".requant.lock",
                "config.json",
                "model-00001-of-00002.safetensors.part", "model-00002-of-00002.safetensors.part", "tokenizer.json.part",
                "model.safetensors.index.json",
            )
        )  # fmt: skip
        place, target = destination / name, self._outside / "source" / "tokenizer.json"
        kind = self._random.randrange(4)
        if kind == 0:
            place.symlink_to(self._outside / "new" / "x")
        elif kind == 1:
            place.symlink_to(target)
        elif kind == 2:
            os.mkfifo(place)
        else:
            place.hardlink_to(self._outside / LINKED)
        self._stopped.wait(1e-3)
        place.unlink()

    def _destination_parent(self) -> None:
        """Replace a destination by a link for good; jobs may make a new one."""
        destination = self._random.choice([*(self._root / "out").iterdir()])
        if destination.is_dir() and not destination.is_symlink():
            destination.rename(self._decoys / f"{self._random.randrange(1 << 40)}")
            destination.symlink_to(self._outside / "new")
            self._stopped.wait(1e-3)
            destination.unlink()
            for moved in self._decoys.iterdir():
                shutil.rmtree(moved, ignore_errors=True)
