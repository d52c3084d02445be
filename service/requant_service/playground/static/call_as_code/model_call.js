/** The views' calls of the JSON API as calls of the corresponding models of the Open Inference Protocol. */

import { bitsOf, isUnsigned, storageOf, tensorType } from "../type/tensor_text.js";

const INTEGER_DATATYPES = [8, 16, 32, 64];
const FLOAT_DATATYPES = { f16: "FP16", bf16: "BF16", f32: "FP32", f64: "FP64" };

/**
 * @typedef {Object} ModelInput
 * @property {string} name
 * @property {string} datatype
 * @property {number[]} shape
 * @property {Array} values numbers, and texts of numbers
 */

/**
 * @returns {{model: string, inputs: ModelInput[], parameters: Object}|null} null for a call that has no such form here
 */
export function modelCall({ path, body }) {
  const make = MODELS[path];
  return make ? make(body) : null;
}

const MODELS = {
  "/v1/quantize": (body) => conversion("quantize", body),
  "/v1/requantize": (body) => conversion("requantize", body),
  "/v1/parameters/multiplier": ({ factors, scales, scheme }) => ({
    model: "derive_multiplier",
    inputs: factors ? [vector("factor", "FP64", factors)] : scaleSides(scales).map(([side, values]) => vector(`${side}_scale`, "FP64", values)),
    parameters: { scheme },
  }),
  "/v1/types/translate": (body) => ({ model: "translate_type", inputs: [], parameters: body }),
};

function conversion(model, { input, multipliers, ...options }) {
  const { dimensions, element } = tensorType(input.type);
  const datatype = datatypeOf(element);
  if (!datatype || !dimensions) return null;
  const inputs = [{ name: "x", datatype, shape: dimensions, values: input.values }];
  if (multipliers) {
    inputs.push(vector("multiplier", "INT64", multipliers.map((each) => each.multiplier)));
    inputs.push(vector("shift", "INT32", multipliers.map((each) => each.shift)));
  }
  return { model, inputs, parameters: { input_type: element, ...options } };
}

function vector(name, datatype, values) {
  return { name, datatype, shape: [values.length], values };
}

/** The scales of each side that has any. */
export function scaleSides(scales) {
  return ["input", "weight", "output"].filter((side) => side in scales[0]).map((side) => [side, scales.map((each) => each[side])]);
}

/** What the elements are stored as: integers of 8 bits and more, or floats of 16. */
export function datatypeOf(element) {
  const stored = storageOf(element);
  if (stored in FLOAT_DATATYPES) return FLOAT_DATATYPES[stored];
  const width = INTEGER_DATATYPES.find((each) => bitsOf(stored) <= each);
  return width && `${isUnsigned(stored) ? "UINT" : "INT"}${width}`;
}
