"""Every known answer of a type of GGUF files from the oracle that takes one number at a time."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from requant.self_test.known_calls import KnownCall
from requant.self_test.known_gguf import KNOWN_GGUF, importance, numbers
from tests.oracles.ggml_quants import VALUES
from tests.oracles.ggml_search import BLOCKS


@pytest.mark.sample(1)
@pytest.mark.parametrize("call", KNOWN_GGUF, ids=lambda call: call.name)
def test_the_oracle_gives_each_known_answer(call: KnownCall) -> None:
    name = call.name.split()[1]
    weights = list(importance()) if "importance" in call.name else None
    with np.errstate(all="ignore"):
        blocks = [BLOCKS[name][1](list(row), weights) for row in numbers()]
    values = [np.array(list(VALUES[name](block)), np.float32) for block in blocks]
    found = hashlib.sha256(b"".join(blocks))
    found.update(np.concatenate(values).tobytes())
    assert found.hexdigest()[:16] == call.digest
