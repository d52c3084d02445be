/** Conversions to block formats worth a look: a title, and what they change of the view's initial state. */
import { statesOfOperation } from "./operation_view.js";

const RAMP = Array.from({ length: 32 }, (_, index) => (index - 16) / 2).join(" ");
const OUTLIER = Array.from({ length: 32 }, (_, index) => (index === 5 ? 100 : (index - 16) / 32)).join(" ");

export const QUANTIZE = { format: "mxfp4_e2m1", input: RAMP, "input.type": "f32", "input.shape": "1x32" };

export const DEQUANTIZE = {
  format: "mxfp4_e2m1",
  output_type: "tensor<1x32xf32>",
  elements: Array.from({ length: 32 }, (_, index) => index % 16).join(" "),
  "elements.type": "f4E2M1FN",
  "elements.shape": "1x32",
  scales: "128",
  "scales.type": "f8E8M0FNU",
  "scales.shape": "1x1",
};

export const EXAMPLES = [
  { title: "MXFP4", state: statesOfOperation("quantize_blocks", QUANTIZE) },
  { title: "NVFP4: a scale for 16 elements, and one for all", state: statesOfOperation("quantize_blocks", { ...QUANTIZE, format: "nvfp4" }) },
  { title: "One outlier takes the others’ steps", state: statesOfOperation("quantize_blocks", { ...QUANTIZE, input: OUTLIER }) },
  { title: "torchao’s rule for the scale", state: statesOfOperation("quantize_blocks", { ...QUANTIZE, rule: "ceil" }) },
  { title: "A block of GGUF", state: statesOfOperation("quantize_blocks", { ...QUANTIZE, format: "Q4_0" }) },
  { title: "All codes of MXFP4", state: statesOfOperation("dequantize_blocks", DEQUANTIZE) },
];
