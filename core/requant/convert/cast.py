"""Casts between floats that are not quantized (`requant.profiles.cast`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from requant.convert.float_encoding import AnyEncoder, encoder
from requant.convert.small_floats import SMALL_FLOATS, decode, decoder, has_decoder
from requant.errors import UnsupportedError, error_side, excerpt
from requant.formats.elements import FloatElement
from requant.mlir.printer import print_type
from requant.mlir.types import TensorType
from requant.plan.float_arrays import COMPUTE_DTYPES, widen
from requant.plan.operands import static_shape
from requant.plan.plan import Array, Plan, pieces
from requant.profiles import Rounding, profile_named
from requant.profiles.cast import CastRule


@dataclass(frozen=True, slots=True, kw_only=True)
class CastPlan(Plan):
    """Plan of `requant.convert.small_floats` and `requant.convert.float_encoding`. Without an encoder the result is an
    f32 or f64: exact.

    From element `tail_start` on the encoder is `tail`, where there is one.
    """

    encoder: AnyEncoder | None
    tail: AnyEncoder | None = None
    tail_start: int = 0

    def step(self, source: Array, target: Array, start: int, counts: Array) -> None:
        element = self.input_type.element
        assert isinstance(element, FloatElement)
        codes = target.view(f"u{target.itemsize}")
        if self.encoder is not None and element.name in COMPUTE_DTYPES:
            body = source.size if self.tail is None else min(max(self.tail_start - start, 0), source.size)
            self.encoder.encode(source[:body], codes[:body], start, counts)
            if self.tail is not None and body < source.size:
                self.tail.encode(source[body:], codes[body:], start + body, counts)
            return
        if self.encoder is None and target.itemsize == 4 and has_decoder(element.name):
            decoder(element.name).decode(source, target, counts)
            return
        for piece in pieces(source.size):
            wide = (
                widen(source[piece], element) if element.name in COMPUTE_DTYPES else decode(source[piece], element.name)
            )
            if self.encoder is None:
                with np.errstate(invalid="ignore"):
                    target[piece] = wide
                counts[2] += np.count_nonzero(np.isnan(wide))
            else:
                self.encoder.encode(wide, codes[piece], start + piece.start, counts)

    def explain_undefined(self, counts: Array) -> str:
        return "this element is NaN"


# The bits of the floats that are dequantized as they are, by a cast.
_NARROW = 16


def _float(tensor: TensorType, side: str, supported: tuple[str, ...], authority: str) -> FloatElement:
    element = tensor.element
    if not isinstance(element, FloatElement) or element.name not in supported:
        printed, way = excerpt(print_type(element)), "from" if side == "input" else "to"
        of_reals = ""
        if side == "input" and isinstance(element, FloatElement) and element.width > _NARROW:
            of_reals = "; numbers to dequantize have a quantized type, such as !quant.uniform<i8:f32, 0.5:3>"
        raise UnsupportedError(
            f"the {side} has elements of {printed}; {authority} casts {way} {', '.join(supported)} here{of_reals}"
        )
    return element


def _check_differs(source: FloatElement, target: FloatElement) -> None:
    if source == target:
        raise UnsupportedError(f"the input has elements of {source.name} already; nothing is to be cast")


def _plan(
    profile: str, input_type: TensorType, output_type: TensorType, source: FloatElement, target: FloatElement,
    encoder: AnyEncoder | None,
) -> CastPlan:  # fmt: skip
    return CastPlan(
        profile=profile,
        rounding=Rounding.NEAREST_EVEN if encoder is None else encoder.rounding,
        input_type=input_type,
        output_type=output_type,
        input_dtype=source.tensor_dtype,
        output_dtype=target.tensor_dtype,
        elements=prod(static_shape(input_type)),
        encoder=encoder,
    )


def plan_narrowing(
    input_type: TensorType,
    output_type: TensorType,
    profile: str,
    *,
    rounding: Rounding | None = None,
    saturate: bool | None = None,
    seed: int = 0,
    random_bits: int | None = None,
    refuses_nan: bool = False,
) -> CastPlan:
    """Plan a cast of f16, bf16, f32 or f64 to a float of at most 16 bits, or of f64 to f32. Both types are bound to one
    shape.

    `rounding` and `saturate` replace the profile's, where it leaves the choice; `seed` and `random_bits` are those of
    stochastic rounding; `refuses_nan` makes NaN an error. Raise UnknownNameError, UnsupportedError where the profile
    has no such cast, or ParameterError.
    """
    rule = profile_named(profile).cast_rule()
    with error_side("input"):
        source = _float(input_type, "input", rule.sources, rule.authority)
    with error_side("output"):
        target = _float(output_type, "output", rule.formats, rule.authority)
        _check_differs(source, target)
        if target.width > _NARROW and source.width <= target.width:
            raise UnsupportedError(f"{source.name} is not cast to {target.name}, only f64 is")
        chosen = encoder(
            rule,
            target.name,
            source.name,
            rounding=rounding,
            saturate=saturate,
            seed=seed,
            random_bits=random_bits,
            refuses_nan=refuses_nan,
        )
    plan = _plan(profile, input_type, output_type, source, target, chosen)
    conversion = f"{source.name} {target.name}"
    last = rule.nan_tails.get(conversion)
    if last is None:
        return plan
    one_by_one = replace(rule, nans={**rule.nans, conversion: last.code})
    return replace(
        plan,
        tail=encoder(one_by_one, target.name, source.name, refuses_nan=refuses_nan),
        tail_start=plan.elements - plan.elements % last.lanes,
    )


def plan_widening(input_type: TensorType, output_type: TensorType, profile: str) -> CastPlan:
    """Plan a cast of a float of at most 16 bits to f16, bf16, f32 or f64: exact to the last two.

    A NaN becomes a quiet one with the sign of its code, and that of f16 keeps its payload. bf16 are shifted: to f32 all
    of a NaN is kept, and a signalling one stays one. Raise UnknownNameError, or UnsupportedError where the profile has
    no such cast.
    """
    rule: CastRule = profile_named(profile).cast_rule()
    with error_side("input"):
        narrow = tuple(name for name in rule.formats if name in SMALL_FLOATS)
        source = _float(input_type, "input", narrow, rule.authority)
    with error_side("output"):
        wide = tuple(name for name in rule.sources if name in rule.formats or name not in SMALL_FLOATS)
        target = _float(output_type, "output", wide, rule.authority)
        _check_differs(source, target)
    chosen = encoder(rule, target.name, source.name) if target.name in SMALL_FLOATS else None
    return _plan(profile, input_type, output_type, source, target, chosen)
