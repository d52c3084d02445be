"""The registered regions of all worker processes: the supervisor keeps them, with the open objects.

A region that was registered over one connection may be used over another, in another worker. The supervisor counts the
changes (`Shared.GENERATION`) before it answers the worker that asks for one; a worker looks at that number at each use
of a region and, if it has grown, asks for what has changed. So whoever sends a request after a registration was
answered, to whichever worker, gets that region, and no worker uses one that was given up.

Each worker has a socket for this, on which it asks and waits for the answer. A message is a record (SOCK_SEQPACKET),
with the descriptor of the object if it is about one.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from requant.errors import UnavailableError
from requant_service.runtime.shared_numbers import Shared, SharedNumbers

_MESSAGE_BYTES = 64 << 10
# The supervisor does nothing that takes longer; if it is stopped, so is the service.
_ANSWER_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class RegionStatus:
    """What a region was registered as. `offset` and `byte_size` are in bytes of the object."""

    name: str
    key: str
    offset: int
    byte_size: int


class RegionRegistry:
    """The supervisor's side: regions by number, in the order of their registration."""

    def __init__(self, numbers: SharedNumbers) -> None:
        self._numbers = numbers
        self._regions: dict[int, tuple[RegionStatus, int]] = {}
        self._last = 0

    def answer(self, connection: socket.socket) -> bool:
        """Receive one message of a worker and answer it. Return False if the worker has closed its side."""
        message, descriptors, _, _ = socket.recv_fds(connection, _MESSAGE_BYTES, 1)
        if not message:
            return False
        answer, descriptor = self._answered(json.loads(message), descriptors)
        with suppress(OSError):  # a worker that has just ended
            socket.send_fds(connection, [json.dumps(answer).encode()], [] if descriptor is None else [descriptor])
        return True

    def _answered(self, message: dict[str, Any], descriptors: Sequence[int]) -> tuple[Any, int | None]:
        """Return the answer to a message, and the descriptor to send with it."""
        asked = message.pop("asked")
        if asked == "list":
            return {"generation": self._generation, "regions": list(self._regions)}, None
        if asked == "region":
            status, descriptor = self._regions.get(message["number"], (None, None))
            return None if status is None else asdict(status), descriptor
        # A change, of what the worker has seen.
        if message.pop("generation") != self._generation:
            for each in descriptors:
                os.close(each)
            return False, None
        if asked == "register":
            self._last += 1
            self._regions[self._last] = RegionStatus(**message), descriptors[0]
        else:
            for number in message["regions"]:
                _, descriptor = self._regions.pop(number)
                os.close(descriptor)
        self._numbers.add_to_service(Shared.GENERATION, 1)
        return True, None

    @property
    def _generation(self) -> int:
        return self._numbers.of_service(Shared.GENERATION)


class RegistryClient:
    """A worker's side. Raises UnavailableError if the supervisor does not answer."""

    def __init__(self, connection: socket.socket, numbers: SharedNumbers) -> None:
        self._connection = connection
        self._numbers = numbers
        connection.settimeout(_ANSWER_SECONDS)

    @property
    def generation(self) -> int:
        """How often regions have changed. It costs a look into memory."""
        return self._numbers.of_service(Shared.GENERATION)

    def regions(self) -> tuple[int, list[int]]:
        """Return the generation, and the numbers of all regions."""
        answer, _ = self._ask({"asked": "list"})
        return answer["generation"], answer["regions"]

    def region(self, number: int) -> tuple[RegionStatus, int] | None:
        """Return a region with a descriptor of its object, unless it was given up meanwhile."""
        status, descriptors = self._ask({"asked": "region", "number": number})
        return None if status is None else (RegionStatus(**status), descriptors[0])

    def register(self, generation: int, status: RegionStatus, descriptor: int) -> bool:
        """Register a region. Return False if there were changes since `generation`."""
        registered, _ = self._ask({"asked": "register", "generation": generation, **asdict(status)}, [descriptor])
        return bool(registered)

    def unregister(self, generation: int, numbers: Sequence[int]) -> bool:
        """Give up regions. Return False if there were changes since `generation`."""
        done, _ = self._ask({"asked": "unregister", "generation": generation, "regions": list(numbers)})
        return bool(done)

    def _ask(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> tuple[Any, Sequence[int]]:
        try:
            socket.send_fds(self._connection, [json.dumps(message).encode()], list(descriptors))
            answer, received, _, _ = socket.recv_fds(self._connection, _MESSAGE_BYTES, 1)
        except OSError as error:
            raise UnavailableError(f"the service cannot look up shared memory regions: {error}") from None
        if not answer:
            raise UnavailableError("the service is ending")
        return json.loads(answer), received
