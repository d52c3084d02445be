"""The arithmetic of quantizing weights, named after the program, and the device, whose bits it reproduces."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckpointProfile:
    """A published arithmetic. Its bits never change. `version`: of the system that it was compared with."""

    name: str
    system: str
    version: str
    description: str


COMPRESSED_TENSORS_CPU = CheckpointProfile(
    "compressed-tensors-cpu",
    "compressed-tensors",
    "0.20.0",
    "Each step is an f32 operation, rounded to the weight's dtype, as in torch on a CPU.",
)
COMPRESSED_TENSORS_CUDA = CheckpointProfile(
    "compressed-tensors-cuda",
    "compressed-tensors",
    "0.20.0",
    "Weights are divided by their scales in f32, without rounding to the weight's dtype, as its Triton kernel does. "
    "Scales are those of compressed-tensors-cpu. So is FP8 from compute capability 9.0 on.",
)

TRANSFORMERS = CheckpointProfile(
    "transformers",
    "transformers",
    "5.23.0",
    "f32 throughout: a reciprocal, then multiplications, as its FineGrainedFP8 quantizer computes on a CPU.",
)
AUTO_ROUND = CheckpointProfile(
    "auto-round",
    "auto-round",
    "0.15.1",
    "f32 divided by f16 scales, rounded before the zero point is added, as its model-free mode computes on a CPU, not "
    "compiled.",
)
AUTOAWQ = CheckpointProfile(
    "autoawq",
    "autoawq",
    "0.2.9",
    "Weights and each step are rounded to f16, as in torch on a CPU. Without AWQ's search.",
)
BITSANDBYTES = CheckpointProfile(
    "bitsandbytes",
    "bitsandbytes",
    "0.50.2",
    "f32 times the reciprocal of a block's largest magnitude, as it computes on a CPU.",
)
MODEL_OPTIMIZER = CheckpointProfile(
    "modelopt",
    "nvidia-modelopt",
    "0.47.0",
    "f32 throughout: weights are divided by f32 scales, as its export computes on a CPU.",
)
LLAMA_QUANTIZE = CheckpointProfile(
    "llama-quantize",
    "llama.cpp",
    "0.5.0",
    "f32 throughout, without fused multiply-adds, as its builds for x86-64 compute.",
)
"""Of GGUF files, which have no other."""

_ALL = (
    COMPRESSED_TENSORS_CPU,
    COMPRESSED_TENSORS_CUDA,
    TRANSFORMERS,
    AUTO_ROUND,
    AUTOAWQ,
    BITSANDBYTES,
    MODEL_OPTIMIZER,
)
CHECKPOINT_PROFILES: dict[str, CheckpointProfile] = {each.name: each for each in _ALL}
"""By name."""
