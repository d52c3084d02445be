"""KServe's InferenceGRPCClient against the service at an address: each model, tensors in both forms, and errors."""

from __future__ import annotations

import asyncio
import sys
import warnings
from dataclasses import replace
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the packages that it imports
    import kserve

import grpc
import pytest

from tests.interop.clients.model_cases import CASES, Array, check


def given(name: str, array: Array, *, binary: bool) -> Any:
    found = kserve.InferInput(name, list(array.shape), array.dtype.name.upper().replace("FLOAT", "FP"))
    found.set_data_from_numpy(array, binary_data=binary)
    return found


async def run(address: str) -> None:
    async with kserve.InferenceGRPCClient(address) as client:
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready("quantize")
        assert not await client.is_model_ready("nope")
        for case in CASES:
            if any(type(value) is float for value in case.parameters.values()):
                continue  # which its messages have no field for
            for binary in (True, False):
                inputs = [given(name, array, binary=binary) for name, array in case.inputs.items()]
                reply = await client.infer(kserve.InferRequest(case.model, inputs, "id-1", parameters=case.parameters))
                assert (reply.id, reply.model_name, reply.model_version) == ("id-1", case.model, "1")
                found = {output.name: output.as_numpy() for output in reply.outputs}
                chosen = {name: (each, each.WhichOneof("parameter_choice")) for name, each in reply.parameters.items()}
                said = {name: getattr(each, field) for name, (each, field) in chosen.items() if field}
                due = replace(case, said={name: value for name, value in case.said.items() if type(value) is not float})
                check(due, {name: found[name] for name in case.expected}, said)
        with pytest.raises(grpc.RpcError) as caught:
            await client.infer(kserve.InferRequest("nope", inputs))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1]))
