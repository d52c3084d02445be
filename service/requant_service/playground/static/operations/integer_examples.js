/** Integer operations worth a look: a title, and what they change of the view's initial state. */
import { statesOfOperation } from "./operation_view.js";

export const MATMUL = {
  profile: "litert",
  lhs: "[[1, 2, 3], [-4, 5, -6]]",
  "lhs.type": "!quant.uniform<i8:f32, 0.5:-1>",
  "lhs.shape": "2x3",
  rhs: "[[10, -20], [30, 40], [-50, 60]]",
  "rhs.type": "!quant.uniform<i8<-127:127>:f32:1, {0.25, 0.125}>",
  "rhs.shape": "3x2",
  bias: "[100, -100]",
  "bias.type": "i32",
  output_type: "!quant.uniform<i8:f32, 0.5:3>",
};

export const CONV2D = {
  profile: "litert",
  input: "[0, 1, 2, 3, 4, 5, 6, 7, 8]",
  "input.type": "!quant.uniform<i8:f32, 0.5:-1>",
  "input.shape": "1x3x3x1",
  weights: "[1, 2, -3, 4]",
  "weights.type": "!quant.uniform<i8<-127:127>:f32, 0.25>",
  "weights.shape": "1x2x2x1",
  bias: "[10]",
  "bias.type": "i32",
  output_type: "!quant.uniform<i8:f32, 0.5:3>",
  padding: "same_upper",
};

export const ADD = {
  profile: "litert",
  lhs: "[3, -5, 127, 0]",
  "lhs.type": "!quant.uniform<i8:f32, 0.5:-1>",
  rhs: "[3, 1, 127, 5]",
  "rhs.type": "!quant.uniform<i8:f32, 0.25:2>",
  output_type: "!quant.uniform<i8:f32, 0.5:3>",
};

export const EXAMPLES = [
  { title: "A product with a scale for each column", state: statesOfOperation("matmul", MATMUL) },
  { title: "A convolution, padded as TensorFlow does", state: statesOfOperation("conv2d", CONV2D) },
  { title: "The same sums in onnxruntime", state: statesOfOperation("matmul", { ...MATMUL, profile: "onnx" }) },
  {
    title: "A fused RELU",
    state: statesOfOperation("matmul", { ...MATMUL, output_type: "!quant.uniform<i8<3:127>:f32, 0.5:3>" }),
  },
  {
    title: "An activation with a zero point, and weights with one",
    state: statesOfOperation("conv2d", { ...CONV2D, "weights.type": "!quant.uniform<i8:f32, 0.02:5>", weights: "[7, -9, 11, 3]", padding: "valid", profile: "litert_single_rounding" }),
  },
  { title: "An addition", state: statesOfOperation("add", ADD) },
];
