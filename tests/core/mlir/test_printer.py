"""Canonical texts of types that were made, not read, and that every text reads back to the same type."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from requant.errors import TypeTextError
from requant.formats.elements import FLOATS, FloatElement, IntegerElement, Signedness
from requant.formats.float_format import round_to_format
from requant.mlir import (
    QuantileType,
    StorageType,
    TensorType,
    Type,
    UniformPerAxisType,
    UniformSubChannelType,
    UniformType,
    parse_type,
    print_type,
)
from requant.mlir.verifier import fault
from tests.support.mlir_strategies import type_texts

F32 = FLOATS["f32"]


def test_storage_names() -> None:
    signless = IntegerElement(8)
    for storage, name in [
        (StorageType.unbounded(signless, signed=True), "i8"),
        (StorageType.unbounded(signless, signed=False), "u8"),
        (StorageType.unbounded(IntegerElement(8, Signedness.UNSIGNED), signed=False), "ui8"),
        (StorageType.unbounded(IntegerElement(8, Signedness.SIGNED), signed=True), "si8"),
        (StorageType.unbounded(FLOATS["f8E4M3FN"], signed=True), "f8E4M3FN"),
        (StorageType(signless, True, -127, 127), "i8<-127:127>"),
        (StorageType(signless, False, 0, 255), "u8"),
    ]:
        assert print_type(UniformType(storage, F32, 1.0, 0)) == f"!quant.uniform<{name}:f32, 1.000000e+00>"


def test_a_table_in_a_storage_keeps_its_values() -> None:
    """MLIR prints the table of a quantile storage with six digits. That text is another type; ours is the same."""
    quantile = QuantileType(IntegerElement(1), F32, (1 / 3, 0.998))
    type_ = UniformType(StorageType.unbounded(quantile, signed=False), F32, 1.0, 0)
    text = "!quant.uniform<!quant.quantile<i1:f32, {0.33333333333333331,0.998}>:f32, 1.000000e+00>"
    assert print_type(type_) == text
    assert parse_type(text) == type_


def test_unsigned_sub_channel_zero_points_are_printed_as_signed() -> None:
    storage = StorageType.unbounded(IntegerElement(4), signed=False)
    type_ = UniformSubChannelType(storage, F32, ((1, 2),), (1, 3), (1.0, 1.0, 1.0), (15, 8, 7))
    text = "!quant.uniform<u4:f32:{1:2}, {{1.000000e+00:-1, 1.000000e+00:-8, 1.000000e+00:7}}>"
    assert print_type(type_) == text
    assert parse_type(text) == type_


def test_shape_and_encoding() -> None:
    assert print_type(TensorType((2, None, 0), F32, '"e"')) == 'tensor<2x?x0xf32, "e">'
    assert print_type(TensorType(None, F32)) == "tensor<*xf32>"


@given(type_texts)
def test_canonical_text_reads_back_to_the_same_type(text: str) -> None:
    try:
        type_ = parse_type(text)
    except TypeTextError:
        assume(False)
    canonical = print_type(type_)
    assert parse_type(canonical) == type_ or "0x7FF" in canonical or "0xFFF" in canonical  # NaN in a calibrated type
    assert print_type(parse_type(canonical)) == canonical


@st.composite
def _made_types(draw: st.DrawFn) -> Type:
    expressed: FloatElement = draw(st.sampled_from(list(FLOATS.values())))
    width = draw(st.integers(1, 32))
    storage = StorageType.unbounded(IntegerElement(width), signed=draw(st.booleans()))
    scales = st.floats(max(expressed.smallest, 5e-324), expressed.largest, allow_infinity=False)
    if draw(st.booleans()):
        zero_points = st.integers(-(1 << 63), (1 << 63) - 1)
        count = draw(st.integers(1, 4))
        return UniformPerAxisType(
            storage,
            expressed,
            draw(st.integers(0, 5)),
            tuple(draw(scales) for _ in range(count)),
            tuple(draw(zero_points) for _ in range(count)),
        )
    shape = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    count = 1
    for size in shape:
        count *= size
    blocks = tuple(draw(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 64)), max_size=3)))
    return UniformSubChannelType(
        storage,
        expressed,
        blocks,
        shape,
        tuple(round_to_format(draw(scales), expressed) for _ in range(count)),
        tuple(draw(st.integers(*storage.default_bounds)) for _ in range(count)),
    )


@given(_made_types())
def test_a_type_without_fault_survives_its_text(type_: Type) -> None:
    assert fault(type_) is None
    assert parse_type(print_type(type_)) == type_
