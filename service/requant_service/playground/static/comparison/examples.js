/** Conversions worth a look: a title, and what they change of the view's initial state. */
export const EXAMPLES = [
  { title: "A tie in four ways", state: { profiles: "onnx,stablehlo,litert,mlir" } },
  {
    title: "Division against multiplication by 1 / scale",
    state: {
      type: "!quant.uniform<i8:f32, 0.1>",
      numbers: "0.3 1.55 2.35 4.95 -5.95 8.15 12.15",
      profiles: "onnx,torch_decomposed,litert_xnnpack",
    },
  },
  {
    title: "NaN, infinities and what int32 cannot hold",
    state: { numbers: "nan inf -inf 1e10 -1e10", profiles: "onnx,onnx_reference,stablehlo,litert,torch" },
  },
  {
    title: "onnxruntime 1.31 against 1.32",
    state: { type: "!quant.uniform<i2:f32, 1.0:-1>", numbers: "nan inf -inf 3e9 -3e9 0.6", profiles: "onnx,onnx_1_32" },
  },
  { title: "PyTorch 2.13 against 2.14", state: { profiles: "torch,torch_2_14" } },
  {
    title: "Overflow of an 8-bit float",
    state: { type: "!quant.uniform<f8E4M3FN:f32, 0.5>", numbers: "0.3 224 232.5 1e30 inf", profiles: "onnx,onednn" },
  },
  {
    title: "A thousand normal numbers",
    state: { type: "!quant.uniform<i8:f32, 0.1:-5>", generate: "normal", count: "1000", seed: "7", profiles: "onnx,stablehlo,litert,torch" },
  },
];
