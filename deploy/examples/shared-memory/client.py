"""Quantize a tensor that is in shared memory: nothing of it goes through the connection.

`python client.py [host:port]`, as the user of the service, with `tritonclient[http]` and numpy.
"""

import os
import sys
from contextlib import ExitStack

import numpy as np
import tritonclient.http as triton
import tritonclient.utils.shared_memory as shm

x = np.linspace(-60, 60, 16 << 20, dtype=np.float32)
client = triton.InferenceServerClient(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8080")

with ExitStack() as at_end:

    def create(name: str, byte_size: int) -> shm.SharedMemoryRegion:
        """Create an object and register all of it as a region of the same name."""
        handle = shm.create_shared_memory_region(name, f"/{name}", byte_size)
        at_end.callback(shm.destroy_shared_memory_region, handle)
        client.register_system_shared_memory(name, f"/{name}", byte_size)
        at_end.callback(client.unregister_system_shared_memory, name)
        return handle

    # Names that no other process takes. Regions stay registered for any number of requests.
    source, target = f"source-{os.getpid()}", f"target-{os.getpid()}"
    inputs, outputs = create(source, x.nbytes), create(target, x.size)

    tensor = triton.InferInput("x", x.shape, "FP32").set_shared_memory(source, x.nbytes)
    wanted = triton.InferRequestedOutput("y")
    wanted.set_shared_memory(target, x.size)
    shm.set_shared_memory_region(inputs, [x])
    reply = client.infer(
        "quantize", [tensor], outputs=[wanted], parameters={"output_type": "!quant.uniform<i8:f32, 0.5:3>"}
    )
    y = shm.get_contents_as_numpy(outputs, np.int8, x.shape)
    print(y[:3], y[-3:], reply.get_output("y")["parameters"]["shared_memory_byte_size"])
    # This array is over memory that ends here.
    del y
