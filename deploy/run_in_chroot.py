"""Build the Dockerfile's stages in clean roots, run its entry point with a read-only tree, and ask it for an answer.

For machines without a container engine. Needs root, debootstrap, chroot, unshare and mount.

    python deploy/run_in_chroot.py WORK_DIRECTORY [--mirror URL]

It does what the Dockerfile says, instruction by instruction (ARG, ENV, FROM, RUN, COPY, WORKDIR, USER, ENTRYPOINT; what
only describes the image is skipped), prints the time from start to ready without and with the baked kernels, and fails
unless a quantization comes back right. PIP_* variables are passed on, with the machine's certificates.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PORT = 18080
_DESCRIPTIVE = ("LABEL", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "#")
_CERTIFICATES = Path("/usr/local/share/ca-certificates")


@dataclass
class Stage:
    """One FROM: its root, and what the instructions have set so far."""

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
    workdir: str = "/"
    user: str = "0:0"
    entrypoint: list[str] = field(default_factory=list)


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """Return (instruction, its text), with continued lines joined and comments dropped."""
    lines = [line for line in dockerfile.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.splitlines()) if word]


def expand(text: str, values: dict[str, str]) -> str:
    """Replace ${NAME} by its value."""
    return re.sub(r"\$\{(\w+)\}", lambda match: values[match[1]], text)


def inside(stage: Stage, command: list[str]) -> list[str]:
    """Return the command line that runs `command` in the stage's root, as its user, in its directory."""
    change = f"cd {shlex.quote(stage.workdir)} && exec {shlex.join(command)}"
    return ["chroot", f"--userspec={stage.user}", str(stage.root), "/bin/sh", "-c", change]


def mount(stage: Stage) -> None:
    """Give the root what a container engine gives it: /proc, /dev, name resolution; and the machine's authorities."""
    for name in ("proc", "dev"):
        subprocess.run(["mount", "--bind", f"/{name}", str(stage.root / name)], check=True)
    if _CERTIFICATES.is_dir():
        shutil.copytree(_CERTIFICATES, stage.root / str(_CERTIFICATES)[1:], dirs_exist_ok=True)
    for name in ("resolv.conf", "hosts"):
        shutil.copyfile(Path("/etc") / name, stage.root / "etc" / name)


def unmount(stage: Stage) -> None:
    """Undo `mount`."""
    for name in ("proc", "dev"):
        subprocess.run(["umount", str(stage.root / name)], check=False, stderr=subprocess.DEVNULL)


def copy(stage: Stage, stages: dict[str, Stage], text: str) -> None:
    """COPY: from the repository without compiled files, or from an earlier stage."""
    words = shlex.split(text)
    origin = REPOSITORY
    if words[0].startswith("--from="):
        origin = stages[words.pop(0).removeprefix("--from=")].root
    *sources, target = words
    destination = stage.root / os.path.join(stage.workdir, target).lstrip("/")
    for source in sources:
        found = origin / source.lstrip("/")
        if found.is_dir():
            ignore = shutil.ignore_patterns("__pycache__") if origin == REPOSITORY else None
            shutil.copytree(found, destination, symlinks=True, ignore=ignore, dirs_exist_ok=True)
        else:
            destination.mkdir(parents=True, exist_ok=True)
            shutil.copy2(found, destination)


def build(work: Path, mirror: str) -> Stage:
    """Run the Dockerfile's instructions and return its last stage."""
    base = work / "base"
    if not base.exists():
        subprocess.run(["debootstrap", "--variant=minbase", "bookworm", str(base), mirror], check=True)
    stages: dict[str, Stage] = {}
    values: dict[str, str] = {}
    stage = Stage(base)
    try:
        for word, text in instructions(REPOSITORY / "Dockerfile"):
            print(word, text[:100], flush=True)
            match word:
                case "FROM":
                    name = text.partition(" AS ")[2] or "final"
                    stage = stages[name] = Stage(work / name)
                    shutil.rmtree(stage.root, ignore_errors=True)
                    subprocess.run(["cp", "-a", str(base), str(stage.root)], check=True)
                    mount(stage)
                case "ARG":
                    name, _, default = text.partition("=")
                    values[name] = default
                case "ENV":
                    for pair in shlex.split(expand(text, values)):
                        name, _, value = pair.partition("=")
                        stage.environment[name] = value
                case "WORKDIR":
                    stage.workdir = text
                    (stage.root / text.lstrip("/")).mkdir(parents=True, exist_ok=True)
                case "USER":
                    stage.user = text
                case "COPY":
                    copy(stage, stages, text)
                case "RUN":
                    passed = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
                    environment = {**stage.environment, **passed}
                    subprocess.run(inside(stage, ["/bin/sh", "-c", text]), env=environment, check=True)
                case "ENTRYPOINT":
                    stage.entrypoint = json.loads(text)
                case _ if word not in _DESCRIPTIVE:
                    raise SystemExit(f"{word} is not known here")
    finally:
        for each in stages.values():
            unmount(each)
    return stage


def answer(path: str, body: bytes | None = None) -> bytes:
    """Return the body of a reply."""
    url = f"http://127.0.0.1:{PORT}{path}"
    with urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": "application/json"})) as reply:
        return bytes(reply.read())


def start(stage: Stage, environment: dict[str, str]) -> tuple[float, float]:
    """Start the entry point with everything read-only. Return the seconds to ready, and until it has ended."""
    root = shlex.quote(str(stage.root))
    confine = f"mount --bind {root} {root} && mount --bind /proc {root}/proc && mount --bind /dev {root}/dev"
    confine += f" && mount -o remount,bind,ro {root}"
    command = f"{confine} && exec {shlex.join(inside(stage, stage.entrypoint))}"
    began = time.monotonic()
    values = {**stage.environment, "REQUANT_HOST": "127.0.0.1", "REQUANT_PORT": str(PORT), **environment}
    server = subprocess.Popen(["unshare", "--mount", "/bin/sh", "-c", command], env=values)
    try:
        while True:
            try:
                answer("/healthz")
                break
            except OSError as error:
                if server.poll() is not None or time.monotonic() - began > 300:
                    raise SystemExit("the service did not become ready") from error
                time.sleep(0.02)
        ready = time.monotonic() - began
        request = {
            "input": {"type": "tensor<4xf32>", "values": [0.5, 1.5, 2.5, -0.5]},
            "output_type": "!quant.uniform<i8:f32, 1.0:3>",
            "profile": "onnx",
        }
        reply = json.loads(answer("/v1/quantize", json.dumps(request).encode()))
        if reply["output"]["values"] != [3, 5, 5, 3]:
            raise SystemExit(f"wrong bits: {reply['output']['values']}")
        stopped = time.monotonic()
        server.send_signal(signal.SIGTERM)
        if server.wait(60) != 0:
            raise SystemExit(f"after SIGTERM the service ended with {server.returncode}")
        return ready, time.monotonic() - stopped
    finally:
        server.kill()


def main() -> None:
    """Build, start with and without the baked kernels, and say how long each took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--mirror", default="http://deb.debian.org/debian")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("chroot and mount need root")
    arguments.work.mkdir(parents=True, exist_ok=True)
    stage = build(arguments.work.resolve(), arguments.mirror)
    for name, environment in (
        ("baked kernels", {}),
        ("no baked kernels", {"REQUANT_BAKED_KERNELS": ""}),
    ):
        ready, ended = start(stage, environment)
        print(f"{name}: ready after {ready:.1f} s, exit 0 within {ended:.1f} s of SIGTERM; the answer is right")


if __name__ == "__main__":
    main()
