"""MATMUL, CONV2D, DEPTHWISE_CONV2D and ADD with their RESCALEs, each one graph for TOSA's reference model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tosa_serializer as tosa

from requant.integer.conv2d import WeightsLayout
from requant.integer.conv2d import Window as OurWindow
from tests.interop.integer.quantized_tensors import DTYPES, Array, Quantized, per_tensor
from tests.interop.tosa_model import TYPES, Verdict, add_rescale, constant, run
from tests.oracles import schemes as scheme_oracle
from tests.oracles.tosa import Rescale

ROUNDINGS = {"tosa": "SINGLE_ROUND", "tosa_double_round": "DOUBLE_ROUND"}
WIDE = "i48"
_ACCUMULATORS = {"i32": tosa.DType.INT32, "i48": tosa.DType.INT48}


@dataclass(frozen=True, kw_only=True)
class Window:
    """Attributes of a convolution. `pads` are top, bottom, left and right."""

    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    depthwise: bool = False


def _element(data: Array) -> str:
    return f"i{data.dtype.itemsize * 8}"


def matmul(a: Array, b: Array, zeros: tuple[int, int], rescale: Rescale) -> tuple[Verdict, Array | None]:
    """MATMUL of [N, H, C] by [N, C, W], and RESCALE of its accumulators, whose shape and type `rescale` has."""
    graph = tosa.TosaSerializer()
    names = [graph.addPlaceholder(list(each.shape), TYPES[_element(each)]).name for each in (a, b)]
    names += [constant(graph, _element(each), [zero]) for each, zero in zip((a, b), zeros, strict=True)]
    attributes = tosa.TosaSerializerAttribute()
    attributes.MatMulAttribute()
    sums = graph.addIntermediate(list(rescale.shape), TYPES[rescale.in_t])
    graph.addOperator(tosa.Op.MATMUL, names, [sums.name], attributes)
    output = graph.addOutput(list(rescale.shape), TYPES[rescale.out_t])
    add_rescale(graph, rescale, sums.name, output.name)
    return run(graph, [a, b])


def conv2d(
    x: Array, weights: Array, bias: Array, zeros: tuple[int, int], window: Window, rescale: Rescale
) -> tuple[Verdict, Array | None]:
    """CONV2D with weights OHWI, or DEPTHWISE_CONV2D with weights HWCM, and RESCALE of the accumulators."""
    graph = tosa.TosaSerializer()
    names = [graph.addPlaceholder(list(each.shape), TYPES[_element(each)]).name for each in (x, weights)]
    names.append(constant(graph, rescale.in_t, bias))
    names += [constant(graph, _element(each), [zero]) for each, zero in zip((x, weights), zeros, strict=True)]
    attributes = tosa.TosaSerializerAttribute()
    operator = tosa.Op.DEPTHWISE_CONV2D if window.depthwise else tosa.Op.CONV2D
    make = attributes.DepthwiseConv2dAttribute if window.depthwise else attributes.Conv2dAttribute
    make(list(window.pads), list(window.strides), list(window.dilations), False, _ACCUMULATORS[rescale.in_t])
    sums = graph.addIntermediate(list(rescale.shape), TYPES[rescale.in_t])
    graph.addOperator(operator, names, [sums.name], attributes)
    output = graph.addOutput(list(rescale.shape), TYPES[rescale.out_t])
    add_rescale(graph, rescale, sums.name, output.name)
    return run(graph, [x, weights])


def add(a: Array, b: Array, sides: tuple[Rescale, Rescale], last: Rescale) -> tuple[Verdict, Array | None]:
    """A RESCALE of each side to i32, ADD, which broadcasts, and RESCALE of the sum."""
    graph = tosa.TosaSerializer()
    scaled = []
    for data, rescale in zip((a, b), sides, strict=True):
        given = graph.addPlaceholder(list(data.shape), TYPES[_element(data)])
        wide = graph.addIntermediate(list(data.shape), TYPES["i32"])
        add_rescale(graph, rescale, given.name, wide.name)
        scaled.append(wide.name)
    attributes = tosa.TosaSerializerAttribute()
    attributes.AddAttribute()
    shape = list(np.broadcast_shapes(a.shape, b.shape))
    total = graph.addIntermediate(shape, TYPES["i32"])
    graph.addOperator(tosa.Op.ADD, scaled, [total.name], attributes)
    output = graph.addOutput(shape, TYPES[last.out_t])
    add_rescale(graph, last, total.name, output.name)
    return run(graph, [a, b])


def output_size(size: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int]) -> int | None:
    """Of a convolution, in one dimension. None where it is not exact, which TOSA refuses, or there is none."""
    steps, rest = divmod(size - 1 + sum(pads) - (kernel - 1) * dilation, stride)
    return None if rest or steps < 0 else steps + 1


def windows(rng: np.random.Generator, size: tuple[int, int], kernel: tuple[int, int], *, depthwise: bool) -> Window:
    """Strides, dilations and padding that divide the input exactly, as TOSA demands."""
    while True:
        strides, dilations = rng.integers(1, 4, 2).tolist(), rng.integers(1, 4, 2).tolist()
        top, bottom, left, right = rng.integers(0, 4, 4).tolist()
        pads = (top, bottom), (left, right)
        if all(output_size(*each) for each in zip(size, kernel, strides, dilations, pads, strict=True)):
            return Window(
                strides=(strides[0], strides[1]),
                dilations=(dilations[0], dilations[1]),
                pads=(top, bottom, left, right),
                depthwise=depthwise,
            )


def ours(window: Window, groups: int) -> OurWindow:
    top, bottom, left, right = window.pads
    layout = WeightsLayout.IHWO if window.depthwise else WeightsLayout.OHWI
    return OurWindow(weights_layout=layout, strides=window.strides, dilations=window.dilations,
                     pads=(top, left, bottom, right), groups=groups)  # fmt: skip


def rescale_of(
    profile: str, shape: tuple[int, ...], accumulator: str, sides: tuple[Quantized, Quantized], output: Quantized
) -> Rescale:
    """The RESCALE from sums to an output, with a multiplier for each scale of the weights."""
    wide = accumulator == WIDE
    scales = [side.scales.astype(np.float64) for side in (*sides, output)]
    factors = (scales[0] * scales[1] / scales[2]).tolist()
    derived = [scheme_oracle.derive("tosa_scale16" if wide else profile, factor) for factor in factors]
    return Rescale(
        in_t=accumulator, out_t=output.storage, shape=shape,
        multiplier=tuple(each.multiplier for each in derived if each is not None),
        shift=tuple(each.shift for each in derived if each is not None),
        output_zp=int(output.zero_points[0]), scale32=not wide, per_channel=len(derived) > 1,
        rounding_mode="SINGLE_ROUND" if wide else ROUNDINGS[profile],
    )  # fmt: skip


def zero_point(rng: np.random.Generator, storage: str) -> int:
    """Both ends, 0 and any; of 16 bits TOSA has only 0."""
    return int(rng.choice([-128, 127, 0, int(rng.integers(-128, 128))])) if storage == "i8" else 0


def output_of(rng: np.random.Generator, storage: str, sums: Array, per_sum: Array, accumulator: str) -> Quantized:
    """An output that saturates on neither side, or on both, and whose factors TOSA's shifts allow."""
    limits = np.iinfo(DTYPES[storage])
    reach = float(np.abs(sums * per_sum).max()) / float(limits.max) * float(rng.choice([0.2, 0.9, 2.0]))
    # RESCALE takes sums below 2^(shift - 1).
    least = float(per_sum.max()) * max(float(np.abs(sums).max()) / 2.0**29, 1e-3)
    needed = max(reach, least if accumulator == "i32" else float(per_sum.max()) * 1e-3, 1e-30)
    exact = 2.0 ** np.ceil(np.log2(needed)) if rng.random() < 0.5 else needed
    return per_tensor(storage, float(np.float32(exact)), zero_point(rng, storage))


