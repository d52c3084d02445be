"""Which packages are watched, in which environments, by which tests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Environment:
    """Packages that are installed together, and the tests that compare with them.

    `target` is what the Makefile makes it by, without the prefix of all environments. `packages` are those that are
    watched, each with the names that its systems have in docs/conformance.md. `tests` is the variable of the Makefile
    that has the arguments of pytest. `alone` are installed without their dependencies, as the Makefile does.
    `run_by` is the environment whose Python runs the tests and finds this one by ONEDNN_ENVIRONMENT, if not this one.
    """

    name: str
    target: str
    packages: Mapping[str, tuple[str, ...]]
    tests: str
    alone: frozenset[str] = frozenset()
    run_by: str | None = None


_WITH_CHECKPOINTS = {
    "amd-quark": ("Quark",),
    "auto-round": ("AutoRound",),
    "bitsandbytes": ("bitsandbytes",),
    "compressed-tensors": ("compressed-tensors",),
    "executorch": ("ExecuTorch",),
    "llmcompressor": ("LLM Compressor",),
    "nvidia-modelopt": ("Model Optimizer",),
    "torchao": ("torchao",),
    "transformers": ("Transformers",),
}

ENVIRONMENTS = (
    Environment(
        "onnxruntime", "onnxruntime-1.32/done", {"onnxruntime": ("onnxruntime",)}, "ONNXRUNTIME_TESTS"
    ),
    Environment(
        "interop",
        "interop/done",
        {
            "ai-edge-litert": ("LiteRT",),
            "ethos-u-vela": ("Vela",),
            "gfloat": ("gfloat",),
            "gguf": ("gguf",),
            "iree-base-compiler": ("IREE",),
            "jaxlib": ("StableHLO",),
            "ml-dtypes": ("ml_dtypes",),
            "onnx": ("ONNX ReferenceEvaluator",),
            "qonnx": ("QONNX",),
            "softfloatpy": ("Berkeley SoftFloat",),
            "tosa-tools": ("TOSA reference model",),
        },
        "INTEROP_TESTS",
        alone=frozenset({"ethos-u-vela", "qonnx", "tosa-tools"}),
    ),
    Environment("onednn", "onednn/done", {"onednn": ("oneDNN",)}, "ONEDNN_TESTS", run_by="interop/done"),
    Environment("tensorflow", "tensorflow/done", {"tensorflow-cpu": ("TensorFlow",)}, "TENSORFLOW_TESTS"),
    Environment("torch", "torch-{torch}/done", {"torch": ("PyTorch", "FBGEMM")}, "TORCH_TESTS"),
    Environment(
        "checkpoints", "torch-{torch}/checkpoints.done", _WITH_CHECKPOINTS, "CHECKPOINT_TESTS",
        alone=frozenset(_WITH_CHECKPOINTS),
    ),
)  # fmt: skip


def pinned_releases(torch: str) -> dict[str, str]:
    """Return the release of each package that the locks have; of two, the newer. The locks leave torch out."""
    found = {"torch": torch}
    for lock in sorted((ROOT / "requirements").glob("*.lock")):
        for name, release in re.findall(r"^([a-z0-9-]+)==([^\s;]+)", lock.read_text(encoding="utf-8"), re.MULTILINE):
            if name not in found or release_key(found[name]) < release_key(release):
                found[name] = release
    return found


def release_key(release: str) -> tuple[int, ...]:
    """Return what orders releases: 1.10 after 1.9, and 0.14.0.1 after 0.14.0."""
    return tuple(int(number) for number in re.findall(r"\d+", release.partition("+")[0]))
