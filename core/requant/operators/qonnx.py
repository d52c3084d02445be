"""QONNX's quantizers, of the domain qonnx.custom_op.general, as its Python package executes them in f32.

    Quant         V = f32(f32(X / scale) + zeropt) ;  q = round(clamp(V, lo, hi)) ;  Y = f32(f32(q - zeropt) * scale)
                  lo = signed ? narrow - 2^(b - 1) : 0 ;  hi = signed ? 2^(b - 1) - 1 : 2^b - 1 - narrow
                  of 1 bit and signed: q = V >= 0 ? 1 : -1
    BipolarQuant  Y = X >= 0 ? scale : -scale
    Trunc         I = RNE(f32(f32(X / scale) + zeropt))
                  1: q = round(f32(I / t)), t = 2^(in_bitwidth - out_bitwidth) ;  Y = f32(f32(q - zeropt) * scale)
                  2: q = round(clamp(f32(I / t), lo, hi)), t = 2^RNE(log2(f32(out_scale / scale)))
                     Y = f32(f32(q - f32(zeropt / t)) * out_scale)
    FloatQuant    V = f32(X / scale) ;  k = max(floor(log2(f32(|V| + 2^-126))), 1 - bias) - m
                  q = f32(2^k * round(f32(V / 2^k)))
                  M = min((2 - 2^-m) * 2^(2^e - 1 - bias), max_val) ;  Y = f32(clamp(q, -M, M) * scale)
                  without saturation what is beyond M is an infinity or NaN

A zero point is added before rounding, and clamping comes before it too. log2 is rounded to f32. Shapes are broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from requant.description import Array, Kind
from requant.errors import InvalidRequestError, ParameterError, TypeFitError
from requant.errors.names import in_any_case, unknown_name
from requant.operators.description import Attribute, Operand, Operator, OperatorCall, Work, only_implementation
from requant.operators.onnx.operands import single
from requant.operators.stages import F32, TRACE, Real, Stages, in_stages, stage

_LAST_OPSET = 2
_SMALLEST_NORMAL = np.float32(2.0**-126)
_MAX_BITS, _MAX_EXPONENT_BITS, _MAX_MANTISSA_BITS, _MAX_BIAS = 127, 8, 23, 1 << 10

_ROUNDINGS: Mapping[str, Callable[[Real], Real]] = {
    "ROUND": np.rint,
    "HALF_EVEN": np.rint,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "UP": lambda v: np.sign(v) * np.ceil(np.abs(v)),
    "DOWN": np.trunc,
    # In f32 both sums are rounded.
    "HALF_UP": lambda v: np.sign(v) * np.floor(np.abs(v) + np.float32(0.5)),
    "HALF_DOWN": lambda v: np.sign(v) * np.ceil(np.abs(v) - np.float32(0.5)),
}


def _rounding(call: OperatorCall) -> Callable[[Real], Real]:
    name = call.text("rounding_mode")
    found = _ROUNDINGS.get(in_any_case(_ROUNDINGS, name))
    if found is None:
        raise unknown_name("rounding_mode", name, _ROUNDINGS, pointer="/attributes/rounding_mode")
    return found


def _whole(call: OperatorCall, name: str, lowest: int, highest: int) -> int:
    """Return an operand that is one whole number within bounds. Raise TypeFitError or ParameterError."""
    value = float(single(call, name).data[0])
    if not (value.is_integer() and lowest <= value <= highest):
        raise ParameterError(
            f"{name} is {value!r}; it is a whole number, {lowest} to {highest}", pointer=f"/inputs/{name}"
        )
    return int(value)


def _tensors(call: OperatorCall, *names: str) -> tuple[list[Array], tuple[int, ...]]:
    """Return operands in their shapes, and the shape to which numpy broadcasts them."""
    tensors = [call.inputs[name] for name in names]
    try:
        shape = np.broadcast_shapes(*(each.shape for each in tensors))
    except ValueError:
        shown = ", ".join(f"{name} {list(each.shape)}" for name, each in zip(names, tensors, strict=True))
        raise TypeFitError(f"the shapes cannot be broadcast: {shown}", pointer=f"/inputs/{names[-1]}") from None
    return [each.data.reshape(each.shape) for each in tensors], shape


def _power(exponent: Real | int) -> Array:
    """Return f32(2^exponent) of whole numbers."""
    return np.exp2(np.asarray(exponent, np.float64)).astype(np.float32)


def _log2(x: Real) -> Array:
    """Return f32(log2(x)), the same on every machine."""
    return np.log2(np.asarray(x, np.float64)).astype(np.float32)


def _clamped(call: OperatorCall, v: Real, bits: int) -> Real:
    """Return v within the integers of so many bits, whose bounds are rounded to f32. NaN remains."""
    signed, narrow = call.integer("signed"), call.integer("narrow")
    if signed:
        lowest, highest = narrow - 2.0 ** (bits - 1), 2.0 ** (bits - 1) - 1
    else:
        lowest, highest = 0, 2.0**bits - 1 - narrow
    # No np.clip: -0 remains too.
    v = np.where(v > np.float32(highest), np.float32(highest), v)
    return np.where(v < np.float32(lowest), np.float32(lowest), v)


def _plan_quant(call: OperatorCall) -> Work:
    (x, scale, zero), shape = _tensors(call, "X", "scale", "zeropt")
    bits, rounding = _whole(call, "bitwidth", 1, _MAX_BITS), _rounding(call)

    def stages() -> Stages:
        scaled = x / scale
        found: dict[str, Real] = {"scaled": scaled, "shifted": scaled + zero}
        if bits == 1 and call.integer("signed"):
            found["rounded"] = _signs(found["shifted"])
        else:
            found["clamped"] = _clamped(call, found["shifted"], bits)
            found["rounded"] = rounding(found["clamped"])
        return {**found, "Y": (found["rounded"] - zero) * scale}

    return in_stages(call, stages, shape)


def _signs(x: Real) -> Array:
    """Return 1 from 0 on, also of -0, else -1, also of NaN."""
    return np.where(x >= 0, np.float32(1), np.float32(-1))


def _plan_bipolar(call: OperatorCall) -> Work:
    (x, scale), shape = _tensors(call, "X", "scale")
    return in_stages(call, lambda: {"Y": _signs(x) * scale}, shape)


def _plan_trunc(call: OperatorCall) -> Work:
    rounding = _rounding(call)
    of_in, of_out = (_whole(call, name, 1, _MAX_BITS) for name in ("in_bitwidth", "out_bitwidth"))
    if call.version == 1:
        (x, scale, zero), shape = _tensors(call, "X", "scale", "zeropt")
        out_scale = scale
    elif "out_scale" in call.inputs:
        (x, scale, zero, out_scale), shape = _tensors(call, "X", "scale", "zeropt", "out_scale")
    else:
        detail = "Trunc needs the operand out_scale from opset 2 on"
        raise InvalidRequestError.of_field("/inputs/out_scale", "missing", detail, message=detail)

    def stages() -> Stages:
        integer = np.rint(x / scale + zero)
        if call.version == 1:
            step = _power(of_in - of_out)
            truncated = rounding(integer / step)
            return {"integer": integer, "step": step, "truncated": truncated, "Y": (truncated - zero) * scale}
        step = _power(np.rint(_log2(out_scale / scale)))
        clamped = _clamped(call, integer / step, of_out)
        truncated, of_zero = rounding(clamped), zero / step
        found = {"integer": integer, "step": step, "clamped": clamped, "truncated": truncated}
        return {**found, "Y": (truncated - of_zero) * out_scale}

    return in_stages(call, stages, shape)


def _plan_float(call: OperatorCall) -> Work:
    (x, scale), shape = _tensors(call, "X", "scale")
    exponent_bits = _whole(call, "exponent_bitwidth", 0, _MAX_EXPONENT_BITS)
    mantissa_bits = _whole(call, "mantissa_bitwidth", 0, _MAX_MANTISSA_BITS)
    bias = _whole(call, "exponent_bias", -_MAX_BIAS, _MAX_BIAS)
    rounding = _rounding(call)
    given = float(single(call, "max_val").data[0])
    saturation, infinity, nan = (call.integer(name) for name in ("saturation", "has_inf", "has_nan"))
    if not (saturation or infinity or nan):
        raise ParameterError("saturation is 1, or has_inf or has_nan is", pointer="/attributes/saturation")

    def stages() -> Stages:
        scaled = x / scale
        exponent = np.floor(_log2(np.abs(scaled) + _SMALLEST_NORMAL))
        step = _power(np.maximum(exponent, 1 - bias) - mantissa_bits)
        rounded = step * rounding(scaled / step)
        largest = np.minimum((2 - 2.0**-mantissa_bits) * _power(2**exponent_bits - 1 - bias).astype(np.float64), given)
        # Of f64, which holds the largest number where f32 does not.
        clamped = np.clip(rounded.astype(np.float64), -largest, largest)
        if not saturation and infinity:
            clamped = np.where(rounded < -largest, -np.inf, np.where(rounded > largest, np.inf, clamped))
        elif not saturation:
            clamped = np.where((np.abs(rounded) > largest) | np.isinf(rounded), np.nan, clamped)
        found = {"scaled": scaled, "step": step, "rounded": rounded, "clamped": clamped}
        return {**found, "Y": (clamped * scale).astype(np.float32)}

    return in_stages(call, stages, shape)


def _real(name: str, description: str, *, since: int = 1) -> Operand:
    return Operand(name=name, description=description, types={"f32": since}, optional=since > 1)


def _flag(name: str, description: str, default: int, since: int = 1) -> Attribute:
    return Attribute(
        name=name, kind=Kind.INTEGER, description=description, default=default, lowest=0, highest=1, since=since
    )


def _rounding_mode(default: str) -> Attribute:
    *others, last = _ROUNDINGS
    return Attribute(
        name="rounding_mode",
        description=f"{', '.join(others)} or {last}, in any case. UP is away from zero, DOWN toward it; ties "
        "go to even, away from zero (HALF_UP) or toward it (HALF_DOWN).",
        default=default,
    )


def _operator(
    name: str,
    *,
    summary: str,
    inputs: tuple[Operand, ...],
    plan: Callable[[OperatorCall], Work],
    example: Mapping[str, object],
    attributes: tuple[Attribute, ...] = (),
    stages: tuple[Operand, ...] = (),
    versions: tuple[int, ...] = (1,),
    deviations: tuple[str, ...] = (),
) -> Operator:
    return Operator(
        system="qonnx",
        name=name,
        summary=summary,
        source="qonnx 1.0.0, domain qonnx.custom_op.general",
        implementations=only_implementation("qonnx"),
        versions=versions,
        last_version=_LAST_OPSET,
        inputs=inputs,
        outputs=(Operand(name="Y", description="The quantized numbers, of the shape of all, broadcast.", types=F32),),
        stages=stages,
        attributes=(*attributes, *((TRACE,) if stages else ())),
        deviations=deviations,
        plan=plan,
        example=example,
    )


_X = _real("X", "The tensor.")
_SCALE = _real("scale", "One, or a shape that is broadcast.")
_ZERO = _real("zeropt", "One, or a shape that is broadcast.")
_SIGNED, _NARROW = "1: signed integers, 0: unsigned ones.", "1: without the last integer: -127 to 127, or 0 to 254."
_DEFAULTS = "The package demands attributes; here they have the defaults of its documentation."
_WIDTHS = "Widths are single whole numbers of f32. The package takes any numbers."


def _quant(name: str, summary: str) -> Operator:
    return _operator(
        name,
        summary=summary,
        inputs=(_X, _SCALE, _ZERO, _real("bitwidth", f"One whole number, 1 to {_MAX_BITS}.")),
        attributes=(_flag("signed", _SIGNED, 1), _flag("narrow", _NARROW, 0), _rounding_mode("ROUND")),
        stages=(
            stage("scaled", "f32(X / scale)."),
            stage("shifted", "f32(scaled + zeropt)."),
            stage("clamped", "Within the bounds of the integers; absent of signed ones of 1 bit."),
            stage("rounded", "The integer, or of 1 bit and signed 1 or -1."),
        ),
        deviations=(_DEFAULTS, _WIDTHS),
        plan=_plan_quant,
        example={
            "opset": 1,
            "inputs": {
                "X": {"type": "tensor<5xf32>", "values": [-5.0, -0.25, 0.25, 0.75, 9.0]},
                "scale": {"type": "tensor<f32>", "values": [0.5]},
                "zeropt": {"type": "tensor<f32>", "values": [0]},
                "bitwidth": {"type": "tensor<f32>", "values": [4]},
            },
        },
    )


QUANT = _quant("Quant", "Quantize to integers of any width, and dequantize. The former name of IntQuant.")
INT_QUANT = _quant("IntQuant", "Quantize to integers of any width, and dequantize.")

BIPOLAR_QUANT = _operator(
    "BipolarQuant",
    summary="The scale from 0 on, also of -0, else minus the scale, also of NaN.",
    inputs=(_X, _SCALE),
    plan=_plan_bipolar,
    example={
        "opset": 1,
        "inputs": {
            "X": {"type": "tensor<4xf32>", "values": [-5.0, -0.0, 0.0, 0.75]},
            "scale": {"type": "tensor<f32>", "values": [0.5]},
        },
    },
)

TRUNC = _operator(
    "Trunc",
    summary="Truncate quantized numbers to fewer bits.",
    versions=(1, 2),
    inputs=(
        _X,
        _real("scale", "Of X: one, or a shape that is broadcast."),
        _real("zeropt", "Of X: one, or a shape that is broadcast."),
        _real("in_bitwidth", "One whole number; from opset 2 on it changes nothing."),
        _real("out_scale", "Of Y: one, or a shape that is broadcast. From opset 2 on it is required.", since=2),
        _real("out_bitwidth", f"One whole number, 1 to {_MAX_BITS}."),
    ),
    attributes=(
        _rounding_mode("FLOOR"),
        _flag("signed", _SIGNED, 1, since=2),
        _flag("narrow", _NARROW, 0, since=2),
    ),
    stages=(
        stage("integer", "RNE(f32(f32(X / scale) + zeropt))."),
        stage("step", "2^(in_bitwidth - out_bitwidth), or from opset 2 on 2^RNE(log2(f32(out_scale / scale)))."),
        stage("clamped", "f32(integer / step), from opset 2 on within the bounds of the integers; absent before."),
        stage("truncated", "It, rounded by rounding_mode."),
    ),
    deviations=(_DEFAULTS, _WIDTHS),
    plan=_plan_trunc,
    example={
        "opset": 2,
        "inputs": {
            "X": {"type": "tensor<5xf32>", "values": [-5.0, -0.5, 0.5, 3.5, 9.0]},
            "scale": {"type": "tensor<f32>", "values": [0.5]},
            "zeropt": {"type": "tensor<f32>", "values": [0]},
            "in_bitwidth": {"type": "tensor<f32>", "values": [8]},
            "out_scale": {"type": "tensor<f32>", "values": [2.0]},
            "out_bitwidth": {"type": "tensor<f32>", "values": [4]},
        },
        "attributes": {"rounding_mode": "CEIL"},
    },
)

FLOAT_QUANT = _operator(
    "FloatQuant",
    summary="Quantize to floats of any width, and dequantize. Subnormal numbers are gradual.",
    inputs=(
        _X,
        _SCALE,
        _real("exponent_bitwidth", f"e: one whole number, 0 to {_MAX_EXPONENT_BITS}."),
        _real("mantissa_bitwidth", f"m: one whole number, 0 to {_MAX_MANTISSA_BITS}."),
        _real("exponent_bias", "One whole number."),
        _real("max_val", "One: the largest number, where the format keeps codes for others: 448 of f8E4M3FN."),
    ),
    attributes=(
        _flag("has_inf", "1: without saturation what is beyond the largest number is an infinity.", 0),
        _flag("has_nan", "1: without saturation and has_inf it is NaN.", 0),
        _flag("has_subnormal", "Ignored, as in the package.", 1),
        _flag("saturation", "1: what is beyond the largest number becomes it.", 1),
        _rounding_mode("ROUND"),
    ),
    stages=(
        stage("scaled", "V = f32(X / scale)."),
        stage("step", "2^k, k = max(floor(log2(f32(|V| + 2^-126))), 1 - bias) - m."),
        stage("rounded", "f32(step * round(f32(V / step)))."),
        stage(
            "clamped", "Within -M to M, M = min((2 - 2^-m) * 2^(2^e - 1 - bias), max_val); or not finite.", {"f64": 1}
        ),
    ),
    deviations=(
        _DEFAULTS,
        _WIDTHS,
        "log2 is the nearest number of f32. The package calls numpy's, whose last bit depends on the processor.",
        "An infinity becomes NaN, also with saturation: as in the package.",
    ),
    plan=_plan_float,
    example={
        "opset": 1,
        "inputs": {
            "X": {"type": "tensor<5xf32>", "values": [-500.0, 0.001, 1.0625, 17.0, 449.0]},
            "scale": {"type": "tensor<f32>", "values": [1.0]},
            "exponent_bitwidth": {"type": "tensor<f32>", "values": [4]},
            "mantissa_bitwidth": {"type": "tensor<f32>", "values": [3]},
            "exponent_bias": {"type": "tensor<f32>", "values": [7]},
            "max_val": {"type": "tensor<f32>", "values": [448]},
        },
    },
)

OPERATORS: tuple[Operator, ...] = (QUANT, INT_QUANT, BIPOLAR_QUANT, TRUNC, FLOAT_QUANT)
