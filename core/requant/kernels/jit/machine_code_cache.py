"""The cache of compiled kernels: one file for each specialisation, which is verified before anything is done with it.

A file holds a checksum and a pickle with the machine code. The checksum is taken of the pickle and of all that the
machine code depends on: the sources, the function and what it captures, its signature, the target and the compilers. So
a file that was cut short or changed, or that belongs to another kernel, is refused like one of another version; then
the kernel is compiled, and its file replaced. A file is written under another name and renamed, so that processes can
share a directory. Nothing is shared between files that one process could overwrite for another.

numba's own cache verifies nothing, and keeps the LLVM code of a function beside its machine code, for other functions
that want to inline it; reading that takes more than half of a start. Nothing is inlined from a kernel, so only the
names of its symbols are kept.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import re
import stat
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import llvmlite
import numba
from llvmlite import binding
from numba import types
from numba.core import config
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps

from requant.kernels.jit import baked
from requant.kernels.jit.cache_directory import cache_directory, writable_by_others
from requant.kernels.jit.sources import FOLDER, KERNELS, SOURCES

_log = logging.getLogger(__name__)

_SUFFIX = ".kernel"
_MAGIC = b"requant kernel 1"
_CHECKSUM = hashlib.sha256

# What changes machine code beside the target. A bounds-checked kernel is never taken for one without the checks.
_OPTIONS = ("OPT", "BOUNDSCHECK", "LOOP_VECTORIZE", "SLP_VECTORIZE", "DEBUGINFO_DEFAULT", "USING_SVML")


class RefusedFileError(Exception):
    """A file of the cache is not what was written there. The message says in which way."""


class _Place(NamedTuple):
    """Where the machine code of a specialisation may be kept."""

    path: Path
    key: bytes
    packaged: bool = False


class MachineCodeCache(_Cache):
    """The cache of one kernel, in the place of numba's own."""

    reads = True
    """Whether machine code is taken from files. Set it to False to have all of it compiled anew, and replaced."""

    loaded = 0
    """How many specialisations of all kernels came from files."""

    handed_over: Path | None = None
    """A directory in which other processes put what they compile for this one, where nothing is kept for the next."""

    _keeps = True

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._sources = _sources_of(function.__code__.co_filename)

    @property
    def cache_path(self) -> str:
        """The directory in which files are written, or nothing."""
        # With baked kernels nothing is written, unless one of them is damaged.
        return "" if baked.in_use else str(_writable() or "")

    def has(self, sig: Any, target_context: Any) -> bool:
        """Whether there is a file for a signature. Only loading it tells whether it can be used."""
        return any(place.path.exists() for place in self._places(sig, target_context.codegen()))

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled function of a signature, or None if no file has it."""
        if not MachineCodeCache.reads:
            return None
        # The symbols that machine code refers to. The compiler's own registries take a tenth of a second more to fill,
        # and numba does that when there is something to compile.
        rtsys.initialize(target_context)
        for place in self._places(sig, target_context.codegen()):
            try:
                content = _read(place)
                compiled = None if content is None else _rebuilt(target_context, content)
            except RefusedFileError as error:
                _log.warning("The cached kernel %s is not used: %s. It is compiled anew.", place.path, error)
                continue
            if compiled is not None:
                MachineCodeCache.loaded += 1
                return compiled
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write the file of a compiled function, if there is a directory for it."""
        directory = _writable()
        if directory is None or not MachineCodeCache._keeps or data.library.has_dynamic_globals:
            return
        key, name = self._key_and_name(sig, _target(data.codegen))
        try:
            _write(directory / name, key, dumps(_reduced(data)))  # type: ignore[no-untyped-call]
        except OSError as error:
            MachineCodeCache._keeps = False
            _log.warning("Compiled kernels are not kept in %s: %s.", directory, error.strerror)

    def enable(self) -> None:
        """Do nothing: the cache is always enabled."""

    def disable(self) -> None:
        """Do nothing."""

    def flush(self) -> None:
        """Do nothing: what is out of date has another name."""

    def _places(self, signature: Any, codegen: Any) -> Iterator[_Place]:
        """Yield where there may be a file. The first that has one is enough: the others are not even looked for."""
        if (level := baked.in_use) is not None:
            key, name = self._key_and_name(signature, _target_of(level, codegen))
            yield _Place(level.directory / FOLDER / name, key, level.packaged)
        key, name = self._key_and_name(signature, _target(codegen))
        if (directory := _writable()) is not None:
            yield _Place(directory / name, key)
        if MachineCodeCache.handed_over is not None:
            yield _Place(MachineCodeCache.handed_over / FOLDER / name, key)

    def _key_and_name(self, signature: Any, target: str) -> tuple[bytes, str]:
        """Return all that the machine code depends on, and the name of its file."""
        key = "\n".join((self._sources, described(self._function), str(signature), target)).encode()
        readable_name = re.sub(r"[^\w.]+", "", f"{self._function.__module__}.{self._function.__qualname__}")
        return key, f"{readable_name[-100:]}-{_CHECKSUM(key).hexdigest()[:32]}{_SUFFIX}"


