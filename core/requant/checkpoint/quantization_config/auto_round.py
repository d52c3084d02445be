"""`quant_method` auto-round with floats: FP8, MX formats and NVFP4, by `packing_format`, `data_type` and `bits`.

| packing_format | data_type | |
| --- | --- | --- |
| auto_round:llm_compressor | mx_fp and its variants, 4 or 8 bits; nv_fp | the tensors of compressed-tensors |
| auto_round:fp8_static | fp | `weight` F8_E4M3 and `weight_scale` of channels; of the tensor with a group_size of 0 |

The scales of FP8 are BF16, as its layers have them; others are taken as they are.

Source: auto-round 0.15.1 and 0.16.1, `BackendInfos` (`inference/backend.py`), `save_quantized_as_fp` and `pack_layer`
(`export/export_to_autoround/export_to_nvfp_mx.py`, `export_to_fp8.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from requant.checkpoint.quantization_config.members import WHOLE_ROWS, member
from requant.checkpoint.weights.auto_round import AutoRoundMx, AutoRoundNvfp4
from requant.checkpoint.weights.compressed_tensors import CHANNEL, TENSOR, FloatQuantized
from requant.checkpoint.weights.weight_format import WeightFormat
from requant.errors import CheckpointError, excerpt

BLOCK_SCALED, FP8 = "auto_round:llm_compressor", "auto_round:fp8_static"
FLOAT_PACKINGS = (BLOCK_SCALED, FP8)

_MX_BITS = (4, 8)
_NVFP4 = (4, 16)
_FP8_BITS = 8


def float_format(members: Mapping[str, Any]) -> WeightFormat:
    """Return how weights are stored in one of FLOAT_PACKINGS. Raises CheckpointError for what is not supported."""
    packing = members["packing_format"]
    data_type, bits = member(members, "data_type", str) or "", member(members, "bits", int)
    group = member(members, "group_size", int)
    if packing == FP8 and bits == _FP8_BITS and group in (WHOLE_ROWS, 0):
        # The profile matters for quantizing alone.
        return FloatQuantized(CHANNEL if group == WHOLE_ROWS else TENSOR, True)
    if packing == BLOCK_SCALED and data_type.startswith("mx_fp") and bits in _MX_BITS:
        return AutoRoundMx(bits)
    if packing == BLOCK_SCALED and data_type.startswith("nv_fp") and (bits, group) == _NVFP4:
        return AutoRoundNvfp4()
    raise CheckpointError(
        f"{packing} with data_type '{excerpt(data_type)}', {bits} bits and a group_size of {group} is not supported; "
        "expected mx_fp of 4 or 8 bits, nv_fp of 4 bits in groups of 16, or FP8 of whole rows or tensors"
    )
