"""Make every kernel ready, so that no request waits for a compiler."""

from __future__ import annotations

import logging

# Imported for their kernels, which register themselves.
import core.kernels.accumulate
import core.kernels.blocks
import core.kernels.byte_table
import core.kernels.channel_order
import core.kernels.compare
import core.kernels.dequantize
import core.kernels.dequantize_any
import core.kernels.divergence
import core.kernels.error_sums
import core.kernels.fake_quantize
import core.kernels.float_decoding
import core.kernels.float_encoding
import core.kernels.histogram
import core.kernels.packing
import core.kernels.quantile
import core.kernels.quantize
import core.kernels.quantize_any
import core.kernels.reduce
import core.kernels.requantize
import core.kernels.requantize_any
import core.kernels.requantize_float
import core.kernels.small_floats
import core.kernels.squared_error
import core.kernels.torch_histogram  # noqa: F401
from core.errors import SelfTestError
from core.kernels._jit import came_from_cache, compile_kernels, recompile_kernels
from core.self_test import run_self_test

__all__ = ["compile_kernels", "prepare_kernels"]

_log = logging.getLogger(__name__)


def prepare_kernels() -> int:
    """Compile or load every kernel, and see that they give the known answers. Return the number of specialisations.

    If they do not, and machine code of the cache was among them, compile all of it anew, once. Raise SelfTestError if
    that does not help.
    """
    count = compile_kernels()
    try:
        run_self_test()
    except SelfTestError as error:
        if not came_from_cache():
            raise
        _log.warning("Machine code of the cache computes wrongly: %s. All kernels are compiled anew.", error)
        recompile_kernels()
        run_self_test()
    return count
