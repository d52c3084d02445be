"""Runs a conversion in child processes that are killed, looks at what they leave, and lets a last one finish.

python -m tests.support.killed_runs <folder> <first> <step>

A child is killed by SIGKILL after a random time, or just before one of its calls of the operating system that change
files: the first-th, and then every step-th of them. This process has no threads, so that its children can be forked.
Prints what was done as JSON; an assertion fails where a destination looks like a model and is not complete.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from requant.checkpoint.run.destination import read_manifest
from requant.checkpoint.run.run import finish, run_plan, run_task
from requant.checkpoint.storage.local import LOCK_FILE, LocalStore
from tests.support.hand_made_plan import Example, example

CALLS = ("open", "pwrite", "fsync", "rename", "link", "unlink", "ftruncate", "rmdir", "makedirs", "mkdir", "close")


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def whole_run(made: Example, out: Path) -> None:
    """Convert everything in one process."""
    run_plan(made.plan, made.source, LocalStore(out), threads=2)


def by_tasks(made: Example, out: Path) -> None:
    """Convert as workers do: task by task, then the end."""
    for index in range(len(made.plan.tasks)):
        run_task(made.plan, index, made.source, LocalStore(out), threads=2)
    finish(made.plan, made.source, LocalStore(out))


def kill_at_call(number: int) -> None:
    """Let this process be killed before its call of that number."""
    lock, count = Lock(), [0]

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any, **options: Any) -> Any:
            with lock:
                count[0] += 1
                if count[0] == number:
                    os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return counting

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))


def killed(number: int, way: Callable[[Example, Path], None], made: Example, out: Path) -> None:
    """Convert, and be killed before the call of that number."""
    kill_at_call(number)
    way(made, out)


def in_child(work: Callable[[], None], kill_after: float | None = None) -> bool:
    """Run it in a child process. Return whether it came to its end before it was killed."""
    child = os.fork()
    if not child:
        try:
            work()
        except BaseException as error:
            sys.stderr.write(f"child: {error!r}\n")
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) or status == 0, f"a run failed: {status}"
    return status == 0


def check_unfinished(made: Example, out: Path, complete: dict[str, bytes]) -> None:
    """What a killed run left: every file under its own name is right, and config.json is there only with all others."""
    found = contents(out) if out.exists() else {}
    for name, data in found.items():
        if name in complete and name != "requant-manifest.json":
            assert data == complete[name], f"{name} is wrong"
    if "config.json" in found:
        assert {name: found.get(name) for name in complete} == complete
    manifest = read_manifest(LocalStore(out))
    for name, file in {} if manifest is None else manifest.files.items():
        # The index and config.json are in the manifest before they are written.
        assert name not in {task.output for task in made.plan.tasks} or len(found[name]) == file.size


def main() -> None:
    """Kill at calls and at random times, for both ways to convert."""
    folder, first, step = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    made = example(folder / "source", shards=2, rows=120, columns=130)
    report = {}
    for way in (whole_run, by_tasks):
        reference = folder / f"{way.__name__}-reference"
        begun = time.perf_counter()
        way(made, reference)
        duration = time.perf_counter() - begun
        complete = contents(reference)
        kills = resumed = number = 0
        generator = random.Random(first)
        for call in range(first, 100_000, step):
            out = folder / f"{way.__name__}-{call}"

            if in_child(partial(killed, call, way, made, out)):
                break
            number = call
            kills += 1
            check_unfinished(made, out, complete)
            # Some are killed again, at any time.
            while generator.random() < 0.5:
                if in_child(partial(way, made, out), generator.random() * duration):
                    break
                kills += 1
                check_unfinished(made, out, complete)
            way(made, out)
            resumed += 1
            assert contents(out) == complete, f"after call {call}: {contents(out).keys() ^ complete.keys()}"
            assert LOCK_FILE not in contents(out)
        report[way.__name__] = {"kills": kills, "resumed": resumed, "last_call": number, "seconds": duration}
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main()
