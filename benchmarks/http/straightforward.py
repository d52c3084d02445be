"""What one writes first: FastAPI, the whole body, np.load, the same kernel in a thread, np.save."""

from __future__ import annotations

import io
import sys

import numpy as np
import uvicorn
from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

from benchmarks.http.case import quantized
from requant.kernels.jit.warmup import compile_kernels

app = FastAPI()


@app.post("/quantize")
async def quantize(request: Request) -> Response:
    """Quantize a .npy."""
    array = np.load(io.BytesIO(await request.body()))
    stored = await run_in_threadpool(quantized, array)
    file = io.BytesIO()
    np.save(file, stored)
    return Response(file.getvalue(), media_type="application/octet-stream")


if __name__ == "__main__":
    compile_kernels()
    uvicorn.run(app, port=int(sys.argv[1]), http="httptools", loop="uvloop", access_log=False)
