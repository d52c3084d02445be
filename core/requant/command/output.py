"""What a command says: results on stdout, progress, warnings and errors on stderr.

With `--progress json` all of it is on stdout, one JSON object per line:

    {"event": "kernels", "compiled": 12, "total": 48}
    {"event": "progress", "bytes": 1048576, "total_bytes": 8388608, "files": 1, "total_files": 5, "seconds_left": 7}
    {"event": "progress", "inputs": 8388608, "total_inputs": 4294967296}
    {"event": "warning", "message": "..."}
    {"event": "done", ...}                     the result; its other members depend on the command
    {"event": "error", "code": "safetensors", "message": "...", "file": "...", "tensor": "..."}
    {"event": "interrupted", "message": "..."}
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from time import monotonic
from typing import TYPE_CHECKING, Any

from requant.errors import CheckpointError, RequantError, StorageError

if TYPE_CHECKING:
    from requant.checkpoint.run.work import Progress

_UNITS = ("kB", "MB", "GB", "TB")


class ProgressForm(StrEnum):
    """How progress is shown."""

    AUTO = "auto"
    JSON = "json"
    PLAIN = "plain"
    NONE = "none"


def add_progress_option(parser: argparse.ArgumentParser) -> None:
    """Add `--progress`."""
    parser.add_argument(
        "--progress",
        choices=[str(form) for form in ProgressForm],
        default=str(ProgressForm.AUTO),
        help="auto: a progress bar on a terminal, lines elsewhere (default); plain: lines; json: one JSON object per "
        "line on stdout; none: no progress",
    )


def output_for(arguments: argparse.Namespace) -> Output:
    """Return the output that `--progress` asks for; a command without that option reports no progress."""
    form = ProgressForm(getattr(arguments, "progress", ProgressForm.NONE))
    if form is ProgressForm.AUTO:
        form = ProgressForm.AUTO if sys.stderr.isatty() else ProgressForm.PLAIN
    return _OUTPUTS[form]()


def size_text(byte_count: int) -> str:
    """Return a size in the unit that gives it one to three digits before the point: `16.1 GB`."""
    if byte_count < 1000:
        return f"{byte_count} bytes"
    power = min((len(str(byte_count)) - 1) // 3, len(_UNITS))
    return f"{byte_count / 1000**power:.1f} {_UNITS[power - 1]}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 file`, `2 files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def time_text(seconds: float) -> str:
    """Return a time as `1:02:03`, `2:03` below an hour, or `4.2 s` below a minute."""
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Output(ABC):
    """Where a command's messages and its result go."""

    @abstractmethod
    def kernels(self, compiled: int, total: int) -> None:
        """Say how many kernels are compiled, where some are not in the cache."""

    @abstractmethod
    def progress(self, state: Progress) -> None:
        """Say how much of the source is converted."""

    @abstractmethod
    def compared(self, inputs: int, total: int) -> None:
        """Say of how many inputs it is decided whether two rules give the same."""

    @abstractmethod
    def warning(self, message: str) -> None:
        """Say what the user should know."""

    @abstractmethod
    def done(self, text: str, members: Mapping[str, Any]) -> None:
        """Say what was done: as text, or as the members of an object."""

    @abstractmethod
    def failed(self, error: RequantError) -> None:
        """Say why nothing, or not all, was done."""

    @abstractmethod
    def stopped(self, message: str) -> None:
        """Say that a signal ended the command."""


