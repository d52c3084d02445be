/** Requests of test vectors: a title, and what they change of the view's initial state. */
import { statesOfOperation } from "./operation_view.js";

export const DEFAULT = { operation: "requantize", input_type: "i32", output_type: "i8", scheme: "litert", count: "64" };

export const EXAMPLES = [
  { title: "LiteRT’s requantization, with multipliers at their extremes", state: statesOfOperation("vectors", DEFAULT) },
  { title: "TOSA’s RESCALE", state: statesOfOperation("vectors", { operation: "tosa.RESCALE", input_type: "i32", output_type: "i8", count: "64" }) },
  {
    title: "onnxruntime’s QuantizeLinear",
    state: statesOfOperation("vectors", { operation: "onnx.QuantizeLinear", input_type: "f32", output_type: "!quant.uniform<i8:f32, 0.1:3>", count: "64" }),
  },
  {
    title: "CMSIS-NN with one rounding",
    state: statesOfOperation("vectors", { ...DEFAULT, scheme: "cmsis_nn_single_rounding" }),
  },
];
