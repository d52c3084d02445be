"""An S3 server, moto's, in a process."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.conftest import free_port

_buckets = count()


@dataclass(frozen=True)
class S3Server:
    """Where it listens, and a client of Amazon's."""

    endpoint: str
    client: Any

    @property
    def variables(self) -> dict[str, str]:
        """What a process needs to know of it."""
        return {
            "AWS_ACCESS_KEY_ID": "the-key",
            "AWS_SECRET_ACCESS_KEY": "the-secret-key",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
        }

    def uploads(self, bucket: str) -> list[str]:
        """The names of the uploads that are neither complete nor aborted."""
        return [each["Key"] for each in self.client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])]

    def names(self, bucket: str) -> list[str]:
        """The names of all objects."""
        return [each["Key"] for each in self.client.list_objects_v2(Bucket=bucket).get("Contents", [])]


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="the-key",
        aws_secret_access_key="the-secret-key",
    )
    log: Path = tmp_path_factory.mktemp("s3") / "log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "moto.server", "-p", str(port)]
        with subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as process:
            try:
                deadline = time.monotonic() + 60
                while True:
                    try:
                        client.list_buckets()
                        break
                    except Exception:
                        assert process.poll() is None, log.read_text()
                        assert time.monotonic() < deadline, log.read_text()
                        time.sleep(0.1)
                yield S3Server(endpoint, client)
            finally:
                process.kill()


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a new bucket, for which the environment has the credentials."""
    for name, value in s3_server.variables.items():
        monkeypatch.setenv(name, value)
    name = f"models-{next(_buckets)}"
    s3_server.client.create_bucket(Bucket=name)
    return name
