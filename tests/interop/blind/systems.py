"""The systems whose dumps there are. Each is imported when its dumps are made, in the environment that has it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from tests.interop.blind.dump import Dump, differences, replayed
from tests.interop.llama_cpp.library import LIBRARIES
from tests.interop.onednn.library import ENVIRONMENT as ONEDNN
from tests.interop.onednn.library import Onednn
from tests.interop.seed_of_the_day import generator

Make = Callable[[np.random.Generator, int], Iterator[Dump]]


def _litert_reference(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    from tests.interop.blind import litert
    from tests.interop.litert_models import REFERENCE

    return litert.dumps(rng, count, REFERENCE)


def _litert_optimized(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    from tests.interop.blind import litert

    return litert.dumps(rng, count, litert.OPTIMIZED)


def _litert_xnnpack(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    from tests.interop.blind import litert
    from tests.interop.litert_models import DEFAULT

    return litert.dumps(rng, count, DEFAULT)


def _onnxruntime(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    from tests.interop.blind import onnx_models

    return onnx_models.dumps(rng, count, onnx_models.ONNXRUNTIME)


def _onnx_reference(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    from tests.interop.blind import onnx_models

    return onnx_models.dumps(rng, count, onnx_models.REFERENCE)


def _onednn(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    from tests.interop.blind import onednn

    with Onednn(onednn.SETTING) as library:
        yield from onednn.dumps(rng, count, library)


def _torch(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    from tests.interop.blind import pytorch

    return pytorch.eager_dumps(rng, count)


def _torch_decomposed(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    from tests.interop.blind import pytorch

    return pytorch.decomposed_dumps(rng, count)


def _torchao(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    from tests.interop.blind import torchao_blocks

    return torchao_blocks.dumps(rng, count)


def _compressed_tensors(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    from tests.interop.blind import compressed_tensors_weights

    return compressed_tensors_weights.dumps(rng, count)


def _tosa(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    from tests.interop.blind import tosa

    return tosa.dumps(rng, count)


def _stablehlo(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    from tests.interop.blind import stablehlo
    from tests.interop.stablehlo_upstream import loaded

    with loaded():
        yield from stablehlo.dumps(rng, count)


def _xla(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    from tests.interop.blind import stablehlo
    from tests.interop.stablehlo_upstream import loaded

    with loaded():
        yield from stablehlo.dumps_of_xla(rng, count)


def _iree(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    from tests.interop.blind import mlir_casts

    return mlir_casts.dumps(rng, count)


def _tensorflow(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    from tests.interop.blind import tensorflow_ranges

    return tensorflow_ranges.dumps(rng, count)


def _tensorflow_converter(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    from tests.interop.blind import tensorflow_ranges

    return tensorflow_ranges.dumps_of_converter(rng, count)


def _ml_dtypes(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    from tests.interop.blind import numpy_casts

    return numpy_casts.dumps(rng, count)


def _gguf(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    from tests.interop.blind import gguf_blocks

    return gguf_blocks.dumps_of_gguf(rng, count)


def _ggml(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    from tests.interop.blind import gguf_blocks

    return gguf_blocks.dumps_of_ggml(rng, count)


@dataclass(frozen=True)
class System:
    """A system: its name, the module that has it, how many dumps of it are made, and how. `there`: whether it is."""

    name: str
    module: str
    count: int
    make: Make
    there: bool = True

    def __str__(self) -> str:
        return self.name

    def dumps(self) -> Iterator[Dump]:
        """The dumps of the day. Skip the test where the system is not installed."""
        pytest.importorskip(self.module)
        if not self.there:
            pytest.skip(f"there is no {self.name}")
        return self.make(generator(601, *self.name.encode()), self.count)


# Others each day, and as many as take minutes.
ONNXRUNTIME = System("onnxruntime", "onnxruntime", 90, _onnxruntime)
ONNX_REFERENCE = System("onnx.reference", "onnx.reference", 60, _onnx_reference)
OF_TORCH = (
    System("torch", "torch", 80, _torch),
    System("torch quantized_decomposed", "torch", 40, _torch_decomposed),
    System("torchao", "torchao", 30, _torchao),
    System("compressed-tensors", "compressed_tensors", 26, _compressed_tensors),
)
OF_TENSORFLOW = (
    System("TensorFlow", "tensorflow", 53, _tensorflow),
    System("TensorFlow's converter", "tensorflow", 21, _tensorflow_converter),
)
OTHERS = (
    System("LiteRT BUILTIN_REF", "ai_edge_litert", 60, _litert_reference),
    System("LiteRT without delegates", "ai_edge_litert", 60, _litert_optimized),
    System("LiteRT with XNNPACK", "ai_edge_litert", 60, _litert_xnnpack),
    System("oneDNN", "numpy", 70, _onednn, ONEDNN.exists()),
    System("TOSA reference model", "tosa_reference_model", 66, _tosa),
    System("StableHLO interpreter", "jaxlib", 50, _stablehlo),
    System("XLA", "jaxlib", 40, _xla),
    System("IREE", "iree.compiler", 8, _iree),
    System("ml_dtypes", "ml_dtypes", 50, _ml_dtypes),
    System("gguf", "gguf", 33, _gguf),
    System("ggml", "gguf", 33, _ggml, LIBRARIES.exists()),
)
"""By the environments that have them: these are in one, and those above in environments of their own."""


def check_labels(system: System) -> None:
    """Fail if a label of the system's dumps does not give the observed bits. Print how many dumps there are."""
    count: Counter[str] = Counter()
    elements, wrong = 0, []
    for dump in system.dumps():
        count[dump.operation] += 1
        elements += sum(each.size for each in dump.observed.values())
        for name, places in differences(dump).items():
            first = int(places[0])
            ours, theirs = (each.ravel()[first] for each in (replayed(dump)[name], dump.observed[name]))
            wrong.append(f"{dump}: {name} differs in {places.size} places, first in {first}: {ours}, not {theirs}")
    operations = ", ".join(f"{number} {name}" for name, number in sorted(count.items()))
    sys.stdout.write(f"dumps of {system}: {count.total()} of {elements:,} elements: {operations}\n")
    assert not wrong, f"{len(wrong)} of {count.total()} labels are wrong\n" + "\n".join(wrong[:20])
    assert count.total() == system.count
