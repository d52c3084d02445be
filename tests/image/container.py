"""The image as a container, run as it is meant to be run, and what is asked of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.image.engine import IMAGE, REPOSITORY, Engine

NAME = "requant-test"
# As in the manifests. Podman asks for more files and processes than some machines allow, and only CAP_SYS_RESOURCE
# raises that.
LIMITS = ("--cpus", "2", "--ulimit", "nofile=16384:16384", "--ulimit", "nproc=4096:4096")
CONFINED = ("--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges", "--network", "none")
PYTHON = "/app/.venv/bin/python"
DRAIN_SECONDS = 5
LOAD_SECONDS = 10
# Of the start and of the end, beside what the service does: other work on the machine may slow them.
PATIENCE_SECONDS = 20


@dataclass(frozen=True)
class Container:
    """The running image."""

    engine: Engine
    asked: float
    """When it was asked for, in seconds since the epoch."""

    def state(self) -> dict[str, Any]:
        """Return what podman knows of it."""
        found: dict[str, Any] = json.loads(self.engine.read("podman", "inspect", NAME))[0]["State"]
        return found

    def ask(self, *task: str) -> subprocess.Popen[str]:
        """Start a client in its network, which no other program reaches."""
        network = f"--net=/proc/{self.state()['Pid']}/ns/net"
        command = ["nsenter", network, sys.executable, "-m", "tests.image.client", *task]
        return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)

    def check(self, *task: str) -> str:
        """Return what a client printed. Exit if it failed."""
        with self.ask(*task) as client:
            printed = client.communicate()[0]
        if client.returncode:
            raise SystemExit(f"{' '.join(task)}: the container is {self.state()['Status']}")
        return printed

    def start_time(self) -> str:
        """Return how long it took until the service was ready. Exit if anything was compiled."""
        ready = float(self.check("ready", str(self.state()["Pid"])))
        state = self.state()
        # utime and stime of proc(5), the 14th and 15th field: on a busy machine they say more.
        cpu = sum(map(int, Path(f"/proc/{state['Pid']}/stat").read_text().split()[13:15])) / os.sysconf("SC_CLK_TCK")
        wall = ready - datetime.fromisoformat(state["StartedAt"]).timestamp()
        since_asked = ready - self.asked
        return (
            f"ready {wall:.1f} s after its process started ({cpu:.1f} s of CPU), {since_asked:.1f} s after podman run"
        )

    def check_log(self) -> None:
        """Exit if the service had to compile a kernel, or warns of anything."""
        read = self.engine.command("podman", "logs", NAME)
        log = subprocess.run(read, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
        for line in log.splitlines():
            said = json.loads(line)
            if said["level"] != "info" or "ompiling" in said["message"]:
                raise SystemExit(f"the log of the service has: {said['message']}")

    def check_health(self) -> None:
        """Exit unless the image's own health check succeeds."""
        (image,) = json.loads(self.engine.read("podman", "image", "inspect", IMAGE))
        kind, *command = image["Healthcheck"]["Test"]
        assert kind == "CMD"
        self.engine.read("podman", "exec", NAME, *command)

    def memory(self) -> str:
        """Return the peak of its memory. Exit if a process was killed for it."""
        # Version 1 has a hierarchy of the controller, version 2 one for all.
        lines = Path(f"/proc/{self.state()['Pid']}/cgroup").read_text().splitlines()
        places = {line.split(":")[1]: line.split(":", 2)[2] for line in lines}
        if "memory" in places:
            group = Path("/sys/fs/cgroup/memory" + places["memory"])
            peak, limit, events = "memory.max_usage_in_bytes", "memory.limit_in_bytes", "memory.oom_control"
        else:
            group, peak, limit, events = (
                Path("/sys/fs/cgroup" + places[""]),
                "memory.peak",
                "memory.max",
                "memory.events",
            )
        killed = dict(line.split() for line in (group / events).read_text().splitlines())["oom_kill"]
        if killed != "0":
            raise SystemExit(f"{killed} processes were killed for their memory")
        used, allowed = (int((group / name).read_text()) / 2**20 for name in (peak, limit))
        return (
            f"  at most {used:.0f} of {allowed:.0f} MiB were used, with the files that it read, and nothing was killed"
        )

    def check_stop(self, *, under_load: bool) -> None:
        """Exit unless SIGTERM ends the service with exit code 0, and every request that it took gets its answer."""
        client = self.ask("until-refused", str(PATIENCE_SECONDS)) if under_load else None
        if client is not None:
            assert client.stdout is not None
            # They have begun to ask.
            client.stdout.readline()
        began = time.monotonic()
        self.engine.read("podman", "kill", "--signal", "TERM", NAME)
        if (code := self.engine.read("podman", "wait", NAME)) != "0":
            raise SystemExit(f"after SIGTERM the service ended with {code}")
        seconds = time.monotonic() - began
        if seconds > DRAIN_SECONDS + PATIENCE_SECONDS:
            raise SystemExit(f"after SIGTERM the service took {seconds:.0f} s to end")
        if client is not None:
            print(client.communicate()[0], end="")
            if client.returncode:
                raise SystemExit("SIGTERM under load")
        print(f"  SIGTERM: exit code 0 after {seconds:.1f} s, of which {DRAIN_SECONDS} s are the drain period")


@contextmanager
def running(engine: Engine, memory: str, *options: str) -> Iterator[Container]:
    """Run the image with a limit of its memory. Its log is shown if anything fails."""
    asked = time.time()
    engine.read(
        # Podman has systemd run the health check, which need not be there; `check_health` runs it.
        *("podman", "run", "--name", NAME, "--replace", "--detach", "--no-healthcheck"),
        *(*CONFINED, *LIMITS, "--memory", memory, "--env", "REQUANT_GRPC_PORT=8081", *options, IMAGE),
    )
    try:
        yield Container(engine, asked)
    except BaseException:
        engine.run("podman", "logs", NAME)
        raise
    finally:
        engine.read("podman", "rm", "--force", "--time", "0", NAME)


def drop_from_page_cache(directory: Path) -> None:
    """Let the files of a directory be read from the disk again."""
    os.sync()
    for path in directory.rglob("*"):
        if path.is_file() and not path.is_symlink():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
