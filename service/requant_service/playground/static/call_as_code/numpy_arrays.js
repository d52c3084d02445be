/** numpy arrays as Python writes them. */
import { jsonText } from "../service/api.js";
import { pythonLiteral } from "./literals.js";

const DTYPES = { FP16: "np.float16", BF16: "ml_dtypes.bfloat16", FP32: "np.float32", FP64: "np.float64" };

/** @returns {string} an array of a datatype of the Open Inference Protocol */
export function arrayOf({ datatype, shape, values }) {
  const dtype = DTYPES[datatype] ?? `np.${datatype.toLowerCase()}`;
  const reshaped = shape.length === 1 ? "" : `.reshape(${pythonLiteral(shape)})`;
  return `np.array([${values.map(number).join(", ")}], ${dtype})${reshaped}`;
}

// Numbers that JSON cannot write are texts, and so are factors.
function number(value) {
  if (typeof value !== "string") return jsonText(value);
  const text = JSON.stringify(value.trim());
  if (/^[-+]?0x/i.test(value.trim())) return `float.fromhex(${text})`;
  return /^[-+]?\d+(\.\d*)?(e[-+]?\d+)?$/i.test(value.trim()) ? value.trim() : `float(${text})`;
}
