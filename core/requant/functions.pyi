# Written by `python -m requant.function_stubs` from the descriptions of operations.
from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

from numpy.typing import ArrayLike, NDArray

from requant.mlir.types import Type

__all__ = ["matmul", "conv2d", "add"]

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

def run_operation(
    operation: Operation, arrays: Mapping[str, ArrayLike], types: Mapping[str, Any], options: Mapping[str, Any]
) -> Result: ...
def read_option(option: Option, value: Any) -> Any: ...
def options_of(operation: Operation) -> list[Option]: ...
def array_of(value: TensorValue) -> NDArray[Any]: ...
def report_of(operation: Operation, result: Result) -> dict[str, Any]: ...
def function_of(operation: Operation) -> Callable[..., Any]: ...
def signature_of(operation: Operation) -> Signature: ...
def documentation_of(operation: Operation) -> str: ...
