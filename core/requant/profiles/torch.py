"""PyTorch on x86: the eager quantized tensors, of 2.13 and of 2.14, and the quantized_decomposed operators."""

from __future__ import annotations

from dataclasses import replace

from requant.formats.rounding import Rounding
from requant.formats.rules import Difference, Overflow, Quotient
from requant.profiles.cast import F8_ONNX, SCALE, CastRule, FloatOverflow, NanCode, NanTail
from requant.profiles.rule import (
    DEQUANTIZE,
    NO_NAN,
    Addition,
    AddRule,
    NanResult,
    Operation,
    OperationRule,
    ProductRule,
    Profile,
    Steps,
    SumOverflow,
    ZeroPoint,
    scheme_rule,
)
from requant.schemes import fbgemm

_EAGER = OperationRule(
    formula="clamp(RNE(fma(x, f32(1 / s), z)), lo, hi); per axis and for i32: "
    "clamp(RNE(f32(f32(x * f32(1 / s)) + z)), lo, hi), where the bounds of i32 are f32(lo) and f32(hi)",
    precision="multiplication by the f32 reciprocal; per tensor with 8 bits one rounding for product and sum",
    rounding=Rounding.NEAREST_EVEN,
    zero_point=ZeroPoint.BEFORE_ROUNDING,
    saturation="infinities saturate",
    nan="per tensor hi, per axis 0; for i32 lo",
    quotient=Quotient.FUSED,
    nan_result=NanResult.HIGHEST,
    storages=("i8", "u8", "i32"),
)
_SEPARATE = replace(_EAGER, quotient=Quotient.RECIPROCAL, nan_result=NanResult.ZERO)

TORCH = Profile(
    name="torch",
    title="PyTorch eager",
    summary="quantize_per_tensor, quantize_per_channel and dequantize of quantized tensors, as the x86 wheel computes "
    "them, and the output of its quantized linear and convolution without a bias (engines fbgemm and x86).",
    source="torch 2.13.0, CPU wheel, x86",
    operations={
        Operation.QUANTIZE: replace(
            _EAGER, variants={"per_axis": _SEPARATE, "i32": replace(_SEPARATE, nan_result=NanResult.LOWEST)}
        ),
        Operation.DEQUANTIZE: replace(
            DEQUANTIZE,
            storages=("i8", "u8", "i32"),
            variants={
                "i32 per_axis": replace(
                    DEQUANTIZE,
                    formula="f32(f32(f32(q) - f32(z)) * f32(s))",
                    precision="each step in f32",
                    difference=Difference.FLOATS,
                )
            },
        ),
        Operation.REQUANTIZE: scheme_rule(
            fbgemm.FBGEMM,
            storages=("i8", "u8", "i32"),
            pairs=tuple(f"{source} to {target}" for source in ("i8", "u8", "i32") for target in ("i8", "u8")),
        ),
    },
    products={
        "matmul": ProductRule(operator="quantized::linear", overflow=SumOverflow.WRAP, scheme=fbgemm.FBGEMM.name),
        "conv2d": ProductRule(operator="quantized::conv2d", overflow=SumOverflow.WRAP, scheme=fbgemm.FBGEMM.name),
    },
    casts=CastRule(
        authority="torch",
        saturation="f8E4M3FN saturates, infinities too; the others give infinity where the format has one, else NaN",
        nan="a NaN with the sign and all mantissa bits; f16: the highest bits of its payload and the highest one; "
        "bf16: 0xFFFF, but 0x7FC0 from f16 and narrower floats, and from f64 in the last n mod 16 elements",
        scale="E and M are the exponent and mantissa field of x as an f32, the sign is ignored: "
        "E + (M > 2^22, or M = 2^22 and E > 0). Above 254: 0xFF, as infinity and NaN",
        notes="Tensor.to(), on one thread: each thread's share has its own last n mod 16 elements, which are converted "
        "one by one. The NaN of bf16 is that of a processor with AVX-512.",
        formats=("f16", "bf16", *F8_ONNX, SCALE),
        overflow=FloatOverflow.SATURATING_E4M3FN,
        nans={
            "": NanCode.ONES,
            "f16": NanCode.QUIET_PAYLOAD,
            "bf16": NanCode.NEGATIVE_ONES,
            **dict.fromkeys((f"{narrow} bf16" for narrow in ("f16", *F8_ONNX, SCALE)), NanCode.POSITIVE_QUIET),
        },
        nan_tails={"f64 bf16": NanTail(16, NanCode.POSITIVE_QUIET)},
    ),
)

_AFTER = OperationRule(
    formula="clamp(RNE(f32(x * f32(1 / s))) + z, lo, hi); for i32 the sum is rounded to f32, and lo and hi are, too",
    precision="multiplication by the f32 reciprocal; the zero point is added after rounding, for i32 in f32",
    rounding=Rounding.NEAREST_EVEN,
    zero_point=ZeroPoint.AFTER_ROUNDING,
    saturation="per tensor with 8 bits in int32: at most 2^31 - 128 and at least -2^31 before z is added, which wraps: "
    "-inf gives hi with z < 0, inf gives lo with z > 127; else infinities saturate",
    nan="per tensor as inf, per axis 0; for i32 lo",
    quotient=Quotient.RECIPROCAL,
    overflow=Overflow.INDEFINITE_BELOW,
    nan_result=NanResult.INDEFINITE_HIGHEST,
    storages=("i8", "u8", "i32"),
)