def described(captured: Any) -> str:
    """Return what tells a function, or another value that a function captures, from those with other machine code.

    numba would take the pickle of what is captured, and that of a captured function is another one in each process.
    Raise TypeError for a value that has no such description.
    """
    if captured is None or isinstance(captured, bool | int | float | str):
        return repr(captured)
    if isinstance(captured, tuple):
        return f"({', '.join(map(described, captured))})"
    if isinstance(captured, type):
        return f"{captured.__module__}.{captured.__qualname__}"
    if isinstance(captured, types.Type):
        return str(captured)
    function = getattr(captured, "py_func", None) or getattr(captured, "_defn", None) or captured
    if not isinstance(function, FunctionType):
        raise TypeError(f"a kernel captures {captured!r}")
    captures = [described(cell.cell_contents) for cell in function.__closure__ or ()]
    place = f"{function.__module__}.{function.__qualname__}:{function.__code__.co_firstlineno}"
    return f"{place}({', '.join(captures)}){described(function.__defaults__ or ())}"


@cache
def _sources_of(file: str) -> str:
    """Return the digest of the sources that a function of `file` is compiled from."""
    own = "" if Path(file).is_relative_to(KERNELS) else _CHECKSUM(Path(file).read_bytes()).hexdigest()
    return SOURCES + own


def kept_in() -> Path | None:
    """Return the directory in which compiled kernels are kept for the next start, as `NUMBA_CACHE_DIR` names it."""
    directory = _writable()
    return None if directory is None else directory.parent


def _writable() -> Path | None:
    return cache_directory(FOLDER)


def _target(codegen: Any) -> str:
    """Return what this process compiles for, and by what.

    Kernels ask for the CPU's features, unless others are given or a level is in use (`requant.kernels.jit.processor`).
    """
    if baked.in_use is not None:
        asked_for = baked.in_use.features
    else:
        asked_for = "" if getattr(config, "CPU_FEATURES", None) else binding.get_host_cpu_features().flatten()
    return _described_target(codegen.magic_tuple(), getattr(config, "CPU_FEATURES", None), asked_for)


def _target_of(level: baked.Level, codegen: Any) -> str:
    """Return what the kernels of a level were compiled for: what a process says that is pinned to it."""
    triple, *_ = codegen.magic_tuple()
    return _described_target((triple, level.cpu, level.features), level.features, "")


@cache
def _described_target(cpu: tuple[str, str, str], given_features: str | None, asked_for: str) -> str:
    options = [str(getattr(config, option, None)) for option in _OPTIONS]
    versions = (numba.__version__, llvmlite.__version__, sys.version_info[:2], sys.implementation.name)
    return f"{cpu!r}\n{options!r}\n{given_features}\n{asked_for}\n{versions!r}"


def _checksum(key: bytes, content: bytes) -> bytes:
    digest = _CHECKSUM(len(key).to_bytes(8, "little"))
    digest.update(key)
    digest.update(content)
    return digest.digest()


def _write(path: Path, key: bytes, content: bytes) -> None:
    unfinished = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        # Readable by all: a service reads what was compiled when its image was built by root.
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
            file.write(_MAGIC + _checksum(key, content) + content)
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _read(place: _Place) -> bytes | None:
    """Return the content of a file, or None if there is no file. Raise RefusedFileError unless it is as written."""
    try:
        # Opening neither follows a link nor waits for the other end of a pipe.
        with open(os.open(place.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise RefusedFileError("it is not a file")
            others_can = status.st_uid not in (os.geteuid(), 0) or writable_by_others(status)
            if others_can and not place.packaged:
                raise RefusedFileError("others can write to it")
            content = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RefusedFileError(error.strerror) from error
    start = len(_MAGIC) + _CHECKSUM().digest_size
    if len(content) < start or not content.startswith(_MAGIC):
        raise RefusedFileError("it is cut short, or not of this format")
    if content[len(_MAGIC) : start] != _checksum(place.key, content[start:]):
        raise RefusedFileError("its checksum is wrong: it was changed or cut short, or is that of another kernel")
    return content[start:]


def _reduced(compiled: Any) -> tuple[Any, ...]:
    """Return what of a compiled function is kept."""
    (name, kind, (code, bitcode)), *rest = compiled._reduce()
    assert kind == "object"
    return (name, kind, (code, _symbols_alone(bitcode))), *rest


def _rebuilt(target_context: Any, content: bytes) -> Any:
    try:
        return CompileResult._rebuild(target_context, *pickle.loads(content))  # type: ignore[no-untyped-call]
    except Exception as error:
        raise RefusedFileError(f"it cannot be loaded ({type(error).__name__})") from error


def _symbols_alone(bitcode: bytes) -> bytes:
    """Return a module that defines the symbols of another one, and nothing of what they stand for."""
    module = binding.parse_bitcode(bitcode)
    lines = [f'define void @"{each.name}"() {{ ret void }}' for each in module.functions if not each.is_declaration]
    lines += [f'@"{each.name}" = common global ptr null' for each in module.global_variables if not each.is_declaration]
    alone: bytes = binding.parse_assembly("\n".join(lines)).as_bitcode()
    return alone
