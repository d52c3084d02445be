# Written by `python -m requant.function_stubs` from the descriptions of operations and operators.
from collections.abc import Callable, Mapping, Sequence
from inspect import Signature
from typing import Any, Literal, overload

from numpy.typing import ArrayLike, NDArray

from requant.description import Operation, Option, Result, TensorValue
from requant.mlir.types import Type

DESCRIBED: Mapping[str, Operation]
FUNCTIONS: Mapping[str, Callable[..., Any]]
SYSTEMS: Mapping[str, Any]

__all__ = ["explain_quantize", "explain_dequantize", "explain_requantize", "vectors", "derive_multiplier", "quantize_blocks", "dequantize_blocks", "fake_quantize", "derive_from_range", "derive_from_tensor", "derive_bias", "matmul", "conv2d", "add", "identify", "call_vectors", "equivalence", "translate_type", "lower", "onnx", "com", "qonnx", "onednn", "stablehlo", "quant", "litert", "torch", "tosa"]

@overload
def explain_quantize(

    input: ArrayLike,
    output_type: str | Type,
    *,
    input_type: str | Type | None = ...,
    profile: str = ...,
    rounding: str | None = ...,
    nan: Literal['profile', 'error', 'lowest', 'zero_point'] = ...,
    seed: int = ...,
    random_bits: int | None = ...,
    saturate: bool | None = ...,
    calibration: Mapping[str, Any] | None = ...,
    error: bool = ...,
    return_report: Literal[False] = ...,
) -> NDArray[Any]:
    """Quantize a tensor, and return every arithmetic step of each element.

    A tensor to quantize, or to cast to a narrower float.

    input: The real tensor.
    input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
    output_type: MLIR text. A bare element type takes its shape from the input. A float of at most 16 bits is a cast.
    `!quant.any` and `!quant.calibrated` leave the scales to be derived.
    profile: The arithmetic contract.
    rounding: Replaces the profile's rounding.
    nan: The result of NaN. One of profile, error, lowest, zero_point.
    seed: Seed of stochastic rounding.
    random_bits: How many random bits stochastic rounding to a float takes. Default: 32.
    saturate: Whether values beyond the largest value of a float saturate to it. Only for profiles whose `casts` offer
    the choice, which say what their default is.
    calibration: How to derive the scales that output_type leaves open. Default: method min_max. Members: symmetric,
    narrow, reduced, power_of_two, preserve_sparsity, minimum_real_range, epsilon, method, scheme, granularity, axis,
    block_sizes, averaging_constant, percentile, magnitudes, bins, quantized_bins, first_bins, candidates, profile,
    storage.
    error: Whether to report the error against the input.
    return_report: also return the report, a dictionary.

    Source: the systems that the profiles are named after.
    """

@overload
def explain_quantize(

    input: ArrayLike,
    output_type: str | Type,
    *,
    input_type: str | Type | None = ...,
    profile: str = ...,
    rounding: str | None = ...,
    nan: Literal['profile', 'error', 'lowest', 'zero_point'] = ...,
    seed: int = ...,
    random_bits: int | None = ...,
    saturate: bool | None = ...,
    calibration: Mapping[str, Any] | None = ...,
    error: bool = ...,
    return_report: Literal[True],
) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

@overload
def explain_dequantize(

    input: ArrayLike,
    *,
    input_type: str | Type | None = ...,
    output_type: str | Type | None = ...,
    profile: str = ...,
    return_report: Literal[False] = ...,
) -> NDArray[Any]:
    """Dequantize a tensor, and return every arithmetic step of each element.

    A quantized tensor, or floats of at most 16 bits, to dequantize.

    input: Stored numbers, or floats of at most 16 bits.
    input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
    output_type: MLIR text. A bare element type takes its shape from the input. Default: the expressed type of the
    input, or f32.
    profile: The arithmetic contract.
    return_report: also return the report, a dictionary.

    Source: the systems that the profiles are named after.
    """

@overload
def explain_dequantize(

    input: ArrayLike,
    *,
    input_type: str | Type | None = ...,
    output_type: str | Type | None = ...,
    profile: str = ...,
    return_report: Literal[True],
) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

@overload
def explain_requantize(

    input: ArrayLike,
    output_type: str | Type,
    *,
    multipliers: ArrayLike | None = ...,
    shifts: ArrayLike | None = ...,
    input_type: str | Type | None = ...,
    profile: str = ...,
    scheme: str | None = ...,
    axis: int | None = ...,
    return_report: Literal[False] = ...,
) -> NDArray[Any]:
    """Requantize a tensor, and return every arithmetic step of each element.

    Quantized values or accumulators to requantize.

    input: Quantized values or accumulators.
    multipliers: In the scheme's convention: one, or one per channel. Or records of both: (multiplier, shift).
    shifts: One per multiplier.
    input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
    output_type: MLIR text. A bare element type takes its shape from the input.
    profile: The arithmetic contract.
    scheme: Replaces the profile's scheme; accepts all integer types.
    axis: The dimension of several multipliers, if no type states it.
    return_report: also return the report, a dictionary.

    Source: the systems that the profiles and schemes are named after.
    """

@overload
def explain_requantize(

    input: ArrayLike,
    output_type: str | Type,
    *,
    multipliers: ArrayLike | None = ...,
    shifts: ArrayLike | None = ...,
    input_type: str | Type | None = ...,
    profile: str = ...,
    scheme: str | None = ...,
    axis: int | None = ...,
    return_report: Literal[True],
) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

def vectors(
    operation: str,
    input_type: str,
    *,
    multipliers: ArrayLike | None = ...,
    shifts: ArrayLike | None = ...,
    output_type: str | None = ...,
    profile: str | None = ...,
    scheme: str | None = ...,
    rounding: str | None = ...,
    nan: Literal['profile', 'error', 'lowest', 'zero_point'] | None = ...,
    saturate: bool | None = ...,
    input_zp: int | None = ...,
    output_zp: int | None = ...,
    scale32: bool | None = ...,
    rounding_mode: Literal['SINGLE_ROUND', 'DOUBLE_ROUND', 'INEXACT_ROUND'] | None = ...,
    seed: int = ...,
    count: int = ...,
    format: Literal['json', 'npz', 'c_header', 'readmemh'] = ...,
) -> dict[str, Any] | str | bytes:
    """Inputs worth testing, each with the expected bits, the intermediate steps and the reasons for its selection.

    An operation, its types, and the options of its arithmetic.

    multipliers: requantize and tosa.RESCALE: one per parameter set. Or records of both: (multiplier, shift).
    shifts: One per multiplier.
    operation: quantize, dequantize or requantize, or an operator by its full name: tosa.RESCALE, onnx.QuantizeLinear,
    onnx.DequantizeLinear and others; the error for an unknown name lists all.
    input_type: MLIR text of the element type. If it is a plain integer in place of a quantized type, the service
    generates the parameters.
    output_type: MLIR text of the element type of the result. Required unless the operation dequantizes.
    profile: Default: that of the operation.
    scheme: requantize: Replaces the profile's scheme; accepts all integer types.
    rounding: quantize: Replaces the profile's rounding. Not stochastic.
    nan: quantize: The result of NaN. Default: profile. One of profile, error, lowest, zero_point.
    saturate: quantize: Whether values beyond the largest value of a float saturate to it. Only for profiles whose
    `casts` offer the choice, which say what their default is.
    input_zp: tosa.RESCALE. Default: 0 if multipliers are given, else several values are generated.
    output_zp: tosa.RESCALE. Default: 0 if multipliers are given, else several values are generated.
    scale32: tosa.RESCALE: whether multipliers have 32 bits. Default: true.
    rounding_mode: tosa.RESCALE. Default: SINGLE_ROUND. One of SINGLE_ROUND, DOUBLE_ROUND, INEXACT_ROUND.
    seed: Seed of the random vectors and parameters.
    count: Maximum number of vectors.
    format: json returns this response. The other formats return a file: npz as application/octet-stream, c_header as
    text/x-c, readmemh, for SystemVerilog's $readmemh, as text/plain. One of json, npz, c_header, readmemh.

    Return a dictionary: operation, profile, input_element, expected_element, formula, parameter_sets, vectors, or with
    format npz or c_header or readmemh a file.

    Source: Requant (docs/vectors.md).
    """

def derive_multiplier(
    scheme: str,
    *,
    factors: ArrayLike | None = ...,
    input_scales: ArrayLike | None = ...,
    weight_scales: ArrayLike | None = ...,
    output_scales: ArrayLike | None = ...,
) -> dict[str, Any]:
    """Derive the integer multiplier and shift for each factor, and the value that they represent.

    Real factors, or the scales to compute them from.

    factors: Numbers, or strings in decimal or C99 hexadecimal. Each is read as the nearest binary64, ties to even; a
    number means the same as a string of the same characters.
    input_scales: Scales, from which the scheme computes factors in its own precision: one, or one each.
    weight_scales: Of the second operand of a product. Default: none.
    output_scales: One, or one a factor.
    scheme: The scheme to derive them by.

    Exactly one of factors and the scales is required, which are input_scales, output_scales, weight_scales.

    Return a dictionary: scheme, results.

    Source: the systems that the schemes are named after (docs/parameters.md).
    """

def quantize_blocks(
    input: ArrayLike,
    format: Literal['mxfp8_e4m3', 'mxfp8_e5m2', 'mxfp6_e2m3', 'mxfp6_e3m2', 'mxfp4_e2m1', 'mxint8', 'nvfp4', 'Q8_0', 'Q4_0', 'Q4_1', 'Q5_0', 'Q5_1'],
    *,
    input_type: str | Type | None = ...,
    rule: Literal['ocp', 'tosa', 'floor', 'ceil', 'even', 'rceil', 'torchao', 'compressed_tensors', 'model_optimizer', 'fouroversix', 'fouroversix_mae', 'fouroversix_abs_max', 'transformer_engine'] = ...,
    global_scale: str | float = ...,
) -> dict[str, Any]:
    """Quantize a tensor to a block format, deriving the shared scales.

    A tensor of real numbers (f32, f16 or bf16) and a block format.

    input: The real tensor.
    input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
    format: The block format. One of mxfp8_e4m3, mxfp8_e5m2, mxfp6_e2m3, mxfp6_e3m2, mxfp4_e2m1, mxint8, nvfp4, Q8_0,
    Q4_0, Q4_1, Q5_0, Q5_1.
    rule: Whose scales. MX formats: `ocp` to `rceil`, the rule for the shared exponent. nvfp4: `ocp` for divisions, or
    `torchao` to `transformer_engine`, whose number `global_scale` then is. GGUF: `ocp`. One of ocp, tosa, floor, ceil,
    even, rceil, torchao, compressed_tensors, model_optimizer, fouroversix, fouroversix_mae, fouroversix_abs_max,
    transformer_engine.
    global_scale: nvfp4 only: `derived` (the default: from the largest magnitude), `absent`, or a number, also as text.
    It is read as the nearest binary64, which is rounded to f32.

    Return a dictionary: format, elements, scales, blocks, global_scale.

    Source: OCP Microscaling Formats 1.0; NVIDIA NVFP4; ggml.
    """

def dequantize_blocks(
    format: Literal['mxfp8_e4m3', 'mxfp8_e5m2', 'mxfp6_e2m3', 'mxfp6_e3m2', 'mxfp4_e2m1', 'mxint8', 'nvfp4', 'Q8_0', 'Q4_0', 'Q4_1', 'Q5_0', 'Q5_1'],
    output_type: str | Type,
    *,
    elements: ArrayLike | None = ...,
    scales: ArrayLike | None = ...,
    blocks: ArrayLike | None = ...,
    global_scale: str | float | None = ...,
    rule: Literal['torchao', 'compressed_tensors', 'model_optimizer', 'fouroversix', 'fouroversix_mae', 'fouroversix_abs_max', 'transformer_engine'] | None = ...,
) -> NDArray[Any]:
    """Dequantize a tensor in a block format to f32.

    A tensor in a block format: elements and scales, or for GGUF the type of the result and its blocks.

    elements: Codes, one per byte; for mxint8 integers in units of 1/64 of the scale. Absent for GGUF.
    scales: One scale per block along the last axis: f8E8M0FNU, or f8E4M3FN for nvfp4. Absent for GGUF.
    blocks: GGUF only: the blocks as a GGUF file holds them, bytes along the last axis.
    format: The block format. One of mxfp8_e4m3, mxfp8_e5m2, mxfp6_e2m3, mxfp6_e3m2, mxfp4_e2m1, mxint8, nvfp4, Q8_0,
    Q4_0, Q4_1, Q5_0, Q5_1.
    output_type: The type of the result, such as tensor<4x64xf32>.
    global_scale: nvfp4 only: the tensor-level scale, a number or its text. Default: block scales only.
    rule: nvfp4 only: the library whose global scale it is. Default: real numbers are element * (scale * global scale).
    One of torchao, compressed_tensors, model_optimizer, fouroversix, fouroversix_mae, fouroversix_abs_max,
    transformer_engine.

    Source: OCP Microscaling Formats 1.0; NVIDIA NVFP4; ggml.
    """

@overload
def fake_quantize(

    input: ArrayLike,
    minimums: ArrayLike,
    maximums: ArrayLike,
    *,
    num_bits: int = ...,
    narrow_range: bool = ...,
    scheme: str = ...,
    axis: int | None = ...,
    return_report: Literal[False] = ...,
) -> NDArray[Any]:
    """Fake-quantize a tensor: round each element to the nearest step of a nudged range.

    An f32 tensor and its range, or one range per index of its last axis.

    input: The real tensor.
    minimums: The lower end of the range: one, or one per index of the axis.
    maximums: One per minimum.
    num_bits: The bit width of the quantized values.
    narrow_range: Do not use the lowest quantized value, so that the range is symmetric.
    scheme: Default: tf_fake_quant.
    axis: The last axis, if there are several ranges.
    return_report: also return the report, a dictionary.

    Source: TensorFlow fake_quant_ops_functor.h; LiteRT FakeQuantizeArray.
    """

@overload
def fake_quantize(

    input: ArrayLike,
    minimums: ArrayLike,
    maximums: ArrayLike,
    *,
    num_bits: int = ...,
    narrow_range: bool = ...,
    scheme: str = ...,
    axis: int | None = ...,
    return_report: Literal[True],
) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

def derive_from_range(
    minimums: ArrayLike,
    maximums: ArrayLike,
    storage: str,
    scheme: str,
    *,
    expressed: str = ...,
    symmetric: bool | None = ...,
    narrow: bool | None = ...,
    reduced: bool | None = ...,
    power_of_two: bool | None = ...,
    preserve_sparsity: bool | None = ...,
    minimum_real_range: float | None = ...,
    epsilon: float | None = ...,
    axis: int | None = ...,
    shape: Sequence[int] | None = ...,
    block_sizes: Sequence[int] | None = ...,
) -> dict[str, Any]:
    """Derive scale and zero point from a range, by the rule of a system.

    Ranges of real values: one, one per index of an axis, or one per block.

    minimums: One, or one per index of an axis, or one per block.
    maximums: One per minimum.
    storage: The storage type, with bounds if narrower: i8, u4, i8<-127:127>.
    scheme: The rule, named after its system.
    expressed: The expressed type of the resulting type.
    symmetric: A range of -m to m, with a fixed zero point.
    narrow: Do not use the lowest quantized value.
    reduced: Use the system's reduced range of quantized values.
    power_of_two: Round scales to powers of two.
    preserve_sparsity: FBGEMM's symmetric range.
    minimum_real_range: The minimum width of a range; narrower ranges are widened.
    epsilon: The smallest scale. Default: the system's.
    axis: The axis along which there is a range per index.
    shape: The shape of the tensor, for ranges of blocks.
    block_sizes: The size of a block along each dimension of the shape. The ranges are row-major over the blocks.

    Return a dictionary: scheme, storage, scales, zero_points, type, untyped, nudged_minimums, nudged_maximums.

    Source: the systems that the schemes are named after (docs/parameters.md).
    """

def derive_from_tensor(
    input: ArrayLike | Sequence[NDArray[Any]],
    storage: str,
    *,
    method: str = ...,
    scheme: str | None = ...,
    expressed: str | None = ...,
    symmetric: bool | None = ...,
    narrow: bool | None = ...,
    reduced: bool | None = ...,
    power_of_two: bool | None = ...,
    preserve_sparsity: bool | None = ...,
    minimum_real_range: float | None = ...,
    epsilon: float | None = ...,
    granularity: Literal['per_tensor', 'per_axis', 'sub_channel'] | None = ...,
    axis: int | None = ...,
    block_sizes: Sequence[int] | None = ...,
    averaging_constant: float | None = ...,
    percentile: float | None = ...,
    magnitudes: bool | None = ...,
    bins: int | None = ...,
    quantized_bins: int | None = ...,
    first_bins: int | None = ...,
    candidates: int | None = ...,
    profile: str | None = ...,
) -> dict[str, Any]:
    """Calibrate: find ranges in data by the method of a system, and derive scales and zero points.

    One tensor, or several in order of observation, and the calibration method.

    Not every option applies to every method; absent options take the method's defaults.

    input: One tensor, or several of one type in order of observation.
    storage: The storage type, with bounds if narrower: i8, u4, i8<-127:127>.
    method: Default: min_max.
    scheme: The range rule. Default: that of the method's system.
    expressed: The expressed type of the resulting type. Default: the input's.
    symmetric: A range of -m to m, with a fixed zero point.
    narrow: Do not use the lowest quantized value.
    reduced: Use the system's reduced range of quantized values.
    power_of_two: Round scales to powers of two.
    preserve_sparsity: FBGEMM's symmetric range.
    minimum_real_range: The minimum width of a range; narrower ranges are widened.
    epsilon: The smallest scale. Default: the system's.
    granularity: Default: per_axis with axis, sub_channel with block_sizes, else per_tensor. One of per_tensor,
    per_axis, sub_channel.
    axis: For per_axis: the axis.
    block_sizes: For sub_channel: the size of a block along each dimension. The ranges are row-major over the blocks,
    the last of which may be short.
    averaging_constant: For moving_average: the weight of a new tensor. Default: 0.01.
    percentile: For percentile: the percentage of elements that the range keeps. Default: 99.999.
    magnitudes: For percentile: use |x|, so that the range is symmetric.
    bins: Number of histogram bins. Default: 2048; for entropy 128.
    quantized_bins: For the entropy methods: the number of quantized bins. Default: 128.
    first_bins: For entropy_model_optimizer: number of bins of the smallest candidate. Default: 128.
    candidates: For mse: the number of candidate ranges. Default: 100.
    profile: For mse. Default: stablehlo.

    Return a dictionary: scheme, storage, scales, zero_points, type, untyped, method, minimums, maximums, left_out,
    nudged_minimums, nudged_maximums.

    Source: the systems that the methods and schemes are named after (docs/parameters.md).
    """

def derive_bias(
    input_scale: ArrayLike,
    weight_scales: ArrayLike,
    scheme: str,
    *,
    bias: ArrayLike | None = ...,
) -> dict[str, Any]:
    """Derive the scale of a bias from the scales of input and weights, and quantize the bias to int32.

    The scales of an input and of weights, and optionally the bias to quantize.

    input_scale: The scale of the input.
    weight_scales: One, or one per channel.
    bias: f32: any shape with one scale, else one element per channel.
    scheme: The rule, named after its system.

    Return a dictionary: scheme, scales, zero_points, type, untyped, output.

    Source: LiteRT SymmetricBiasQuantize; onnxruntime.quantization quantize_bias_static; torch QuantizeBias.
    """

