"""Other readings of a call: what is wrong where the rules are right, and the data or parameters are taken wrongly.

Each is a call in which one thing is read in another way: a tensor with its nibbles exchanged or with the other sign,
weights in another order, parameters along another axis. Known rules are computed for it as for the call itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from requant.arrays.calls import ArrayCall
from requant.description import Array
from requant.errors import RequantError
from requant.errors.cancellation import until_late
from requant.formats.elements import IntegerElement, integer_dtype
from requant.identification.candidates import Candidates, first_planned
from requant.identification.outcomes import outcome_of, stored_float
from requant.identification.search import Group, Search
from requant.integer.window import Layout, Padding, WeightsLayout, Window
from requant.mlir.types import (
    ElementType,
    TensorType,
    Type,
    UniformPerAxisType,
    UniformQuantizedType,
    UniformSubChannelType,
    UniformType,
)
from requant.plan.operands import static_shape

_OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class Reading:
    """A call, read in another way, which the text describes."""

    text: str
    call: ArrayCall


def readings(call: ArrayCall) -> Iterator[Reading]:
    """Yield other readings of a call, the likeliest first. Those that the operation refuses are among them."""
    for each in (_signs, _offsets, _nibbles, _orders, _axes, _bounds, _zero_points, _bias, _padding, _bytes):
        try:
            yield from each(call)
        except RequantError:
            continue


def _tensors(call: ArrayCall) -> Iterator[tuple[str, Array, ElementType]]:
    """Yield the name, the array and the element type of each tensor, the output's as it was observed."""
    for name, array in call.arrays.items():
        if name in call.types and name != "bias":
            yield name, array, call.types[name].element
    element = _output_element(call)
    if element is not None and set(call.observed) == {_OUTPUT}:
        yield _OUTPUT, call.observed[_OUTPUT], element


def _output_element(call: ArrayCall) -> ElementType | None:
    stated: Type | None = call.options.get("output_type")
    return stated.element if isinstance(stated, TensorType) else stated  # type: ignore[return-value]


def _with_array(call: ArrayCall, name: str, array: Array) -> ArrayCall:
    if name == _OUTPUT:
        return call.with_observed({_OUTPUT: array})
    return replace(call, arrays={**call.arrays, name: array})


def _with_element(call: ArrayCall, name: str, element: ElementType) -> ArrayCall:
    if name != _OUTPUT:
        return replace(call, types={**call.types, name: replace(call.types[name], element=element)})
    stated = call.options["output_type"]
    typed = replace(stated, element=element) if isinstance(stated, TensorType) else element
    return replace(call, options={**call.options, "output_type": typed})


def _label(name: str) -> str:
    return "the output" if name == _OUTPUT else name


def _integers(element: ElementType) -> IntegerElement | None:
    """Return the integers that are stored, if they are."""
    stored = element.storage.element if isinstance(element, UniformQuantizedType) else element
    return stored if isinstance(stored, IntegerElement) else None


def _signs(call: ArrayCall) -> Iterator[Reading]:
    """The same bits with the other sign, where the zero points are such numbers."""
    for name, array, element in _tensors(call):
        if not isinstance(element, UniformQuantizedType) or (stored := _integers(element)) is None:
            continue
        storage = element.storage
        other = type(storage).unbounded(IntegerElement(stored.width), signed=not storage.signed)
        if not all(other.minimum <= each <= other.maximum for each in element.zero_points):
            continue
        bits = array.astype(np.int64) & ((1 << stored.width) - 1)
        if other.signed:
            bits = bits - ((bits >> (stored.width - 1)) << stored.width)
        dtype = integer_dtype(stored.width, signed=other.signed)
        read = _with_array(_with_element(call, name, replace(element, storage=other)), name, bits.astype(dtype))
        yield Reading(f"{_label(name)} is {'signed' if other.signed else 'unsigned'}", read)


def _offsets(call: ArrayCall) -> Iterator[Reading]:
    """Stored numbers with the highest bit turned, as between 0 to 255 and -128 to 127 with the zero point unchanged."""
    for name, array, element in _tensors(call):
        stored = _integers(element)
        if stored is None or stored.width not in (8, 16) or array.dtype.kind not in "iu":
            continue
        turned = (array.astype(np.int64) ^ (1 << (stored.width - 1))).astype(array.dtype, casting="unsafe")
        yield Reading(f"{_label(name)} is off by {1 << (stored.width - 1)}", _with_array(call, name, turned))


