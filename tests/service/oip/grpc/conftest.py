"""A service with a gRPC port, and a channel to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from tests.conftest import Server, free_port, started

UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@pytest.fixture(scope="package")
def grpc_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    """The service, and the address of its gRPC port."""
    port = free_port()
    arguments = ("--drain-seconds", "0", "--grpc-port", str(port))
    with started(tmp_path_factory.mktemp("grpc") / "log", *arguments) as (running, _):
        yield running, f"127.0.0.1:{port}"


@pytest.fixture
def channel(grpc_server: tuple[Server, str]) -> Iterator[Any]:
    with grpc.insecure_channel(grpc_server[1], options=UNLIMITED) as connected:
        yield connected
