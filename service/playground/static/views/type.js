import { element } from "../dom.js";

export const type = {
  id: "type",
  title: "Type",
  initialState: { type: "!quant.uniform<i8:f32, 0.5:3>" },
  carries: ["type"],
  render(root, state, context) {
    root.append(element("h1", {}, "Type"));
  },
};