def _nibbles(call: ArrayCall) -> Iterator[Reading]:
    for name, array, element in _tensors(call):
        stored = _integers(element) or stored_float(element)
        if stored is None or stored.width != 4 or array.size < 2:
            continue
        flat = np.ascontiguousarray(array).reshape(-1).copy()
        even = flat.size - flat.size % 2
        flat[:even] = flat[:even].reshape(-1, 2)[:, ::-1].reshape(-1)
        swapped = _with_array(call, name, flat.reshape(array.shape))
        yield Reading(f"the nibbles of {_label(name)} are in the other order", swapped)


def _orders(call: ArrayCall) -> Iterator[Reading]:
    """The elements of a tensor lie in another order of dimensions than its type says."""
    if call.operation.has_option("layout"):
        yield from _layouts(call)
        return
    for name, array, element in _tensors(call):
        if array.ndim < 2 or isinstance(element, UniformSubChannelType) or name == _OUTPUT:
            continue
        turned = (*array.shape[:-2], array.shape[-1], array.shape[-2])
        transposed = np.ascontiguousarray(array).reshape(turned).swapaxes(-1, -2)
        yield Reading(f"{name} is transposed", _with_array(call, name, np.ascontiguousarray(transposed)))


def _layouts(call: ArrayCall) -> Iterator[Reading]:
    layout, stated = _layouts_of(call)
    for other in WeightsLayout:
        if other is not stated:
            weights = _reordered(call.arrays["weights"], other, stated)
            yield Reading(f"weights are in the order {other}", _with_array(call, "weights", weights))
    [other_layout] = [each for each in Layout if each is not layout]
    images = _reordered(call.arrays["input"], other_layout, layout)
    yield Reading(f"input is in the order {other_layout}", _with_array(call, "input", images))
    output = call.observed.get(_OUTPUT)
    if output is not None and output.ndim == 4:
        turned = _reordered(output, other_layout, layout)
        yield Reading(f"the output is in the order {other_layout}", _with_array(call, _OUTPUT, turned))


def _layouts_of(call: ArrayCall) -> tuple[Layout, WeightsLayout]:
    layout = call.options.get("layout", Layout.NHWC)
    default = WeightsLayout.OHWI if layout is Layout.NHWC else WeightsLayout.OIHW
    return layout, call.options.get("weights_layout") or default


def _reordered(array: Array, other: str, stated: str) -> Array:
    """Return an array whose elements lie in the order of the dimensions `other` as one in the order `stated`."""
    sizes = dict(zip(stated, array.shape, strict=True))
    there = np.ascontiguousarray(array).reshape([sizes[each] for each in other])
    return np.ascontiguousarray(there.transpose([other.index(each) for each in stated]))


def _axes(call: ArrayCall) -> Iterator[Reading]:
    """Parameters along another axis of the same size."""
    for name, array, element in _tensors(call):
        if not isinstance(element, UniformPerAxisType):
            continue
        shape = array.shape if name == _OUTPUT else static_shape(call.types[name])
        for axis, size in enumerate(shape):
            if axis != element.axis and size == len(element.scales):
                read = _with_element(call, name, replace(element, axis=axis))
                yield Reading(f"the scales of {_label(name)} are those of axis {axis}", read)


def _bounds(call: ArrayCall) -> Iterator[Reading]:
    """The bounds of a fused activation: real zero, and the least and largest that was observed."""
    element = _output_element(call)
    if not isinstance(element, UniformType | UniformPerAxisType) or _integers(element) is None:
        return
    observed = call.observed.get(_OUTPUT)
    if observed is None or not observed.size or observed.dtype.kind not in "iu":
        return
    storage = element.storage
    lowest, highest = max(storage.minimum, int(observed.min())), min(storage.maximum, int(observed.max()))
    zero = element.zero_points[0] if len(set(element.zero_points)) == 1 else storage.minimum
    ways: dict[tuple[int, int], str] = {}
    for least, most, text in (
        (zero, storage.maximum, f"at least {zero}, real zero"),
        (zero, highest, f"from {zero}, real zero, to {highest}"),
        (lowest, storage.maximum, f"at least {lowest}"),
        (storage.minimum, highest, f"at most {highest}"),
        (lowest, highest, f"from {lowest} to {highest}"),
    ):
        ways.setdefault((least, most), text)
    for (least, most), text in ways.items():
        if (least, most) != (storage.minimum, storage.maximum) and least < most:
            narrowed = replace(element, storage=replace(storage, minimum=least, maximum=most))
            if all(least <= each <= most for each in narrowed.zero_points):
                yield Reading(f"the output is {text}: a fused activation", _with_element(call, _OUTPUT, narrowed))


def _zero_points(call: ArrayCall) -> Iterator[Reading]:
    """A zero point that is not taken into account."""
    for name, _, element in _tensors(call):
        if not isinstance(element, UniformType | UniformPerAxisType) or not any(element.zero_points):
            continue
        if not _holds_zero(element):
            continue
        zero: ElementType = (
            replace(element, zero_point=0)
            if isinstance(element, UniformType)
            else replace(element, zero_points=(0,) * len(element.zero_points))
        )
        yield Reading(f"the zero point of {_label(name)} is left out", _with_element(call, name, zero))