@overload
def matmul(

    lhs: ArrayLike,
    rhs: ArrayLike,
    output_type: str | Type,
    *,
    bias: ArrayLike | None = ...,
    lhs_type: str | Type | None = ...,
    rhs_type: str | Type | None = ...,
    bias_type: str | Type | None = ...,
    profile: str = ...,
    scheme: str | None = ...,
    accumulator: Literal['i32', 'i64'] | None = ...,
    overflow: Literal['wrap', 'saturate', 'error'] | None = ...,
    trace: bool = ...,
    return_report: Literal[False] = ...,
) -> NDArray[Any]:
    """Multiply quantized matrices: accumulate, correct for zero points, add a bias, scale, add a zero point, clamp.

    A matrix product, [.., M, K] by [.., K, N]. Batch dimensions are broadcast.

    lhs: Quantized, or plain integers (zero point 0); storage of 2 to 16 bits.
    rhs: As lhs. Parameters may go along any dimension but K, such as N.
    bias: One number per column, added to its sums: plain integers at the scale of the sums, or quantized with zero
    point 0 and rescaled if the scales differ.
    lhs_type, rhs_type, bias_type: the types in MLIR syntax. Default: what the arrays are, without scales.
    output_type: MLIR text: a quantized type, whose storage bounds act as a fused activation, or i32 or i64 for the
    unscaled sums. A bare element type takes its shape from the operation.
    profile: The arithmetic contract.
    scheme: Replaces the profile's scheme.
    accumulator: The accumulator type of the products. Default: the type of a plain integer output; i64 with a plain
    64-bit bias; without a bias, i64 for operands of more than 8 bits, except for a matmul without batch dimensions in
    litert_xnnpack; else i32. One of i32, i64.
    overflow: What to do if a sum, including the bias, overflows i32. Default: as in the profile's system. One of wrap,
    saturate, error.
    trace: Whether to return every stage. Default: false.
    return_report: also return the report, a dictionary, whose `trace` has the stages.

    Source: ONNX MatMulInteger and QLinearMatMul; LiteRT FULLY_CONNECTED and BATCH_MATMUL.
    """

@overload
def matmul(

    lhs: ArrayLike,
    rhs: ArrayLike,
    output_type: str | Type,
    *,
    bias: ArrayLike | None = ...,
    lhs_type: str | Type | None = ...,
    rhs_type: str | Type | None = ...,
    bias_type: str | Type | None = ...,
    profile: str = ...,
    scheme: str | None = ...,
    accumulator: Literal['i32', 'i64'] | None = ...,
    overflow: Literal['wrap', 'saturate', 'error'] | None = ...,
    trace: bool = ...,
    return_report: Literal[True],
) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

@overload
def conv2d(

    input: ArrayLike,
    weights: ArrayLike,
    output_type: str | Type,
    *,
    bias: ArrayLike | None = ...,
    input_type: str | Type | None = ...,
    weights_type: str | Type | None = ...,
    bias_type: str | Type | None = ...,
    layout: Literal['NHWC', 'NCHW'] = ...,
    weights_layout: Literal['OHWI', 'HWIO', 'OIHW', 'IHWO'] | None = ...,
    strides: Sequence[int] | None = ...,
    dilations: Sequence[int] | None = ...,
    padding: Literal['explicit', 'valid', 'same_upper', 'same_lower'] = ...,
    pads: Sequence[int] | None = ...,
    groups: int = ...,
    profile: str = ...,
    scheme: str | None = ...,
    accumulator: Literal['i32', 'i64'] | None = ...,
    overflow: Literal['wrap', 'saturate', 'error'] | None = ...,
    trace: bool = ...,
    return_report: Literal[False] = ...,
) -> NDArray[Any]:
    """Convolve a quantized input with quantized weights. The stages are those of matmul.

    A 2-D convolution. Depthwise: as many groups as input channels.

    input: Quantized per tensor, or plain integers; storage of 2 to 16 bits.
    weights: Like the input, or quantized along the output channels.
    bias: One number per column, added to its sums: plain integers at the scale of the sums, or quantized with zero
    point 0 and rescaled if the scales differ.
    input_type, weights_type, bias_type: the types in MLIR syntax. Default: what the arrays are, without scales.
    output_type: MLIR text: a quantized type, whose storage bounds act as a fused activation, or i32 or i64 for the
    unscaled sums. A bare element type takes its shape from the operation.
    layout: The dimensions of input and output. One of NHWC, NCHW.
    weights_layout: The dimensions of the weights; I is the input channels of a group. Default: OHWI with NHWC, OIHW
    with NCHW. One of OHWI, HWIO, OIHW, IHWO.
    strides: Vertical and horizontal. Default: 1, 1.
    dilations: Vertical and horizontal. Default: 1, 1.
    padding: How the input is padded, with its zero point. same_upper is TensorFlow's SAME. One of explicit, valid,
    same_upper, same_lower.
    pads: Top, left, bottom, right, with explicit padding. Default: none.
    groups: The number of groups.
    profile: The arithmetic contract.
    scheme: Replaces the profile's scheme.
    accumulator: The accumulator type of the products. Default: the type of a plain integer output; i64 with a plain
    64-bit bias; without a bias, i64 for operands of more than 8 bits, except for a matmul without batch dimensions in
    litert_xnnpack; else i32. One of i32, i64.
    overflow: What to do if a sum, including the bias, overflows i32. Default: as in the profile's system. One of wrap,
    saturate, error.
    trace: Whether to return every stage. Default: false.
    return_report: also return the report, a dictionary, whose `trace` has the stages.

    Source: ONNX ConvInteger and QLinearConv; LiteRT CONV_2D and DEPTHWISE_CONV_2D.
    """

@overload
def conv2d(

    input: ArrayLike,
    weights: ArrayLike,
    output_type: str | Type,
    *,
    bias: ArrayLike | None = ...,
    input_type: str | Type | None = ...,
    weights_type: str | Type | None = ...,
    bias_type: str | Type | None = ...,
    layout: Literal['NHWC', 'NCHW'] = ...,
    weights_layout: Literal['OHWI', 'HWIO', 'OIHW', 'IHWO'] | None = ...,
    strides: Sequence[int] | None = ...,
    dilations: Sequence[int] | None = ...,
    padding: Literal['explicit', 'valid', 'same_upper', 'same_lower'] = ...,
    pads: Sequence[int] | None = ...,
    groups: int = ...,
    profile: str = ...,
    scheme: str | None = ...,
    accumulator: Literal['i32', 'i64'] | None = ...,
    overflow: Literal['wrap', 'saturate', 'error'] | None = ...,
    trace: bool = ...,
    return_report: Literal[True],
) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

@overload
def add(

    lhs: ArrayLike,
    rhs: ArrayLike,
    output_type: str | Type,
    *,
    lhs_type: str | Type | None = ...,
    rhs_type: str | Type | None = ...,
    profile: str = ...,
    trace: bool = ...,
    return_report: Literal[False] = ...,
) -> NDArray[Any]:
    """Add quantized tensors: rescale both to a common scale, add, and rescale the sum to the output.

    Two quantized tensors to add element by element, with broadcasting.

    lhs: Quantized, with storage of 2 to 16 bits.
    rhs: As lhs.
    lhs_type, rhs_type: the types in MLIR syntax. Default: what the arrays are, without scales.
    output_type: MLIR text: a quantized type. Its storage bounds act as a fused activation.
    profile: The arithmetic contract.
    trace: Whether to return every stage. Default: false.
    return_report: also return the report, a dictionary, whose `trace` has the stages.

    Source: LiteRT's and XNNPACK's ADD; StableHLO's passes stablehlo-legalize-quant-to-math and stablehlo-quant-
    legalize-to-tosa-rescale.
    """

@overload
def add(

    lhs: ArrayLike,
    rhs: ArrayLike,
    output_type: str | Type,
    *,
    lhs_type: str | Type | None = ...,
    rhs_type: str | Type | None = ...,
    profile: str = ...,
    trace: bool = ...,
    return_report: Literal[True],
) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

def identify(
    calls: Sequence[Mapping[str, Any]],
    *,
    suspects: Sequence[str] | None = ...,
    unknown_axis: int | None = ...,
    unknown_block_sizes: Sequence[int] | None = ...,
    derivations: bool | None = ...,
    files: Literal['npy', 'c_header', 'readmemh'] | None = ...,
    max_compute_seconds: float | None = ...,
) -> dict[str, Any]:
    """Find which rules give the observed outputs bit for bit, and which inputs tell those rules apart.

    Calls of operations, or of operators such as litert.MUL, with their inputs and observed outputs: the layers of a
    dump.

    calls: Calls, each without the options that are asked for. A type of !quant.any leaves scale and zero point open;
    plain integers without multipliers leave those open.
    suspects: Names of profiles, schemes, methods, formats, kernels; only they are tried. Default: all.
    unknown_axis: The dimension along which there are several unknown scales, or multipliers. Default: one.
    unknown_block_sizes: The size of a block along each dimension, if each block has an unknown scale.
    derivations: Whether to look for what derives the scales of calls of quantize from their inputs. Default: only of
    unknown scales.
    files: Give each tensor of `try_next` as a file, too: .npy as base64, a C array, or words for $readmemh, the latter
    with floats as their bits. One of npy, c_header, readmemh.
    max_compute_seconds: So many seconds of CPU are spent on trying candidates; `not_tried` lists those that are left.
    Default: no limit, or what a service has left of its own.

    Return a dictionary: elements, consistent, try_next, excluded, excluded_count, undefined, not_tried, parameters,
    derivations, patterns, readings, synthesized, warnings.

    Source: the systems that the profiles and schemes are named after.
    """

def call_vectors(
    calls: Sequence[Mapping[str, Any]],
    *,
    count: int = ...,
    seed: int = ...,
    files: Literal['npy', 'c_header', 'readmemh'] | None = ...,
) -> dict[str, Any]:
    """Whole tensors worth testing an operator or a product with, each call with the expected outputs, the stages of the
    arithmetic and the reasons for its selection.

    Calls of operations, or of operators such as litert.MUL: types, parameters, shapes and attributes stay as they are,
    the other tensors get new data in each vector.

    calls: Calls, whose own data are the first vectors.
    count: Maximum number of vectors of each call.
    seed: Seed of the data that are drawn.
    files: Give each tensor of the vectors as a file, too: .npy as base64, a C array, or words for $readmemh, the latter
    with floats as their bits. One of npy, c_header, readmemh.

    Return a dictionary: vectors.

    Source: Requant (docs/vectors.md).
    """

def equivalence(
    operation: Literal['quantize', 'dequantize', 'requantize', 'add'],
    *,
    multipliers: ArrayLike | None = ...,
    shifts: ArrayLike | None = ...,
    input_type: str | Type | None = ...,
    rhs_type: str | Type | None = ...,
    output_type: str | Type | None = ...,
    first: Mapping[str, Any] | None = ...,
    second: Mapping[str, Any] | None = ...,
    module: str | None = ...,
    function: str = ...,
    certificate: bool | None = ...,
    smt2: bool = ...,
) -> dict[str, Any]:
    """Decide whether two rules give the same for every input, with a certificate.

    An operation, and two rules for it: two profiles or schemes, or one and an MLIR function.

    multipliers: Multipliers for which two schemes are compared, in the convention of the first. Or records of both:
    (multiplier, shift).
    shifts: One per multiplier.
    operation: What both rules are of. One of quantize, dequantize, requantize, add.
    input_type: MLIR text of an element type, with its scale and zero point. Of an addition: that of both operands.
    rhs_type: Of an addition: that of the second operand, if it is another.
    output_type: MLIR text of an element type. Of a dequantization: default the expressed type, or f32.
    first: The first rule. Members: profile, scheme, rounding, nan, saturate, multiplier, shift, input_type, rhs_type,
    output_type.
    second: The second rule. Members: profile, scheme, rounding, nan, saturate, multiplier, shift, input_type, rhs_type,
    output_type.
    module: In the place of the second rule a function on single elements. MLIR text: functions, or one builtin.module
    of them, in the dialects builtin, func, arith, tensor, linalg, quant, shape, stablehlo, chlo and tosa.
    function: Of the module. Default: main, or the only function with a body.
    certificate: Whether to give the certificate. Default: if it has at most 1024 intervals.
    smt2: Whether to give the claim as SMT-LIB. Default: false.

    Exactly one of second and module is required.

    Return a dictionary: equal, inputs, differing, only_first, only_second, neither, sample, rules, decided,
    certificate, smt2, multipliers.

    Source: the systems that the profiles and schemes are named after (docs/certificates.md).
    """

def translate_type(
    *,
    type: str | Type | None = ...,
    onnx: Mapping[str, Any] | None = ...,
    onednn: Mapping[str, Any] | None = ...,
    litert: Mapping[str, Any] | None = ...,
    torch: Mapping[str, Any] | None = ...,
    tosa: Mapping[str, Any] | None = ...,
    shape: Sequence[int] | None = ...,
    rescale_to: str | Type | None = ...,
    systems: Sequence[Literal['mlir', 'stablehlo', 'onnx', 'onednn', 'litert', 'torch', 'tosa']] | None = ...,
) -> dict[str, Any]:
    """Translate a quantized type to the operands of other systems, or a system's operands to a type.

    A quantized type, or a system's operands for one, and the systems to translate to.

    type: MLIR text: !quant.uniform<...>, or a tensor of it.
    onnx: x_scale and x_zero_point of DequantizeLinear, which are y_scale and y_zero_point of QuantizeLinear. Members:
    x_type, scale_type, scale_shape, x_scale, x_zero_point, axis, block_size, output_dtype, opset.
    onednn: Attributes and tensors of oneDNN Graph's quantizing operators. Members: data_type, scales_type, qtype, axis,
    group_shape, scales_shape, scales, zps.
    litert: QuantizationParameters of a LiteRT tensor. Members: type, scale, zero_point, quantized_dimension.
    torch: Parameters of a torch tensor: of quantized_decomposed, and of an eager quantized tensor. Members: qscheme,
    dtype, quantized_dtype, quant_min, quant_max, scale, zero_point, axis.
    tosa: Zero points, and multipliers and shifts of a RESCALE. Zero points are numbers, not bit patterns. Members:
    input, input_type, input_unsigned, input_zp, output_type, output_unsigned, output_zp, multiplier, shift, scale32,
    per_channel.
    shape: With operands: the shape of the tensor, if known.
    rescale_to: MLIR text: the output type of TOSA's RESCALE, for multipliers and shifts.
    systems: The systems to translate to, each at most once. Default: all. Any of mlir, stablehlo, onnx, onednn, litert,
    torch, tosa.

    Exactly one of type, onnx, onednn, litert, torch, tosa is required.

    Return a dictionary: type, source, rounded, rounded_count, translations.

    Source: the systems themselves (docs/translation.md).
    """

def lower(
    module: str,
    *,
    passes: Sequence[str] = ...,
) -> dict[str, Any]:
    """Run passes on a module and print the result.

    A module and the passes to run.

    module: MLIR text: functions, or one builtin.module of them, in the dialects builtin, func, arith, tensor, linalg,
    quant, shape, stablehlo, chlo and tosa.
    passes: Passes by their upstream names, in order, each `name` or `name{option=value}`. If empty, the module is
    verified and printed.

    Return a dictionary: module.

    Source: MLIR, StableHLO.
    """

