"""`python -m benchmarks.checkpoint.torchao [SOURCE TARGET SCHEME]`: the nearest by torchao, a shard at a time.

Its arithmetic and its files are its own. A directory of safetensors files is read and written with its own functions.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict
from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, quantize_
from torchao.quantization.granularity import PerGroup, PerRow

from benchmarks.checkpoint.model import IGNORE

_CONFIGS = {
    "W8A8": lambda: Int8WeightOnlyConfig(granularity=PerRow()),
    "W4A16": lambda: IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(128)),
}


def convert(source: Path, target: Path, scheme: str) -> None:
    """Quantize the matrices of each file but those in `IGNORE`."""
    target.mkdir(parents=True)
    for path in sorted(source.glob("*.safetensors")):
        tensors = load_file(path)
        for name, tensor in list(tensors.items()):
            if tensor.ndim < 2 or any(re.match(entry.removeprefix("re:"), name) for entry in IGNORE):
                continue
            del tensors[name]
            if tensor.ndim == 2:
                tensors[name] = _quantized(tensor, scheme)
            else:
                tensors |= {f"{name}.{number}": _quantized(part, scheme) for number, part in enumerate(tensor)}
        flat, metadata = flatten_tensor_state_dict(tensors)
        save_file(flat, target / path.name, metadata)


def _quantized(weight: torch.Tensor, scheme: str) -> torch.Tensor:
    linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    linear.weight = torch.nn.Parameter(weight, requires_grad=False)
    quantize_(linear, _CONFIGS[scheme]())
    return linear.weight.detach()


if __name__ == "__main__" and len(sys.argv) > 1:
    convert(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
