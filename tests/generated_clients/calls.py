"""One call of each operation, out of the document's own examples."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "openapi" / "openapi.json"


@dataclass(frozen=True)
class Call:
    """An operation with what it is given: a JSON body, or bytes, or the fields of a form, or nothing."""

    operation: str
    tag: str
    method: str
    path_template: str
    path: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)
    json: Any = None
    data: bytes | None = None
    form: dict[str, str | int | bytes] = field(default_factory=dict)

    @property
    def answers_bytes(self) -> bool:
        """Whether the reply is a file."""
        return self.data is not None or bool(self.form)

    @property
    def url(self) -> str:
        return self.path_template.format(**self.path)


def _npy(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


# What the document cannot hold as an example: bytes, and the parameters that go with them.
_BYTES = {
    "quantizeNpy": _npy(np.array([0.25, 0.75, -1.5], np.float32)),
    "dequantizeNpy": _npy(np.array([3, 5, 0], np.int8)),
    "requantizeNpy": _npy(np.array([-70000, 0, 70000], np.int32)),
}
_SCALE = _npy(np.array([0.5, 0.25, 0.125], np.float32))
_FORMS: dict[str, dict[str, str | int | bytes]] = {
    "quantizeForm": {"x": _BYTES["quantizeNpy"], "scale": _SCALE, "axis": 0, "storage_type": "i8", "profile": "onnx"},
    "dequantizeForm": {"x": _BYTES["dequantizeNpy"], "scale": _SCALE, "axis": 0},
    "requantizeForm": {
        "x": _BYTES["requantizeNpy"],
        "output_type": "!quant.uniform<i8:f32, 0.5:3>",
        "multiplier": _npy(np.array([1 << 30], np.int64)),
        "shift": _npy(np.array([-8], np.int32)),
    },
}
_PARAMETERS = {
    "quantizeNpy": {"output_type": "!quant.uniform<i8:f32, 0.5:3>", "profile": "onnx"},
    "dequantizeNpy": {"input_type": "!quant.uniform<i8:f32, 0.5:3>"},
    "requantizeNpy": {"input_type": "!quant.uniform<i32:f32, 0.001>", "output_type": "!quant.uniform<i8:f32, 0.5:3>"},
    "getProfile": {"name": "litert"},
    "getProblem": {"code": "limit_exceeded"},
    "getScheme": {"name": "litert"},
    "getOperator": {"name": "onnx.QuantizeLinear"},
    **{name: {"model": "quantize"} for name in ("oipGetModel", "oipGetModelReady", "oipInfer")},
    **{
        name: {"model": "quantize", "version": "1"}
        for name in ("oipGetModelVersion", "oipGetModelVersionReady", "oipInferVersion")
    },
}


def calls() -> Iterator[Call]:
    """Every operation of the document but those of shared memory, which need a setting and a client's memory.

    Raise KeyError where one has neither an example nor bytes here.
    """
    document = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    for path, methods in document["paths"].items():
        if "sharedmemory" in path:
            continue
        for method, operation in methods.items():
            name = operation["operationId"]
            given = _PARAMETERS.get(name, {})
            kinds = {parameter["name"]: parameter["in"] for parameter in operation.get("parameters", [])}
            content = operation.get("requestBody", {}).get("content", {})
            yield Call(
                operation=name,
                tag=operation["tags"][0],
                method=method,
                path_template=path,
                path={key: value for key, value in given.items() if kinds[key] == "path"},
                query={key: value for key, value in given.items() if kinds[key] == "query"},
                json=content["application/json"]["example"] if "application/json" in content else None,
                data=_BYTES[name] if "application/octet-stream" in content else None,
                form=_FORMS[name] if "multipart/form-data" in content else {},
            )
