"""Build the image with buildah, run it with podman and runc as it is meant to be run, and ask it for answers.

    sudo .venv/bin/python -m deploy.build_and_run [--work DIRECTORY] [--mirror URL]
        [--without-kernels | --platform PLATFORM | --remove]

For a machine without a container engine or without a registry: the base image is made with debootstrap of Debian's
packages. It prints how far each step is, the size of the image, its layers and biggest folders, the time from start to
ready, with files that have to be read from the disk and with files that are in the page cache, and ends with an error
unless a quantization comes back right over each protocol and SIGTERM ends the service with exit code 0.

Images are kept in DIRECTORY (3 GB), so that the next build takes from them what has not changed; `--remove` removes
them. `--platform linux/arm64` builds for that platform on any other, prints the sizes and runs nothing. pip gets this
machine's settings (the variables PIP_*) and certificates as secrets of the build, which are not in the image.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import grpc

from requant.kernels.jit.target import HOST_MACHINE
from requant_service.oip.grpc import inference_pb2 as pb

REPOSITORY = Path(__file__).parents[1]
VALUES, QUANTIZED = [0.5, 1.5, 2.5, -0.5], [3, 5, 5, 3]
OUTPUT_TYPE = "!quant.uniform<i8:f32, 1.0:3>"
BASE = "localhost/debian:trixie-slim"
IMAGE = "localhost/requant:local"
DEBIAN_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}
HTTP_PORT, GRPC_PORT, METRICS_PORT = 18080, 18081, 19090
TOOLS = {"buildah": "buildah", "debootstrap": "debootstrap", "iptables": "iptables", "podman": "podman", "runc": "runc"}
# Podman asks for more than some machines allow, and only CAP_SYS_RESOURCE raises it.
ULIMITS = ("--ulimit", "nofile=16384:16384", "--ulimit", "nproc=4096:4096")
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
MAX_SECONDS = 900


def check_machine() -> None:
    """Exit, and say what to do, unless this is root with the tools installed."""
    if os.geteuid() != 0:
        sys.exit("Run it as root: debootstrap, and buildah with chroot isolation, need that.")
    if missing := [package for tool, package in TOOLS.items() if shutil.which(tool) is None]:
        packages = " ".join([*missing, *(["containernetworking-plugins"] if "podman" in missing else [])])
        sys.exit(f"Install first: apt-get update && apt-get install --yes --no-install-recommends {packages}")


@dataclass(frozen=True)
class Engine:
    """Buildah and podman, with their storage in one directory."""

    work: Path

    def command(self, tool: str, *arguments: str) -> list[str]:
        """Return the command line of a tool."""
        return [tool, "--root", str(self.work / "storage"), "--runroot", str(self.work / "run"), *arguments]

    def run(self, tool: str, *arguments: str) -> None:
        """Run a tool, whose output is shown. Raise CalledProcessError if it fails."""
        subprocess.run(self.command(tool, *arguments), check=True)

    def read(self, tool: str, *arguments: str) -> str:
        """Run a tool and return what it printed. Raise CalledProcessError if it fails."""
        run = subprocess.run(self.command(tool, *arguments), check=True, stdout=subprocess.PIPE, text=True)
        return run.stdout.strip()

    def has(self, image: str) -> bool:
        """Whether there is an image of that name."""
        return subprocess.run(self.command("podman", "image", "exists", image), check=False).returncode == 0


def make_base(engine: Engine, mirror: str) -> None:
    """Make what docker.io/debian:trixie-slim is, of Debian's packages."""
    root = engine.work / "base"
    shutil.rmtree(root, ignore_errors=True)
    subprocess.run(["debootstrap", "--variant=minbase", "trixie", str(root), mirror], check=True)
    sources = [f"deb {mirror} trixie{suite} main\n" for suite in ("", "-updates")]
    sources.append(f"deb {mirror.rstrip('/')}-security trixie-security main\n")
    (root / "etc/apt/sources.list").write_text("".join(sources))
    for package in (root / "var/cache/apt/archives").glob("*.deb"):
        package.unlink()
    container = engine.read("buildah", "from", "scratch")
    engine.run("buildah", "add", "--quiet", container, str(root), "/")
    engine.run("buildah", "commit", "--quiet", "--rm", container, BASE)
    shutil.rmtree(root)


def pip_settings(*, certificates: bool) -> str:
    """Return pip's settings of this machine, for the build: the variables PIP_* that name no files."""
    given = {name: value for name, value in os.environ.items() if name.startswith("PIP_") and not value.startswith("/")}
    lines = [f"{name.removeprefix('PIP_').lower().replace('_', '-')} = {value}" for name, value in given.items()]
    return "\n".join(["[global]", *lines, *(["cert = /run/ca-certificates.crt"] if certificates else []), ""])


