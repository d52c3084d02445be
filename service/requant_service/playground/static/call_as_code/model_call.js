/** The views' calls of the JSON API as calls of the corresponding models of the Open Inference Protocol. */

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
  "/v1/parameters/multiplier": ({ factors, scheme }) => ({
    model: "derive_multiplier",
    inputs: [vector("factor", "FP64", factors)],
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

function tensorType(text) {
  const found = /^\s*tensor\s*<\s*((?:\d+\s*x\s*)*)(.*)>\s*$/s.exec(text);
  if (!found) return { dimensions: null, element: text };
  return { dimensions: (found[1].match(/\d+/g) ?? []).map(Number), element: found[2].trim() };
}

/** What the elements are stored as: integers of 8 bits and more, or floats of 16. */
function datatypeOf(element) {
  const stored = /^!quant\.\w+<\s*(\w+)/.exec(element)?.[1] ?? element;
  if (stored in FLOAT_DATATYPES) return FLOAT_DATATYPES[stored];
  // Such as i8, si8, ui8, and u8 within quantized types.
  const [, unsigned, bits] = /^s?(u?)i?(\d+)$/.exec(stored) ?? [];
  const width = INTEGER_DATATYPES.find((each) => bits <= each);
  return width && `${unsigned ? "UINT" : "INT"}${width}`;
}
