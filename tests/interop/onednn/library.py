"""oneDNN in a process of its own, and its graphs on numpy arrays (see runner.py)."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

ENVIRONMENT = Path(os.environ.get("ONEDNN_ENVIRONMENT", ".venv-onednn"))
RUNNER = Path(__file__).parent / "runner.py"
EFFECTIVE = {
    "SSE41": 0x1,
    "AVX": 0x3,
    "AVX2": 0x7,
    "AVX512_CORE": 0x27,
    "AVX512_CORE_VNNI": 0x67,
    "AVX512_CORE_BF16": 0xE7,
    "AVX512_CORE_FP16": 0x1EF,
}
"""dnnl_cpu_isa_t of values of ONEDNN_MAX_CPU_ISA, each of which includes those before it."""
SETTINGS = tuple(EFFECTIVE)
DTYPES = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "s32": np.dtype(np.int32),
    "s8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
    "f8_e5m2": np.dtype(np.uint8),
    "f8_e4m3": np.dtype(np.uint8),
}


class OnednnError(Exception):
    """oneDNN refused an operator, or its process ended."""


@dataclass(frozen=True)
class Operator:
    """One operator of a graph: the names of its tensors, and data type, shape and attributes of its output."""

    kind: str
    inputs: tuple[str, ...]
    output: str
    dtype: str
    shape: tuple[int, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


class Onednn:
    """A process with oneDNN limited to one instruction set. A process that a graph has ended is started anew."""

    def __init__(self, max_cpu_isa: str = "DEFAULT") -> None:
        self.setting = max_cpu_isa
        self._process: subprocess.Popen[bytes] | None = None
        self.isa = 0

    def __enter__(self) -> Onednn:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _start(self) -> subprocess.Popen[bytes]:
        libraries = str((ENVIRONMENT / "lib").resolve())
        self._process = subprocess.Popen(
            [str(ENVIRONMENT / "bin" / "python"), "-I", str(RUNNER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "LD_LIBRARY_PATH": libraries,
                "OCL_ICD_FILENAMES": "libintelocl.so",
                "ONEDNN_MAX_CPU_ISA": self.setting,
            },
        )
        assert self._process.stdout is not None
        self.isa = json.loads(self._process.stdout.readline())["isa"]
        return self._process

    def _stop(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            self._process.stdout.close()
            self._process.wait(30)
            self._process = None

    def run(self, op: str, inputs: list[tuple[str, Array]], dtype: str, **attributes: Any) -> Array:
        """Run one operator on `inputs`, pairs of oneDNN's data type and an array; 4-bit numbers one to an element.

        Return the output, of the shape of the first input. Raise OnednnError.
        """
        names = [f"src{number}" for number in range(len(inputs))]
        operator = Operator(op, tuple(names), "dst", dtype, inputs[0][1].shape, attributes)
        return self.run_graph([operator], dict(zip(names, inputs, strict=True)))

    def run_graph(self, operators: Sequence[Operator], inputs: Mapping[str, tuple[str, Array]]) -> Array:
        """Run a graph, which has to be one partition, and return the output of the last operator.

        `inputs`: oneDNN's data type and an array, by name. Raise OnednnError.
        """
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        last = operators[-1]
        target = np.empty(last.shape, DTYPES[last.dtype])
        raw = {
            name: _packed(data) if kind in ("s4", "u4") else np.ascontiguousarray(data).tobytes()
            for name, (kind, data) in inputs.items()
        }
        given = {name: {"dtype": kind, "dims": data.shape} for name, (kind, data) in inputs.items()}
        made = {each.output: {"dtype": each.dtype, "dims": each.shape} for each in operators}
        request = {
            "operators": [
                {
                    "op": each.kind,
                    "attributes": {name: value for name, value in each.attributes.items() if value is not None},
                    "inputs": each.inputs,
                    "output": each.output,
                }
                for each in operators
            ],
            "tensors": given | made,
            "inputs": [{"name": name, "bytes": len(each)} for name, each in raw.items()],
            "output": {"name": last.output, "bytes": target.nbytes},
        }
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n" + b"".join(raw.values()))
            process.stdin.flush()
            reply = json.loads(process.stdout.readline() or b'{"error": "the process ended"}')
        except BrokenPipeError:
            reply = {"error": "the process ended"}
        if "error" in reply:
            if process.poll() is not None or reply["error"] == "the process ended":
                self._stop()
            raise OnednnError(reply["error"])
        return np.frombuffer(process.stdout.read(reply["bytes"]), target.dtype).reshape(last.shape)


def _packed(data: Array) -> bytes:
    """4-bit numbers two to a byte, the first in the low half."""
    nibbles = (data.ravel().astype(np.int16) & 15).astype(np.uint8)
    nibbles = np.append(nibbles, np.zeros(nibbles.size % 2, np.uint8))
    return (nibbles[::2] | nibbles[1::2] << 4).tobytes()
