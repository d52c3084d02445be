"""Cases in which Requant deliberately does not give the system's bits, by name: what differs, and why."""

from __future__ import annotations

from collections.abc import Mapping

DIVERGENCES: Mapping[str, str] = {
    "auto_round_borrowed_zero_point": "Packed zero points of 0: AutoRound subtracts 1 from the whole word, which "
    "borrows from the next zero point. The words are compared after undoing that.",
    "bitsandbytes_subnormals": "Weights that bitsandbytes dequantizes to a zero or a subnormal of bf16: with "
    "AVX512-BF16 it flushes subnormals to zero.",
    "nan_bits": "Both results are NaN, but their sign or payload differs: for a NaN produced by arithmetic these "
    "depend on the processor.",
    "fbgemm_vector_overflow": "Scaled values, or with fixed point their sums with the zero point, above int32: in "
    "FBGEMM's vector loop the product becomes -2^31 and the sum wraps; elements after the last whole vector saturate.",
    "onednn_nan_by_instruction_set": "NaN to i8 and u8, which oneDNN converts differently with SSE4.1 and, where "
    "scales and zero points are dropped, with AVX-512. The profile follows AVX2.",
    "gguf_sign_of_zeros": "A block of zeros with -0 among them: gguf and ggml store different signs for its scale "
    "(Q4_0, Q5_0; where the first one is -0) and its minimum (Q4_1, Q5_1; where there are zeros of both signs). For "
    "the scale the block formats of the API follow gguf (+0) and `requant checkpoint` follows ggml (-0), as "
    "llama-quantize does; for the minimum both follow ggml (the sign of the first one).",
    "onednn_plain_conversion_nan": "NaN to i8 and u8 where all scales of an axis are within 1e-6 of 1: oneDNN drops "
    "the scales, and the result of its plain conversion depends on the shape and the instruction set.",
    "onednn_saturated_pairs": "Without VNNI, weights of more than 7 bits, and odd ones of convolutions of i8: oneDNN "
    "adds two products in 16 bits, which saturates, and its convolutions halve the weights of signed inputs and round "
    "them to even. Requant's sums are exact, as oneDNN's are with VNNI.",
    "onednn_scales_in_turn": "MatMul and Convolution next to a tie of the output: kernels for AVX2 multiply a sum by "
    "f32(s_lhs * s_rhs), as the profile does. Those for AVX-512 multiply by one scale after the other; so does the "
    "reference, which AVX2 falls back to for some convolutions in groups, and divides by f32(1 / f32(1 / s)). There "
    "every element equals that order.",
    "onednn_widened_minus_zero": "-0 of f8E4M3FN and f8E5M2 to f32: Dequantize with scale 1 gives 0, because it adds a "
    "zero point. oneDNN has no cast of these types; Requant's keeps the sign.",
    "onednn_subnormals_by_instruction_set": "Subnormal results of DynamicDequantize to bf16, which oneDNN keeps only "
    "with AVX512_CORE and AVX512_CORE_VNNI. The profile follows AVX2, where they are zero.",
    "onnxruntime_bf16_nan_sign": "NaN of bf16 to f8E4M3FN and f8E5M2 with saturate=0: onnxruntime loses the sign, "
    "which it keeps from every other type.",
    "onnxruntime_f16_nan_by_place": "NaN of f32 to f16: onnxruntime keeps the payload in whole groups of eight "
    "elements but not after the last whole group, so that the result depends on the position.",
    "torch_bf16_nan_without_avx512": "NaN to bf16 on a processor without AVX-512, where torch writes a different NaN. "
    "Requant follows torch with AVX-512, which writes 0xFFFF.",
    "tosa_accumulator_overflow": "Sums beyond the accumulator of MATMUL and CONV2D, int32 or int48: TOSA leaves the "
    "result undefined; the reference model wraps in int32 and keeps more than 48 bits. Requant refuses them.",
    "tosa_nan_block": "The codes of a block whose scale is NaN, which have no meaning.",
    "type_language": "Types that MLIR accepts and Requant refuses, or that MLIR prints with a loss and Requant "
    "does not: types.md lists them.",
    "tosa_tiny_quotient": "CAST_TO_BLOCK_SCALED to mxint8: the reference model rounds some quotients below 2^-48 to "
    "1/64 instead of zero.",
    "torchao_mx_smallest_scale": "Elements of an MX block whose scale is 2^-127: torchao divides by 2^-126.",
    "torchao_rceil_logarithm": "Scales of rule rceil where f32(amax / largest) is a few ulps above a power of two: "
    "torchao's code for the CPU rounds its logarithm to f32 before it rounds it up, and gives half of the scale. "
    "Requant is exact, as the instruction that torchao uses on a GPU is by its manual.",
    "torchao_nvfp4_reciprocal": "Elements of NVFP4 next to a tie: torchao multiplies by the rounded reciprocal of the "
    "scale; Requant divides.",
}
