"""tritonclient in a process of its own, which the Python of .venv-triton runs.

The argument of `python -m benchmarks.triton.shared_memory_client` is JSON: `servers`, by name, with their addresses by
protocol, their model and its parameters; and `files`, the `.npy` of source and expected result, whose tensors are in
shared memory that both servers know. Each line of its standard input asks for some seconds of calls, `[server,
protocol, seconds]`, and the line that it answers has the seconds of each call. Everything is made before the calls that
is the same for each.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from time import perf_counter
from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.http
from numpy.typing import NDArray
from tritonclient.utils import shared_memory

_MODULES: dict[str, Any] = {"http": tritonclient.http, "grpc": tritonclient.grpc}
_FEWEST = 3


@dataclass(frozen=True, slots=True)
class Region:
    """A registered region of shared memory, and its array here."""

    name: str
    array: NDArray[Any]


class Calls:
    """Calls of both servers' models, by both protocols."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self.servers = setup["servers"]
        self.source, self.expected = map(np.load, setup["files"])
        self.regions: dict[str, Region] = {}

    @cache  # noqa: B019  # lives as long as the process
    def client(self, server: str, protocol: str) -> Any:
        """Return a connected client."""
        return _MODULES[protocol].InferenceServerClient(self.servers[server][protocol])

    def seconds(self, server: str, protocol: str, seconds: float) -> list[float]:
        """Call for so long, and at least three times. Return the seconds of each call.

        Raise AssertionError if the last result has other bits.
        """
        module, client = _MODULES[protocol], self.client(server, protocol)
        given = module.InferInput("x", list(self.source.shape), "FP32")
        wanted = module.InferRequestedOutput("y")
        given.set_shared_memory(self.regions["x"].name, self.source.nbytes)
        wanted.set_shared_memory(self.regions["y"].name, self.expected.nbytes)
        found = self.regions["y"].array
        found.fill(0)
        of_server = self.servers[server]
        arguments = {"outputs": [wanted], "parameters": of_server["parameters"]}
        taken: list[float] = []
        started = now = perf_counter()
        while now - started < seconds or len(taken) < _FEWEST:
            begun = perf_counter()
            client.infer(of_server["model"], [given], **arguments)
            now = perf_counter()
            taken.append(now - begun)
        assert found.tobytes() == self.expected.tobytes(), f"the bits differ: {server}, {protocol}"
        return taken


@contextmanager
def _region(calls: Calls, name: str, like: NDArray[Any]) -> Iterator[Region]:
    """Make a region of shared memory for such an array, and register it with both servers."""
    key = f"requant_bench_{name}_{os.getpid()}"
    handle = shared_memory.create_shared_memory_region(key, f"/{key}", like.nbytes)
    clients = [calls.client(server, "http") for server in calls.servers]
    try:
        for client in clients:
            client.register_system_shared_memory(key, f"/{key}", like.nbytes)
        shared_memory.set_shared_memory_region(handle, [like])
        yield Region(key, shared_memory.get_contents_as_numpy(handle, like.dtype, list(like.shape)))
        for client in clients:
            client.unregister_system_shared_memory(key)
    finally:
        shared_memory.destroy_shared_memory_region(handle)


def main() -> None:
    """Answer lines until there are no more. The first line tells the keys of the regions."""
    setup = json.loads(sys.argv[1])
    with ExitStack() as stack:
        calls = Calls(setup)
        for name, like in (("x", calls.source), ("y", calls.expected)):
            calls.regions[name] = stack.enter_context(_region(calls, name, like))
        print(json.dumps({name: region.name for name, region in calls.regions.items()}), flush=True)
        for line in sys.stdin:
            print(json.dumps(calls.seconds(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