def build(engine: Engine, platform: str | None) -> None:
    """Build the Dockerfile, for this machine's platform or another."""
    certificates = Path(os.environ.get("PIP_CERT", CERTIFICATES))
    with tempfile.NamedTemporaryFile("w") as settings:
        secrets = [f"--secret=id=pip.conf,src={settings.name}"]
        if certificates.is_file():
            secrets.append(f"--secret=id=ca-certificates,src={certificates}")
        settings.write(pip_settings(certificates=certificates.is_file()))
        settings.flush()
        engine.run(
            *("buildah", "build", "--isolation", "chroot", "--layers", "--format", "docker"),
            *(("--platform", platform) if platform else ()),
            # Docker and newer releases of buildah know by themselves which platform builds.
            *("--pull-never", "--build-arg", f"BUILDPLATFORM=linux/{DEBIAN_NAMES[HOST_MACHINE]}"),
            *("--build-arg", f"BASE={BASE}", "--tag", IMAGE, *secrets, str(REPOSITORY)),
        )


def bytes_below(directory: Path) -> int:
    """Return the size of all files below a directory."""
    return sum(each.lstat().st_size for each in directory.rglob("*") if not each.is_dir())


def print_sizes(engine: Engine) -> None:
    """Print the unpacked size of the image, of its layers and of its biggest folders."""
    (image,) = json.loads(engine.read("podman", "image", "inspect", IMAGE))
    print(f"\n{IMAGE}: {image['Size'] / 1e6:.0f} MB unpacked, user {image['Config']['User']}")
    for layer in json.loads(engine.read("podman", "history", "--format", "json", IMAGE)):
        if layer["size"] > 1e5:
            print(f"  layer {layer['size'] / 1e6:6.1f} MB  {layer['CreatedBy'][:70]}")
    root = Path(engine.read("podman", "image", "mount", IMAGE))
    try:
        (site,) = root.glob("app/.venv/lib/python*/site-packages")
        folders = [root / "usr", *(root / "app").iterdir(), *site.iterdir()]
        sizes = {folder: bytes_below(folder) for folder in folders if folder.is_dir()}
        for folder, size in sorted(sizes.items(), key=lambda each: -each[1])[:15]:
            print(f"  folder {size / 1e6:6.1f} MB  /{folder.relative_to(root)}")
    finally:
        engine.read("podman", "image", "unmount", IMAGE)


