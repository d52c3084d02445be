"""Every known answer of a weight's layout from the exact oracle."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from requant.checkpoint.weights.floats import values
from requant.self_test.known_calls import SHAPE, KnownCall
from requant.self_test.known_weights import DTYPES, KNOWN_WEIGHT_LAYOUTS, weight
from tests.oracles import weight_layouts as oracle
from tests.oracles.quantiles import nf4

Array = np.ndarray[Any, Any]
TORCH = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


def words(codes: Array) -> Array:
    """Eight codes along the last axis are the half bytes of a word, the first the lowest."""
    eights = codes.reshape(*codes.shape[:-1], -1, 8).astype(np.int64)
    return np.asarray((eights << np.arange(0, 32, 4)).sum(axis=-1).astype(np.uint32))


def fine_grained_fp8(numbers: Array, *, powers: bool) -> Iterable[Array]:
    codes, scales, real = np.empty(SHAPE, np.uint8), np.empty((7, 4), np.float32), np.empty(SHAPE, np.float32)
    for row in range(7):
        for column in range(4):
            place = np.s_[row * 5 : row * 5 + 5, column * 20 : column * 20 + 20]
            group = oracle.fine_grained_fp8([float(x) for x in numbers[place].flat], powers=powers)
            codes[place] = np.reshape(group.codes, codes[place].shape)
            scales[row, column] = group.scale
            made = [oracle.value_of_fp8(code, group.scale) for code in group.codes]
            real[place] = np.reshape(made, real[place].shape)
    yield codes
    yield (np.log2(scales) + 127).astype(np.uint8) if powers else scales
    yield real


def grouped(numbers: Array, of_group: Callable[[list[float]], oracle.Group]) -> tuple[Array, Array, Array, Array]:
    """Codes, zero points, scales and values of groups of eight columns."""
    rows, columns = numbers.shape
    codes, real = np.empty((rows, columns), int), np.empty((rows, columns), np.float32)
    zeros, scales = np.empty((rows, columns // 8), int), np.empty((rows, columns // 8), np.float16)
    for row in range(rows):
        for index in range(columns // 8):
            place = slice(index * 8, index * 8 + 8)
            group = of_group([float(x) for x in numbers[row, place]])
            codes[row, place], zeros[row, index], scales[row, index] = group.codes, group.zero, group.scale
            real[row, place] = [oracle.value_in_f16(code, group.zero, group.scale) for code in group.codes]
    return codes, zeros, scales, real


def gptq(numbers: Array) -> Iterable[Array]:
    codes, zeros, scales, real = grouped(numbers, lambda group: oracle.gptq(group, 4, symmetric=False))
    yield words(codes).T
    yield words(zeros.T)
    yield scales.T
    yield real


def awq(numbers: Array) -> Iterable[Array]:
    codes, zeros, scales, real = grouped(numbers, oracle.awq)
    for each in (codes, zeros):
        eights = each.T.reshape(each.shape[1], -1, 8)[:, :, [0, 2, 4, 6, 1, 3, 5, 7]]
        yield words(eights.reshape(each.shape[1], -1))
    yield scales.T
    yield real


def nf4_blocks(numbers: Array, dtype: str) -> Iterable[Array]:
    blocks = [oracle.nf4_block([float(x) for x in block]) for block in numbers.reshape(-1, 64)]
    codes = np.array([block.codes for block in blocks]).reshape(-1)
    yield (codes[::2] << 4 | codes[1::2]).astype(np.uint8)
    yield np.array([block.scale for block in blocks], np.float32)
    yield np.array(nf4(), np.float32)
    state = {"quant_type": "nf4", "blocksize": 64, "dtype": TORCH[dtype], "shape": list(numbers.shape)}
    yield np.frombuffer(json.dumps(state).encode(), np.uint8)
    made = [oracle.value_of_nf4(code, block.scale) for block in blocks for code in block.codes]
    yield np.array(made, np.float32)


ANSWERS: dict[str, Callable[[Array, str], Iterable[Array]]] = {
    "fine-grained fp8": lambda numbers, dtype: fine_grained_fp8(numbers, powers=False),
    "fine-grained fp8 with E8M0 scales": lambda numbers, dtype: fine_grained_fp8(numbers, powers=True),
    "GPTQ": lambda numbers, dtype: gptq(numbers),
    "AWQ": lambda numbers, dtype: awq(numbers),
    "NF4": nf4_blocks,
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("call", KNOWN_WEIGHT_LAYOUTS, ids=lambda call: call.name)
def test_the_oracle_gives_each_known_answer(call: KnownCall) -> None:
    found = hashlib.sha256()
    for dtype in DTYPES:
        numbers = values(weight(dtype, SHAPE if "fp8" in call.name else (32, 64)), dtype)
        for array in ANSWERS[call.name](numbers, dtype):
            found.update(np.ascontiguousarray(array).tobytes())
    assert found.hexdigest()[:16] == call.digest
