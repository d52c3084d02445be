/** Data to calibrate for: a title, and what they change of the view's initial state. */
import { statesOfOperation } from "./operation_view.js";

export const DEFAULT = { input: "[-1.5, -0.25, 0, 0.5, 0.75, 2]", "input.type": "f32", storage: "i8" };

const OUTLIER = [...Array.from({ length: 63 }, (_, index) => (index - 31) / 16), 60].join(" ");

export const EXAMPLES = [
  { title: "Six numbers", state: statesOfOperation("derive_from_tensor", DEFAULT) },
  { title: "An outlier", state: statesOfOperation("derive_from_tensor", { ...DEFAULT, input: OUTLIER }) },
  { title: "Symmetric, by the rule of PyTorch’s observers", state: statesOfOperation("derive_from_tensor", { ...DEFAULT, symmetric: "true", scheme: "torch_observer" }) },
  {
    title: "A scale for each channel",
    state: statesOfOperation("derive_from_tensor", { ...DEFAULT, input: "[[0.5, -1.0, 0.25], [8.0, -3.0, 2.0]]", "input.shape": "2x3", axis: "0" }),
  },
  { title: "Ranges without 0", state: statesOfOperation("derive_from_tensor", { ...DEFAULT, input: "1 1.5 2 3", storage: "u8" }) },
];
