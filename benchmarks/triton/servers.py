"""Both servers as processes, each with HTTP, gRPC and system shared memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from benchmarks.http.case import PARAMETERS, Case
from benchmarks.http.server import OURS, ROOT, Contender, Server, free_port

TRITON_PYTHON = ROOT / ".venv-triton" / "bin" / "python"
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


@contextmanager
def running() -> Iterator[tuple[Running, Running]]:
    """Start ours and Triton, each checked on a small case. Raise RuntimeError if one does not start."""
    case = Case.of(1000)
    with ExitStack() as stack:
        repository = stack.enter_context(tempfile.TemporaryDirectory(prefix="triton-"))
        ours_grpc, triton_grpc = free_port(), free_port()
        ours = replace(OURS_V2, environment={"REQUANT_GRPC_PORT": str(ours_grpc), "REQUANT_SHARED_MEMORY": "true"})
        triton = replace(
            TRITON,
            command=lambda port: [
                *(str(TRITON_PYTHON), "-m", "benchmarks.triton.start"),
                *(str(port), str(triton_grpc), repository),
            ],
        )
        started = []
        for contender, grpc_port in ((ours, ours_grpc), (triton, triton_grpc)):
            server = Server(contender)
            stack.callback(server.stop)
            server.wait(case)
            started.append(Running(server, grpc_port))
        yield started[0], started[1]
