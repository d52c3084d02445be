"""Several arrays as one `.npz`, what `numpy.savez` writes: a zip of `.npy` files, not compressed.

The arrays are not copied: the archive is a list of buffers, of which they are some. Its bytes depend on them alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray

from requant_service.http.responses import Buffer
from requant_service.npy_api.format import write_header

# From here on the sizes of a member need the 64 bits of ZIP64.
_LARGE = (1 << 31) - (1 << 20)


class _Buffers:
    """A file that cannot be read and keeps what is written as it is."""

    def __init__(self) -> None:
        self.written: list[Buffer] = []

    def write(self, data: Buffer) -> int:
        self.written.append(data)
        return len(data)

    def flush(self) -> None:
        pass


def write_npz(arrays: Mapping[str, NDArray[Any]]) -> list[Buffer]:
    """Return the archive of contiguous arrays. Their checksums take a moment, and let other threads run."""
    file = _Buffers()
    with ZipFile(file, "w", ZIP_STORED) as archive:  # type: ignore[call-overload]  # it needs write and flush alone
        for name, array in arrays.items():
            with archive.open(ZipInfo(f"{name}.npy"), "w", force_zip64=array.nbytes > _LARGE) as member:
                member.write(write_header(array.dtype, array.shape))
                member.write(array.reshape(-1).view(np.uint8).data)
    return file.written
