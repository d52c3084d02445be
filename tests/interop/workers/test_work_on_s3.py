"""`requant checkpoint work` from a bucket to a bucket, with workers that are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from requant.checkpoint.storage.object_store import open_object_store
from requant.checkpoint.workers import take_lease
from tests.conftest import ROOT
from tests.interop.workers.conftest import S3Server
from tests.interop.workers.model import command, contents, make_model, requant

pytestmark = pytest.mark.interop

FILES = 3


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and what one process makes of it."""
    folder = tmp_path_factory.mktemp("local")
    # 8.3 MiB of codes in a file: two parts.
    make_model(folder / "model", files=FILES, side=2080)
    requant("quantize", folder / "model", folder / "W8A8", "--scheme", "W8A8")
    return folder


@pytest.fixture
def plan(local: Path, bucket: str, s3_server: S3Server) -> str:
    """The plan file, in the bucket with the model."""
    for name, data in contents(local / "model").items():
        s3_server.client.put_object(Bucket=bucket, Key=f"model/{name}", Body=data)
    location = f"s3://{bucket}/plan.json"
    requant(
        "plan", f"s3://{bucket}/model", "--scheme", "W8A8", "--destination", f"s3://{bucket}/W8A8", "--output", location
    )
    return location


def check_finished(local: Path, bucket: str, s3_server: S3Server) -> None:
    """The files in the bucket are those that one process wrote, but for two digests: files have other versions."""
    store = open_object_store(f"s3://{bucket}/W8A8")
    found = {file.name: store.get(file.name) for file in store.files()}
    expected: dict[str, bytes | None] = dict(contents(local / "W8A8"))
    manifests = [json.loads(each.pop("requant-manifest.json") or b"") for each in (found, expected)]
    assert found == expected
    for member in ("plan", "sha256"):
        assert manifests[0].pop(member) != manifests[1].pop(member)
    assert manifests[0] == manifests[1]


def worker(*arguments: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command("work", *arguments, "--threads", "1"),
        cwd=ROOT,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> str:
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output


def test_shares(plan: str, local: Path, bucket: str, s3_server: S3Server) -> None:
    workers = [worker("--plan", plan, "--of", "3", JOB_COMPLETION_INDEX=str(index)) for index in range(3)]
    said = [ended(each) for each in workers]
    assert any("All files are complete." in each for each in said)
    check_finished(local, bucket, s3_server)


@pytest.mark.parametrize("committed", [0, 1])
def test_a_worker_is_killed(plan: str, local: Path, bucket: str, s3_server: S3Server, committed: int) -> None:
    """While it uploads its first file, or a later one."""
    store = open_object_store(f"s3://{bucket}/W8A8")

    def reached() -> bool:
        records = [name for name in s3_server.names(bucket) if "requant-progress" in name]
        return len(records) >= committed and bool(s3_server.uploads(bucket))

    with worker("--plan", plan, "--index", "0", "--of", "1") as process:
        deadline = time.monotonic() + 120
        while not reached() and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
    assert store.get("config.json") is None
    assert not [name for name in s3_server.names(bucket) if name.endswith(".part")]
    ended(worker("--plan", plan, "--index", "0", "--of", "1"))
    check_finished(local, bucket, s3_server)


def test_leases(plan: str, local: Path, bucket: str, s3_server: S3Server) -> None:
    """Workers without shares; one file is held by a worker that died three seconds ago."""
    destination = open_object_store(f"s3://{bucket}/W8A8")
    ended(worker("--plan", plan, "--index", "0", "--of", str(FILES)))
    assert take_lease(destination, f"model-00002-of-{FILES:05}.safetensors", seconds=3) is not None
    said = [ended(each) for each in [worker("--plan", plan) for _ in range(3)]]
    assert all("All files are complete." in each for each in said)
    assert sum(int(each.split()[1]) for each in said) == FILES - 1
    check_finished(local, bucket, s3_server)


def test_the_source_changed(plan: str, local: Path, bucket: str, s3_server: S3Server) -> None:
    s3_server.client.put_object(Bucket=bucket, Key=f"model/model-00001-of-{FILES:05}.safetensors", Body=b"other")
    process = worker("--plan", plan, "--index", "0", "--of", "1")
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "model-00001" in errors or "Make a new plan file" in errors
    assert not [name for name in s3_server.names(bucket) if name.startswith("W8A8/")]