def drop_from_page_cache(directory: Path) -> None:
    """Let the files of a directory be read from the disk again."""
    os.sync()
    for path in directory.rglob("*"):
        if path.is_file() and not path.is_symlink():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def fetch(path: str, body: bytes | None = None, port: int = HTTP_PORT) -> bytes:
    """Return the body of the answer to a request from outside of the container. Raise OSError if there is none."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", body, {"Content-Type": "application/json"} if body else {}
    )
    with urllib.request.urlopen(request, timeout=5) as reply:
        return bytes(reply.read())


@contextmanager
def container(engine: Engine, *options: str) -> Iterator[tuple[str, float]]:
    """Run the image, and yield its container and the time at which that was asked for."""
    asked = time.time()
    name = engine.read(
        # Podman has systemd run the health check, which need not be there; `check_answers` runs it.
        *("podman", "run", "--name", "requant", "--replace", "--detach", "--no-healthcheck"),
        *("--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges"),
        *("--memory", "2g", "--cpus", "2", *ULIMITS, "--env", "REQUANT_GRPC_PORT=8081"),
        *("--publish", f"127.0.0.1:{HTTP_PORT}:8080", "--publish", f"127.0.0.1:{GRPC_PORT}:8081"),
        *("--publish", f"127.0.0.1:{METRICS_PORT}:9090"),
        *(*options, IMAGE),
    )
    try:
        yield name, asked
    except BaseException:
        engine.run("podman", "logs", name)
        raise
    finally:
        engine.read("podman", "rm", "--force", "--time", "0", name)


def wait_until_ready(engine: Engine, name: str, asked: float) -> str:
    """Return how long it took until the service was ready."""
    while True:
        try:
            fetch("/v2/health/ready")
            break
        except OSError:
            status = engine.read("podman", "inspect", "--format", "{{.State.Status}}", name)
            if status != "running" or time.time() - asked > MAX_SECONDS:
                raise SystemExit(f"the service did not become ready; its container is {status}") from None
            time.sleep(0.02)
    ready = time.time()
    state = json.loads(engine.read("podman", "inspect", name))[0]["State"]
    wall = ready - datetime.fromisoformat(state["StartedAt"]).timestamp()
    # utime and stime of proc(5), the 14th and 15th field: on a busy machine they say more.
    cpu = sum(map(int, Path(f"/proc/{state['Pid']}/stat").read_text().split()[13:15])) / os.sysconf("SC_CLK_TCK")
    return f"ready {wall:.1f} s after its process started ({cpu:.1f} s of CPU), {ready - asked:.1f} s after podman run"


def quantize_over_http() -> list[int]:
    """Quantize VALUES with a JSON request."""
    request = {
        "input": {"type": f"tensor<{len(VALUES)}xf32>", "values": VALUES},
        "output_type": OUTPUT_TYPE,
        "profile": "onnx",
    }
    return list(json.loads(fetch("/v1/quantize", json.dumps(request).encode()))["output"]["values"])


def quantize_over_grpc() -> list[int]:
    """Quantize VALUES as a model of the Open Inference Protocol."""
    texts = {"output_type": OUTPUT_TYPE, "profile": "onnx"}
    request = pb.ModelInferRequest(
        model_name="quantize",
        inputs=[pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[len(VALUES)])],
        parameters={name: pb.InferParameter(string_param=text) for name, text in texts.items()},
        raw_input_contents=[struct.pack(f"<{len(VALUES)}f", *VALUES)],
    )
    with grpc.insecure_channel(f"127.0.0.1:{GRPC_PORT}") as channel:
        infer = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            pb.ModelInferRequest.SerializeToString,
            pb.ModelInferResponse.FromString,
        )
        reply = infer(request, timeout=5)
    return list(struct.unpack(f"{len(VALUES)}b", reply.raw_output_contents[0]))


def check_answers(engine: Engine, name: str) -> None:
    """Exit with an error unless quantizations come back right, metrics are served, and the engine finds it healthy."""
    for protocol, quantize in (("HTTP", quantize_over_http), ("gRPC", quantize_over_grpc)):
        began = time.monotonic()
        if (found := quantize()) != QUANTIZED:
            raise SystemExit(f"wrong bits over {protocol}: {found}")
        print(f"  a quantization over {protocol}, from outside: right, {1000 * (time.monotonic() - began):.1f} ms")
    if b"requant_ready 1.0" not in fetch("/metrics", port=METRICS_PORT):
        raise SystemExit("the metrics do not say that the service is ready")
    (image,) = json.loads(engine.read("podman", "image", "inspect", IMAGE))
    engine.read("podman", "exec", name, *image["Healthcheck"]["Test"][1:])
    print("  metrics are served, and its health check succeeds")
    command = engine.read("podman", "exec", name, "/app/.venv/bin/python", "-m", "requant", "--version")
    print(f"  its command answers: {command}")


def check_stop(engine: Engine, name: str) -> None:
    """Exit with an error unless SIGTERM ends the service with exit code 0."""
    began = time.monotonic()
    engine.read("podman", "kill", "--signal", "TERM", name)
    if (code := engine.read("podman", "wait", name)) != "0":
        raise SystemExit(f"after SIGTERM the service ended with {code}")
    print(f"  SIGTERM: exit code 0 after {time.monotonic() - began:.1f} s, of which 5 s are the drain period")


def remove(engine: Engine) -> None:
    """Remove the images and the directory, which is in use by mounts of its own."""
    engine.read("buildah", "rm", "--all")
    engine.read("podman", "rmi", "--all", "--force")
    if (mounted := engine.work / "storage" / "overlay").is_mount():
        subprocess.run(["umount", str(mounted)], check=True)
    shutil.rmtree(engine.work)


def main() -> None:
    """Build, measure, run and ask."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("/var/tmp/requant-image"), metavar="DIRECTORY")
    parser.add_argument("--mirror", default="http://deb.debian.org/debian", metavar="URL")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--without-kernels", action="store_true", help="measure a start that compiles its kernels too")
    choice.add_argument("--platform", metavar="PLATFORM", help="build for another platform, and run nothing")
    choice.add_argument("--remove", action="store_true", help="remove the images and DIRECTORY")
    arguments = parser.parse_args()
    check_machine()
    arguments.work.mkdir(parents=True, exist_ok=True)
    engine = Engine(arguments.work.resolve())
    if arguments.remove:
        remove(engine)
        return
    if not engine.has(BASE):
        make_base(engine, arguments.mirror)
    build(engine, arguments.platform)
    print_sizes(engine)
    if arguments.platform:
        return
    starts: dict[str, tuple[str, ...]] = {"page cache cold": (), "page cache warm": ()}
    if arguments.without_kernels:
        starts["no compiled kernels"] = ("--env", "REQUANT_BAKED_KERNELS=")
    for label, options in starts.items():
        if label == "page cache cold":
            drop_from_page_cache(engine.work / "storage" / "overlay")
        with container(engine, *options) as (name, asked):
            print(f"\n{label}: {wait_until_ready(engine, name, asked)}")
            check_answers(engine, name)
            check_stop(engine, name)


if __name__ == "__main__":
    main()