@contextmanager
def writing_stdout() -> Iterator[None]:
    """Raise StorageError if stdout cannot be written. That its reader has gone (BrokenPipeError) is no error."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        # What its buffer still holds would fail once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise StorageError(f"stdout cannot be written: {error.strerror or error}") from None


class _Text(Output):
    """Messages on stderr, without progress."""

    def kernels(self, compiled: int, total: int) -> None:
        pass

    def progress(self, state: Progress) -> None:
        pass

    def compared(self, inputs: int, total: int) -> None:
        pass

    def warning(self, message: str) -> None:
        self._say(f"warning: {message}")

    def done(self, text: str, members: Mapping[str, Any]) -> None:
        with writing_stdout():
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()

    def failed(self, error: RequantError) -> None:
        self._say(f"error: {described(error)}")

    def stopped(self, message: str) -> None:
        self._say(message)

    def _say(self, line: str) -> None:
        sys.stderr.write(f"requant: {line}\n")


class _Lines(_Text):
    """Progress on lines of stderr, a few seconds apart: for a log."""

    _SECONDS_BETWEEN = 10.0

    def __init__(self) -> None:
        self._began: float | None = None
        self._due = 0.0
        self._compiling = False

    def kernels(self, compiled: int, total: int) -> None:
        if not self._compiling:
            self._compiling = True
            self._say(f"compiling {total - compiled} kernels (once; they are kept for the next run)")

    def progress(self, state: Progress) -> None:
        if self._began is None:
            self._began, self._due = monotonic(), monotonic() + self._SECONDS_BETWEEN
        if not self._is_due():
            return
        left = seconds_left(monotonic() - self._began, state)
        self._say(
            f"{size_text(state.bytes_read)} of {size_text(state.bytes_to_read)}, "
            f"{state.outputs_finished} of {state.outputs} files" + ("" if left is None else f", {time_text(left)} left")
        )

    def compared(self, inputs: int, total: int) -> None:
        if self._began is None:
            self._began, self._due = monotonic(), monotonic() + self._SECONDS_BETWEEN
        if self._is_due():
            left = (monotonic() - self._began) / inputs * (total - inputs)
            self._say(f"{inputs} of {total} inputs, {time_text(left)} left")

    def _is_due(self) -> bool:
        now = monotonic()
        if now < self._due:
            return False
        self._due = now + self._SECONDS_BETWEEN
        return True


class _Bar(_Text):
    """A progress bar on the terminal."""

    def __init__(self) -> None:
        self._bar: Any = None

    def kernels(self, compiled: int, total: int) -> None:
        bar = self._shown(total, desc="compiling kernels", unit=" kernels")
        bar.update(compiled - bar.n)
        if compiled == total:
            self._close()

    def progress(self, state: Progress) -> None:
        bar = self._shown(state.bytes_to_read, unit="B", unit_scale=True)
        bar.set_postfix_str(f"{state.outputs_finished}/{state.outputs} files", refresh=False)
        bar.update(state.bytes_read - bar.n)

    def compared(self, inputs: int, total: int) -> None:
        if self._bar is None and inputs == total:
            # Decided at once: a bar would only flicker.
            return
        bar = self._shown(total, unit=" inputs", unit_scale=True)
        bar.update(inputs - bar.n)

    def done(self, text: str, members: Mapping[str, Any]) -> None:
        self._close()
        super().done(text, members)

    def _say(self, line: str) -> None:
        self._close()
        super()._say(line)

    def _shown(self, total: int, **options: Any) -> Any:
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(total=total, file=sys.stderr, **_bar_size(), **options)
        return self._bar

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _bar_size() -> dict[str, Any]:
    """Return what tells tqdm the size of the terminal: as it is at each moment, or 80 by 24 where it has none."""
    try:
        known = os.get_terminal_size(sys.stderr.fileno()).lines > 0
    except OSError:
        known = False
    return {"dynamic_ncols": True} if known else {"ncols": 80, "nrows": 24}


class _JsonLines(Output):
    """Everything on stdout, one object per line."""

    _SECONDS_BETWEEN = 1.0

    def __init__(self) -> None:
        self._began: float | None = None
        self._due = 0.0

    def kernels(self, compiled: int, total: int) -> None:
        self._write("kernels", compiled=compiled, total=total)

    def progress(self, state: Progress) -> None:
        now = monotonic()
        self._began = now if self._began is None else self._began
        if now < self._due and state.bytes_read < state.bytes_to_read:
            return
        self._due = now + self._SECONDS_BETWEEN
        self._write(
            "progress",
            bytes=state.bytes_read,
            total_bytes=state.bytes_to_read,
            files=state.outputs_finished,
            total_files=state.outputs,
            seconds_left=seconds_left(now - self._began, state),
        )

    def compared(self, inputs: int, total: int) -> None:
        if monotonic() >= self._due or inputs == total:
            self._due = monotonic() + self._SECONDS_BETWEEN
            self._write("progress", inputs=inputs, total_inputs=total)

    def warning(self, message: str) -> None:
        self._write("warning", message=message)

    def done(self, text: str, members: Mapping[str, Any]) -> None:
        self._write("done", **members)

    def failed(self, error: RequantError) -> None:
        place = {name: getattr(error, name, None) for name in ("file", "tensor")}
        self._write("error", code=error.code, message=error.detail, **place)

    def stopped(self, message: str) -> None:
        self._write("interrupted", message=message)

    def _write(self, event: str, **members: Any) -> None:
        present = {name: value for name, value in members.items() if value is not None}
        with writing_stdout():
            sys.stdout.write(json.dumps({"event": event, **present}, ensure_ascii=False) + "\n")
            sys.stdout.flush()


_OUTPUTS = {
    ProgressForm.AUTO: _Bar,
    ProgressForm.PLAIN: _Lines,
    ProgressForm.NONE: _Text,
    ProgressForm.JSON: _JsonLines,
}


def seconds_left(elapsed: float, state: Progress) -> int | None:
    """Return the expected rest at the rate so far, None as long as there is none."""
    done = state.bytes_read
    return None if done <= 0 else round(elapsed / done * (state.bytes_to_read - done))


def described(error: RequantError) -> str:
    """Return an error's message, after the file and the tensor that it is about, where it does not name them itself."""
    if not isinstance(error, CheckpointError):
        return error.detail
    places = [place for place in (error.file, error.tensor) if place and place not in error.detail]
    return ": ".join([*places, error.detail])