class _onnx:
    @staticmethod
    def QuantizeLinear(
        x: ArrayLike,
        y_scale: ArrayLike,
        y_zero_point: ArrayLike | None = ...,
        *,
        x_type: str | Type | None = ...,
        y_scale_type: str | Type | None = ...,
        y_zero_point_type: str | Type | None = ...,
        axis: int = ...,
        saturate: int = ...,
        block_size: int = ...,
        output_dtype: int = ...,
        precision: int = ...,
        opset: int = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Quantize to integers of 2 to 16 bits or to small floats: per tensor, per axis or blocked.

        x: The tensor to quantize.
        y_scale: One scale, or one per index of the axis or per block. Of the type of x at opset 19 to 22.
        y_zero_point: One zero point per scale, of the type of y. Default: 0, with y of type ui8 or output_dtype.
        x_type, y_scale_type, y_zero_point_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        axis: The dimension of x that the scales go along; negative values count from the end. Ignored with a single scale.
        saturate: 8-bit floats: whether overflow saturates to the largest value. Ignored for other types.
        block_size: Elements along the axis that share a scale; 0: not blocked.
        output_dtype: The type of y by its number in TensorProto, such as 3 for i8; 0: that of y_zero_point.
        precision: The type of x / y_scale by its number in TensorProto: 1 (f32), 10 (f16) or 16 (bf16); 0: unset.
        onnxruntime ignores it up to 1.31.
        opset: The version of the system's operators, 10 to 28.
        implementation: The implementation to match: onnxruntime's CPU provider up to 1.31, or since 1.32, which changed
        QuantizeLinear; or the ReferenceEvaluator of the onnx package.

        Source: ONNX operators, opset 10, 13, 19, 21, 23, 24, 25, 28; onnxruntime 1.31.1 and 1.32.0; onnx 1.23.2.
        """

    @staticmethod
    def DequantizeLinear(
        x: ArrayLike,
        x_scale: ArrayLike,
        x_zero_point: ArrayLike | None = ...,
        *,
        x_type: str | Type | None = ...,
        x_scale_type: str | Type | None = ...,
        x_zero_point_type: str | Type | None = ...,
        axis: int = ...,
        block_size: int = ...,
        output_dtype: int = ...,
        opset: int = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Dequantize integers of 2 to 32 bits or small floats: per tensor, per axis or blocked.

        x: The quantized tensor.
        x_scale: One scale, or one per index of the axis or per block.
        x_zero_point: One zero point per scale, of the type of x. Default: 0. Must be 0 for floats, and for i32 in
        onnxruntime.
        x_type, x_scale_type, x_zero_point_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        axis: The dimension of x that the scales go along; negative values count from the end. Ignored with a single scale.
        block_size: Elements along the axis that share a scale; 0: not blocked.
        output_dtype: The type of y by its number in TensorProto: 1 (f32), 10 (f16) or 16 (bf16); 0: that of x_scale.
        opset: The version of the system's operators, 10 to 28.
        implementation: The implementation to match: onnxruntime's CPU provider up to 1.31, or since 1.32, which changed
        QuantizeLinear; or the ReferenceEvaluator of the onnx package.

        Source: ONNX operators, opset 10, 13, 19, 21, 23, 24, 25, 28; onnxruntime 1.31.1 and 1.32.0; onnx 1.23.2.
        """

    @staticmethod
    def DynamicQuantizeLinear(
        x: ArrayLike,
        *,
        x_type: str | Type | None = ...,
        opset: int = ...,
        implementation: str = ...,
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Quantize to ui8 with a scale and zero point derived from the range of x.

        x: The tensor to quantize.
        x_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        opset: The version of the system's operators, 11 to 28.
        implementation: The implementation to match: onnxruntime's CPU provider up to 1.31, or since 1.32, which changed
        QuantizeLinear; or the ReferenceEvaluator of the onnx package.

        Source: ONNX operators, opset 11; onnxruntime 1.31.1 and 1.32.0; onnx 1.23.2.
        """

    @staticmethod
    def MatMulInteger(
        A: ArrayLike,
        B: ArrayLike,
        a_zero_point: ArrayLike | None = ...,
        b_zero_point: ArrayLike | None = ...,
        *,
        A_type: str | Type | None = ...,
        B_type: str | Type | None = ...,
        a_zero_point_type: str | Type | None = ...,
        b_zero_point_type: str | Type | None = ...,
        opset: int = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Integer matrix product with zero points, with numpy's matmul semantics, as i32.

        A: [.., M, K], or [K].
        B: [.., K, N], or [K].
        a_zero_point: One, or one per row ([M] or [.., M, 1]), of the type of A. Default: 0.
        b_zero_point: One, or one per column ([N] or [.., 1, N]), of the type of B. Default: 0.
        A_type, B_type, a_zero_point_type, b_zero_point_type: the types in MLIR syntax. Default: what the arrays are,
        without scales.
        opset: The version of the system's operators, 10 to 28.
        implementation: The implementation to match: onnxruntime's CPU provider up to 1.31, or since 1.32, which changed
        QuantizeLinear; or the ReferenceEvaluator of the onnx package.

        Source: ONNX operators, opset 10; onnxruntime 1.31.1 and 1.32.0; onnx 1.23.2.
        """

    @staticmethod
    def ConvInteger(
        x: ArrayLike,
        w: ArrayLike,
        x_zero_point: ArrayLike | None = ...,
        w_zero_point: ArrayLike | None = ...,
        *,
        x_type: str | Type | None = ...,
        w_type: str | Type | None = ...,
        x_zero_point_type: str | Type | None = ...,
        w_zero_point_type: str | Type | None = ...,
        auto_pad: str = ...,
        dilations: Sequence[int] | None = ...,
        group: int = ...,
        kernel_shape: Sequence[int] | None = ...,
        pads: Sequence[int] | None = ...,
        strides: Sequence[int] | None = ...,
        opset: int = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Integer convolution with zero points, in any number of spatial dimensions, as i32.

        x: [N, C, D1, .., Dn].
        w: [M, C / group, k1, .., kn].
        x_zero_point: One, of the type of x. Default: 0.
        w_zero_point: One, or one per output channel, of the type of w. Default: 0.
        x_type, w_type, x_zero_point_type, w_zero_point_type: the types in MLIR syntax. Default: what the arrays are,
        without scales.
        auto_pad: How x is padded with its zero point. SAME_UPPER and SAME_LOWER give ceil(D / stride), with odd padding at
        the end or at the beginning.
        dilations: Dilation along each spatial dimension. Default: 1.
        group: Number of channel groups.
        kernel_shape: Must equal the spatial dimensions of w, which are the default.
        pads: Padding at the beginning of each spatial dimension, then at the end of each; with auto_pad NOTSET only.
        Default: 0.
        strides: Stride along each spatial dimension. Default: 1.
        opset: The version of the system's operators, 10 to 28.
        implementation: The implementation to match: onnxruntime's CPU provider up to 1.31, or since 1.32, which changed
        QuantizeLinear; or the ReferenceEvaluator of the onnx package.

        Source: ONNX operators, opset 10; onnxruntime 1.31.1 and 1.32.0; onnx 1.23.2.
        """

    @staticmethod
    def QLinearMatMul(
        a: ArrayLike,
        a_scale: ArrayLike,
        a_zero_point: ArrayLike,
        b: ArrayLike,
        b_scale: ArrayLike,
        b_zero_point: ArrayLike,
        y_scale: ArrayLike,
        y_zero_point: ArrayLike,
        *,
        a_type: str | Type | None = ...,
        a_scale_type: str | Type | None = ...,
        a_zero_point_type: str | Type | None = ...,
        b_type: str | Type | None = ...,
        b_scale_type: str | Type | None = ...,
        b_zero_point_type: str | Type | None = ...,
        y_scale_type: str | Type | None = ...,
        y_zero_point_type: str | Type | None = ...,
        opset: int = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Quantized matrix product, with numpy's matmul semantics.

        a: [.., M, K], or [K].
        a_scale: One, or one for each row, [M] or [.., M, 1]. All scales have one type.
        a_zero_point: One, or one for each row, [M] or [.., M, 1]. Of the type of a.
        b: [.., K, N], or [K].
        b_scale: One, or one for each column, [N] or [.., 1, N]. All scales have one type.
        b_zero_point: One, or one for each column, [N] or [.., 1, N]. Of the type of b.
        y_scale: One.
        y_zero_point: One, of the type of y.
        a_type, a_scale_type, a_zero_point_type, b_type, b_scale_type, b_zero_point_type, y_scale_type, y_zero_point_type:
        the types in MLIR syntax. Default: what the arrays are, without scales.
        opset: The version of the system's operators, 10 to 28.
        implementation: The implementation to match: onnxruntime's CPU provider up to 1.31, or since 1.32, which changed
        QuantizeLinear; or the ReferenceEvaluator of the onnx package.

        Source: ONNX operators, opset 10, 21; onnxruntime 1.31.1 and 1.32.0; onnx 1.23.2.
        """

    @staticmethod
    def QLinearConv(
        x: ArrayLike,
        x_scale: ArrayLike,
        x_zero_point: ArrayLike,
        w: ArrayLike,
        w_scale: ArrayLike,
        w_zero_point: ArrayLike,
        y_scale: ArrayLike,
        y_zero_point: ArrayLike,
        B: ArrayLike | None = ...,
        *,
        x_type: str | Type | None = ...,
        x_scale_type: str | Type | None = ...,
        x_zero_point_type: str | Type | None = ...,
        w_type: str | Type | None = ...,
        w_scale_type: str | Type | None = ...,
        w_zero_point_type: str | Type | None = ...,
        y_scale_type: str | Type | None = ...,
        y_zero_point_type: str | Type | None = ...,
        B_type: str | Type | None = ...,
        auto_pad: str = ...,
        dilations: Sequence[int] | None = ...,
        group: int = ...,
        kernel_shape: Sequence[int] | None = ...,
        pads: Sequence[int] | None = ...,
        strides: Sequence[int] | None = ...,
        opset: int = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Quantized convolution with an optional bias, in any number of spatial dimensions.

        x: [N, C, D1, .., Dn].
        x_scale: One.
        x_zero_point: One, of the type of x.
        w: [M, C / group, k1, .., kn].
        w_scale: One, or one for each output channel.
        w_zero_point: One, or one for each output channel, of the type of w.
        y_scale: One.
        y_zero_point: One, of the type of y.
        B: One element per output channel, with scale x_scale * w_scale and zero point 0.
        x_type, x_scale_type, x_zero_point_type, w_type, w_scale_type, w_zero_point_type, y_scale_type, y_zero_point_type,
        B_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        auto_pad: How x is padded with its zero point. SAME_UPPER and SAME_LOWER give ceil(D / stride), with odd padding at
        the end or at the beginning.
        dilations: Dilation along each spatial dimension. Default: 1.
        group: Number of channel groups.
        kernel_shape: Must equal the spatial dimensions of w, which are the default.
        pads: Padding at the beginning of each spatial dimension, then at the end of each; with auto_pad NOTSET only.
        Default: 0.
        strides: Stride along each spatial dimension. Default: 1.
        opset: The version of the system's operators, 10 to 28.
        implementation: The implementation to match: onnxruntime's CPU provider up to 1.31, or since 1.32, which changed
        QuantizeLinear; or the ReferenceEvaluator of the onnx package.

        Source: ONNX operators, opset 10; onnxruntime 1.31.1 and 1.32.0; onnx 1.23.2.
        """

onnx: _onnx

class _com:
    class _microsoft:
        @overload
        @staticmethod
        def QLinearAdd(

            A: ArrayLike,
            A_scale: ArrayLike,
            B: ArrayLike,
            B_scale: ArrayLike,
            C_scale: ArrayLike,
            A_zero_point: ArrayLike | None = ...,
            B_zero_point: ArrayLike | None = ...,
            C_zero_point: ArrayLike | None = ...,
            *,
            A_type: str | Type | None = ...,
            A_scale_type: str | Type | None = ...,
            A_zero_point_type: str | Type | None = ...,
            B_type: str | Type | None = ...,
            B_scale_type: str | Type | None = ...,
            B_zero_point_type: str | Type | None = ...,
            C_scale_type: str | Type | None = ...,
            C_zero_point_type: str | Type | None = ...,
            kernel: str = ...,
            trace: bool = ...,
            implementation: str = ...,
            return_report: Literal[False] = ...,
        ) -> NDArray[Any]:
            """Add quantized tensors in f32, with broadcasting.

            A: The first operand.
            A_scale: One.
            A_zero_point: One, of the type of A. Default: 0.
            B: The second, of the type of A. Shapes are broadcast as numpy does.
            B_scale: One.
            B_zero_point: One, of the type of B. Default: 0.
            C_scale: One.
            C_zero_point: One, of the type of A. Default: 0.
            A_type, A_scale_type, A_zero_point_type, B_type, B_scale_type, B_zero_point_type, C_scale_type, C_zero_point_type:
            the types in MLIR syntax. Default: what the arrays are, without scales.
            kernel: The kernel of mlas to follow.
            trace: Also give the stages of the computation. Not an attribute of the system.
            implementation: onnxruntime's CPU provider up to 1.31, or since 1.32, which divides in f64 in QLinearSoftmax.
            return_report: also return the report, a dictionary, whose `trace` has the stages.

            Source: onnxruntime 1.31.1 and 1.32.0, ContribOperators.md and mlas.
            """

        @overload
        @staticmethod
        def QLinearAdd(

            A: ArrayLike,
            A_scale: ArrayLike,
            B: ArrayLike,
            B_scale: ArrayLike,
            C_scale: ArrayLike,
            A_zero_point: ArrayLike | None = ...,
            B_zero_point: ArrayLike | None = ...,
            C_zero_point: ArrayLike | None = ...,
            *,
            A_type: str | Type | None = ...,
            A_scale_type: str | Type | None = ...,
            A_zero_point_type: str | Type | None = ...,
            B_type: str | Type | None = ...,
            B_scale_type: str | Type | None = ...,
            B_zero_point_type: str | Type | None = ...,
            C_scale_type: str | Type | None = ...,
            C_zero_point_type: str | Type | None = ...,
            kernel: str = ...,
            trace: bool = ...,
            implementation: str = ...,
            return_report: Literal[True],
        ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

        @overload
        @staticmethod
        def QLinearMul(

            A: ArrayLike,
            A_scale: ArrayLike,
            B: ArrayLike,
            B_scale: ArrayLike,
            C_scale: ArrayLike,
            A_zero_point: ArrayLike | None = ...,
            B_zero_point: ArrayLike | None = ...,
            C_zero_point: ArrayLike | None = ...,
            *,
            A_type: str | Type | None = ...,
            A_scale_type: str | Type | None = ...,
            A_zero_point_type: str | Type | None = ...,
            B_type: str | Type | None = ...,
            B_scale_type: str | Type | None = ...,
            B_zero_point_type: str | Type | None = ...,
            C_scale_type: str | Type | None = ...,
            C_zero_point_type: str | Type | None = ...,
            trace: bool = ...,
            implementation: str = ...,
            return_report: Literal[False] = ...,
        ) -> NDArray[Any]:
            """Multiply quantized tensors element by element, with broadcasting.

            A: The first operand.
            A_scale: One.
            A_zero_point: One, of the type of A. Default: 0.
            B: The second, of the type of A. Shapes are broadcast as numpy does.
            B_scale: One.
            B_zero_point: One, of the type of B. Default: 0.
            C_scale: One.
            C_zero_point: One, of the type of A. Default: 0.
            A_type, A_scale_type, A_zero_point_type, B_type, B_scale_type, B_zero_point_type, C_scale_type, C_zero_point_type:
            the types in MLIR syntax. Default: what the arrays are, without scales.
            trace: Also give the stages of the computation. Not an attribute of the system.
            implementation: onnxruntime's CPU provider up to 1.31, or since 1.32, which divides in f64 in QLinearSoftmax.
            return_report: also return the report, a dictionary, whose `trace` has the stages.

            Source: onnxruntime 1.31.1 and 1.32.0, ContribOperators.md and mlas.
            """

        @overload
        @staticmethod
        def QLinearMul(

            A: ArrayLike,
            A_scale: ArrayLike,
            B: ArrayLike,
            B_scale: ArrayLike,
            C_scale: ArrayLike,
            A_zero_point: ArrayLike | None = ...,
            B_zero_point: ArrayLike | None = ...,
            C_zero_point: ArrayLike | None = ...,
            *,
            A_type: str | Type | None = ...,
            A_scale_type: str | Type | None = ...,
            A_zero_point_type: str | Type | None = ...,
            B_type: str | Type | None = ...,
            B_scale_type: str | Type | None = ...,
            B_zero_point_type: str | Type | None = ...,
            C_scale_type: str | Type | None = ...,
            C_zero_point_type: str | Type | None = ...,
            trace: bool = ...,
            implementation: str = ...,
            return_report: Literal[True],
        ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

        @overload
        @staticmethod
        def QLinearSigmoid(

            X: ArrayLike,
            X_scale: ArrayLike,
            Y_scale: ArrayLike,
            X_zero_point: ArrayLike | None = ...,
            Y_zero_point: ArrayLike | None = ...,
            *,
            X_type: str | Type | None = ...,
            X_scale_type: str | Type | None = ...,
            X_zero_point_type: str | Type | None = ...,
            Y_scale_type: str | Type | None = ...,
            Y_zero_point_type: str | Type | None = ...,
            trace: bool = ...,
            implementation: str = ...,
            return_report: Literal[False] = ...,
        ) -> NDArray[Any]:
            """The logistic function of a quantized tensor.

            X: The tensor.
            X_scale: One.
            X_zero_point: One, of the type of X. Default: 0.
            Y_scale: One.
            Y_zero_point: One, of the type of X. Default: 0.
            X_type, X_scale_type, X_zero_point_type, Y_scale_type, Y_zero_point_type: the types in MLIR syntax. Default: what
            the arrays are, without scales.
            trace: Also give the stages of the computation. Not an attribute of the system.
            implementation: onnxruntime's CPU provider up to 1.31, or since 1.32, which divides in f64 in QLinearSoftmax.
            return_report: also return the report, a dictionary, whose `trace` has the stages.

            Source: onnxruntime 1.31.1 and 1.32.0, ContribOperators.md and mlas.
            """

        @overload
        @staticmethod
        def QLinearSigmoid(

            X: ArrayLike,
            X_scale: ArrayLike,
            Y_scale: ArrayLike,
            X_zero_point: ArrayLike | None = ...,
            Y_zero_point: ArrayLike | None = ...,
            *,
            X_type: str | Type | None = ...,
            X_scale_type: str | Type | None = ...,
            X_zero_point_type: str | Type | None = ...,
            Y_scale_type: str | Type | None = ...,
            Y_zero_point_type: str | Type | None = ...,
            trace: bool = ...,
            implementation: str = ...,
            return_report: Literal[True],
        ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

        @overload
        @staticmethod
        def QLinearLeakyRelu(

            X: ArrayLike,
            X_scale: ArrayLike,
            Y_scale: ArrayLike,
            X_zero_point: ArrayLike | None = ...,
            Y_zero_point: ArrayLike | None = ...,
            *,
            X_type: str | Type | None = ...,
            X_scale_type: str | Type | None = ...,
            X_zero_point_type: str | Type | None = ...,
            Y_scale_type: str | Type | None = ...,
            Y_zero_point_type: str | Type | None = ...,
            alpha: float = ...,
            trace: bool = ...,
            implementation: str = ...,
            return_report: Literal[False] = ...,
        ) -> NDArray[Any]:
            """A quantized tensor with its negative numbers multiplied by alpha.

            X: The tensor.
            X_scale: One.
            X_zero_point: One, of the type of X. Default: 0.
            Y_scale: One.
            Y_zero_point: One, of the type of X. Default: 0.
            X_type, X_scale_type, X_zero_point_type, Y_scale_type, Y_zero_point_type: the types in MLIR syntax. Default: what
            the arrays are, without scales.
            alpha: The factor of negative numbers, in f32.
            trace: Also give the stages of the computation. Not an attribute of the system.
            implementation: onnxruntime's CPU provider up to 1.31, or since 1.32, which divides in f64 in QLinearSoftmax.
            return_report: also return the report, a dictionary, whose `trace` has the stages.

            Source: onnxruntime 1.31.1 and 1.32.0, ContribOperators.md and mlas.
            """

        @overload
        @staticmethod
        def QLinearLeakyRelu(

            X: ArrayLike,
            X_scale: ArrayLike,
            Y_scale: ArrayLike,
            X_zero_point: ArrayLike | None = ...,
            Y_zero_point: ArrayLike | None = ...,
            *,
            X_type: str | Type | None = ...,
            X_scale_type: str | Type | None = ...,
            X_zero_point_type: str | Type | None = ...,
            Y_scale_type: str | Type | None = ...,
            Y_zero_point_type: str | Type | None = ...,
            alpha: float = ...,
            trace: bool = ...,
            implementation: str = ...,
            return_report: Literal[True],
        ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

        @overload
        @staticmethod
        def QLinearConcat(

            Y_scale: ArrayLike,
            Y_zero_point: ArrayLike,
            X_0: ArrayLike,
            X_0_scale: ArrayLike,
            X_0_zero_point: ArrayLike,
            axis: int,
            *,
            X_1: ArrayLike | None = ...,
            X_1_scale: ArrayLike | None = ...,
            X_1_zero_point: ArrayLike | None = ...,
            X_2: ArrayLike | None = ...,
            X_2_scale: ArrayLike | None = ...,
            X_2_zero_point: ArrayLike | None = ...,
            X_3: ArrayLike | None = ...,
            X_3_scale: ArrayLike | None = ...,
            X_3_zero_point: ArrayLike | None = ...,
            X_4: ArrayLike | None = ...,
            X_4_scale: ArrayLike | None = ...,
            X_4_zero_point: ArrayLike | None = ...,
            X_5: ArrayLike | None = ...,
            X_5_scale: ArrayLike | None = ...,
            X_5_zero_point: ArrayLike | None = ...,
            X_6: ArrayLike | None = ...,
            X_6_scale: ArrayLike | None = ...,
            X_6_zero_point: ArrayLike | None = ...,
            X_7: ArrayLike | None = ...,
            X_7_scale: ArrayLike | None = ...,
            X_7_zero_point: ArrayLike | None = ...,
            Y_scale_type: str | Type | None = ...,
            Y_zero_point_type: str | Type | None = ...,
            X_0_type: str | Type | None = ...,
            X_0_scale_type: str | Type | None = ...,
            X_0_zero_point_type: str | Type | None = ...,
            X_1_type: str | Type | None = ...,
            X_1_scale_type: str | Type | None = ...,
            X_1_zero_point_type: str | Type | None = ...,
            X_2_type: str | Type | None = ...,
            X_2_scale_type: str | Type | None = ...,
            X_2_zero_point_type: str | Type | None = ...,
            X_3_type: str | Type | None = ...,
            X_3_scale_type: str | Type | None = ...,
            X_3_zero_point_type: str | Type | None = ...,
            X_4_type: str | Type | None = ...,
            X_4_scale_type: str | Type | None = ...,
            X_4_zero_point_type: str | Type | None = ...,
            X_5_type: str | Type | None = ...,
            X_5_scale_type: str | Type | None = ...,
            X_5_zero_point_type: str | Type | None = ...,
            X_6_type: str | Type | None = ...,
            X_6_scale_type: str | Type | None = ...,
            X_6_zero_point_type: str | Type | None = ...,
            X_7_type: str | Type | None = ...,
            X_7_scale_type: str | Type | None = ...,
            X_7_zero_point_type: str | Type | None = ...,
            trace: bool = ...,
            implementation: str = ...,
            return_report: Literal[False] = ...,
        ) -> NDArray[Any]:
            """Join up to 8 quantized tensors along an axis, requantized to one scale and zero point.

            Y_scale: One.
            Y_zero_point: One, of the type of all tensors.
            X_0: Tensor 0.
            X_0_scale: One, of tensor 0.
            X_0_zero_point: One, of tensor 0.
            X_1: Tensor 1.
            X_1_scale: One, of tensor 1.
            X_1_zero_point: One, of tensor 1.
            X_2: Tensor 2.
            X_2_scale: One, of tensor 2.
            X_2_zero_point: One, of tensor 2.
            X_3: Tensor 3.
            X_3_scale: One, of tensor 3.
            X_3_zero_point: One, of tensor 3.
            X_4: Tensor 4.
            X_4_scale: One, of tensor 4.
            X_4_zero_point: One, of tensor 4.
            X_5: Tensor 5.
            X_5_scale: One, of tensor 5.
            X_5_zero_point: One, of tensor 5.
            X_6: Tensor 6.
            X_6_scale: One, of tensor 6.
            X_6_zero_point: One, of tensor 6.
            X_7: Tensor 7.
            X_7_scale: One, of tensor 7.
            X_7_zero_point: One, of tensor 7.
            Y_scale_type, Y_zero_point_type, X_0_type, X_0_scale_type, X_0_zero_point_type, X_1_type, X_1_scale_type,
            X_1_zero_point_type, X_2_type, X_2_scale_type, X_2_zero_point_type, X_3_type, X_3_scale_type, X_3_zero_point_type,
            X_4_type, X_4_scale_type, X_4_zero_point_type, X_5_type, X_5_scale_type, X_5_zero_point_type, X_6_type,
            X_6_scale_type, X_6_zero_point_type, X_7_type, X_7_scale_type, X_7_zero_point_type: the types in MLIR syntax.
            Default: what the arrays are, without scales.
            axis: The dimension; negative values count from the end.
            trace: Also give the stages of the computation. Not an attribute of the system.
            implementation: onnxruntime's CPU provider up to 1.31, or since 1.32, which divides in f64 in QLinearSoftmax.
            return_report: also return the report, a dictionary, whose `trace` has the stages.

            Source: onnxruntime 1.31.1 and 1.32.0, ContribOperators.md and mlas.
            """

        @overload
        @staticmethod
        def QLinearConcat(

            Y_scale: ArrayLike,
            Y_zero_point: ArrayLike,
            X_0: ArrayLike,
            X_0_scale: ArrayLike,
            X_0_zero_point: ArrayLike,
            axis: int,
            *,
            X_1: ArrayLike | None = ...,
            X_1_scale: ArrayLike | None = ...,
            X_1_zero_point: ArrayLike | None = ...,
            X_2: ArrayLike | None = ...,
            X_2_scale: ArrayLike | None = ...,
            X_2_zero_point: ArrayLike | None = ...,
            X_3: ArrayLike | None = ...,
            X_3_scale: ArrayLike | None = ...,
            X_3_zero_point: ArrayLike | None = ...,
            X_4: ArrayLike | None = ...,
            X_4_scale: ArrayLike | None = ...,
            X_4_zero_point: ArrayLike | None = ...,
            X_5: ArrayLike | None = ...,
            X_5_scale: ArrayLike | None = ...,
            X_5_zero_point: ArrayLike | None = ...,
            X_6: ArrayLike | None = ...,
            X_6_scale: ArrayLike | None = ...,
            X_6_zero_point: ArrayLike | None = ...,
            X_7: ArrayLike | None = ...,
            X_7_scale: ArrayLike | None = ...,
            X_7_zero_point: ArrayLike | None = ...,
            Y_scale_type: str | Type | None = ...,
            Y_zero_point_type: str | Type | None = ...,
            X_0_type: str | Type | None = ...,
            X_0_scale_type: str | Type | None = ...,
            X_0_zero_point_type: str | Type | None = ...,
            X_1_type: str | Type | None = ...,
            X_1_scale_type: str | Type | None = ...,
            X_1_zero_point_type: str | Type | None = ...,
            X_2_type: str | Type | None = ...,
            X_2_scale_type: str | Type | None = ...,
            X_2_zero_point_type: str | Type | None = ...,
            X_3_type: str | Type | None = ...,
            X_3_scale_type: str | Type | None = ...,
            X_3_zero_point_type: str | Type | None = ...,
            X_4_type: str | Type | None = ...,
            X_4_scale_type: str | Type | None = ...,
            X_4_zero_point_type: str | Type | None = ...,
            X_5_type: str | Type | None = ...,
            X_5_scale_type: str | Type | None = ...,
            X_5_zero_point_type: str | Type | None = ...,
            X_6_type: str | Type | None = ...,
            X_6_scale_type: str | Type | None = ...,
            X_6_zero_point_type: str | Type | None = ...,
            X_7_type: str | Type | None = ...,
            X_7_scale_type: str | Type | None = ...,
            X_7_zero_point_type: str | Type | None = ...,
            trace: bool = ...,
            implementation: str = ...,
            return_report: Literal[True],
        ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

        @overload
        @staticmethod
        def QLinearWhere(

            condition: ArrayLike,
            X: ArrayLike,
            x_scale: ArrayLike,
            x_zero_point: ArrayLike,
            Y: ArrayLike,
            y_scale: ArrayLike,
            y_zero_point: ArrayLike,
            z_scale: ArrayLike,
            z_zero_point: ArrayLike,
            *,
            condition_type: str | Type | None = ...,
            X_type: str | Type | None = ...,
            x_scale_type: str | Type | None = ...,
            x_zero_point_type: str | Type | None = ...,
            Y_type: str | Type | None = ...,
            y_scale_type: str | Type | None = ...,
            y_zero_point_type: str | Type | None = ...,
            z_scale_type: str | Type | None = ...,
            z_zero_point_type: str | Type | None = ...,
            trace: bool = ...,
            implementation: str = ...,
            return_report: Literal[False] = ...,
        ) -> NDArray[Any]:
            """Elements of one or the other of two quantized tensors, requantized to one scale and zero point.

            condition: Whether to take X. Shapes are broadcast as numpy does.
            X: The tensor.
            x_scale: One.
            x_zero_point: One, of the type of X.
            Y: The other tensor, of the type of X.
            y_scale: One.
            y_zero_point: One, of the type of X.
            z_scale: One.
            z_zero_point: One, of the type of X.
            condition_type, X_type, x_scale_type, x_zero_point_type, Y_type, y_scale_type, y_zero_point_type, z_scale_type,
            z_zero_point_type: the types in MLIR syntax. Default: what the arrays are, without scales.
            trace: Also give the stages of the computation. Not an attribute of the system.
            implementation: onnxruntime's CPU provider up to 1.31, or since 1.32, which divides in f64 in QLinearSoftmax.
            return_report: also return the report, a dictionary, whose `trace` has the stages.

            Source: onnxruntime 1.31.1 and 1.32.0, ContribOperators.md and mlas.
            """

        @overload
        @staticmethod
        def QLinearWhere(

            condition: ArrayLike,
            X: ArrayLike,
            x_scale: ArrayLike,
            x_zero_point: ArrayLike,
            Y: ArrayLike,
            y_scale: ArrayLike,
            y_zero_point: ArrayLike,
            z_scale: ArrayLike,
            z_zero_point: ArrayLike,
            *,
            condition_type: str | Type | None = ...,
            X_type: str | Type | None = ...,
            x_scale_type: str | Type | None = ...,
            x_zero_point_type: str | Type | None = ...,
            Y_type: str | Type | None = ...,
            y_scale_type: str | Type | None = ...,
            y_zero_point_type: str | Type | None = ...,
            z_scale_type: str | Type | None = ...,
            z_zero_point_type: str | Type | None = ...,
            trace: bool = ...,
            implementation: str = ...,
            return_report: Literal[True],
        ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

        @overload
        @staticmethod
        def QLinearGlobalAveragePool(

            X: ArrayLike,
            x_scale: ArrayLike,
            y_scale: ArrayLike,
            x_zero_point: ArrayLike | None = ...,
            y_zero_point: ArrayLike | None = ...,
            *,
            X_type: str | Type | None = ...,
            x_scale_type: str | Type | None = ...,
            x_zero_point_type: str | Type | None = ...,
            y_scale_type: str | Type | None = ...,
            y_zero_point_type: str | Type | None = ...,
            channels_last: int = ...,
            trace: bool = ...,
            implementation: str = ...,
            return_report: Literal[False] = ...,
        ) -> NDArray[Any]:
            """The mean of each channel of a quantized tensor.

            X: [N, C, D1, .., Dn], or with channels_last [N, D1, .., Dn, C].
            x_scale: One.
            x_zero_point: One, of the type of X. Default: 0.
            y_scale: One.
            y_zero_point: One, of the type of X. Default: 0.
            X_type, x_scale_type, x_zero_point_type, y_scale_type, y_zero_point_type: the types in MLIR syntax. Default: what
            the arrays are, without scales.
            channels_last: 1: the channels are the last dimension of X and Y.
            trace: Also give the stages of the computation. Not an attribute of the system.
            implementation: onnxruntime's CPU provider up to 1.31, or since 1.32, which divides in f64 in QLinearSoftmax.
            return_report: also return the report, a dictionary, whose `trace` has the stages.

            Source: onnxruntime 1.31.1 and 1.32.0, ContribOperators.md and mlas.
            """

        @overload
        @staticmethod
        def QLinearGlobalAveragePool(

            X: ArrayLike,
            x_scale: ArrayLike,
            y_scale: ArrayLike,
            x_zero_point: ArrayLike | None = ...,
            y_zero_point: ArrayLike | None = ...,
            *,
            X_type: str | Type | None = ...,
            x_scale_type: str | Type | None = ...,
            x_zero_point_type: str | Type | None = ...,
            y_scale_type: str | Type | None = ...,
            y_zero_point_type: str | Type | None = ...,
            channels_last: int = ...,
            trace: bool = ...,
            implementation: str = ...,
            return_report: Literal[True],
        ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

        @overload
        @staticmethod
        def QLinearAveragePool(

            X: ArrayLike,
            x_scale: ArrayLike,
            y_scale: ArrayLike,
            kernel_shape: Sequence[int],
            *,
            x_zero_point: ArrayLike | None = ...,
            y_zero_point: ArrayLike | None = ...,
            X_type: str | Type | None = ...,
            x_scale_type: str | Type | None = ...,
            x_zero_point_type: str | Type | None = ...,
            y_scale_type: str | Type | None = ...,
            y_zero_point_type: str | Type | None = ...,
            auto_pad: str = ...,
            ceil_mode: int = ...,
            channels_last: int = ...,
            count_include_pad: int = ...,
            pads: Sequence[int] | None = ...,
            strides: Sequence[int] | None = ...,
            trace: bool = ...,
            implementation: str = ...,
            return_report: Literal[False] = ...,
        ) -> NDArray[Any]:
            """The means of the windows of a quantized tensor, in any number of spatial dimensions.

            X: [N, C, D1, .., Dn], or with channels_last [N, D1, .., Dn, C].
            x_scale: One.
            x_zero_point: One, of the type of X. Default: 0.
            y_scale: One.
            y_zero_point: One, of the type of X. Default: 0.
            X_type, x_scale_type, x_zero_point_type, y_scale_type, y_zero_point_type: the types in MLIR syntax. Default: what
            the arrays are, without scales.
            auto_pad: How x is padded with its zero point. SAME_UPPER and SAME_LOWER give ceil(D / stride), with odd padding at
            the end or at the beginning.
            ceil_mode: 1: the last window may reach beyond the padding.
            channels_last: 1: the channels are the last dimension of X and Y.
            count_include_pad: 1: padding counts as elements that are zero.
            kernel_shape: The window.
            pads: Padding at the beginning of each spatial dimension, then at the end of each; with auto_pad NOTSET only.
            Default: 0.
            strides: Stride along each spatial dimension. Default: 1.
            trace: Also give the stages of the computation. Not an attribute of the system.
            implementation: onnxruntime's CPU provider up to 1.31, or since 1.32, which divides in f64 in QLinearSoftmax.
            return_report: also return the report, a dictionary, whose `trace` has the stages.

            Source: onnxruntime 1.31.1 and 1.32.0, ContribOperators.md and mlas.
            """

        @overload
        @staticmethod
        def QLinearAveragePool(

            X: ArrayLike,
            x_scale: ArrayLike,
            y_scale: ArrayLike,
            kernel_shape: Sequence[int],
            *,
            x_zero_point: ArrayLike | None = ...,
            y_zero_point: ArrayLike | None = ...,
            X_type: str | Type | None = ...,
            x_scale_type: str | Type | None = ...,
            x_zero_point_type: str | Type | None = ...,
            y_scale_type: str | Type | None = ...,
            y_zero_point_type: str | Type | None = ...,
            auto_pad: str = ...,
            ceil_mode: int = ...,
            channels_last: int = ...,
            count_include_pad: int = ...,
            pads: Sequence[int] | None = ...,
            strides: Sequence[int] | None = ...,
            trace: bool = ...,
            implementation: str = ...,
            return_report: Literal[True],
        ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

        @overload
        @staticmethod
        def QLinearSoftmax(

            X: ArrayLike,
            X_scale: ArrayLike,
            y_scale: ArrayLike,
            y_zero_point: ArrayLike,
            opset: int,
            *,
            x_zero_point: ArrayLike | None = ...,
            X_type: str | Type | None = ...,
            X_scale_type: str | Type | None = ...,
            x_zero_point_type: str | Type | None = ...,
            y_scale_type: str | Type | None = ...,
            y_zero_point_type: str | Type | None = ...,
            axis: int = ...,
            trace: bool = ...,
            implementation: str = ...,
            return_report: Literal[False] = ...,
        ) -> NDArray[Any]:
            """Softmax of a quantized tensor along an axis, from a table of exponentials.

            X: The tensor.
            X_scale: One.
            x_zero_point: One, of the type of X. Default: 0.
            y_scale: One.
            y_zero_point: One, of the type of X.
            X_type, X_scale_type, x_zero_point_type, y_scale_type, y_zero_point_type: the types in MLIR syntax. Default: what
            the arrays are, without scales.
            axis: The reduced dimension, or the first of them with opset below 13.
            opset: The opset of the Softmax that it stands for; from 13 on it reduces one dimension.
            trace: Also give the stages of the computation. Not an attribute of the system.
            implementation: onnxruntime's CPU provider up to 1.31, or since 1.32, which divides in f64 in QLinearSoftmax.
            return_report: also return the report, a dictionary, whose `trace` has the stages.

            Source: onnxruntime 1.31.1 and 1.32.0, ContribOperators.md and mlas.
            """

        @overload
        @staticmethod
        def QLinearSoftmax(

            X: ArrayLike,
            X_scale: ArrayLike,
            y_scale: ArrayLike,
            y_zero_point: ArrayLike,
            opset: int,
            *,
            x_zero_point: ArrayLike | None = ...,
            X_type: str | Type | None = ...,
            X_scale_type: str | Type | None = ...,
            x_zero_point_type: str | Type | None = ...,
            y_scale_type: str | Type | None = ...,
            y_zero_point_type: str | Type | None = ...,
            axis: int = ...,
            trace: bool = ...,
            implementation: str = ...,
            return_report: Literal[True],
        ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

        @overload
        @staticmethod
        def QGemm(

            A: ArrayLike,
            a_scale: ArrayLike,
            a_zero_point: ArrayLike,
            B: ArrayLike,
            b_scale: ArrayLike,
            b_zero_point: ArrayLike,
            C: ArrayLike | None = ...,
            y_scale: ArrayLike | None = ...,
            y_zero_point: ArrayLike | None = ...,
            *,
            A_type: str | Type | None = ...,
            a_scale_type: str | Type | None = ...,
            a_zero_point_type: str | Type | None = ...,
            B_type: str | Type | None = ...,
            b_scale_type: str | Type | None = ...,
            b_zero_point_type: str | Type | None = ...,
            C_type: str | Type | None = ...,
            y_scale_type: str | Type | None = ...,
            y_zero_point_type: str | Type | None = ...,
            alpha: float = ...,
            transA: int = ...,
            transB: int = ...,
            trace: bool = ...,
            implementation: str = ...,
            return_report: Literal[False] = ...,
        ) -> NDArray[Any]:
            """Quantized matrix product, transposed or not, with an addend, as quantized or real numbers.

            A: [M, K], with transA [K, M].
            a_scale: One.
            a_zero_point: One, of the type of A.
            B: [K, N], with transB [N, K].
            b_scale: One, or one for each column.
            b_zero_point: One, or one for each column, of the type of B.
            C: What is added to the sums, of the shape of Y or broadcast to it.
            y_scale: One. Absent: Y is of f32.
            y_zero_point: One, of the type of Y.
            A_type, a_scale_type, a_zero_point_type, B_type, b_scale_type, b_zero_point_type, C_type, y_scale_type,
            y_zero_point_type: the types in MLIR syntax. Default: what the arrays are, without scales.
            alpha: A factor of the product, in f32.
            transA: 1: A is transposed.
            transB: 1: B is transposed.
            trace: Also give the stages of the computation. Not an attribute of the system.
            implementation: onnxruntime's CPU provider up to 1.31, or since 1.32, which divides in f64 in QLinearSoftmax.
            return_report: also return the report, a dictionary, whose `trace` has the stages.

            Source: onnxruntime 1.31.1 and 1.32.0, ContribOperators.md and mlas.
            """

        @overload
        @staticmethod
        def QGemm(

            A: ArrayLike,
            a_scale: ArrayLike,
            a_zero_point: ArrayLike,
            B: ArrayLike,
            b_scale: ArrayLike,
            b_zero_point: ArrayLike,
            C: ArrayLike | None = ...,
            y_scale: ArrayLike | None = ...,
            y_zero_point: ArrayLike | None = ...,
            *,
            A_type: str | Type | None = ...,
            a_scale_type: str | Type | None = ...,
            a_zero_point_type: str | Type | None = ...,
            B_type: str | Type | None = ...,
            b_scale_type: str | Type | None = ...,
            b_zero_point_type: str | Type | None = ...,
            C_type: str | Type | None = ...,
            y_scale_type: str | Type | None = ...,
            y_zero_point_type: str | Type | None = ...,
            alpha: float = ...,
            transA: int = ...,
            transB: int = ...,
            trace: bool = ...,
            implementation: str = ...,
            return_report: Literal[True],
        ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

        @overload
        @staticmethod
        def MatMulIntegerToFloat(

            A: ArrayLike,
            B: ArrayLike,
            a_scale: ArrayLike,
            b_scale: ArrayLike,
            a_zero_point: ArrayLike | None = ...,
            b_zero_point: ArrayLike | None = ...,
            bias: ArrayLike | None = ...,
            *,
            A_type: str | Type | None = ...,
            B_type: str | Type | None = ...,
            a_scale_type: str | Type | None = ...,
            b_scale_type: str | Type | None = ...,
            a_zero_point_type: str | Type | None = ...,
            b_zero_point_type: str | Type | None = ...,
            bias_type: str | Type | None = ...,
            kernel: str = ...,
            trace: bool = ...,
            implementation: str = ...,
            return_report: Literal[False] = ...,
        ) -> NDArray[Any]:
            """Quantized matrix product as real numbers, with an optional bias.

            A: [.., M, K], or [K].
            B: [.., K, N], or [K].
            a_scale: One.
            b_scale: One, or one for each column.
            a_zero_point: One, of the type of A. Default: 0.
            b_zero_point: One, or one for each column, of the type of B. Default: 0.
            bias: One for each column.
            A_type, B_type, a_scale_type, b_scale_type, a_zero_point_type, b_zero_point_type, bias_type: the types in MLIR
            syntax. Default: what the arrays are, without scales.
            kernel: The kernel of mlas to follow.
            trace: Also give the stages of the computation. Not an attribute of the system.
            implementation: onnxruntime's CPU provider up to 1.31, or since 1.32, which divides in f64 in QLinearSoftmax.
            return_report: also return the report, a dictionary, whose `trace` has the stages.

            Source: onnxruntime 1.31.1 and 1.32.0, ContribOperators.md and mlas.
            """

        @overload
        @staticmethod
        def MatMulIntegerToFloat(

            A: ArrayLike,
            B: ArrayLike,
            a_scale: ArrayLike,
            b_scale: ArrayLike,
            a_zero_point: ArrayLike | None = ...,
            b_zero_point: ArrayLike | None = ...,
            bias: ArrayLike | None = ...,
            *,
            A_type: str | Type | None = ...,
            B_type: str | Type | None = ...,
            a_scale_type: str | Type | None = ...,
            b_scale_type: str | Type | None = ...,
            a_zero_point_type: str | Type | None = ...,
            b_zero_point_type: str | Type | None = ...,
            bias_type: str | Type | None = ...,
            kernel: str = ...,
            trace: bool = ...,
            implementation: str = ...,
            return_report: Literal[True],
        ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

        @overload
        @staticmethod
        def DynamicQuantizeMatMul(

            A: ArrayLike,
            B: ArrayLike,
            b_scale: ArrayLike,
            b_zero_point: ArrayLike | None = ...,
            bias: ArrayLike | None = ...,
            *,
            A_type: str | Type | None = ...,
            B_type: str | Type | None = ...,
            b_scale_type: str | Type | None = ...,
            b_zero_point_type: str | Type | None = ...,
            bias_type: str | Type | None = ...,
            kernel: str = ...,
            trace: bool = ...,
            implementation: str = ...,
            return_report: Literal[False] = ...,
        ) -> NDArray[Any]:
            """Product of real numbers, quantized to ui8 by their range, and a quantized matrix, as real numbers.

            A: [.., M, K], or [K].
            B: [.., K, N], or [K].
            b_scale: One, or one for each column.
            b_zero_point: One, or one for each column, of the type of B. Default: 0.
            bias: One for each column.
            A_type, B_type, b_scale_type, b_zero_point_type, bias_type: the types in MLIR syntax. Default: what the arrays are,
            without scales.
            kernel: The kernel of mlas to follow.
            trace: Also give the stages of the computation. Not an attribute of the system.
            implementation: onnxruntime's CPU provider up to 1.31, or since 1.32, which divides in f64 in QLinearSoftmax.
            return_report: also return the report, a dictionary, whose `trace` has the stages.

            Source: onnxruntime 1.31.1 and 1.32.0, ContribOperators.md and mlas.
            """

        @overload
        @staticmethod
        def DynamicQuantizeMatMul(

            A: ArrayLike,
            B: ArrayLike,
            b_scale: ArrayLike,
            b_zero_point: ArrayLike | None = ...,
            bias: ArrayLike | None = ...,
            *,
            A_type: str | Type | None = ...,
            B_type: str | Type | None = ...,
            b_scale_type: str | Type | None = ...,
            b_zero_point_type: str | Type | None = ...,
            bias_type: str | Type | None = ...,
            kernel: str = ...,
            trace: bool = ...,
            implementation: str = ...,
            return_report: Literal[True],
        ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

        @overload
        @staticmethod
        def MatMulNBits(

            B: ArrayLike,
            scales: ArrayLike,
            K: int,
            N: int,
            block_size: int,
            *,
            zero_points: ArrayLike | None = ...,
            B_type: str | Type | None = ...,
            scales_type: str | Type | None = ...,
            zero_points_type: str | Type | None = ...,
            bits: int = ...,
            trace: bool = ...,
            implementation: str = ...,
            return_report: Literal[False] = ...,
        ) -> NDArray[Any]:
            """The weights that MatMulNBits multiplies with, dequantized from 2, 4 or 8 bits in blocks.

            B: [N, ceil(K / block_size), block_size * bits / 8], low bits first.
            scales: One for each block.
            zero_points: One for each block: packed like B, each of N on its own, or with 4 bits of f32. Default: 2^(bits - 1).
            B_type, scales_type, zero_points_type: the types in MLIR syntax. Default: what the arrays are, without scales.
            K: The rows of the weights that are multiplied.
            N: Their columns.
            bits: 2, 4 or 8.
            block_size: Weights of a scale: a power of two from 16 on.
            trace: Also give the stages of the computation. Not an attribute of the system.
            implementation: onnxruntime's CPU provider up to 1.31, or since 1.32, which divides in f64 in QLinearSoftmax.
            return_report: also return the report, a dictionary, whose `trace` has the stages.

            Source: onnxruntime 1.31.1 and 1.32.0, ContribOperators.md and mlas.
            """

        @overload
        @staticmethod
        def MatMulNBits(

            B: ArrayLike,
            scales: ArrayLike,
            K: int,
            N: int,
            block_size: int,
            *,
            zero_points: ArrayLike | None = ...,
            B_type: str | Type | None = ...,
            scales_type: str | Type | None = ...,
            zero_points_type: str | Type | None = ...,
            bits: int = ...,
            trace: bool = ...,
            implementation: str = ...,
            return_report: Literal[True],
        ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

    microsoft: _microsoft

com: _com

class _qonnx:
    @overload
    @staticmethod
    def Quant(

        X: ArrayLike,
        scale: ArrayLike,
        zeropt: ArrayLike,
        bitwidth: ArrayLike,
        *,
        X_type: str | Type | None = ...,
        scale_type: str | Type | None = ...,
        zeropt_type: str | Type | None = ...,
        bitwidth_type: str | Type | None = ...,
        signed: int = ...,
        narrow: int = ...,
        rounding_mode: str = ...,
        trace: bool = ...,
        opset: int = ...,
        implementation: str = ...,
        return_report: Literal[False] = ...,
    ) -> NDArray[Any]:
        """Quantize to integers of any width, and dequantize. The former name of IntQuant.

        X: The tensor.
        scale: One, or a shape that is broadcast.
        zeropt: One, or a shape that is broadcast.
        bitwidth: One whole number, 1 to 127.
        X_type, scale_type, zeropt_type, bitwidth_type: the types in MLIR syntax. Default: what the arrays are, without
        scales.
        signed: 1: signed integers, 0: unsigned ones.
        narrow: 1: without the last integer: -127 to 127, or 0 to 254.
        rounding_mode: ROUND, HALF_EVEN, CEIL, FLOOR, UP, DOWN, HALF_UP or HALF_DOWN, in any case. UP is away from zero,
        DOWN toward it; ties go to even, away from zero (HALF_UP) or toward it (HALF_DOWN).
        trace: Also give the stages of the computation. Not an attribute of the system.
        opset: The version of the system's operators, 1 to 2.
        implementation: The only implementation of these operators.
        return_report: also return the report, a dictionary, whose `trace` has the stages.

        Source: qonnx 1.0.0, domain qonnx.custom_op.general.
        """

    @overload
    @staticmethod
    def Quant(

        X: ArrayLike,
        scale: ArrayLike,
        zeropt: ArrayLike,
        bitwidth: ArrayLike,
        *,
        X_type: str | Type | None = ...,
        scale_type: str | Type | None = ...,
        zeropt_type: str | Type | None = ...,
        bitwidth_type: str | Type | None = ...,
        signed: int = ...,
        narrow: int = ...,
        rounding_mode: str = ...,
        trace: bool = ...,
        opset: int = ...,
        implementation: str = ...,
        return_report: Literal[True],
    ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

    @overload
    @staticmethod
    def IntQuant(

        X: ArrayLike,
        scale: ArrayLike,
        zeropt: ArrayLike,
        bitwidth: ArrayLike,
        *,
        X_type: str | Type | None = ...,
        scale_type: str | Type | None = ...,
        zeropt_type: str | Type | None = ...,
        bitwidth_type: str | Type | None = ...,
        signed: int = ...,
        narrow: int = ...,
        rounding_mode: str = ...,
        trace: bool = ...,
        opset: int = ...,
        implementation: str = ...,
        return_report: Literal[False] = ...,
    ) -> NDArray[Any]:
        """Quantize to integers of any width, and dequantize.

        X: The tensor.
        scale: One, or a shape that is broadcast.
        zeropt: One, or a shape that is broadcast.
        bitwidth: One whole number, 1 to 127.
        X_type, scale_type, zeropt_type, bitwidth_type: the types in MLIR syntax. Default: what the arrays are, without
        scales.
        signed: 1: signed integers, 0: unsigned ones.
        narrow: 1: without the last integer: -127 to 127, or 0 to 254.
        rounding_mode: ROUND, HALF_EVEN, CEIL, FLOOR, UP, DOWN, HALF_UP or HALF_DOWN, in any case. UP is away from zero,
        DOWN toward it; ties go to even, away from zero (HALF_UP) or toward it (HALF_DOWN).
        trace: Also give the stages of the computation. Not an attribute of the system.
        opset: The version of the system's operators, 1 to 2.
        implementation: The only implementation of these operators.
        return_report: also return the report, a dictionary, whose `trace` has the stages.

        Source: qonnx 1.0.0, domain qonnx.custom_op.general.
        """

    @overload
    @staticmethod
    def IntQuant(

        X: ArrayLike,
        scale: ArrayLike,
        zeropt: ArrayLike,
        bitwidth: ArrayLike,
        *,
        X_type: str | Type | None = ...,
        scale_type: str | Type | None = ...,
        zeropt_type: str | Type | None = ...,
        bitwidth_type: str | Type | None = ...,
        signed: int = ...,
        narrow: int = ...,
        rounding_mode: str = ...,
        trace: bool = ...,
        opset: int = ...,
        implementation: str = ...,
        return_report: Literal[True],
    ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

    @staticmethod
    def BipolarQuant(
        X: ArrayLike,
        scale: ArrayLike,
        *,
        X_type: str | Type | None = ...,
        scale_type: str | Type | None = ...,
        opset: int = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """The scale from 0 on, also of -0, else minus the scale, also of NaN.

        X: The tensor.
        scale: One, or a shape that is broadcast.
        X_type, scale_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        opset: The version of the system's operators, 1 to 2.
        implementation: The only implementation of these operators.

        Source: qonnx 1.0.0, domain qonnx.custom_op.general.
        """

    @overload
    @staticmethod
    def Trunc(

        X: ArrayLike,
        scale: ArrayLike,
        zeropt: ArrayLike,
        in_bitwidth: ArrayLike,
        out_bitwidth: ArrayLike,
        out_scale: ArrayLike | None = ...,
        *,
        X_type: str | Type | None = ...,
        scale_type: str | Type | None = ...,
        zeropt_type: str | Type | None = ...,
        in_bitwidth_type: str | Type | None = ...,
        out_scale_type: str | Type | None = ...,
        out_bitwidth_type: str | Type | None = ...,
        rounding_mode: str = ...,
        signed: int = ...,
        narrow: int = ...,
        trace: bool = ...,
        opset: int = ...,
        implementation: str = ...,
        return_report: Literal[False] = ...,
    ) -> NDArray[Any]:
        """Truncate quantized numbers to fewer bits.

        X: The tensor.
        scale: Of X: one, or a shape that is broadcast.
        zeropt: Of X: one, or a shape that is broadcast.
        in_bitwidth: One whole number; from opset 2 on it changes nothing.
        out_scale: Of Y: one, or a shape that is broadcast. From opset 2 on it is required.
        out_bitwidth: One whole number, 1 to 127.
        X_type, scale_type, zeropt_type, in_bitwidth_type, out_scale_type, out_bitwidth_type: the types in MLIR syntax.
        Default: what the arrays are, without scales.
        rounding_mode: ROUND, HALF_EVEN, CEIL, FLOOR, UP, DOWN, HALF_UP or HALF_DOWN, in any case. UP is away from zero,
        DOWN toward it; ties go to even, away from zero (HALF_UP) or toward it (HALF_DOWN).
        signed: 1: signed integers, 0: unsigned ones.
        narrow: 1: without the last integer: -127 to 127, or 0 to 254.
        trace: Also give the stages of the computation. Not an attribute of the system.
        opset: The version of the system's operators, 1 to 2.
        implementation: The only implementation of these operators.
        return_report: also return the report, a dictionary, whose `trace` has the stages.

        Source: qonnx 1.0.0, domain qonnx.custom_op.general.
        """

    @overload
    @staticmethod
    def Trunc(

        X: ArrayLike,
        scale: ArrayLike,
        zeropt: ArrayLike,
        in_bitwidth: ArrayLike,
        out_bitwidth: ArrayLike,
        out_scale: ArrayLike | None = ...,
        *,
        X_type: str | Type | None = ...,
        scale_type: str | Type | None = ...,
        zeropt_type: str | Type | None = ...,
        in_bitwidth_type: str | Type | None = ...,
        out_scale_type: str | Type | None = ...,
        out_bitwidth_type: str | Type | None = ...,
        rounding_mode: str = ...,
        signed: int = ...,
        narrow: int = ...,
        trace: bool = ...,
        opset: int = ...,
        implementation: str = ...,
        return_report: Literal[True],
    ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

    @overload
    @staticmethod
    def FloatQuant(

        X: ArrayLike,
        scale: ArrayLike,
        exponent_bitwidth: ArrayLike,
        mantissa_bitwidth: ArrayLike,
        exponent_bias: ArrayLike,
        max_val: ArrayLike,
        *,
        X_type: str | Type | None = ...,
        scale_type: str | Type | None = ...,
        exponent_bitwidth_type: str | Type | None = ...,
        mantissa_bitwidth_type: str | Type | None = ...,
        exponent_bias_type: str | Type | None = ...,
        max_val_type: str | Type | None = ...,
        has_inf: int = ...,
        has_nan: int = ...,
        has_subnormal: int = ...,
        saturation: int = ...,
        rounding_mode: str = ...,
        trace: bool = ...,
        opset: int = ...,
        implementation: str = ...,
        return_report: Literal[False] = ...,
    ) -> NDArray[Any]:
        """Quantize to floats of any width, and dequantize. Subnormal numbers are gradual.

        X: The tensor.
        scale: One, or a shape that is broadcast.
        exponent_bitwidth: e: one whole number, 0 to 8.
        mantissa_bitwidth: m: one whole number, 0 to 23.
        exponent_bias: One whole number.
        max_val: One: the largest number, where the format keeps codes for others: 448 of f8E4M3FN.
        X_type, scale_type, exponent_bitwidth_type, mantissa_bitwidth_type, exponent_bias_type, max_val_type: the types in
        MLIR syntax. Default: what the arrays are, without scales.
        has_inf: 1: without saturation what is beyond the largest number is an infinity.
        has_nan: 1: without saturation and has_inf it is NaN.
        has_subnormal: Ignored, as in the package.
        saturation: 1: what is beyond the largest number becomes it.
        rounding_mode: ROUND, HALF_EVEN, CEIL, FLOOR, UP, DOWN, HALF_UP or HALF_DOWN, in any case. UP is away from zero,
        DOWN toward it; ties go to even, away from zero (HALF_UP) or toward it (HALF_DOWN).
        trace: Also give the stages of the computation. Not an attribute of the system.
        opset: The version of the system's operators, 1 to 2.
        implementation: The only implementation of these operators.
        return_report: also return the report, a dictionary, whose `trace` has the stages.

        Source: qonnx 1.0.0, domain qonnx.custom_op.general.
        """

    @overload
    @staticmethod
    def FloatQuant(

        X: ArrayLike,
        scale: ArrayLike,
        exponent_bitwidth: ArrayLike,
        mantissa_bitwidth: ArrayLike,
        exponent_bias: ArrayLike,
        max_val: ArrayLike,
        *,
        X_type: str | Type | None = ...,
        scale_type: str | Type | None = ...,
        exponent_bitwidth_type: str | Type | None = ...,
        mantissa_bitwidth_type: str | Type | None = ...,
        exponent_bias_type: str | Type | None = ...,
        max_val_type: str | Type | None = ...,
        has_inf: int = ...,
        has_nan: int = ...,
        has_subnormal: int = ...,
        saturation: int = ...,
        rounding_mode: str = ...,
        trace: bool = ...,
        opset: int = ...,
        implementation: str = ...,
        return_report: Literal[True],
    ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

qonnx: _qonnx

class _onednn:
    @staticmethod
    def Quantize(
        src: ArrayLike,
        dst_type: str,
        scales: Sequence[float],
        *,
        src_type: str | Type | None = ...,
        qtype: str = ...,
        axis: int = ...,
        zps: Sequence[int] | None = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Quantize, with scales and zero points as attributes.

        src: The real tensor.
        src_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        dst_type: The data type of dst, which the Graph API takes from its logical tensor.
        qtype: Granularity: one scale for the tensor, or one per index of the axis. Default: per_tensor.
        axis: The channel dimension; negative values count from the end. Used with per_channel only.
        scales: One, or one per channel; rounded to f32.
        zps: One zero point per scale; not allowed with f8. Default: zeros.
        implementation: The only implementation of these operators.

        Source: oneDNN 3.13.2, Graph API, CPU, ONEDNN_MAX_CPU_ISA=AVX2.
        """

    @staticmethod
    def Dequantize(
        src: ArrayLike,
        scales: Sequence[float],
        *,
        src_type: str | Type | None = ...,
        qtype: str = ...,
        axis: int = ...,
        zps: Sequence[int] | None = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Dequantize, with scales and zero points as attributes.

        src: The quantized tensor.
        src_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        qtype: Granularity: one scale for the tensor, or one per index of the axis. Default: per_tensor.
        axis: The channel dimension; negative values count from the end. Used with per_channel only.
        scales: One, or one per channel; rounded to f32.
        zps: One zero point per scale; not allowed with f8. Default: zeros.
        implementation: The only implementation of these operators.

        Source: oneDNN 3.13.2, Graph API, CPU, ONEDNN_MAX_CPU_ISA=AVX2.
        """

    @staticmethod
    def DynamicQuantize(
        src: ArrayLike,
        scales: ArrayLike,
        dst_type: str,
        *,
        zps: ArrayLike | None = ...,
        src_type: str | Type | None = ...,
        scales_type: str | Type | None = ...,
        zps_type: str | Type | None = ...,
        qtype: str = ...,
        axis: int = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Quantize, with scales and zero points as tensors.

        src: The real tensor.
        scales: Rank 1: one, or one per channel.
        zps: One zero point per scale. Default: zeros.
        src_type, scales_type, zps_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        dst_type: The data type of dst, which the Graph API takes from its logical tensor.
        qtype: Granularity: one scale for the tensor, or one per index of the axis. Default: per_tensor.
        axis: The channel dimension; negative values count from the end. Used with per_channel only.
        implementation: The only implementation of these operators.

        Source: oneDNN 3.13.2, Graph API, CPU, ONEDNN_MAX_CPU_ISA=AVX2.
        """

    @staticmethod
    def DynamicDequantize(
        src: ArrayLike,
        scales: ArrayLike,
        zps: ArrayLike | None = ...,
        *,
        src_type: str | Type | None = ...,
        scales_type: str | Type | None = ...,
        zps_type: str | Type | None = ...,
        qtype: str = ...,
        axis: int = ...,
        group_shape: Sequence[int] | None = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Dequantize, with scales and zero points as tensors, also per group.

        src: The quantized tensor.
        scales: Rank 1, or per group the rank of src. dst has their type.
        zps: One zero point per scale. Default: zeros.
        src_type, scales_type, zps_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        qtype: Granularity: one scale for the tensor, one per index of the axis, or one per group. Default: per_tensor.
        axis: The channel dimension; negative values count from the end. Used with per_channel only.
        group_shape: per_group: the size of a group along each dimension of src, which it divides.
        implementation: The only implementation of these operators.

        Source: oneDNN 3.13.2, Graph API, CPU, ONEDNN_MAX_CPU_ISA=AVX2; groups and 4 bits by its documentation.
        """

onednn: _onednn

class _stablehlo:
    @staticmethod
    def uniform_quantize(
        operand: ArrayLike,
        output_type: str | Type,
        *,
        operand_type: str | Type | None = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Quantize a tensor, or requantize a quantized one.

        operand: The tensor to quantize.
        operand_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        output_type: The type of the result. A bare element type takes its shape from the operand.
        implementation: The only implementation of these operators.

        Source: StableHLO specification 1.20; jaxlib 0.10.2.
        """

    @staticmethod
    def uniform_dequantize(
        operand: ArrayLike,
        *,
        operand_type: str | Type | None = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Dequantize to the expressed type.

        operand: The quantized tensor.
        operand_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        implementation: The only implementation of these operators.

        Source: StableHLO specification 1.20; jaxlib 0.10.2.
        """

stablehlo: _stablehlo

class _quant:
    @staticmethod
    def qcast(
        input: ArrayLike,
        output_type: str | Type,
        *,
        input_type: str | Type | None = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Quantize by truncation without saturation; values that the lowering leaves as poison are an error.

        input: The real tensor.
        input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        output_type: The type of the result. A bare element type takes its shape from the operand.
        implementation: The only implementation of these operators.

        Source: LLVM 24, quant dialect, lower-quant-ops.
        """

    @staticmethod
    def dcast(
        input: ArrayLike,
        output_type: str | Type,
        *,
        input_type: str | Type | None = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Dequantize, with each step in the expressed type.

        input: The quantized tensor.
        input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        output_type: The type of the result. A bare element type takes its shape from the operand.
        implementation: The only implementation of these operators.

        Source: LLVM 24, quant dialect, lower-quant-ops.
        """

    @staticmethod
    def scast(
        input: ArrayLike,
        output_type: str | Type,
        *,
        input_type: str | Type | None = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Reinterpret quantized values as plain integers, or the reverse.

        input: A quantized tensor, or signless integers.
        input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        output_type: The type of the result. A bare element type takes its shape from the operand.
        implementation: The only implementation of these operators.

        Source: LLVM 24, quant dialect, lower-quant-ops.
        """

quant: _quant

class _litert:
    @staticmethod
    def QUANTIZE(
        input: ArrayLike,
        output_type: str | Type,
        *,
        input_type: str | Type | None = ...,
        kernel: str = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Quantize a tensor, or requantize a quantized one.

        input: The tensor to quantize; the type of a quantized tensor holds its QuantizationParameters.
        input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        output_type: The type of the result. A bare element type takes its shape from the operand.
        kernel: The LiteRT kernels to follow. Default: reference.
        implementation: The only implementation of these operators.

        Source: LiteRT f67457790c9c (ai-edge-litert 2.3.0).
        """

    @staticmethod
    def DEQUANTIZE(
        input: ArrayLike,
        *,
        input_type: str | Type | None = ...,
        kernel: str = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Dequantize to f32.

        input: The quantized tensor.
        input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        kernel: The LiteRT kernels to follow. Default: reference.
        implementation: The only implementation of these operators.

        Source: LiteRT f67457790c9c (ai-edge-litert 2.3.0).
        """

    @overload
    @staticmethod
    def MUL(

        input1: ArrayLike,
        input2: ArrayLike,
        output_type: str | Type,
        *,
        input1_type: str | Type | None = ...,
        input2_type: str | Type | None = ...,
        fused_activation_function: str = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[False] = ...,
    ) -> NDArray[Any]:
        """Multiply quantized tensors element by element, with broadcasting.

        input1: The first tensor, of i8, u8 or i16.
        input2: The second, of the same storage. Shapes are broadcast as numpy does.
        input1_type, input2_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        output_type: The type of the result. A bare element type takes its shape from the operand.
        fused_activation_function: What the result is clamped to: at least 0, -1 to 1, or 0 to 6.
        kernel: The LiteRT kernels to follow. Default: reference.
        trace: Also give the stages of the computation. Not an attribute of the system.
        implementation: The only implementation of these operators.
        return_report: also return the report, a dictionary, whose `trace` has the stages.

        Source: LiteRT f67457790c9c (ai-edge-litert 2.3.0).
        """

    @overload
    @staticmethod
    def MUL(

        input1: ArrayLike,
        input2: ArrayLike,
        output_type: str | Type,
        *,
        input1_type: str | Type | None = ...,
        input2_type: str | Type | None = ...,
        fused_activation_function: str = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[True],
    ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

    @overload
    @staticmethod
    def SUB(

        input1: ArrayLike,
        input2: ArrayLike,
        output_type: str | Type,
        *,
        input1_type: str | Type | None = ...,
        input2_type: str | Type | None = ...,
        fused_activation_function: str = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[False] = ...,
    ) -> NDArray[Any]:
        """Subtract quantized tensors element by element, with broadcasting.

        input1: The first tensor, of i8, u8 or i16.
        input2: The second, of the same storage. Shapes are broadcast as numpy does.
        input1_type, input2_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        output_type: The type of the result. A bare element type takes its shape from the operand.
        fused_activation_function: What the result is clamped to: at least 0, -1 to 1, or 0 to 6.
        kernel: The LiteRT kernels to follow. Default: reference.
        trace: Also give the stages of the computation. Not an attribute of the system.
        implementation: The only implementation of these operators.
        return_report: also return the report, a dictionary, whose `trace` has the stages.

        Source: LiteRT f67457790c9c (ai-edge-litert 2.3.0).
        """

    @overload
    @staticmethod
    def SUB(

        input1: ArrayLike,
        input2: ArrayLike,
        output_type: str | Type,
        *,
        input1_type: str | Type | None = ...,
        input2_type: str | Type | None = ...,
        fused_activation_function: str = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[True],
    ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

    @overload
    @staticmethod
    def AVERAGE_POOL_2D(

        input: ArrayLike,
        padding: str,
        filter_height: int,
        filter_width: int,
        stride_h: int,
        stride_w: int,
        *,
        input_type: str | Type | None = ...,
        fused_activation_function: str = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[False] = ...,
    ) -> NDArray[Any]:
        """The means of the windows of a quantized image.

        input: [N, H, W, C], of i8, u8 or i16.
        input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        padding: Whether windows reach beyond the input.
        filter_height: Rows of the window.
        filter_width: Columns.
        stride_h: Rows from one window to the next.
        stride_w: Columns likewise.
        fused_activation_function: What the result is clamped to: at least 0, -1 to 1, or 0 to 6.
        kernel: The LiteRT kernels to follow. Default: reference.
        trace: Also give the stages of the computation. Not an attribute of the system.
        implementation: The only implementation of these operators.
        return_report: also return the report, a dictionary, whose `trace` has the stages.

        Source: LiteRT f67457790c9c (ai-edge-litert 2.3.0).
        """

    @overload
    @staticmethod
    def AVERAGE_POOL_2D(

        input: ArrayLike,
        padding: str,
        filter_height: int,
        filter_width: int,
        stride_h: int,
        stride_w: int,
        *,
        input_type: str | Type | None = ...,
        fused_activation_function: str = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[True],
    ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

    @staticmethod
    def MAX_POOL_2D(
        input: ArrayLike,
        padding: str,
        filter_height: int,
        filter_width: int,
        stride_h: int,
        stride_w: int,
        *,
        input_type: str | Type | None = ...,
        fused_activation_function: str = ...,
        kernel: str = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """The largest numbers of the windows of a quantized image.

        input: [N, H, W, C], of i8, u8 or i16.
        input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        padding: Whether windows reach beyond the input.
        filter_height: Rows of the window.
        filter_width: Columns.
        stride_h: Rows from one window to the next.
        stride_w: Columns likewise.
        fused_activation_function: What the result is clamped to: at least 0, -1 to 1, or 0 to 6.
        kernel: The LiteRT kernels to follow. Default: reference.
        implementation: The only implementation of these operators.

        Source: LiteRT f67457790c9c (ai-edge-litert 2.3.0).
        """

    @overload
    @staticmethod
    def LOGISTIC(

        input: ArrayLike,
        output_type: str | Type,
        *,
        input_type: str | Type | None = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[False] = ...,
    ) -> NDArray[Any]:
        """The logistic function of a quantized tensor.

        input: The tensor, of i8, u8, i16.
        input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        output_type: The type of the result. A bare element type takes its shape from the operand.
        kernel: The LiteRT kernels to follow. Default: reference.
        trace: Also give the stages of the computation. Not an attribute of the system.
        implementation: The only implementation of these operators.
        return_report: also return the report, a dictionary, whose `trace` has the stages.

        Source: LiteRT f67457790c9c (ai-edge-litert 2.3.0).
        """

    @overload
    @staticmethod
    def LOGISTIC(

        input: ArrayLike,
        output_type: str | Type,
        *,
        input_type: str | Type | None = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[True],
    ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

    @overload
    @staticmethod
    def TANH(

        input: ArrayLike,
        output_type: str | Type,
        *,
        input_type: str | Type | None = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[False] = ...,
    ) -> NDArray[Any]:
        """The hyperbolic tangent of a quantized tensor.

        input: The tensor, of i8, u8, i16.
        input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        output_type: The type of the result. A bare element type takes its shape from the operand.
        kernel: The LiteRT kernels to follow. Default: reference.
        trace: Also give the stages of the computation. Not an attribute of the system.
        implementation: The only implementation of these operators.
        return_report: also return the report, a dictionary, whose `trace` has the stages.

        Source: LiteRT f67457790c9c (ai-edge-litert 2.3.0).
        """

    @overload
    @staticmethod
    def TANH(

        input: ArrayLike,
        output_type: str | Type,
        *,
        input_type: str | Type | None = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[True],
    ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

    @overload
    @staticmethod
    def RELU(

        input: ArrayLike,
        output_type: str | Type,
        *,
        input_type: str | Type | None = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[False] = ...,
    ) -> NDArray[Any]:
        """A quantized tensor without its negative numbers, requantized.

        input: The tensor, of i8, u8, i16.
        input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        output_type: The type of the result. A bare element type takes its shape from the operand.
        kernel: The LiteRT kernels to follow. Default: reference.
        trace: Also give the stages of the computation. Not an attribute of the system.
        implementation: The only implementation of these operators.
        return_report: also return the report, a dictionary, whose `trace` has the stages.

        Source: LiteRT f67457790c9c (ai-edge-litert 2.3.0).
        """

    @overload
    @staticmethod
    def RELU(

        input: ArrayLike,
        output_type: str | Type,
        *,
        input_type: str | Type | None = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[True],
    ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

    @overload
    @staticmethod
    def RELU6(

        input: ArrayLike,
        output_type: str | Type,
        *,
        input_type: str | Type | None = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[False] = ...,
    ) -> NDArray[Any]:
        """A quantized tensor clamped to 0 to 6, requantized.

        input: The tensor, of i8, u8, i16.
        input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        output_type: The type of the result. A bare element type takes its shape from the operand.
        kernel: The LiteRT kernels to follow. Default: reference.
        trace: Also give the stages of the computation. Not an attribute of the system.
        implementation: The only implementation of these operators.
        return_report: also return the report, a dictionary, whose `trace` has the stages.

        Source: LiteRT f67457790c9c (ai-edge-litert 2.3.0).
        """

    @overload
    @staticmethod
    def RELU6(

        input: ArrayLike,
        output_type: str | Type,
        *,
        input_type: str | Type | None = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[True],
    ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

    @overload
    @staticmethod
    def RELU_N1_TO_1(

        input: ArrayLike,
        output_type: str | Type,
        *,
        input_type: str | Type | None = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[False] = ...,
    ) -> NDArray[Any]:
        """A quantized tensor clamped to -1 to 1, requantized.

        input: The tensor, of i8, u8, i16.
        input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        output_type: The type of the result. A bare element type takes its shape from the operand.
        kernel: The LiteRT kernels to follow. Default: reference.
        trace: Also give the stages of the computation. Not an attribute of the system.
        implementation: The only implementation of these operators.
        return_report: also return the report, a dictionary, whose `trace` has the stages.

        Source: LiteRT f67457790c9c (ai-edge-litert 2.3.0).
        """

    @overload
    @staticmethod
    def RELU_N1_TO_1(

        input: ArrayLike,
        output_type: str | Type,
        *,
        input_type: str | Type | None = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[True],
    ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

    @overload
    @staticmethod
    def LEAKY_RELU(

        input: ArrayLike,
        output_type: str | Type,
        alpha: float,
        *,
        input_type: str | Type | None = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[False] = ...,
    ) -> NDArray[Any]:
        """A quantized tensor with its negative numbers multiplied by alpha, requantized.

        input: The tensor, of i8, u8, i16.
        input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        output_type: The type of the result. A bare element type takes its shape from the operand.
        alpha: The factor of negative numbers, in f32.
        kernel: The LiteRT kernels to follow. Default: reference.
        trace: Also give the stages of the computation. Not an attribute of the system.
        implementation: The only implementation of these operators.
        return_report: also return the report, a dictionary, whose `trace` has the stages.

        Source: LiteRT f67457790c9c (ai-edge-litert 2.3.0).
        """

    @overload
    @staticmethod
    def LEAKY_RELU(

        input: ArrayLike,
        output_type: str | Type,
        alpha: float,
        *,
        input_type: str | Type | None = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[True],
    ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

    @overload
    @staticmethod
    def PRELU(

        input: ArrayLike,
        alpha: ArrayLike,
        output_type: str | Type,
        *,
        input_type: str | Type | None = ...,
        alpha_type: str | Type | None = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[False] = ...,
    ) -> NDArray[Any]:
        """A quantized tensor with its negative numbers multiplied by another.

        input: The tensor, of i8, u8 or i16.
        alpha: The factors, of the same storage, broadcast to the shape of input.
        input_type, alpha_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        output_type: The type of the result. A bare element type takes its shape from the operand.
        kernel: The LiteRT kernels to follow. Default: reference.
        trace: Also give the stages of the computation. Not an attribute of the system.
        implementation: The only implementation of these operators.
        return_report: also return the report, a dictionary, whose `trace` has the stages.

        Source: LiteRT f67457790c9c (ai-edge-litert 2.3.0).
        """

    @overload
    @staticmethod
    def PRELU(

        input: ArrayLike,
        alpha: ArrayLike,
        output_type: str | Type,
        *,
        input_type: str | Type | None = ...,
        alpha_type: str | Type | None = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[True],
    ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

    @overload
    @staticmethod
    def HARD_SWISH(

        input: ArrayLike,
        output_type: str | Type,
        *,
        input_type: str | Type | None = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[False] = ...,
    ) -> NDArray[Any]:
        """x * clamp(x + 3, 0, 6) / 6 of a quantized tensor, in int16.

        input: The tensor, of i8, u8.
        input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        output_type: The type of the result. A bare element type takes its shape from the operand.
        kernel: The LiteRT kernels to follow. Default: reference.
        trace: Also give the stages of the computation. Not an attribute of the system.
        implementation: The only implementation of these operators.
        return_report: also return the report, a dictionary, whose `trace` has the stages.

        Source: LiteRT f67457790c9c (ai-edge-litert 2.3.0).
        """

    @overload
    @staticmethod
    def HARD_SWISH(

        input: ArrayLike,
        output_type: str | Type,
        *,
        input_type: str | Type | None = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[True],
    ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

    @overload
    @staticmethod
    def SOFTMAX(

        input: ArrayLike,
        output_type: str | Type,
        *,
        input_type: str | Type | None = ...,
        beta: float = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[False] = ...,
    ) -> NDArray[Any]:
        """Softmax of a quantized tensor along its last dimension.

        input: The tensor, of i8, u8 or i16.
        input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        output_type: The type of the result. A bare element type takes its shape from the operand.
        beta: The factor of the input, in f32.
        kernel: The LiteRT kernels to follow. Default: reference.
        trace: Also give the stages of the computation. Not an attribute of the system.
        implementation: The only implementation of these operators.
        return_report: also return the report, a dictionary, whose `trace` has the stages.

        Source: LiteRT f67457790c9c (ai-edge-litert 2.3.0).
        """

    @overload
    @staticmethod
    def SOFTMAX(

        input: ArrayLike,
        output_type: str | Type,
        *,
        input_type: str | Type | None = ...,
        beta: float = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[True],
    ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

    @overload
    @staticmethod
    def MEAN(

        input: ArrayLike,
        axis: ArrayLike,
        output_type: str | Type,
        *,
        input_type: str | Type | None = ...,
        axis_type: str | Type | None = ...,
        keep_dims: bool = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[False] = ...,
    ) -> NDArray[Any]:
        """The means along dimensions of a quantized tensor.

        input: The tensor, of i8, u8 or i16.
        axis: The dimensions to reduce; negative ones count from the end.
        input_type, axis_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        output_type: The type of the result. A bare element type takes its shape from the operand.
        keep_dims: Whether reduced dimensions stay, of size 1.
        kernel: The LiteRT kernels to follow. Default: reference.
        trace: Also give the stages of the computation. Not an attribute of the system.
        implementation: The only implementation of these operators.
        return_report: also return the report, a dictionary, whose `trace` has the stages.

        Source: LiteRT f67457790c9c (ai-edge-litert 2.3.0).
        """

    @overload
    @staticmethod
    def MEAN(

        input: ArrayLike,
        axis: ArrayLike,
        output_type: str | Type,
        *,
        input_type: str | Type | None = ...,
        axis_type: str | Type | None = ...,
        keep_dims: bool = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[True],
    ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

    @overload
    @staticmethod
    def SUM(

        input: ArrayLike,
        axis: ArrayLike,
        output_type: str | Type,
        *,
        input_type: str | Type | None = ...,
        axis_type: str | Type | None = ...,
        keep_dims: bool = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[False] = ...,
    ) -> NDArray[Any]:
        """The sums along dimensions of a quantized tensor.

        input: The tensor, of i8, u8 or i16.
        axis: The dimensions to reduce; negative ones count from the end.
        input_type, axis_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        output_type: The type of the result. A bare element type takes its shape from the operand.
        keep_dims: Whether reduced dimensions stay, of size 1.
        kernel: The LiteRT kernels to follow. Default: reference.
        trace: Also give the stages of the computation. Not an attribute of the system.
        implementation: The only implementation of these operators.
        return_report: also return the report, a dictionary, whose `trace` has the stages.

        Source: LiteRT f67457790c9c (ai-edge-litert 2.3.0).
        """

    @overload
    @staticmethod
    def SUM(

        input: ArrayLike,
        axis: ArrayLike,
        output_type: str | Type,
        *,
        input_type: str | Type | None = ...,
        axis_type: str | Type | None = ...,
        keep_dims: bool = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[True],
    ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

    @overload
    @staticmethod
    def CONCATENATION(

        input_0: ArrayLike,
        output_type: str | Type,
        axis: int,
        *,
        input_1: ArrayLike | None = ...,
        input_2: ArrayLike | None = ...,
        input_3: ArrayLike | None = ...,
        input_4: ArrayLike | None = ...,
        input_5: ArrayLike | None = ...,
        input_6: ArrayLike | None = ...,
        input_7: ArrayLike | None = ...,
        input_0_type: str | Type | None = ...,
        input_1_type: str | Type | None = ...,
        input_2_type: str | Type | None = ...,
        input_3_type: str | Type | None = ...,
        input_4_type: str | Type | None = ...,
        input_5_type: str | Type | None = ...,
        input_6_type: str | Type | None = ...,
        input_7_type: str | Type | None = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[False] = ...,
    ) -> NDArray[Any]:
        """Join up to 8 quantized tensors along an axis.

        input_0: Tensor 0, of i8, u8 or i16.
        input_1: Tensor 1, of the storage of tensor 0.
        input_2: Tensor 2, of the storage of tensor 0.
        input_3: Tensor 3, of the storage of tensor 0.
        input_4: Tensor 4, of the storage of tensor 0.
        input_5: Tensor 5, of the storage of tensor 0.
        input_6: Tensor 6, of the storage of tensor 0.
        input_7: Tensor 7, of the storage of tensor 0.
        input_0_type, input_1_type, input_2_type, input_3_type, input_4_type, input_5_type, input_6_type, input_7_type: the
        types in MLIR syntax. Default: what the arrays are, without scales.
        output_type: The type of the result. A bare element type takes its shape from the operand.
        axis: The dimension; negative values count from the end.
        kernel: The LiteRT kernels to follow. Default: reference.
        trace: Also give the stages of the computation. Not an attribute of the system.
        implementation: The only implementation of these operators.
        return_report: also return the report, a dictionary, whose `trace` has the stages.

        Source: LiteRT f67457790c9c (ai-edge-litert 2.3.0).
        """

    @overload
    @staticmethod
    def CONCATENATION(

        input_0: ArrayLike,
        output_type: str | Type,
        axis: int,
        *,
        input_1: ArrayLike | None = ...,
        input_2: ArrayLike | None = ...,
        input_3: ArrayLike | None = ...,
        input_4: ArrayLike | None = ...,
        input_5: ArrayLike | None = ...,
        input_6: ArrayLike | None = ...,
        input_7: ArrayLike | None = ...,
        input_0_type: str | Type | None = ...,
        input_1_type: str | Type | None = ...,
        input_2_type: str | Type | None = ...,
        input_3_type: str | Type | None = ...,
        input_4_type: str | Type | None = ...,
        input_5_type: str | Type | None = ...,
        input_6_type: str | Type | None = ...,
        input_7_type: str | Type | None = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[True],
    ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

    @staticmethod
    def PAD(
        input: ArrayLike,
        paddings: ArrayLike,
        *,
        input_type: str | Type | None = ...,
        paddings_type: str | Type | None = ...,
        kernel: str = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Put a quantized tensor among zeros.

        input: The tensor, of i8, u8 or i16.
        paddings: [rank, 2]: before and after each dimension.
        input_type, paddings_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        kernel: The LiteRT kernels to follow. Default: reference.
        implementation: The only implementation of these operators.

        Source: LiteRT f67457790c9c (ai-edge-litert 2.3.0).
        """

    @staticmethod
    def RESIZE_BILINEAR(
        input: ArrayLike,
        size: ArrayLike,
        *,
        input_type: str | Type | None = ...,
        size_type: str | Type | None = ...,
        align_corners: bool = ...,
        half_pixel_centers: bool = ...,
        kernel: str = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Resize a quantized image, with bilinear interpolation.

        input: [N, H, W, C], of i8, u8 or i16.
        size: Rows and columns of the output.
        input_type, size_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        align_corners: Whether the first and last rows and columns of both lie upon each other.
        half_pixel_centers: Whether an element lies in the middle of its place.
        kernel: The LiteRT kernels to follow. Default: reference.
        implementation: The only implementation of these operators.

        Source: LiteRT f67457790c9c (ai-edge-litert 2.3.0).
        """

    @staticmethod
    def RESIZE_NEAREST_NEIGHBOR(
        input: ArrayLike,
        size: ArrayLike,
        *,
        input_type: str | Type | None = ...,
        size_type: str | Type | None = ...,
        align_corners: bool = ...,
        half_pixel_centers: bool = ...,
        kernel: str = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Resize a quantized image to the nearest elements.

        input: [N, H, W, C], of i8, u8 or i16.
        size: Rows and columns of the output.
        input_type, size_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        align_corners: Whether the first and last rows and columns of both lie upon each other.
        half_pixel_centers: Whether an element lies in the middle of its place.
        kernel: The LiteRT kernels to follow. Default: reference.
        implementation: The only implementation of these operators.

        Source: LiteRT f67457790c9c (ai-edge-litert 2.3.0).
        """

    @staticmethod
    def BATCH_MATMUL(
        lhs: ArrayLike,
        rhs: ArrayLike,
        output_type: str | Type,
        *,
        lhs_type: str | Type | None = ...,
        rhs_type: str | Type | None = ...,
        adj_x: bool = ...,
        adj_y: bool = ...,
        kernel: str = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Multiply quantized matrices, in batches.

        lhs: [.., M, K], of i8 or i16.
        rhs: [.., K, N], of the same storage.
        lhs_type, rhs_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        output_type: The type of the result. A bare element type takes its shape from the operand.
        adj_x: Whether lhs is [.., K, M].
        adj_y: Whether rhs is [.., N, K].
        kernel: The LiteRT kernels to follow. Default: reference.
        implementation: The only implementation of these operators.

        Source: LiteRT f67457790c9c (ai-edge-litert 2.3.0).
        """

    @overload
    @staticmethod
    def TRANSPOSE_CONV(

        output_shape: ArrayLike,
        weights: ArrayLike,
        input: ArrayLike,
        output_type: str | Type,
        padding: str,
        stride_h: int,
        stride_w: int,
        *,
        bias: ArrayLike | None = ...,
        output_shape_type: str | Type | None = ...,
        weights_type: str | Type | None = ...,
        input_type: str | Type | None = ...,
        bias_type: str | Type | None = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[False] = ...,
    ) -> NDArray[Any]:
        """The transposed convolution of a quantized image.

        output_shape: [N, H, W, O] of the output.
        weights: [O, KH, KW, I], of i8, with one scale or one for each O, or of u8 with one.
        input: [N, H, W, I], of i8, u8 or i16.
        bias: [O]; not with i16. Default: 0.
        output_shape_type, weights_type, input_type, bias_type: the types in MLIR syntax. Default: what the arrays are,
        without scales.
        output_type: The type of the result. A bare element type takes its shape from the operand.
        padding: Whether windows reach beyond the input.
        stride_h: Rows from one window to the next.
        stride_w: Columns likewise.
        kernel: The LiteRT kernels to follow. Default: reference.
        trace: Also give the stages of the computation. Not an attribute of the system.
        implementation: The only implementation of these operators.
        return_report: also return the report, a dictionary, whose `trace` has the stages.

        Source: LiteRT f67457790c9c (ai-edge-litert 2.3.0).
        """

    @overload
    @staticmethod
    def TRANSPOSE_CONV(

        output_shape: ArrayLike,
        weights: ArrayLike,
        input: ArrayLike,
        output_type: str | Type,
        padding: str,
        stride_h: int,
        stride_w: int,
        *,
        bias: ArrayLike | None = ...,
        output_shape_type: str | Type | None = ...,
        weights_type: str | Type | None = ...,
        input_type: str | Type | None = ...,
        bias_type: str | Type | None = ...,
        kernel: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[True],
    ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

litert: _litert

class _torch:
    @staticmethod
    def quantize_per_tensor(
        input: ArrayLike,
        scale: float,
        zero_point: int,
        dtype: str,
        *,
        input_type: str | Type | None = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Quantize per tensor; returns the int_repr of the quantized tensor.

        input: The real tensor.
        input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        scale: A Python float.
        zero_point: A value representable in dtype.
        dtype: The dtype of the quantized values.
        implementation: The torch version to reproduce: the arithmetic of quantize_per_tensor and quantize_per_channel
        changed in 2.14.

        Source: torch 2.13.0, CPU wheel, x86.
        """

    @staticmethod
    def quantize_per_channel(
        input: ArrayLike,
        scales: ArrayLike,
        zero_points: ArrayLike,
        axis: int,
        dtype: str,
        *,
        input_type: str | Type | None = ...,
        scales_type: str | Type | None = ...,
        zero_points_type: str | Type | None = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Quantize per channel; returns the int_repr of the quantized tensor.

        input: The real tensor.
        scales: Rank 1: one per channel; f64 scales are rounded to f32.
        zero_points: One zero point per scale.
        input_type, scales_type, zero_points_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        axis: The channel dimension.
        dtype: The dtype of the quantized values.
        implementation: The torch version to reproduce: the arithmetic of quantize_per_tensor and quantize_per_channel
        changed in 2.14.

        Source: torch 2.13.0, CPU wheel, x86.
        """

    @staticmethod
    def dequantize(
        input: ArrayLike,
        *,
        input_type: str | Type | None = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Dequantize a quantized tensor, whose type holds scales and zero points, to f32.

        input: A quantized tensor.
        input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        implementation: The torch version to reproduce: the arithmetic of quantize_per_tensor and quantize_per_channel
        changed in 2.14.

        Source: torch 2.13.0, CPU wheel, x86.
        """

    @staticmethod
    def fake_quantize_per_tensor_affine(
        input: ArrayLike,
        scale: float,
        zero_point: int,
        quant_min: int,
        quant_max: int,
        *,
        input_type: str | Type | None = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Fake-quantize per tensor.

        input: The real tensor.
        input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        scale: A Python float.
        zero_point: A value representable in dtype.
        quant_min: The lowest quantized value.
        quant_max: The highest quantized value.
        implementation: The torch version to reproduce: the arithmetic of quantize_per_tensor and quantize_per_channel
        changed in 2.14.

        Source: torch 2.13.0, CPU wheel, x86.
        """

    @staticmethod
    def fake_quantize_per_channel_affine(
        input: ArrayLike,
        scales: ArrayLike,
        zero_points: ArrayLike,
        axis: int,
        quant_min: int,
        quant_max: int,
        *,
        input_type: str | Type | None = ...,
        scales_type: str | Type | None = ...,
        zero_points_type: str | Type | None = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Fake-quantize per channel.

        input: The real tensor.
        scales: Rank 1: one per channel.
        zero_points: One zero point per scale.
        input_type, scales_type, zero_points_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        axis: The channel dimension.
        quant_min: The lowest quantized value.
        quant_max: The highest quantized value.
        implementation: The torch version to reproduce: the arithmetic of quantize_per_tensor and quantize_per_channel
        changed in 2.14.

        Source: torch 2.13.0, CPU wheel, x86.
        """

    class _quantized_decomposed:
        class _quantize_per_tensor:
            def __call__(
                self,
                input: ArrayLike,
                scale: float,
                zero_point: int,
                quant_min: int,
                quant_max: int,
                dtype: str,
                *,
                input_type: str | Type | None = ...,
                implementation: str = ...,
            ) -> NDArray[Any]:
                """Quantize per tensor, with the scale as a Python float.

                input: The real tensor.
                input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
                scale: A Python float.
                zero_point: A value representable in dtype.
                quant_min: The lowest quantized value.
                quant_max: The highest quantized value.
                dtype: The dtype of the quantized values.
                implementation: The torch version to reproduce: the arithmetic of quantize_per_tensor and quantize_per_channel
                changed in 2.14.

                Source: torch 2.13.0, CPU wheel, x86.
                """

            @staticmethod
            def tensor(
                input: ArrayLike,
                scale: ArrayLike,
                zero_point: ArrayLike,
                quant_min: int,
                quant_max: int,
                dtype: str,
                *,
                input_type: str | Type | None = ...,
                scale_type: str | Type | None = ...,
                zero_point_type: str | Type | None = ...,
                implementation: str = ...,
            ) -> NDArray[Any]:
                """Quantize per tensor, with the scale as a tensor.

                input: The real tensor.
                scale: One value, in any shape.
                zero_point: One value representable in dtype, in any shape.
                input_type, scale_type, zero_point_type: the types in MLIR syntax. Default: what the arrays are, without scales.
                quant_min: The lowest quantized value.
                quant_max: The highest quantized value.
                dtype: The dtype of the quantized values.
                implementation: The torch version to reproduce: the arithmetic of quantize_per_tensor and quantize_per_channel
                changed in 2.14.

                Source: torch 2.13.0, CPU wheel, x86.
                """

            @staticmethod
            def tensor2(
                input: ArrayLike,
                scale: ArrayLike,
                zero_point: ArrayLike,
                quant_min: ArrayLike,
                quant_max: ArrayLike,
                dtype: str,
                *,
                input_type: str | Type | None = ...,
                scale_type: str | Type | None = ...,
                zero_point_type: str | Type | None = ...,
                quant_min_type: str | Type | None = ...,
                quant_max_type: str | Type | None = ...,
                implementation: str = ...,
            ) -> NDArray[Any]:
                """Quantize per tensor, with the scale as a tensor, and so the bounds.

                input: The real tensor.
                scale: One value, in any shape.
                zero_point: One value representable in dtype, in any shape.
                quant_min: The lowest quantized value. One number, of any shape.
                quant_max: The highest quantized value. One number, of any shape.
                input_type, scale_type, zero_point_type, quant_min_type, quant_max_type: the types in MLIR syntax. Default: what the
                arrays are, without scales.
                dtype: The dtype of the quantized values.
                implementation: The torch version to reproduce: the arithmetic of quantize_per_tensor and quantize_per_channel
                changed in 2.14.

                Source: torch 2.13.0, CPU wheel, x86.
                """

        quantize_per_tensor: _quantize_per_tensor

        @staticmethod
        def quantize_per_channel(
            input: ArrayLike,
            scales: ArrayLike,
            zero_points: ArrayLike,
            axis: int,
            quant_min: int,
            quant_max: int,
            dtype: str,
            *,
            input_type: str | Type | None = ...,
            scales_type: str | Type | None = ...,
            zero_points_type: str | Type | None = ...,
            implementation: str = ...,
        ) -> NDArray[Any]:
            """Quantize per channel.

            input: The real tensor.
            scales: Rank 1: one per channel.
            zero_points: One zero point per scale.
            input_type, scales_type, zero_points_type: the types in MLIR syntax. Default: what the arrays are, without scales.
            axis: The channel dimension.
            quant_min: The lowest quantized value.
            quant_max: The highest quantized value.
            dtype: The dtype of the quantized values.
            implementation: The torch version to reproduce: the arithmetic of quantize_per_tensor and quantize_per_channel
            changed in 2.14.

            Source: torch 2.13.0, CPU wheel, x86.
            """

        class _dequantize_per_tensor:
            def __call__(
                self,
                input: ArrayLike,
                scale: float,
                zero_point: int,
                quant_min: int,
                quant_max: int,
                dtype: str,
                *,
                input_type: str | Type | None = ...,
                out_dtype: str = ...,
                implementation: str = ...,
            ) -> NDArray[Any]:
                """Dequantize per tensor, with the scale as a Python float.

                input: The quantized tensor, of type dtype.
                input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
                scale: A Python float.
                zero_point: A value representable in dtype.
                quant_min: The lowest quantized value.
                quant_max: The highest quantized value.
                dtype: The dtype of the quantized values.
                out_dtype: The type of the result. Default: float32.
                implementation: The torch version to reproduce: the arithmetic of quantize_per_tensor and quantize_per_channel
                changed in 2.14.

                Source: torch 2.13.0, CPU wheel, x86.
                """

            @staticmethod
            def tensor(
                input: ArrayLike,
                scale: ArrayLike,
                zero_point: ArrayLike,
                quant_min: int,
                quant_max: int,
                dtype: str,
                *,
                input_type: str | Type | None = ...,
                scale_type: str | Type | None = ...,
                zero_point_type: str | Type | None = ...,
                out_dtype: str = ...,
                implementation: str = ...,
            ) -> NDArray[Any]:
                """Dequantize per tensor, with the scale as a tensor.

                input: The quantized tensor, of type dtype.
                scale: One value, in any shape.
                zero_point: One value representable in dtype, in any shape.
                input_type, scale_type, zero_point_type: the types in MLIR syntax. Default: what the arrays are, without scales.
                quant_min: The lowest quantized value.
                quant_max: The highest quantized value.
                dtype: The dtype of the quantized values.
                out_dtype: The type of the result. Default: float32.
                implementation: The torch version to reproduce: the arithmetic of quantize_per_tensor and quantize_per_channel
                changed in 2.14.

                Source: torch 2.13.0, CPU wheel, x86.
                """

            @staticmethod
            def tensor2(
                input: ArrayLike,
                scale: ArrayLike,
                zero_point: ArrayLike,
                quant_min: ArrayLike,
                quant_max: ArrayLike,
                dtype: str,
                *,
                input_type: str | Type | None = ...,
                scale_type: str | Type | None = ...,
                zero_point_type: str | Type | None = ...,
                quant_min_type: str | Type | None = ...,
                quant_max_type: str | Type | None = ...,
                out_dtype: str = ...,
                implementation: str = ...,
            ) -> NDArray[Any]:
                """Dequantize per tensor, with the scale as a tensor, and so the bounds.

                input: The quantized tensor, of type dtype.
                scale: One value, in any shape.
                zero_point: One value representable in dtype, in any shape.
                quant_min: The lowest quantized value. One number, of any shape.
                quant_max: The highest quantized value. One number, of any shape.
                input_type, scale_type, zero_point_type, quant_min_type, quant_max_type: the types in MLIR syntax. Default: what the
                arrays are, without scales.
                dtype: The dtype of the quantized values.
                out_dtype: The type of the result. Default: float32.
                implementation: The torch version to reproduce: the arithmetic of quantize_per_tensor and quantize_per_channel
                changed in 2.14.

                Source: torch 2.13.0, CPU wheel, x86.
                """

        dequantize_per_tensor: _dequantize_per_tensor

        @staticmethod
        def dequantize_per_channel(
            input: ArrayLike,
            scales: ArrayLike,
            zero_points: ArrayLike,
            axis: int,
            quant_min: int,
            quant_max: int,
            dtype: str,
            *,
            input_type: str | Type | None = ...,
            scales_type: str | Type | None = ...,
            zero_points_type: str | Type | None = ...,
            out_dtype: str = ...,
            implementation: str = ...,
        ) -> NDArray[Any]:
            """Dequantize per channel.

            input: The quantized tensor, of type dtype.
            scales: Rank 1: one per channel.
            zero_points: One zero point per scale.
            input_type, scales_type, zero_points_type: the types in MLIR syntax. Default: what the arrays are, without scales.
            axis: The channel dimension.
            quant_min: The lowest quantized value.
            quant_max: The highest quantized value.
            dtype: The dtype of the quantized values.
            out_dtype: The type of the result. Default: float32.
            implementation: The torch version to reproduce: the arithmetic of quantize_per_tensor and quantize_per_channel
            changed in 2.14.

            Source: torch 2.13.0, CPU wheel, x86.
            """

        @staticmethod
        def quantize_per_token(
            input: ArrayLike,
            scales: ArrayLike,
            zero_points: ArrayLike,
            quant_min: int,
            quant_max: int,
            dtype: str,
            *,
            input_type: str | Type | None = ...,
            scales_type: str | Type | None = ...,
            zero_points_type: str | Type | None = ...,
            implementation: str = ...,
        ) -> NDArray[Any]:
            """Quantize per token: one scale per row along the last dimension.

            input: The real tensor.
            scales: One per row. The arithmetic is done in their type.
            zero_points: One zero point per scale.
            input_type, scales_type, zero_points_type: the types in MLIR syntax. Default: what the arrays are, without scales.
            quant_min: The lowest quantized value.
            quant_max: The highest quantized value.
            dtype: The dtype of the quantized values.
            implementation: The torch version to reproduce: the arithmetic of quantize_per_tensor and quantize_per_channel
            changed in 2.14.

            Source: torch 2.13.0, CPU wheel, x86.
            """

        @staticmethod
        def dequantize_per_token(
            input: ArrayLike,
            scales: ArrayLike,
            zero_points: ArrayLike,
            quant_min: int,
            quant_max: int,
            dtype: str,
            *,
            input_type: str | Type | None = ...,
            scales_type: str | Type | None = ...,
            zero_points_type: str | Type | None = ...,
            output_dtype: str = ...,
            implementation: str = ...,
        ) -> NDArray[Any]:
            """Dequantize per token: one scale per row along the last dimension.

            input: The quantized tensor, of type dtype.
            scales: One per row. The arithmetic is done in their type.
            zero_points: One zero point per scale.
            input_type, scales_type, zero_points_type: the types in MLIR syntax. Default: what the arrays are, without scales.
            quant_min: The lowest quantized value.
            quant_max: The highest quantized value.
            dtype: The dtype of the quantized values.
            output_dtype: The type of the result. Default: float32.
            implementation: The torch version to reproduce: the arithmetic of quantize_per_tensor and quantize_per_channel
            changed in 2.14.

            Source: torch 2.13.0, CPU wheel, x86.
            """

        @staticmethod
        def quantize_per_channel_group(
            input: ArrayLike,
            scales: ArrayLike,
            zero_points: ArrayLike,
            quant_min: int,
            quant_max: int,
            dtype: str,
            *,
            input_type: str | Type | None = ...,
            scales_type: str | Type | None = ...,
            zero_points_type: str | Type | None = ...,
            group_size: int = ...,
            implementation: str = ...,
        ) -> NDArray[Any]:
            """Quantize a matrix with one scale per group of a row.

            input: The real tensor.
            scales: One per row. The arithmetic is done in their type.
            zero_points: One zero point per scale.
            input_type, scales_type, zero_points_type: the types in MLIR syntax. Default: what the arrays are, without scales.
            quant_min: The lowest quantized value.
            quant_max: The highest quantized value.
            dtype: The dtype of the quantized values.
            group_size: Elements per group. A group larger than a row means the whole row, if the last dimension of scales is 1.
            implementation: The torch version to reproduce: the arithmetic of quantize_per_tensor and quantize_per_channel
            changed in 2.14.

            Source: torch 2.13.0, CPU wheel, x86.
            """

        @staticmethod
        def dequantize_per_channel_group(
            input: ArrayLike,
            scales: ArrayLike,
            quant_min: int,
            quant_max: int,
            dtype: str,
            *,
            zero_points: ArrayLike | None = ...,
            input_type: str | Type | None = ...,
            scales_type: str | Type | None = ...,
            zero_points_type: str | Type | None = ...,
            group_size: int = ...,
            output_dtype: str = ...,
            implementation: str = ...,
        ) -> NDArray[Any]:
            """Dequantize a matrix with one scale per group of a row.

            input: The quantized tensor, of type dtype.
            scales: One per row. The arithmetic is done in their type.
            zero_points: One zero point per scale.
            input_type, scales_type, zero_points_type: the types in MLIR syntax. Default: what the arrays are, without scales.
            quant_min: The lowest quantized value.
            quant_max: The highest quantized value.
            dtype: The dtype of the quantized values.
            group_size: Elements per group. A group larger than a row means the whole row, if the last dimension of scales is 1.
            output_dtype: The type of the result. Default: float32.
            implementation: The torch version to reproduce: the arithmetic of quantize_per_tensor and quantize_per_channel
            changed in 2.14.

            Source: torch 2.13.0, CPU wheel, x86.
            """

        class _choose_qparams:
            @staticmethod
            def tensor(
                input: ArrayLike,
                quant_min: int,
                quant_max: int,
                eps: float,
                dtype: str,
                *,
                input_type: str | Type | None = ...,
                implementation: str = ...,
            ) -> tuple[NDArray[Any], NDArray[Any]]:
                """Derive scale and zero point from the range of a tensor.

                input: The real tensor.
                input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
                quant_min: The lowest quantized value.
                quant_max: The highest quantized value.
                eps: The smallest scale; greater than 0 in f32.
                dtype: The dtype of the quantized values.
                implementation: The torch version to reproduce: the arithmetic of quantize_per_tensor and quantize_per_channel
                changed in 2.14.

                Source: torch 2.13.0, CPU wheel, x86.
                """

        choose_qparams: _choose_qparams

        class _choose_qparams_symmetric:
            @staticmethod
            def tensor(
                input: ArrayLike,
                quant_min: int,
                quant_max: int,
                eps: float,
                dtype: str,
                *,
                input_type: str | Type | None = ...,
                implementation: str = ...,
            ) -> tuple[NDArray[Any], NDArray[Any]]:
                """Derive the scale from the largest magnitude of a tensor; the zero point is 0, or 128 for uint8.

                input: The real tensor.
                input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
                quant_min: The lowest quantized value.
                quant_max: The highest quantized value.
                eps: The smallest scale; greater than 0 in f32.
                dtype: The dtype of the quantized values.
                implementation: The torch version to reproduce: the arithmetic of quantize_per_tensor and quantize_per_channel
                changed in 2.14.

                Source: torch 2.13.0, CPU wheel, x86.
                """

        choose_qparams_symmetric: _choose_qparams_symmetric

        @staticmethod
        def choose_qparams_per_token(
            input: ArrayLike,
            dtype: str,
            *,
            input_type: str | Type | None = ...,
            implementation: str = ...,
        ) -> tuple[NDArray[Any], NDArray[Any]]:
            """Derive the scale from the largest magnitude of each row along the last dimension; zero points are 0, as f32.

            input: The real tensor.
            input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
            dtype: The dtype of the quantized values.
            implementation: The torch version to reproduce: the arithmetic of quantize_per_tensor and quantize_per_channel
            changed in 2.14.

            Source: torch 2.13.0, CPU wheel, x86.
            """

        @staticmethod
        def choose_qparams_per_token_asymmetric(
            input: ArrayLike,
            dtype: str,
            *,
            input_type: str | Type | None = ...,
            implementation: str = ...,
        ) -> tuple[NDArray[Any], NDArray[Any]]:
            """Derive scale and zero point from the range of each row along the last dimension, for int8.

            input: The real tensor.
            input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
            dtype: The dtype of the quantized values.
            implementation: The torch version to reproduce: the arithmetic of quantize_per_tensor and quantize_per_channel
            changed in 2.14.

            Source: torch 2.13.0, CPU wheel, x86.
            """

        @staticmethod
        def fake_quant_per_channel(
            input: ArrayLike,
            scales: ArrayLike,
            zero_points: ArrayLike,
            axis: int,
            quant_min: int,
            quant_max: int,
            *,
            input_type: str | Type | None = ...,
            scales_type: str | Type | None = ...,
            zero_points_type: str | Type | None = ...,
            implementation: str = ...,
        ) -> NDArray[Any]:
            """Fake-quantize per channel; forward pass only.

            input: The real tensor.
            scales: Rank 1: one per channel; f64 scales are rounded to f32.
            zero_points: One zero point per scale.
            input_type, scales_type, zero_points_type: the types in MLIR syntax. Default: what the arrays are, without scales.
            axis: The channel dimension.
            quant_min: The lowest quantized value.
            quant_max: The highest quantized value.
            implementation: The torch version to reproduce: the arithmetic of quantize_per_tensor and quantize_per_channel
            changed in 2.14.

            Source: torch 2.13.0, CPU wheel, x86.
            """

        class _convert_element_type:
            @staticmethod
            def no_fuse(
                input: ArrayLike,
                dtype: str,
                *,
                input_type: str | Type | None = ...,
                implementation: str = ...,
            ) -> NDArray[Any]:
                """Convert to another element type.

                input: The tensor to convert.
                input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
                dtype: The dtype of the quantized values.
                implementation: The torch version to reproduce: the arithmetic of quantize_per_tensor and quantize_per_channel
                changed in 2.14.

                Source: torch 2.13.0, CPU wheel, x86.
                """

        convert_element_type: _convert_element_type

    quantized_decomposed: _quantized_decomposed

torch: _torch

class _tosa:
    @staticmethod
    def RESCALE(
        input: ArrayLike,
        multiplier: ArrayLike,
        shift: ArrayLike,
        input_zp: ArrayLike,
        output_zp: ArrayLike,
        *,
        input_type: str | Type | None = ...,
        multiplier_type: str | Type | None = ...,
        shift_type: str | Type | None = ...,
        input_zp_type: str | Type | None = ...,
        output_zp_type: str | Type | None = ...,
        scale32: bool = ...,
        rounding_mode: str = ...,
        per_channel: bool = ...,
        input_unsigned: bool = ...,
        output_unsigned: bool = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Rescale integers: subtract the zero point, multiply by multiplier * 2^-shift, add the zero point, clamp.

        input: Integers; unsigned values as their signed bit patterns.
        multiplier: Rank 1: one, or with per_channel one per index of the last dimension. i32 with scale32, else i16.
        shift: One right shift per multiplier, 2 to 62.
        input_zp: One element, of the type of the input; of an unsigned one the signed bit pattern.
        output_zp: One element, of the type of the output; of an unsigned one the signed bit pattern. Its type is that of
        the output.
        input_type, multiplier_type, shift_type, input_zp_type, output_zp_type: the types in MLIR syntax. Default: what the
        arrays are, without scales.
        scale32: Whether multipliers have 32 bits; else 16.
        rounding_mode: INEXACT_ROUND is computed in f32, as TOSA's reference model does.
        per_channel: Whether each index of the last dimension has its own multiplier.
        input_unsigned: Whether the bits of the input are unsigned numbers.
        output_unsigned: Whether the bits of the output are unsigned numbers.
        implementation: The only implementation of these operators.

        Source: TOSA 1.0; 1.1 draft, which is the same; reference model of tosa-tools 2026.8.0.
        """

    @overload
    @staticmethod
    def MUL(

        input1: ArrayLike,
        input2: ArrayLike,
        shift: ArrayLike,
        *,
        input1_type: str | Type | None = ...,
        input2_type: str | Type | None = ...,
        shift_type: str | Type | None = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[False] = ...,
    ) -> NDArray[Any]:
        """Multiply integers element by element, with a rounding right shift, and broadcasting.

        input1: The first operand.
        input2: The second, of its type and rank; dimensions of 1 are broadcast.
        shift: Shape [1]: the right shift of i32, 0 to 63; of others 0.
        input1_type, input2_type, shift_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        trace: Also give the stages of the computation. Not an attribute of the system.
        implementation: The only implementation of these operators.
        return_report: also return the report, a dictionary, whose `trace` has the stages.

        Source: TOSA 1.0; 1.1 draft of 2026-08, which is the same; reference model of tosa-tools 2026.8.0.
        """

    @overload
    @staticmethod
    def MUL(

        input1: ArrayLike,
        input2: ArrayLike,
        shift: ArrayLike,
        *,
        input1_type: str | Type | None = ...,
        input2_type: str | Type | None = ...,
        shift_type: str | Type | None = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[True],
    ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

    @overload
    @staticmethod
    def TABLE(

        input1: ArrayLike,
        table: ArrayLike,
        *,
        input1_type: str | Type | None = ...,
        table_type: str | Type | None = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[False] = ...,
    ) -> NDArray[Any]:
        """Look elements up in a table, of 16 bits with interpolation.

        input1: The tensor.
        table: Of its type: 256 entries of i8, 513 of i16.
        input1_type, table_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        trace: Also give the stages of the computation. Not an attribute of the system.
        implementation: The only implementation of these operators.
        return_report: also return the report, a dictionary, whose `trace` has the stages.

        Source: TOSA 1.0; 1.1 draft of 2026-08, which is the same; reference model of tosa-tools 2026.8.0.
        """

    @overload
    @staticmethod
    def TABLE(

        input1: ArrayLike,
        table: ArrayLike,
        *,
        input1_type: str | Type | None = ...,
        table_type: str | Type | None = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[True],
    ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

    @overload
    @staticmethod
    def AVG_POOL2D(

        input: ArrayLike,
        input_zp: ArrayLike,
        output_zp: ArrayLike,
        kernel: Sequence[int],
        stride: Sequence[int],
        pad: Sequence[int],
        *,
        input_type: str | Type | None = ...,
        input_zp_type: str | Type | None = ...,
        output_zp_type: str | Type | None = ...,
        acc_type: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[False] = ...,
    ) -> NDArray[Any]:
        """The means of windows, by a reciprocal in fixed point; padding does not count.

        input: [N, H, W, C].
        input_zp: Shape [1], of the type of input; of i16 0.
        output_zp: Shape [1], of the type of input; of i16 0.
        input_type, input_zp_type, output_zp_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        kernel: Rows and columns of the window.
        stride: Steps along rows and columns.
        pad: Padding: top, bottom, left and right, each below the kernel.
        acc_type: The type of the sums.
        trace: Also give the stages of the computation. Not an attribute of the system.
        implementation: The only implementation of these operators.
        return_report: also return the report, a dictionary, whose `trace` has the stages.

        Source: TOSA 1.0; 1.1 draft of 2026-08, which is the same; reference model of tosa-tools 2026.8.0.
        """

    @overload
    @staticmethod
    def AVG_POOL2D(

        input: ArrayLike,
        input_zp: ArrayLike,
        output_zp: ArrayLike,
        kernel: Sequence[int],
        stride: Sequence[int],
        pad: Sequence[int],
        *,
        input_type: str | Type | None = ...,
        input_zp_type: str | Type | None = ...,
        output_zp_type: str | Type | None = ...,
        acc_type: str = ...,
        trace: bool = ...,
        implementation: str = ...,
        return_report: Literal[True],
    ) -> tuple[NDArray[Any], Mapping[str, Any]]: ...

    @staticmethod
    def MAX_POOL2D(
        input: ArrayLike,
        kernel: Sequence[int],
        stride: Sequence[int],
        pad: Sequence[int],
        *,
        input_type: str | Type | None = ...,
        nan_mode: str = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """The largest elements of windows.

        input: [N, H, W, C].
        input_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        kernel: Rows and columns of the window.
        stride: Steps along rows and columns.
        pad: Padding: top, bottom, left and right, each below the kernel.
        nan_mode: What becomes of NaN, which integers do not have.
        implementation: The only implementation of these operators.

        Source: TOSA 1.0; 1.1 draft of 2026-08, which is the same; reference model of tosa-tools 2026.8.0.
        """

    @staticmethod
    def CAST_TO_BLOCK_SCALED(
        input_data: ArrayLike,
        output_data_type: str,
        *,
        input_data_type: str | Type | None = ...,
        block_size: str = ...,
        implementation: str = ...,
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Quantize to blocks of 32 elements with power-of-two scales.

        input_data: The real tensor, of rank 1 or more.
        input_data_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        output_data_type: The element type of output_data, which TOSA takes from the graph; i8: mxint8.
        block_size: Elements along the last dimension that share a scale.
        implementation: The only implementation of these operators.

        Source: TOSA 1.1, as of draft 2026-08, extension EXT-MXFP; later drafts have block-scaled types instead. Reference
        model of tosa-tools 2026.8.0.
        """

    @staticmethod
    def CAST_FROM_BLOCK_SCALED(
        input_data: ArrayLike,
        input_scale: ArrayLike,
        *,
        input_data_type: str | Type | None = ...,
        input_scale_type: str | Type | None = ...,
        output_data_type: str = ...,
        block_size: str = ...,
        implementation: str = ...,
    ) -> NDArray[Any]:
        """Dequantize blocks of 32 elements with power-of-two scales.

        input_data: The elements: codes, i8 for mxint8.
        input_scale: One scale per block.
        input_data_type, input_scale_type: the types in MLIR syntax. Default: what the arrays are, without scales.
        output_data_type: The element type of output_data, which TOSA takes from the graph.
        block_size: Elements along the last dimension that share a scale.
        implementation: The only implementation of these operators.

        Source: TOSA 1.1, as of draft 2026-08, extension EXT-MXFP; later drafts have block-scaled types instead. Reference
        model of tosa-tools 2026.8.0.
        """

tosa: _tosa

def run_operation(
    operation: Operation, arrays: Mapping[str, Any], types: Mapping[str, Any], options: Mapping[str, Any]
) -> Result: ...
def gives_tensors(operation: Operation) -> bool: ...
def has_report(operation: Operation) -> bool: ...
def read_option(option: Option, value: Any) -> Any: ...
def options_of(operation: Operation) -> list[Option]: ...
def array_of(value: TensorValue) -> NDArray[Any]: ...
def report_of(operation: Operation, result: Result) -> dict[str, Any]: ...
def file_of(operation: Operation, form: str, file: bytes) -> str | bytes: ...
def function_of(operation: Operation) -> Callable[..., Any]: ...
def signature_of(operation: Operation) -> Signature: ...
def documentation_of(operation: Operation) -> str: ...
def requirements_of(operation: Operation) -> list[str]: ...
def public_name(operator: str) -> str: ...
