"""`python -m benchmarks.checkpoint.copying SOURCE TARGET [BYTES]`: copy the files of a directory, as `cp` does.

With BYTES, all is read and only as much is written: what a conversion to that size moves, and nothing is computed.
It reads and writes in pieces of 4 MiB in two threads, each at its own place, and brings each file to the disk.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_PIECE = 4 << 20
_THREADS = 2


def copy(source: Path, target: Path, share: float = 1.0) -> None:
    """Copy the files. `share`: of each piece that is written."""
    target.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        size = path.stat().st_size
        output = os.open(target / path.name, os.O_CREAT | os.O_WRONLY, 0o666)
        descriptor = os.open(path, os.O_RDONLY)
        os.truncate(output, int(size * share))

        def move(begin: int, descriptor: int = descriptor, output: int = output) -> None:
            data = os.pread(descriptor, _PIECE, begin)
            os.pwrite(output, memoryview(data)[: int(len(data) * share)], int(begin * share))

        with ThreadPoolExecutor(_THREADS) as executor:
            list(executor.map(move, range(0, size, _PIECE)))
        os.fsync(output)
        os.close(output)
        os.close(descriptor)


if __name__ == "__main__":
    _source, _target = Path(sys.argv[1]), Path(sys.argv[2])
    _size = sum(path.stat().st_size for path in _source.iterdir())
    copy(_source, _target, int(sys.argv[3]) / _size if len(sys.argv) > 3 else 1.0)
