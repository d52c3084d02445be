"""The schemes of compressed-tensors, by its names.

Source of the names and of what they mean: compressed-tensors 0.20.0, `PRESET_SCHEMES` (`quantization/quant_scheme.py`).
FP8A16 is not among them: FP8 weights whose activations stay as they are. Its FP8 quantizes activations by scales that
need calibration, and is not offered; FP8_DYNAMIC:tensor has its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from requant.checkpoint.profiles import COMPRESSED_TENSORS_CPU, COMPRESSED_TENSORS_CUDA
from requant.checkpoint.scheme import Members, Preset, Scheme
from requant.checkpoint.weights.compressed_tensors.config import config, dynamic_activations, weights
from requant.checkpoint.weights.compressed_tensors.float8 import FloatQuantized
from requant.checkpoint.weights.compressed_tensors.grouping import CHANNEL, TENSOR, Grouping, blocks_of, groups_of
from requant.checkpoint.weights.compressed_tensors.integers import IntQuantized, PackQuantized
from requant.checkpoint.weights.compressed_tensors.mx import MxWeight
from requant.checkpoint.weights.compressed_tensors.nvfp4 import Nvfp4Weight
from requant.checkpoint.weights.weight_format import WeightFormat
from requant.errors import ParameterError, UnknownNameError, excerpt
from requant.errors.names import not_among

_LARGEST_GROUP = 1 << 20


def _scheme(
    name: str,
    description: str,
    layout: str,
    of_weights: Members,
    make_format: Callable[[bool], WeightFormat],
    *,
    activations: Members | None = None,
    fused: bool = False,
) -> Scheme:
    """Return a scheme; `make_format(rounds)` makes its format for the CPU (True) and for CUDA (False)."""
    profiles = (COMPRESSED_TENSORS_CPU.name, COMPRESSED_TENSORS_CUDA.name)

    def by_profile(profile: str) -> WeightFormat:
        return make_format(profile == COMPRESSED_TENSORS_CPU.name)

    return Scheme(name, description, profiles, fused, by_profile, config(layout, of_weights, activations))


def _integers(bits: int, grouping: Grouping, *, symmetric: bool = True, activations: bool = False) -> Preset:
    def made(name: str, options: list[str]) -> Scheme:
        chosen, is_symmetric = _chosen(name, options, grouping, symmetric)
        of_inputs = "; activations: 8-bit integers, one scale for each token, dynamic" if activations else ""
        with_zero_points = "" if is_symmetric else " and zero point"
        return _scheme(
            name,
            f"{bits}-bit integers, one scale{with_zero_points} for each {_described(chosen)}{of_inputs}",
            "int-quantized" if activations else "pack-quantized",
            weights(bits, "int", chosen, symmetric=is_symmetric),
            lambda rounds: (IntQuantized if activations else PackQuantized)(chosen, rounds, is_symmetric, bits),
            activations=dynamic_activations(8, "int") if activations else None,
        )

    return made


def _float8(grouping: Grouping, activations: Members | None) -> Preset:
    def made(name: str, options: list[str]) -> Scheme:
        chosen, symmetric = _chosen(name, options, grouping, True)
        if not symmetric or chosen.strategy == "group" or (options and grouping.strategy == "block"):
            fitting = "none" if grouping.strategy == "block" else "channel, tensor"
            raise ParameterError(f"scheme {excerpt(name)}: the option does not fit FP8; available: {fitting}")
        of_inputs = "" if activations is None else "; activations: FP8, dynamic"
        return _scheme(
            name,
            f"FP8 (f8E4M3FN), one scale for each {_described(chosen)}{of_inputs}",
            "naive-quantized" if activations is None else "float-quantized",
            weights(8, "float", chosen),
            lambda rounds: FloatQuantized(chosen, rounds),
            activations=activations,
        )

    return made


def _mx(bits: int) -> Preset:
    def made(name: str, options: list[str]) -> Scheme:
        _no_options(name, options)
        return _scheme(
            name,
            f"{'f4E2M1FN' if bits == 4 else 'f8E4M3FN'}, one power of two for each group of 32",
            "mxfp4-pack-quantized" if bits == 4 else "mxfp8-quantized",
            weights(bits, "float", groups_of(32), scale_dtype="torch.uint8"),
            lambda rounds: MxWeight(bits, rounds),
        )

    return made


def _nvfp4(name: str, options: list[str]) -> Scheme:
    _no_options(name, options)
    of_weights = weights(4, "float", groups_of(16), scale_dtype="torch.float8_e4m3fn")
    return _scheme(
        name,
        "f4E2M1FN, one f8E4M3FN scale for each group of 16, one f32 scale for each fused set of weights",
        "nvfp4-pack-quantized",
        {**of_weights, "strategy": "tensor_group"},
        lambda rounds: Nvfp4Weight(),
        fused=True,
    )


def _described(grouping: Grouping) -> str:
    if grouping.strategy == "group":
        return f"group of {grouping.width}"
    if grouping.strategy == "block":
        return f"block of {grouping.height} x {grouping.width}"
    return grouping.strategy


def _no_options(name: str, options: list[str]) -> None:
    if options:
        raise UnknownNameError(f"scheme {excerpt(name)}: '{excerpt(options[0])}' is not an option; there are none")


def _chosen(name: str, options: list[str], grouping: Grouping, symmetric: bool) -> tuple[Grouping, bool]:
    """Return the granularity of the scales, and whether the codes are symmetric. Raises UnknownNameError,
    ParameterError."""
    granularities = [option for option in options if option != "asymmetric"]
    for option in options:
        if option == "asymmetric":
            symmetric = False
        elif option == "channel":
            grouping = CHANNEL
        elif option == "tensor":
            grouping = TENSOR
        elif option.startswith("group="):
            grouping = groups_of(_group_size(name, option.removeprefix("group=")))
        else:
            fault = not_among("scheme option", option, ("group=SIZE", "channel", "tensor", "asymmetric"))
            raise UnknownNameError(f"scheme {excerpt(name)}: '{excerpt(option)}' is {fault}")
    if len(granularities) > 1:
        listed = " and ".join(map(excerpt, granularities[:2]))
        raise ParameterError(f"scheme {excerpt(name)}: options {listed} exclude each other")
    if not symmetric and grouping == TENSOR:
        raise ParameterError(f"scheme {excerpt(name)}: one scale for the tensor has no zero point")
    return grouping, symmetric


def _group_size(name: str, text: str) -> int:
    size = int(text) if text.isascii() and text.isdigit() and len(text) < 8 else 0
    if not 1 <= size <= _LARGEST_GROUP:
        raise ParameterError(
            f"scheme {excerpt(name)}: the group size is '{excerpt(text)}', not an integer from 1 to {_LARGEST_GROUP}"
        )
    return size


_GROUPS = groups_of(128)
COMPRESSED_TENSORS_PRESETS: Mapping[str, Preset] = {
    "W8A8": _integers(8, CHANNEL, activations=True),
    **{f"W{bits}A16": _integers(bits, _GROUPS) for bits in (8, 7, 6, 5, 4, 3, 2)},
    "W4A16_ASYM": _integers(4, _GROUPS, symmetric=False),
    "FP8_DYNAMIC": _float8(CHANNEL, dynamic_activations(8, "float")),
    "FP8_BLOCK": _float8(blocks_of(128, 128), dynamic_activations(8, "float", 128)),
    "FP8A16": _float8(CHANNEL, None),
    "NVFP4A16": _nvfp4,
    "MXFP4A16": _mx(4),
    "MXFP8A16": _mx(8),
}
"""By name, without options."""
