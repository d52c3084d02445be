"""The methods of system shared memory, and of CUDA's, of which there is none."""

from __future__ import annotations

from functools import partial

from requant.errors import UnknownNameError
from requant_service.oip.grpc import inference_pb2 as pb
from requant_service.oip.grpc.statuses import NotFoundError
from requant_service.oip.shared_memory.tensors import registered_regions, without_cuda
from requant_service.runtime.runtime import Runtime


async def status(running: Runtime, given: pb.SystemSharedMemoryStatusRequest) -> pb.SystemSharedMemoryStatusResponse:
    """Return the region of a name, or all of them."""
    regions = registered_regions(running)
    try:
        found = [regions.status(given.name)] if given.name else regions.statuses()
    except UnknownNameError as error:
        raise NotFoundError(error) from None
    reply = pb.SystemSharedMemoryStatusResponse()
    for each in found:
        described = reply.regions[each.name]
        described.name, described.key = each.name, each.key
        described.offset, described.byte_size = each.offset, each.byte_size
    return reply


async def register(
    running: Runtime, given: pb.SystemSharedMemoryRegisterRequest
) -> pb.SystemSharedMemoryRegisterResponse:
    """Register a part of an object as a region."""
    registered_regions(running).register(given.name, given.key, given.offset, given.byte_size)
    return pb.SystemSharedMemoryRegisterResponse()


async def unregister(
    running: Runtime, given: pb.SystemSharedMemoryUnregisterRequest
) -> pb.SystemSharedMemoryUnregisterResponse:
    """Forget the region of a name, or all of them."""
    regions = registered_regions(running)
    if given.name:
        try:
            work, byte_count = partial(regions.unregister, given.name), regions.status(given.name).byte_size
            await running.executor.run_array(byte_count, work)
        except UnknownNameError as error:
            raise NotFoundError(error) from None
    else:
        await running.executor.run_array(regions.mapped_bytes, regions.unregister_all)
    return pb.SystemSharedMemoryUnregisterResponse()


async def cuda_status(given: pb.CudaSharedMemoryStatusRequest) -> pb.CudaSharedMemoryStatusResponse:
    """Return that there are no regions."""
    if given.name:
        raise without_cuda()
    return pb.CudaSharedMemoryStatusResponse()


async def cuda_register(given: pb.CudaSharedMemoryRegisterRequest) -> pb.CudaSharedMemoryRegisterResponse:
    """Refuse."""
    raise without_cuda()


async def cuda_unregister(given: pb.CudaSharedMemoryUnregisterRequest) -> pb.CudaSharedMemoryUnregisterResponse:
    """Forget all regions: there are none."""
    if given.name:
        raise without_cuda()
    return pb.CudaSharedMemoryUnregisterResponse()
