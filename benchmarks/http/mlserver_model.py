"""MLServer with the same kernel behind the Open Inference Protocol. It runs in an environment of its own."""

from __future__ import annotations

import numpy as np
from mlserver import MLModel
from mlserver.codecs import Base64Codec
from mlserver.types import InferenceRequest, InferenceResponse

from benchmarks.http.case import quantized
from requant.kernels.jit.warmup import compile_kernels


class Quantize(MLModel):  # type: ignore[misc]  # MLServer is not in the environment that types are checked in
    """One model: f32 bytes in, i8 bytes out."""

    async def load(self) -> bool:
        """Make the kernels ready."""
        compile_kernels()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Quantize the first input."""
        (data,) = Base64Codec.decode_input(payload.inputs[0])
        stored = quantized(np.frombuffer(data, np.float32))
        return InferenceResponse(model_name=self.name, outputs=[Base64Codec.encode_output("y", [stored.tobytes()])])
