"""Buildah and podman, with their storage in one directory, and what they build: the base, and the image on it."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from requant.kernels.jit.target import HOST_MACHINE

REPOSITORY = Path(__file__).parents[2]
BASE = "localhost/debian:trixie-slim"
IMAGE = "localhost/requant:test"
SUITE = "trixie"
DEBIAN_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
# Debian's packages change; what was made of them is used for so long.
BASE_DAYS = 7


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

    def age_in_days(self, image: str) -> float | None:
        """Return the age of an image, or None if there is none of that name."""
        if subprocess.run(self.command("podman", "image", "exists", image), check=False).returncode:
            return None
        made = int(self.read("podman", "image", "inspect", "--format", "{{.Created.Unix}}", image))
        return (time.time() - made) / 86_400

    def remove(self) -> None:
        """Remove the images and the directory, which is in use by mounts of its own."""
        self.read("buildah", "rm", "--all")
        self.read("podman", "rmi", "--all", "--force")
        if (mounted := self.work / "storage" / "overlay").is_mount():
            subprocess.run(["umount", str(mounted)], check=True)
        shutil.rmtree(self.work)


def apt_sources() -> list[str]:
    """Return the sources of SUITE in the form of sources.list: from where this machine's apt has Debian's packages."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    listed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    archives = [uri for uri in dict.fromkeys(listed) if re.search(r"/debian(-security)?/$", uri)]
    main = next((uri for uri in archives if uri.endswith("/debian/")), "http://deb.debian.org/debian/")
    security = next(
        (uri for uri in archives if uri.endswith("-security/")), main.replace("/debian/", "/debian-security/")
    )
    suites = ((main, SUITE), (main, f"{SUITE}-updates"), (security, f"{SUITE}-security"))
    return [f"deb {uri} {suite} main" for uri, suite in suites]


def make_base(engine: Engine) -> None:
    """Make what docker.io/debian:trixie-slim is, of Debian's packages, unless it is there and new."""
    age = engine.age_in_days(BASE)
    if age is not None and age < BASE_DAYS:
        return
    archive = engine.work / "base.tar"
    subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=minbase", SUITE, str(archive), *apt_sources()],
        check=True,
    )
    engine.read("podman", "import", "--quiet", str(archive), BASE)
    archive.unlink()


def pip_settings(*, certificates: bool) -> str:
    """Return pip's settings of this machine, for the build: those that name no files of it."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    # Lines such as global.timeout='60'. Those of variables, :env:.timeout='60', come first; they have precedence.
    found: dict[str, str] = {}
    for line in listed.splitlines():
        key, _, text = line.partition("=")
        if key.startswith((":env:.", "global.", "install.")):
            words = [word for word in ast.literal_eval(text).split() if not word.startswith(("/", "file:"))]
            if words:
                found.setdefault(key.rpartition(".")[2], " ".join(words))
    lines = [f"{name} = {value}" for name, value in found.items()]
    return "\n".join(["[global]", *lines, *(["cert = /run/ca-certificates.crt"] if certificates else []), ""])


def build(engine: Engine, levels: Sequence[str], platform: str | None) -> None:
    """Build the Dockerfile with kernels for some CPU levels, or all if none is named: for this platform or another."""
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
            *("--build-arg", f"BASE={BASE}", "--build-arg", f"LEVELS={' '.join(levels)}"),
            *("--tag", IMAGE, *secrets, str(REPOSITORY)),
        )


def _bytes_below(directory: Path) -> int:
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
        sizes = {folder: _bytes_below(folder) for folder in folders if folder.is_dir()}
        for folder, size in sorted(sizes.items(), key=lambda each: -each[1])[:15]:
            print(f"  folder {size / 1e6:6.1f} MB  /{folder.relative_to(root)}")
    finally:
        engine.read("podman", "image", "unmount", IMAGE)
