"""The real systems and their installed versions, which are looked up when a comparison is recorded."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tests.support.installed_release import installed_release

_ROOT = Path(__file__).parents[3]
GEMMLOWP_VERSION = _ROOT / ".gemmlowp/version"
FROM_SOURCE = _ROOT / ".from-source"
"""What tests/interop/schemes/from_source/install compiles."""


@dataclass(frozen=True)
class System:
    """A real system by its public name, and how to look up its version."""

    name: str
    version: Callable[[], str]


def installed(name: str, distribution: str) -> System:
    """Return the system that a Python package installs."""
    return System(name, lambda: f"{distribution} {installed_release(distribution)}")


def _onednn() -> str:
    # In an environment of its own, which is not this process's.
    environment = _ROOT / os.environ.get("ONEDNN_ENVIRONMENT", ".venv-onednn")
    paths = [str(path) for path in environment.glob("lib/python*/site-packages")]
    (found,) = metadata.distributions(name="onednn", path=paths)
    return f"onednn {found.version}"


def _compiled(name: str, package: str) -> System:
    """Return the system that is compiled from a source package of Debian."""
    path = FROM_SOURCE / f"{package}.version"
    return System(name, lambda: f"{package} {path.read_text(encoding='utf-8').strip()}")


def _llama_cpp() -> str:
    package = json.loads(
        (_ROOT / ".llama-cpp/node_modules/@node-llama-cpp/linux-x64/package.json").read_text(encoding="utf-8")
    )
    return f"{package['name']} {package['version']}"


AUTO_ROUND = installed("AutoRound", "auto-round")
AUTOAWQ = installed("AutoAWQ", "autoawq")
BITSANDBYTES = installed("bitsandbytes", "bitsandbytes")
COMPRESSED_TENSORS = installed("compressed-tensors", "compressed-tensors")
EXECUTORCH = installed("ExecuTorch", "executorch")
FBGEMM = installed("FBGEMM", "torch")
"""Torch's library has it."""
FOUROVERSIX = installed("fouroversix", "fouroversix")
GEMMLOWP = System("gemmlowp", lambda: f"libgemmlowp-dev {GEMMLOWP_VERSION.read_text(encoding='utf-8').strip()}")
GFLOAT = installed("gfloat", "gfloat")
GGUF = installed("gguf", "gguf")
IREE = installed("IREE", "iree-base-compiler")
LITERT = installed("LiteRT", "ai-edge-litert")
LITERT_SOURCE = _compiled("LiteRT, compiled from TensorFlow's source", "tensorflow")
"""Its reference kernels and functions, with the switches that no package is built with."""
LLAMA_CPP = System("llama.cpp", _llama_cpp)
LLM_COMPRESSOR = installed("LLM Compressor", "llmcompressor")
ML_DTYPES = installed("ml_dtypes", "ml_dtypes")
MODEL_OPTIMIZER = installed("Model Optimizer", "nvidia-modelopt")
ONEDNN = System("oneDNN", _onednn)
ONNX_REFERENCE = installed("ONNX ReferenceEvaluator", "onnx")
ONNXRUNTIME = installed("onnxruntime", "onnxruntime")
QNNPACK = _compiled("QNNPACK, compiled from PyTorch's source", "pytorch")
"""XNNPACK's requantizations precise and q31, called rndna and gemmlowp later, come from it."""
QEMU = System(
    "QEMU for RISC-V", lambda: f"qemu-user {(_ROOT / '.qemu-riscv/version').read_text(encoding='utf-8').strip()}"
)
QONNX = installed("QONNX", "qonnx")
QUARK = installed("Quark", "amd-quark")
SOFTFLOAT = installed("Berkeley SoftFloat", "softfloatpy")
STABLEHLO = installed("StableHLO", "jaxlib")
"""The interpreter and the passes."""
TENSORFLOW = installed("TensorFlow", "tensorflow-cpu")
TORCH = installed("PyTorch", "torch")
TORCHAO = installed("torchao", "torchao")
TOSA = installed("TOSA reference model", "tosa-tools")
TRANSFORMERS = installed("Transformers", "transformers")
VELA = installed("Vela", "ethos-u-vela")
XNNPACK = _compiled("XNNPACK, compiled from its source", "xnnpack")
