"""A pack as files, and as an archive that is the same, byte for byte, whenever it is made.

README.md, manifest.json, SHA256SUMS
CASE/vectors.json, vectors.npz, vectors.h, vectors.mem, testbench.c, testbench.sv
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

from requant.convert.vectors.export import Table
from requant.errors import StorageError
from requant.operations.vectors import Format, MadeVectors, vectors_file, vectors_members
from requant.packs.cases import PackCase, cases_of
from requant.packs.test_benches import c_test_bench, verilog_test_bench

PACK_VERSION = "1.0"
"""Of the vectors and the layout: another one where any byte of a case changes."""
_LEVEL = 19
_MODE = 0o644
# No pack is unpacked beyond that.
_LARGEST = 1 << 30


def pack_name(name: str) -> str:
    """Return the name of the folder in a pack, and of its archive before the suffix."""
    return f"requant-vectors-{name}-{PACK_VERSION}"


def pack_files(name: str) -> dict[str, bytes]:
    """Return the files of the pack of a profile or scheme, by their paths in it. Raise UnknownNameError."""
    files: dict[str, bytes] = {}
    described = []
    for case in cases_of(name):
        for file, content in _case_files(name, case):
            files[f"{case.name}/{file}"] = content
        described.append(
            {
                "name": case.name,
                "vectors": len(case.made.found.vectors),
                "rounding": case.made.rounding,
                "request": case.made.call.given(),
            }
        )
    manifest = {"name": name, "version": PACK_VERSION, "licence": "Apache-2.0", "cases": described}
    files["manifest.json"] = (json.dumps(manifest, indent=1) + "\n").encode()
    files["README.md"] = _readme(name, described).encode()
    sums = "".join(f"{sha256(content).hexdigest()}  {path}\n" for path, content in sorted(files.items()))
    files["SHA256SUMS"] = sums.encode()
    return files


def _case_files(name: str, case: PackCase) -> Iterator[tuple[str, bytes]]:
    made = case.made
    yield "vectors.json", (json.dumps(vectors_members(made)) + "\n").encode()
    for form, file in ((Format.NPZ, "vectors.npz"), (Format.C_HEADER, "vectors.h"), (Format.READMEMH, "vectors.mem")):
        yield file, vectors_file(made, form)
    table, about = Table.of(made.found), _about(name, case, made)
    yield "testbench.c", c_test_bench(table, made.identifier, about).encode()
    yield "testbench.sv", verilog_test_bench(table, len(made.found.vectors), about).encode()


def _about(name: str, case: PackCase, made: MadeVectors) -> list[str]:
    return [
        f"{case.name} by {name}, which rounds: {made.rounding}. {len(made.found.vectors)} vectors.",
        "",
        "The steps of an ordinary element:",
        *(f"    {line}" for line in made.found.formula),
    ]


def _readme(name: str, cases: list[dict[str, object]]) -> str:
    rows = "\n".join(f"| `{each['name']}` | {each['vectors']} | {each['rounding']} |" for each in cases)
    return f"""# Test vectors of {name}, version {PACK_VERSION}

Inputs worth testing, with the bits that {name} gives for them, every intermediate value, and the reasons for their
selection. Made by Requant with `requant vectors`; `manifest.json` has the request of each case. The licence is
Apache-2.0 (https://www.apache.org/licenses/LICENSE-2.0). `sha256sum -c SHA256SUMS` checks the files.

| case | vectors | rounding |
| --- | --- | --- |
{rows}

A case has its vectors as JSON, as an `.npz` archive, as a C header, and as words for `$readmemh`, and two test benches
that check themselves: `testbench.c` calls a function `kernel`, and `testbench.sv` drives a module `dut`. Each says at
its top how it is compiled, and ends with a status that is not 0 if a vector fails. A program in any language is checked
by

    requant vectors verify PACK --command "./my_kernel {{in}} {{out}}"
"""


def pack_archive(name: str) -> bytes:
    """Return the pack as a tar archive, compressed with Zstandard. Raise UnknownNameError, and StorageError without
    the package `zstandard`.
    """
    zstandard = _zstandard()
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, content in sorted(pack_files(name).items()):
            entry = tarfile.TarInfo(f"{pack_name(name)}/{path}")
            entry.size, entry.mode = len(content), _MODE
            archive.addfile(entry, io.BytesIO(content))
    compressed: bytes = zstandard.ZstdCompressor(level=_LEVEL, threads=0).compress(target.getvalue())
    return compressed


def read_pack(path: Path) -> Mapping[str, bytes]:
    """Return the files of a pack: of an archive, or of a folder. Raise StorageError for what is none, or is damaged."""
    try:
        files = _files_of_folder(path) if path.is_dir() else _files_of_archive(path)
        stated = dict(line.split("  ", 1)[::-1] for line in files["SHA256SUMS"].decode().splitlines())
    except (OSError, KeyError, ValueError, tarfile.TarError) as error:
        raise StorageError(f"{path} is no pack of vectors: {error}") from None
    for name, digest in stated.items():
        if name not in files or sha256(files[name]).hexdigest() != digest:
            raise StorageError(f"{path} is damaged: {name} is not what SHA256SUMS says")
    return files


def _files_of_folder(path: Path) -> dict[str, bytes]:
    return {each.relative_to(path).as_posix(): each.read_bytes() for each in path.rglob("*") if each.is_file()}


def _files_of_archive(path: Path) -> dict[str, bytes]:
    content = path.read_bytes()
    if path.suffix == ".zst":
        zstandard = _zstandard()
        try:
            content = zstandard.ZstdDecompressor().decompress(content, max_output_size=_LARGEST)
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from None
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        members = [each for each in archive if each.isfile()]
        read = {each.name.partition("/")[2]: archive.extractfile(each) for each in members}
        return {name: file.read() for name, file in read.items() if file is not None}


def _zstandard() -> Any:
    try:
        return import_module("zstandard")
    except ImportError:
        raise StorageError(
            "archives of packs need the package zstandard: pip install 'requant[packs]', or unpack the archive"
        ) from None
