"""Build the image with buildah, run it with podman and runc as it is meant to be run, and ask it for answers.

    make image-test
    sudo .venv/bin/python -m tests.image [--work DIRECTORY] [--all-levels | --platform PLATFORM | --remove]

No container registry is needed: the base image is made of Debian's packages, from where apt has them. It prints how
long each step takes, the size of the image, its layers and biggest folders, and the time from start to ready, with
files that have to be read from the disk and with files that are in the page cache. It ends with an error unless

- the service is ready without having compiled anything, and gives README's bits over JSON, .npy, V2 and gRPC;
- its answers are right under load, in a container with a limit of its memory, and its health check succeeds;
- SIGTERM ends it with exit code 0, and loses no request;
- the self-test passes with the image's own Python, and all conversions give the bits that they give on this machine.

Kernels are compiled for the CPU level of this machine, or with `--all-levels` for each, as for a release. Images are
kept in DIRECTORY (4 GB), so that the next build takes from them what has not changed; `--remove` removes them.
`--platform linux/arm64` builds for that platform on any other, prints the sizes and runs nothing. pip gets this
machine's settings and certificates as secrets of the build, which are not in the image.

Where the tools are missing and cannot be installed, it says so, and succeeds.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from tests.image.container import LOAD_SECONDS, drop_from_page_cache, running
from tests.image.engine import Engine, build, make_base, print_sizes
from tests.image.self_test import level_of_this_cpu, run_self_test

INSTALL = Path(__file__).parent / "install"
SKIPPED = 77
"""What it ends with where tools are missing and cannot be installed."""


@contextmanager
def step(name: str) -> Iterator[None]:
    """Say what is done, and how long it took."""
    print(f"\n{name}", flush=True)
    began = monotonic()
    yield
    print(f"{name}: {monotonic() - began:.0f} s", flush=True)


def check(engine: Engine) -> None:
    """Run it twice, and ask it for answers. Exit with an error if one is wrong."""
    drop_from_page_cache(engine.work / "storage" / "overlay")
    # Both as in the manifests, whose limit is 2 GiB, and in less.
    for label, memory in (("page cache cold", "2g"), ("page cache warm", "1g")):
        with running(engine, memory) as container:
            print(f"{label}: {container.start_time()}")
            container.check_log()
            print(container.check("answers"), end="", flush=True)
            container.check_health()
            print("  its health check succeeds")
            if memory == "1g":
                print(container.check("load", str(LOAD_SECONDS)), end="", flush=True)
            print(container.memory())
            container.check_log()
            container.check_stop(under_load=memory == "1g")


def main() -> None:
    """Build, measure, run and ask."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("/var/tmp/requant-image"), metavar="DIRECTORY")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--all-levels", action="store_true", help="compile kernels for all CPU levels")
    choice.add_argument("--platform", metavar="PLATFORM", help="build for another platform, and run nothing")
    choice.add_argument("--remove", action="store_true", help="remove the images and DIRECTORY")
    arguments = parser.parse_args()
    with step("tools"):
        tools = subprocess.run([INSTALL], check=False, stdout=subprocess.PIPE, text=True)
    if tools.returncode == SKIPPED:
        print(f"The image is not tested: {tools.stdout.strip()}")
        return
    tools.check_returncode()
    arguments.work.mkdir(parents=True, exist_ok=True)
    engine = Engine(arguments.work.resolve())
    if arguments.remove:
        engine.remove()
        return
    with step("base"):
        make_base(engine)
    with step("build"):
        every_level = arguments.all_levels or arguments.platform
        build(engine, () if every_level else (level_of_this_cpu(),), arguments.platform)
    print_sizes(engine)
    if arguments.platform:
        return
    with step("container"):
        check(engine)
    with step("self-test"):
        run_self_test(engine)


if __name__ == "__main__":
    main()
