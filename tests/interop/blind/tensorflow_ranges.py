"""Dumps of TensorFlow: fake quantization, and the scales and zero points of its MLIR pass and of its converter."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice, repeat
from typing import Any

os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import numpy as np
import tensorflow

from tests.interop.blind import draws
from tests.interop.blind.dump import Array, Arrays, Dump, RefusedError, Types, dumped, tensor_text
from tests.interop.range_cases import elements_of_range
from tests.interop.tensorflow_ranges import (
    biases,
    converted,
    fake_quantize,
    input_ranges,
    layers,
    parameters,
    parameters_of_pass,
    weights,
)


def _range(rng: np.random.Generator) -> tuple[np.float32, np.float32]:
    """Around 0, or on one side of it; ends on steps of 1/2 in some."""
    ends = np.sort(rng.standard_normal(2)) * 10.0 ** rng.uniform(-3, 3)
    if rng.random() < 0.4:
        ends = np.sort(rng.choice(np.arange(-300, 300), 2, replace=False)) / 2
    low, high = ends.astype(np.float32)
    return low, high


def _ends(arrays: Arrays) -> Array:
    """Ends as TensorFlow takes them: [minimums, maximums]."""
    given = np.stack([arrays[name].reshape(-1) for name in ("minimums", "maximums")])
    ends = given.astype(np.float32)
    if not np.array_equal(given, ends):
        raise RefusedError
    return ends


def fake_quant(rng: np.random.Generator) -> Dump:
    """With variables of one range, or of one for each channel, and with attributes."""
    kind, bits, narrow = int(rng.integers(3)), int(rng.choice([2, 3, 4, 7, 8, 12, 16])), bool(rng.random() < 0.4)
    operators, settings = tensorflow.quantization, {"num_bits": bits, "narrow_range": narrow}
    count = int(rng.integers(2, 6)) if kind == 1 else 1
    ends = np.array([_range(rng) for _ in range(count)]).T
    columns = [elements_of_range(low, high, bits, narrow, rng) for low, high in ends.T]
    x = np.stack(columns, axis=1) if count > 1 else columns[0][rng.permutation(columns[0].size)]
    x = x[: int(np.exp2(rng.uniform(1, 9)))]

    def answer(arrays: Arrays, _: Types) -> dict[str, Array]:
        lows, highs = _ends(arrays)
        if not (lows < highs).all():
            raise RefusedError
        numbers, low, high = arrays["input"], float(lows[0]), float(highs[0])
        if kind == 1:
            found = operators.fake_quant_with_min_max_vars_per_channel(numbers, lows, highs, **settings)
        elif kind == 2:
            found = operators.fake_quant_with_min_max_args(numbers, low, high, **settings)
        else:
            found = operators.fake_quant_with_min_max_vars(numbers, low, high, **settings)
        return {"output": found.numpy()}

    arrays = {"input": x, "minimums": ends[0].astype(np.float64), "maximums": ends[1].astype(np.float64)}
    options = {"num_bits": bits, "narrow_range": narrow, **({"axis": x.ndim - 1} if kind == 1 else {})}
    label = {"scheme": "tf_fake_quant" if kind else "tf_fake_quant_vars"}
    return dumped("fake_quantize", arrays, {"input": tensor_text(x.shape, "f32")}, options, answer, label=label)


Found = list[tuple[float, int]]
"""Scales and zero points."""


def _range_dump(
    ends: Array, found: Found, run: Callable[[Array], Found], storage: str, scheme: str, **options: bool
) -> Dump:
    """The parameters that a system found for ends, and what finds those for others."""
    shape = () if ends.shape[1] == 1 else (ends.shape[1],)

    def outputs(found: Found) -> dict[str, Array]:
        return {
            "scales": np.array([scale for scale, _ in found], np.float64).reshape(shape),
            "zero_points": np.array([point for _, point in found], np.int64).reshape(shape),
        }

    def answer(arrays: Arrays, _: Types) -> dict[str, Array]:
        return outputs(run(_ends(arrays)))

    arrays = {name: end.astype(np.float64) for name, end in zip(("minimums", "maximums"), ends, strict=True)}
    known = {"storage": storage, **options, **({"axis": 0} if shape else {})}
    label = {"scheme": scheme}
    return Dump("derive_from_range", arrays, {}, known, outputs(found), label=label, answer=answer)


def ranges_of_pass(rng: np.random.Generator) -> Dump:
    """quant-convert-fake-quant-to-qdq. What is narrower than 1e-6 it would widen."""
    narrow, count = bool(rng.random() < 0.5), int(rng.integers(2, 9)) if rng.random() < 0.5 else 1
    ends = np.array([_range(rng) for _ in range(count)]).T
    ends[1] = np.maximum(ends[1], ends[0] + np.float32(1e-5))

    def run(of: Array) -> Found:
        if not (of[1] - of[0] > np.float32(2e-6)).all():
            raise RefusedError
        return parameters_of_pass([fake_quantize(0, of[0], of[1], narrow)], narrow)

    return _range_dump(ends, run(ends), run, "i8", "mlir", **({"narrow": True} if narrow else {}))


def ranges_of_converter(rng: np.random.Generator) -> Iterator[Dump]:
    """The inputs and the weights of the layers of a model that the converter quantizes, of 8 or of 16 bits."""
    wide = bool(rng.random() < 0.5)
    ends, matrices = input_ranges(rng), weights(rng)
    added = biases(rng, ends, matrices) / np.float32(512 if wide else 1)

    def of_model(changed: Array, weighed: Array, index: int) -> list[tuple[Any, Any, Any]]:
        others = added.copy()
        others[index] = biases(np.random.default_rng(index), changed, weighed)[index] / np.float32(512)
        # The converter leaves away biases of 0, and widens what makes the scale of biases vanish.
        if not others[index].any() or np.abs(changed[index]).max() < 2.0**-40:
            raise RefusedError
        return layers(converted(changed, weighed, others, wide=wide))

    def of_inputs(index: int, of: Array) -> Found:
        changed = ends.copy()
        changed[index] = of[:, 0]
        return parameters(of_model(changed, matrices, index)[index][0])

    def of_matrices(index: int, of: Array) -> Found:
        weighed = matrices.copy()
        weighed[index] = np.concatenate([of, np.broadcast_to(of[:1], (len(matrices[index]) - 2, *of.shape[1:]))])
        return parameters(of_model(ends, weighed, index)[index][1])

    for index, (x, w, _) in enumerate(layers(converted(ends, matrices, added, wide=wide))):
        of_input, symmetric = ends[index][:, None], {"symmetric": True} if wide else {}
        storage = "i16" if wide else "i8"
        yield _range_dump(of_input, parameters(x), partial(of_inputs, index), storage, "litert_converter", **symmetric)
        of_weights = np.stack([matrices[index].min(axis=0), matrices[index].max(axis=0)])
        yield _range_dump(
            of_weights, parameters(w), partial(of_matrices, index), "i8", "litert_converter", symmetric=True
        )


def dumps(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    """`count` dumps of fake quantization and of the pass."""
    return draws.some(rng, count, (fake_quant, ranges_of_pass))


def dumps_of_converter(rng: np.random.Generator, count: int) -> Iterator[Dump]:
    """`count` dumps of the converter, by as many models as they take."""
    return islice((each for _ in repeat(None) for each in ranges_of_converter(rng)), count)
