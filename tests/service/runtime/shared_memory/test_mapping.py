"""Files as arrays: shared in both directions, and no end of the process when their pages vanish."""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from requant_service.runtime.shared_memory.bus_errors import MAX_MAPPINGS
from requant_service.runtime.shared_memory.regions import Mapping
from tests.conftest import ROOT
from tests.support.cases import EXHAUSTIVE, sample

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="objects of shared memory are files on Linux")

PAGE = mmap.PAGESIZE
ROUNDS = 20_000 if EXHAUSTIVE else 200


@pytest.fixture
def file() -> Iterator[int]:
    """Three pages of shared memory."""
    with tempfile.TemporaryFile(dir="/dev/shm") as made:
        made.truncate(3 * PAGE)
        yield made.fileno()


def test_it_is_the_file(file: int) -> None:
    data = Mapping(file, 5, 2 * PAGE).data
    assert len(data) == 2 * PAGE
    data[0], data[-1] = 7, 8
    assert os.pread(file, 1, 5) + os.pread(file, 1, 2 * PAGE + 4) == b"\7\10"
    os.pwrite(file, b"\t", 6)
    assert data[1] == 9


def test_pages_that_vanish_are_zeros(file: int) -> None:
    os.pwrite(file, b"\1" * 3 * PAGE, 0)
    mapping, other = Mapping(file, 0, 3 * PAGE), Mapping(file, 0, 3 * PAGE)
    os.ftruncate(file, PAGE + 1)
    assert not mapping.is_lost
    # The last page of a file goes on with zeros.
    assert (mapping.data[: 2 * PAGE].sum(), mapping.is_lost) == (PAGE + 1, False)
    assert (int(mapping.data[2 * PAGE]), mapping.is_lost) == (0, True)
    mapping.data[:] = 2
    assert os.pread(file, 1, 0) == b"\1"
    # It is each mapping's own: one that has not met the end is what it was.
    assert (int(other.data[0]), other.is_lost) == (1, False)
    os.ftruncate(file, 3 * PAGE)
    assert (Mapping(file, 0, 3 * PAGE).data.sum(), mapping.is_lost) == (PAGE + 1, True)


def test_it_ends_with_the_last_array_over_it(file: int) -> None:
    def is_mapped() -> bool:
        return Path(os.readlink(f"/proc/self/fd/{file}")).name in Path("/proc/self/maps").read_text()

    part = Mapping(file, 0, 3 * PAGE).data[PAGE:].view(np.float32)[5:]
    assert is_mapped()
    assert part.sum() == 0
    del part
    assert not is_mapped()


def test_there_is_a_limit_and_room_after_it(file: int) -> None:
    mappings = []
    with pytest.raises(OSError, match="mappings are in use"):
        mappings += [Mapping(file, 0, PAGE) for _ in range(MAX_MAPPINGS + 1)]
    for _ in range(2 * MAX_MAPPINGS):
        Mapping(file, 0, PAGE)


def test_what_cannot_be_mapped_is_an_error(file: int) -> None:
    with pytest.raises(OSError, match="allocate"):
        Mapping(file, 0, 1 << 60)


def ended(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_kernels_outlive_truncation_from_another_process() -> None:
    done = ended("-X", "faulthandler", "-m", "tests.service.runtime.shared_memory.truncation", str(ROUNDS))
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert min(counts.values()) >= ROUNDS, counts
    assert not done.stderr


# Two of them would take each other's handler for that of somebody else.
FIRST = """
import sys, threading
from requant_service.runtime.shared_memory.bus_errors import bus_errors
sys.setswitchinterval(1e-6)
found, all_there = [], threading.Barrier(8)
def ask():
    all_there.wait()
    found.append(bus_errors())
threads = [threading.Thread(target=ask) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(found), len(set(found)))
"""


def test_there_is_one_handler_whichever_thread_is_first() -> None:
    assert ended("-c", FIRST).stdout == "8 1\n"


# A mapping that is watched, and another one that is not.
WATCHED = """
import faulthandler, mmap, os, signal, tempfile, threading
from requant_service.runtime.shared_memory.regions import Mapping
file = tempfile.TemporaryFile(dir="/dev/shm")
size = 2 * mmap.PAGESIZE
file.truncate(size)
{before}
ours, another = Mapping(file.fileno(), 0, size), mmap.mmap(file.fileno(), size)
{after}
ours.data[size - 1] = 1
file.truncate(0)
assert ours.data[size - 1] == 0 and ours.is_lost
print("alive", flush=True)
{last}
print("still alive", flush=True)
"""
TOUCH = "another[size - 1]"
IN_A_THREAD = "thread = threading.Thread(target=lambda: another[size - 1]); thread.start(); thread.join()"
DUMP = "faulthandler.enable()"


@pytest.mark.parametrize(
    ("before", "after", "last", "dumps"),
    sample(
        [
            ("", "", TOUCH, False),
            ("", "", IN_A_THREAD, False),
            ("", "", "os.kill(os.getpid(), signal.SIGBUS)", False),
            (DUMP, "", TOUCH, True),
            (DUMP, "", IN_A_THREAD, True),
            # The next mapping puts the handler first again.
            ("", f"{DUMP}; next_one = Mapping(file.fileno(), 0, size)", TOUCH, True),
        ],
        2,
    ),
)
def test_any_other_bus_error_ends_the_process(before: str, after: str, last: str, dumps: bool) -> None:
    done = ended("-c", WATCHED.format(before=before, after=after, last=last))
    assert (done.returncode, done.stdout) == (-signal.SIGBUS, "alive\n"), done.stderr
    assert ("Fatal Python error: Bus error" in done.stderr) == dumps


# A file system of its own, in which there is room for one page only.
FULL = """
import os
from requant_service.runtime.shared_memory.regions import Mapping
file = os.open("{directory}/file", os.O_RDWR | os.O_CREAT)
os.ftruncate(file, 1 << 20)
mapping = Mapping(file, 0, 1 << 20)
mapping.data[:] = 1
assert mapping.is_lost
print("alive")
"""


def test_a_full_file_system_is_no_end(tmp_path: Path) -> None:
    mount = f"mount -t tmpfs -o size=8k none {tmp_path}"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    code = FULL.format(directory=tmp_path)
    command = ["unshare", "-m", "sh", "-c", f'{mount} && exec "$0" -c "$1"', sys.executable, code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
