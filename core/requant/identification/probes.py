"""Small calls to try next: tensors that hold the inputs on which candidates differ.

A conversion has the inputs themselves. Of a product they are sums, so that weights and inputs are made that have these
sums: weights of 1 and of the largest magnitude, and inputs that make up the sum of them. What every candidate gives is
computed by the real kernels on these very tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from requant.arrays.calls import ArrayCall
from requant.arrays.elements import shaped
from requant.description import Array
from requant.errors import RequantError
from requant.identification.candidates import Candidate, options_for
from requant.identification.outcomes import compared_outputs, computed_outputs
from requant.identification.separation import MAX_INPUTS, DecidingInput, channel_count
from requant.identification.sums import Side, factors_of, zero_of
from requant.integer.product import ProductPlan
from requant.integer.window import Layout, WeightsLayout
from requant.mlir.types import ElementType, TensorType, Type, UniformPerAxisType, UniformSubChannelType
from requant.plan.operands import kept_dtype, static_shape

# Some systems convert the last elements of a tensor otherwise than those before, of which there are fewer than that.
_ELEMENTS_OF_A_TAIL = 128


@dataclass(frozen=True, slots=True)
class Probe:
    """A call to try next. `call`: the index of the one that it was made from; `channel`: that of the parameters which
    decide. `outcomes`: of each class of candidates the outputs that are asked for, flat, as they are stored; none if
    it refuses the call.
    """

    call: int
    channel: int
    asked: ArrayCall
    outcomes: tuple[tuple[Array, ...], ...]


def probes_of(
    calls: Sequence[ArrayCall], candidates: Sequence[Candidate], inputs: Sequence[DecidingInput]
) -> tuple[Probe, ...]:
    """Return calls with all `inputs`, one for each call and channel, and one for each input that a candidate refuses.
    `candidates`: one of each class.

    Inputs that no small tensors have are left out: sums of more than 4096 products, and those of types without them.
    """
    probes = []
    for call, channel in dict.fromkeys((each.call, each.channel) for each in inputs):
        here = [each for each in inputs if (each.call, each.channel) == (call, channel)]
        taken = [each.value for each in here if each.is_defined]
        refused = [each.value for each in here if not each.is_defined]
        most = places_of_block(calls[call], channel).size or MAX_INPUTS
        chunks = [taken[start : start + most] for start in range(0, len(taken), most)]
        for values in [*chunks, *([each] for each in refused)]:
            probe = _probe(call, calls[call], channel, np.array(values, here[0].value.dtype), candidates)
            if probe is not None:
                probes.append(probe)
    return tuple(probes)


def _probe(index: int, call: ArrayCall, channel: int, values: Array, candidates: Sequence[Candidate]) -> Probe | None:
    """Return a call with the inputs; where too few candidates differ in it, one with more elements behind them."""
    best: tuple[int, Probe] | None = None
    for count in (len(values), _ELEMENTS_OF_A_TAIL):
        made = _call_with(call, channel, values, count, candidates)
        if made is None:
            break
        asked, places = made
        outcomes = outcomes_of(asked, candidates, compared_outputs(call))
        classes = len({each[0][places].tobytes() if each else b"" for each in outcomes})
        if best is None or classes > best[0]:
            best = classes, Probe(index, channel, asked, outcomes)
    return None if best is None or best[0] == 1 else best[1]


def outcomes_of(
    asked: ArrayCall, candidates: Sequence[Candidate], outputs: Iterable[str]
) -> tuple[tuple[Array, ...], ...]:
    """Return what each candidate gives for a call, of these outputs; nothing if it refuses the call."""
    names = tuple(outputs)
    found: list[tuple[Array, ...]] = []
    for candidate in candidates:
        try:
            result = asked.result(asked.planned(options_for(candidate, asked)))
        except RequantError:
            found.append(())
        else:
            found.append(computed_outputs(result, names))
    return tuple(found)


def _call_with(
    call: ArrayCall, channel: int, values: Array, count: int, candidates: Sequence[Candidate]
) -> tuple[ArrayCall, Array] | None:
    """Return a call with values or sums in one channel, so many elements of it, and their places in the output."""
    try:
        if set(call.types) == {"input"}:
            return _conversion(call, channel, values, count)
        plan = call.planned(options_for(candidates[0], call)).arithmetic
        return _product(call, channel, values, count) if isinstance(plan, ProductPlan) else None
    except RequantError:
        return None


def _conversion(call: ArrayCall, channel: int, values: Array, count: int) -> tuple[ArrayCall, Array] | None:
    """Return a conversion of values, in rows of channels where there are several."""
    source, target = call.types["input"].element, call.options.get("output_type")
    element = target.element if isinstance(target, TensorType) else target
    axes = {each.axis for each in (source, element) if isinstance(each, UniformPerAxisType)}
    if (of_block := places_of_block(call, channel)).size:
        given = call.types["input"]
        places = of_block[: len(values)]
        filled = np.full(prod(static_shape(given)), zero_of(source, channel), values.dtype)
        filled[places] = values
        return replace(call, arrays={"input": shaped(filled, given, static_shape(given))}, observed={}), places
    padded = np.full(count, zero_of(source, channel), values.dtype)
    padded[: len(values)] = values
    options = dict(call.options)
    if not axes:
        shape: tuple[int, ...] = (count,)
        elements, places = padded, np.arange(len(values))
    else:
        [axis] = axes
        channels = channel_count(call)
        # The axis stays what it is; another one has the values.
        rank = max(axis + 1, 2)
        along = 1 if axis == 0 else 0
        shape = tuple(channels if each == axis else count if each == along else 1 for each in range(rank))
        elements = np.empty((channels, count), values.dtype)
        for other in range(channels):
            elements[other] = padded if other == channel else zero_of(source, other)
        index = np.arange(channels * count).reshape(channels, count)
        if axis != 0:
            elements, index = np.ascontiguousarray(elements.T), index.reshape(count, channels).T
        places = index[channel, : len(values)]
    if isinstance(target, TensorType):
        options["output_type"] = replace(target, shape=shape)
    type_ = TensorType(shape, source)
    array = shaped(elements.reshape(-1), type_, shape)
    return replace(call, types={"input": type_}, arrays={"input": array}, options=options, observed={}), places


def places_of_block(call: ArrayCall, block: int) -> Array:
    """Return which elements of a conversion have the parameters of one block; none where there are no blocks."""
    if set(call.types) != {"input"}:
        return np.zeros(0, np.int64)
    target = call.options.get("output_type")
    for each in (call.types["input"].element, target.element if isinstance(target, TensorType) else target):
        if isinstance(each, UniformSubChannelType):
            sizes, shape = dict(each.blocks), static_shape(call.types["input"])
            index = [place // sizes.get(axis, shape[axis]) for axis, place in enumerate(np.indices(shape))]
            counts = [-(-size // sizes.get(axis, size)) for axis, size in enumerate(shape)]
            return np.flatnonzero(np.ravel_multi_index(index, counts).reshape(-1) == block)
    return np.zeros(0, np.int64)


def _product(call: ArrayCall, channel: int, sums: Array, count: int) -> tuple[ArrayCall, Array] | None:
    """Return a product whose sums in one channel these are, in the others 0. A bias is 0."""
    left, right = (name for name in call.types if name != "bias")
    channels = channel_count(call)
    elements = {name: each.element for name, each in call.types.items()}
    sides = Side.of(elements[left], 0), Side.of(elements[right], channel)
    if isinstance(elements[left], UniformPerAxisType) or sides[0] is None or sides[1] is None:
        return None
    padded = np.zeros(count, np.int64)
    padded[: len(sums)] = sums
    factors = factors_of(padded, sides[0], sides[1])
    if factors is None:
        return None
    inputs, weights = factors[0] + sides[0].zero, factors[1] + sides[1].zero
    shapes = _Shapes.of(call, right, channels, *inputs.shape)
    columns = np.stack(
        [weights if each == channel else _filled(elements[right], each, weights) for each in range(shapes.channels)]
    )
    arrays = {left: shapes.input(inputs, sides[0].zero), right: shapes.weights(columns)}
    types = {
        left: TensorType(arrays[left].shape, elements[left]),
        right: TensorType(arrays[right].shape, elements[right]),
    }
    if "bias" in call.types:
        shape = tuple(size and (1 if size == 1 else shapes.channels) for size in static_shape(call.types["bias"]))
        arrays["bias"], types["bias"] = np.zeros(shape, np.int64), TensorType(shape, elements["bias"])
    arrays = {name: each.astype(kept_dtype(elements[name], name)) for name, each in arrays.items()}
    options: dict[str, Any] = {name: each for name, each in call.options.items() if name not in _OF_WINDOWS}
    target: Type | None = options.get("output_type")
    if isinstance(target, TensorType):
        options["output_type"] = target.element
    made = replace(call, types=types, arrays=arrays, options=options, observed={})
    return made, shapes.places(len(sums), channel)


# Windows of the kernel's own size, one for each image: of these options the defaults.
_OF_WINDOWS = ("strides", "dilations", "padding", "pads")


def _filled(element: ElementType, channel: int, weights: Array) -> Array:
    return np.full_like(weights, zero_of(element, channel))


@dataclass(frozen=True, slots=True)
class _Shapes:
    """The shapes of a product of `rows` inputs with `count` weights for each channel: of matrices, or of images of one
    row with a kernel that spans it. `groups` are 1 for matrices, which have no layouts.
    """

    rank: int
    rows: int
    count: int
    channels: int
    groups: int
    layout: str
    weights_layout: str

    @staticmethod
    def of(call: ArrayCall, weights: str, channels: int, rows: int, count: int) -> _Shapes:
        """Return those for a call. `weights`: the name of the operand that has them."""
        rank = len(static_shape(call.types[weights]))
        if not call.operation.has_option("layout"):
            return _Shapes(rank, rows, count, channels, 1, "", "")
        layout = call.options.get("layout", Layout.NHWC)
        stated = call.options.get("weights_layout")
        default = WeightsLayout.OHWI if layout is Layout.NHWC else WeightsLayout.OIHW
        groups = int(call.options.get("groups", 1))
        # Without scales of their own there may be fewer channels than groups.
        return _Shapes(rank, rows, count, max(channels, groups), groups, str(layout), str(stated or default))

    def input(self, inputs: Array, zero: int) -> Array:
        """Return the first operand, of inputs [rows, count]."""
        if not self.layout:
            return inputs
        images = np.full((self.rows, 1, self.count, self.groups), zero, np.int64)
        images[:, 0] = inputs[:, :, np.newaxis]
        return images.transpose(["NHWC".index(each) for each in self.layout])

    def weights(self, columns: Array) -> Array:
        """Return the second operand, of weights [channels, count]."""
        if not self.layout:
            return columns.T.reshape((1,) * (self.rank - 2) + (self.count, self.channels))
        kernels = columns.reshape(self.channels, 1, self.count, 1)
        return kernels.transpose(["OHWI".index(each) for each in self.weights_layout])

    def places(self, rows: int, channel: int) -> Array:
        """Return where the output has the first sums of a channel."""
        return np.arange(rows) * self.channels + channel
