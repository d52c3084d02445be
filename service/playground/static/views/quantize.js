import { element } from "../dom.js";

export const quantize = {
  id: "quantize",
  title: "Compare profiles",
  initialState: {
    type: "!quant.uniform<i8:f32, 0.5:3>",
    numbers: "-0.25 0.25 0.75 1.25",
    profiles: "onnx,stablehlo,litert,mlir",
  },
  carries: ["type"],
  render(root, state, context) {
    root.append(element("h1", {}, "Compare profiles"));
  },
};