TORCH_2_14 = replace(
    TORCH,
    name="torch_2_14",
    title="PyTorch eager, 2.14",
    summary="As `torch`, but for quantize_per_tensor and quantize_per_channel, which add the zero point after "
    "rounding since 2.14.",
    source="torch 2.14.1, x86",
    operations={
        **TORCH.operations,
        Operation.QUANTIZE: replace(
            _AFTER,
            variants={
                "per_axis": replace(_AFTER, overflow=Overflow.SATURATE, nan_result=NanResult.ZERO),
                "i32": replace(_AFTER, overflow=Overflow.FLOAT_SATURATE, nan_result=NanResult.LOWEST),
            },
        ),
    },
)

_DECOMPOSED = OperationRule(
    formula="clamp(f32(RNE(f32(x * r)) + z), lo, hi), r = f32(1 / scale) in f64; per axis r = f32(1 / f32(scale)); in "
    "blocks clamp(RNE(f32(f32(x * r) + z)), lo, hi)",
    precision="f16 and bf16 are converted to f32; multiplication by the reciprocal in f32",
    rounding=Rounding.NEAREST_EVEN,
    zero_point=ZeroPoint.AFTER_ROUNDING,
    saturation="clamped in f32; for i32 a value that f32 clamps to 2^31 becomes -2^31, as on x86",
    nan="0; for i32 -2^31, beyond narrower bounds too",
    quotient=Quotient.RECIPROCAL_OF_F64,
    scales=Steps.F32,
    overflow=Overflow.FLOAT_CLAMP,
    nan_result=NanResult.ZERO,
    expressed=("f32", "f16", "bf16"),
    storages=("i4", "u4", "i8", "u8", "i16", "u16", "i32"),
    granularities=("per_tensor", "per_axis", "sub_channel"),
)
_DECOMPOSED_PER_AXIS = replace(_DECOMPOSED, quotient=Quotient.RECIPROCAL)
_DECOMPOSED_BLOCKS = replace(
    _DECOMPOSED, quotient=Quotient.RECIPROCAL, zero_point=ZeroPoint.BEFORE_ROUNDING, overflow=Overflow.SATURATE
)

_DECOMPOSED_DEQUANTIZE = replace(
    DEQUANTIZE,
    formula="E(S(S(S(q) - S(z)) * f32(s))), S = E (by way of f32) per tensor, else f32; i32 per axis and in blocks: "
    "E(f32(f32(q - z) * f32(s)))",
    precision="each step in E per tensor, else in f32 and rounded once more to f16 or bf16; q - z of i32 per axis and "
    "in blocks in int32 (int32 zero points)",
    difference=Difference.FLOATS,
    scales=Steps.F32,
    expressed=("f32", "f16", "bf16"),
    storages=_DECOMPOSED.storages,
    granularities=_DECOMPOSED.granularities,
)

TORCH_DECOMPOSED = Profile(
    name="torch_decomposed",
    title="PyTorch quantized_decomposed",
    summary="The operators of torch.ops.quantized_decomposed, which torch.export and fake quantization compute with. "
    "There is no operator from integers to integers among them: requantize is dequantize and then quantize.",
    source="torch 2.13.0, quantized_decomposed, CPU",
    addition=AddRule(operator="dequantize_per_tensor, add, quantize_per_tensor", addition=Addition.THROUGH_REAL),
    operations={
        Operation.QUANTIZE: replace(
            _DECOMPOSED,
            variants={
                "per_axis": _DECOMPOSED_PER_AXIS,
                "sub_channel": _DECOMPOSED_BLOCKS,
                "sub_channel_outer": _DECOMPOSED_BLOCKS,
                "i32": replace(_DECOMPOSED, nan_result=NanResult.INT32_MINIMUM),
                "i32 per_axis": replace(_DECOMPOSED_PER_AXIS, nan_result=NanResult.INT32_MINIMUM),
                **dict.fromkeys(
                    ("i32 sub_channel", "i32 sub_channel_outer"),
                    replace(_DECOMPOSED_BLOCKS, nan_result=NanResult.INT32_MINIMUM, overflow=Overflow.FLOAT_CLAMP),
                ),
            },
        ),
        Operation.DEQUANTIZE: replace(
            _DECOMPOSED_DEQUANTIZE,
            variants={
                "per_tensor": replace(
                    _DECOMPOSED_DEQUANTIZE, steps=Steps.EXPRESSED, difference=Difference.FLOATS_OF_F32
                ),
                **dict.fromkeys(
                    ("i32 per_axis", "i32 sub_channel", "i32 sub_channel_outer"),
                    replace(_DECOMPOSED_DEQUANTIZE, difference=Difference.INTEGER),
                ),
            },
        ),
        Operation.REQUANTIZE: replace(
            _DECOMPOSED,
            formula="quantize(dequantize(q)), by the two rules of this profile for the types of input and output",
            precision="those of the two rules; between them a number of the expressed type",
            nan=NO_NAN,
        ),
    },
)

PROFILES = (
    TORCH,
    TORCH_2_14,
    TORCH_DECOMPOSED,
)