def numbers(rng: np.random.Generator, side: Quantized, *shape: int) -> Array:
    """All over the storage, or its ends only, which make the largest sums of both signs."""
    limits = np.iinfo(DTYPES[side.storage])
    if rng.random() < 0.25:
        signs = rng.random((*shape[:-1], 1)) < 0.5
        return np.broadcast_to(np.where(signs, limits.min, limits.max), shape).astype(limits.dtype)
    return side.data(rng, *shape)


def per_sums(sides: tuple[Quantized, Quantized]) -> Array:
    found: Array = sides[0].scales.astype(np.float64) * sides[1].scales.astype(np.float64)
    return found


def rescale_by(profile: str, factor: float, source: str, target: str, zeros: tuple[int, int] = (0, 0)) -> Rescale:
    """A RESCALE by a factor; without a shape, which only scales of channels need."""
    derived = scheme_oracle.derive(profile, factor)
    assert derived is not None
    return Rescale(
        in_t=source, out_t=target, shape=(), multiplier=(derived.multiplier,), shift=(derived.shift,),
        input_zp=zeros[0], output_zp=zeros[1], rounding_mode=ROUNDINGS[profile],
    )  # fmt: skip


def addition(profile: str, sides: list[Quantized], a: Array, b: Array) -> tuple[Verdict, Array | None]:
    """The addition of quantized tensors, as StableHLO's lowering does it.

    m = 2 max(s_a, s_b), L = 20, or 15 with 16 bits: factors 2^L s_a / m, 2^L s_b / m and m / (2^L s_y), in f64.
    """
    s_a, s_b, s_y = (float(side.scales[0]) for side in sides)
    z_a, z_b, z_y = (int(side.zero_points[0]) for side in sides)
    shifted = 2.0 ** (15 if "i16" in {side.storage for side in sides} else 20)
    twice = 2 * max(s_a, s_b)
    given = (
        rescale_by(profile, s_a / twice * shifted, sides[0].storage, "i32", (z_a, 0)),
        rescale_by(profile, s_b / twice * shifted, sides[1].storage, "i32", (z_b, 0)),
    )
    last = rescale_by(profile, twice / (shifted * s_y), "i32", sides[2].storage, (0, z_y))
    return add(a, b, given, last)
