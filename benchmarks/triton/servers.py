"""Both servers as processes, each with HTTP, gRPC and system shared memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from benchmarks.http.case import PARAMETERS, Case
from benchmarks.http.server import OURS, ROOT, Contender, Server, free_port

TRITON_PYTHON = ROOT / ".venv-triton" / "bin" / "python"
# Of ours; Triton has as many instances.
WORKERS = len(os.sched_getaffinity(0))
_PATH = "/v2/models/{model}/infer"
# The models of benchmarks.triton.start.
MODEL, MODEL_OF_ONE_INSTANCE = "quantize", "quantize_one_instance"

OURS_V2 = replace(
    OURS,
    name="V2",
    request=lambda case: case.as_inference(_PATH.format(model=MODEL), PARAMETERS),
    check=Case.check_inference,
)
OURS_NPY = replace(OURS, name=".npy")


def _triton(name: str, model: str) -> Contender:
    return replace(OURS_V2, name=name, request=lambda case: case.as_inference(_PATH.format(model=model), {}))


TRITON = _triton("Triton", MODEL)
TRITON_ONE_INSTANCE = _triton("Triton, one instance", MODEL_OF_ONE_INSTANCE)


@dataclass(frozen=True, slots=True)
class Running:
    """A server with its second port."""

    server: Server
    grpc_port: int


@dataclass(frozen=True, slots=True)
class Servers:
    """All that are measured."""

    ours: Running
    one_worker: Server
    triton: Running


@contextmanager
def running() -> Iterator[Servers]:
    """Start ours and Triton, each checked on a small case. Raise RuntimeError if one does not start."""
    case = Case.of(1000)
    with ExitStack() as stack:
        repository = stack.enter_context(tempfile.TemporaryDirectory(prefix="triton-"))

        def started(contender: Contender) -> Server:
            server = Server(contender)
            stack.callback(server.stop)
            server.wait(case)
            return server

        grpc_port, triton_grpc_port = free_port(), free_port()
        settings = {"WORKERS": str(WORKERS), "GRPC_PORT": str(grpc_port), "SHARED_MEMORY": "true"}
        command = [str(TRITON_PYTHON), "-m", "benchmarks.triton.start"]
        yield Servers(
            Running(started(_ours(settings)), grpc_port),
            started(_ours({"WORKERS": "1"})),
            Running(
                started(replace(TRITON, command=lambda port: [*command, str(port), str(triton_grpc_port), repository])),
                triton_grpc_port,
            ),
        )


def _ours(settings: dict[str, str]) -> Contender:
    return replace(OURS_V2, environment={f"REQUANT_{name}": value for name, value in settings.items()})
