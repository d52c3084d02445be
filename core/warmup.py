"""Make every kernel ready, so that no request waits for a compiler."""

from __future__ import annotations

# Imported for their kernels, which register themselves.
import core.kernels.accumulate
import core.kernels.blocks
import core.kernels.byte_table
import core.kernels.channel_order
import core.kernels.compare
import core.kernels.convolution
import core.kernels.dequantize
import core.kernels.dequantize_any
import core.kernels.divergence
import core.kernels.error_sums
import core.kernels.fake_quantize
import core.kernels.float_decoding
import core.kernels.float_encoding
import core.kernels.histogram
import core.kernels.histogram_rows
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
from core.kernels._jit import compile_kernels

__all__ = ["compile_kernels"]
