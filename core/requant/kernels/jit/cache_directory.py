"""Where machine code is kept between starts.

What is read from there is unpickled and executed, so whoever can write there runs code in this process. A directory is
used only if nobody but this user and root can change it or put another one in its place.
"""

from __future__ import annotations

import logging
import os
import stat
from functools import cache
from pathlib import Path

CACHE_VARIABLE = "NUMBA_CACHE_DIR"
"""The environment variable that names the directory."""

_log = logging.getLogger(__name__)


class CacheDirectoryError(Exception):
    """A directory cannot hold machine code. The message names the directory, the reason and the remedy."""


def named_directory() -> Path | None:
    """Return the directory that `NUMBA_CACHE_DIR` names, made if there was none, or None if the variable is not set.

    Raise CacheDirectoryError if it is not safe: what was asked for by name is not silently replaced.
    """
    named = os.environ.get(CACHE_VARIABLE)
    return _made(Path(named).absolute()) if named else None


@cache
def cache_directory(folder: str) -> Path | None:
    """Return the directory `folder` in which this process keeps machine code, or None if it keeps none.

    It is in the one that `NUMBA_CACHE_DIR` names; else in `__pycache__` beside the kernels; else in `requant` in the
    user's cache directory. Without a safe one each start compiles. Raise CacheDirectoryError as `named_directory` does.
    """
    if named := named_directory():
        return _made(named / folder)
    refused = []
    for place in _default_places():
        try:
            directory = _made(_made(place) / folder)
        except CacheDirectoryError as error:
            refused.append(str(error))
            continue
        if os.access(directory, os.W_OK):
            return directory
        refused.append(f"{directory}: it cannot be written")
    _log.warning(
        "Compiled kernels are not kept for the next start. %s. Name a directory of your own by %s.",
        "; ".join(refused),
        CACHE_VARIABLE,
    )
    return None


def check_directory(directory: Path) -> Path:
    """Return the resolved path of an existing directory that only this user and root can change or replace.

    Raise CacheDirectoryError for any other. In a parent that others can write to, such as /tmp, the sticky bit has to
    keep them from renaming what is not theirs.
    """
    if directory.is_symlink():
        raise CacheDirectoryError(f"{directory} is a symbolic link; name the directory that it leads to")
    resolved = directory.resolve()
    for each in (resolved, *resolved.parents):
        try:
            status = each.lstat()
        except OSError as error:
            raise CacheDirectoryError(f"{each} cannot be read: {error.strerror}") from error
        if not stat.S_ISDIR(status.st_mode):
            raise CacheDirectoryError(f"{each} is not a directory")
        if status.st_uid not in (os.geteuid(), 0):
            raise CacheDirectoryError(
                f"{each} belongs to the user {status.st_uid}, who could put other machine code there; "
                f"make a directory that belongs to the user {os.geteuid()}"
            )
        sticky = each != resolved and status.st_mode & stat.S_ISVTX
        if writable_by_others(status) and not sticky:
            raise CacheDirectoryError(
                f"others can write to {each} (mode {stat.S_IMODE(status.st_mode):o}), and could put other machine code "
                f"there; take that from them (chmod go-w) or name another directory"
            )
    return resolved


def writable_by_others(status: os.stat_result) -> bool:
    """Whether its group, or everybody, can write to a file."""
    return bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _default_places() -> list[Path]:
    places = [Path(__file__).parents[1] / "__pycache__"]
    # A relative path is to be ignored (XDG Base Directory Specification).
    if os.path.isabs(shared := os.environ.get("XDG_CACHE_HOME", "")):
        places.append(Path(shared) / "requant")
    else:
        home = Path(os.path.expanduser("~"))
        # A user without a home directory has a "~" that stands for itself.
        if home.is_absolute():
            places.append(home / ".cache" / "requant")
    return places


def _made(directory: Path) -> Path:
    """Return the resolved path of a safe directory, made if there was none. Raise CacheDirectoryError if it is not."""
    try:
        # Not `exist_ok`: that would follow a symbolic link.
        if not os.path.lexists(directory):
            for parent in reversed(directory.parents):
                parent.mkdir(0o755, exist_ok=True)
            directory.mkdir(0o755, exist_ok=True)
    except OSError as error:
        raise CacheDirectoryError(f"{directory} cannot be made: {error.strerror}; make it or name another") from error
    return check_directory(directory)
