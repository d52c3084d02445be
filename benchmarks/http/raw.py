"""The limit of Python: a protocol on uvloop that knows one request, with the same kernel."""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import numpy as np
import uvloop

from benchmarks.http.case import HEADER_BYTES, plan_for
from requant.kernels.jit.warmup import compile_kernels
from requant_service.npy_api.format import write_header


class Quantize(asyncio.Protocol):
    """One connection: the body into an array, the kernel, the reply from the array's own memory."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self.transport = cast(asyncio.Transport, transport)
        self.head = b""
        self.body = np.empty(0, np.uint8)
        self.filled = 0

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        if not self.body.size:
            self.head += data
            end = self.head.find(b"\r\n\r\n") + 4
            if end < 4:
                return
            at = self.head.index(b"Content-Length: ") + 16
            self.body = np.empty(int(self.head[at : self.head.index(b"\r", at)]), np.uint8)
            data, self.head = self.head[end:], b""
        self.body.data[self.filled : self.filled + len(data)] = data
        self.filled += len(data)
        if self.filled == self.body.size:
            self.answer()
            self.body, self.filled = np.empty(0, np.uint8), 0

    def answer(self) -> None:
        """Quantize the body and send the file."""
        source = self.body[HEADER_BYTES:].view(np.float32)
        plan = plan_for(source.size)
        target = np.empty(plan.elements, plan.output_dtype)
        plan.run(source, target)
        file = write_header(target.dtype, (target.size,))
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(file) + target.size, file))
        self.transport.write(target.data)


async def serve(port: int) -> None:
    """Serve until a signal ends it."""
    server = await asyncio.get_running_loop().create_server(Quantize, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    compile_kernels()
    uvloop.run(serve(int(sys.argv[1])))