def _bias(call: ArrayCall) -> Iterator[Reading]:
    bias = call.arrays.get("bias")
    if bias is None or not bias.any():
        return
    yield Reading("the bias is left out", _with_array(call, "bias", np.zeros_like(bias)))
    twice = bias.astype(np.int64) * 2
    if np.all(twice == twice.astype(bias.dtype)):
        yield Reading("the bias is added twice", _with_array(call, "bias", twice.astype(bias.dtype)))


def _padding(call: ArrayCall) -> Iterator[Reading]:
    """Stored zeros around the input of a convolution, in the place of its zero point; or SAME of the other kind."""
    padding = call.options.get("padding", Padding.EXPLICIT)
    if not call.operation.has_option("padding") or "input" not in call.types:
        return
    for other in (Padding.SAME_UPPER, Padding.SAME_LOWER):
        if padding in (Padding.SAME_UPPER, Padding.SAME_LOWER) and other is not padding:
            read = replace(call, options={**call.options, "padding": other})
            yield Reading(f"padding is {other}", read)
    element = call.types["input"].element
    if not isinstance(element, UniformType) or element.zero_point == 0 or not _holds_zero(element):
        return
    layout, weights_layout = _layouts_of(call)
    options = call.options
    window = Window(
        layout=layout,
        weights_layout=weights_layout,
        strides=options.get("strides") or (1, 1),
        dilations=options.get("dilations") or (1, 1),
        padding=padding,
        pads=options.get("pads") or (0, 0, 0, 0),
    )
    sizes, kernels = call.arrays["input"].shape, call.arrays["weights"].shape
    widths = [(0, 0)] * 4
    for axis, letter in enumerate("HW"):
        size, kernel = sizes[layout.index(letter)], kernels[weights_layout.index(letter)]
        outputs, before = window.placed(size, kernel, axis)
        needed = (outputs - 1) * window.strides[axis] + (kernel - 1) * window.dilations[axis] + 1
        widths[layout.index(letter)] = before, max(needed - size - before, 0)
    if any(map(any, widths)):
        padded = np.pad(call.arrays["input"], widths)
        types = {**call.types, "input": replace(call.types["input"], shape=padded.shape)}
        plain: Mapping[str, Any] = {**options, "padding": Padding.EXPLICIT, "pads": (0, 0, 0, 0)}
        read = replace(call, types=types, arrays={**call.arrays, "input": padded}, options=plain)
        yield Reading("the input is padded with stored zeros", read)


def _holds_zero(element: UniformQuantizedType) -> bool:
    return element.storage.minimum <= 0 <= element.storage.maximum


def _bytes(call: ArrayCall) -> Iterator[Reading]:
    for name, array, _ in _tensors(call):
        if array.dtype.itemsize > 1 and array.dtype.kind in "iuf":
            yield Reading(f"{_label(name)} has its bytes in the other order", _with_array(call, name, array.byteswap()))


# Of a reading that is right, another rule than the first gives other bits for no more than this part of the elements.
_WRONG_RULE = 1 / 16
# Of so few elements nothing is told by how many differ.
_FEW = 64


@dataclass(frozen=True, slots=True)
class ConsistentReading:
    """Calls read in another way, and the candidates that then give all observed bits, by their arithmetic."""

    text: str
    calls: tuple[ArrayCall, ...]
    groups: tuple[Group, ...]


def consistent_readings(calls: Sequence[ArrayCall], suspects: Sequence[str] | None) -> Iterator[ConsistentReading]:
    """Yield the readings of all calls with which a named rule gives what was observed, until it is late."""
    of_calls = [{each.text: each.call for each in readings(call)} for call in calls]
    for text in until_late(dict.fromkeys(text for each in of_calls for text in each)):
        read = tuple(each.get(text, call) for each, call in zip(of_calls, calls, strict=True))
        if not _is_near(read):
            continue
        search = Search(read)
        search.run_named(Candidates(read, suspects))
        if groups := tuple(each for each in search.groups if each.is_consistent):
            yield ConsistentReading(text, read, groups)


def _is_near(calls: Sequence[ArrayCall]) -> bool:
    """Return whether a rule gives about what was observed."""
    for call in calls:
        work = first_planned(call)
        if work is None:
            return False
        try:
            outcome = outcome_of(call, work)
        except RequantError:
            return False
        if outcome.elements > _FEW and outcome.mismatches > outcome.elements * _WRONG_RULE:
            return False
    return True
