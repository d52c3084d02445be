/** A tensor quantized and dequantized by several profiles. All results are the service's. */
import { jsonNumber } from "../numbers/number_list.js";
import { tensorType } from "../type/tensor_text.js";
import { answersAsTheyCome } from "./answers.js";
import { askAboutDefined, askAboutStretch } from "./undefined_elements.js";

/**
 * @typedef {Object} Conversion
 * @property {string} profile
 * @property {boolean} [pending] whether more of it is still to come
 * @property {Object} [call] the body for /v1/quantize that was answered
 * @property {Array<number|null>} [stored] integers, or bits of float storage; null where the profile defines none
 * @property {Map<number, string>} [undefinedAt] why, by the element
 * @property {Object} [report] what saturated and what was NaN
 * @property {Array<number>} [reals] dequantized; NaN where nothing is stored
 * @property {Object} [error] of the dequantized numbers against the input, as /v1/compare measures it
 * @property {Error} [problem] instead of results: why the profile has none
 */

/** The body of /v1/quantize for numbers of a shape, whose elements are of the type's expressed type. */
export function quantizeBody(profile, numbers, shape, typeText, expressed) {
  return {
    input: { type: tensorText(shape, expressed), values: numbers.map(jsonNumber) },
    output_type: typeText,
    profile,
  };
}

/**
 * @param {boolean} measured whether the error is measured too
 * @param {boolean} ascending whether the numbers ascend: a profile may define no result for many at either end
 * @param {function(Conversion[]): void} [onProgress] called with what there is before all of it is
 * @returns {Promise<Conversion[]>} in the order of the profiles
 */
export function convertAll(api, profiles, { numbers, shape, typeText, parsed, measured, ascending }, signal, onProgress = () => {}) {
  const ask = async (profile, tell) => {
    const call = quantizeBody(profile, numbers, shape, typeText, parsed.expressed);
    try {
      return await converted(api, call, { measured, about: ascending ? askAboutStretch : askAboutDefined }, signal, tell);
    } catch (problem) {
      if (signal.aborted) throw problem;
      return { profile, call, problem };
    }
  };
  return answersAsTheyCome(profiles, ask, (conversions) => signal.aborted || onProgress(conversions));
}

/** One conversion, step by step: a service that compiles has each of its answers at another time. */
async function converted(api, { input: given, ...options }, { measured, about }, signal, tell) {
  const { profile } = options;
  const bodyOf = (values) => ({ input: { ...given, values }, ...options });
  const { reply, values, undefinedAt } = await about(given.values, (each) => api.post("/v1/quantize", bodyOf(each), { signal }));
  const defined = (each, none) => each.map((value, index) => (undefinedAt.has(index) ? none : value));
  const stored = { profile, call: bodyOf(values), stored: defined(reply.output.values, null), undefinedAt, report: reply.report };
  tell(stored);
  const { type, values: bits } = reply.output;
  const { output } = await api.post("/v1/dequantize", { input: { type, values: bits }, profile }, { signal });
  const dequantized = { ...stored, reals: defined(output.values.map(Number), NaN) };
  if (!measured || undefinedAt.size === values.length) return dequantized;
  tell(dequantized);
  return { ...dequantized, error: await errorOf(api, bodyOf(values).input, output, undefinedAt, signal) };
}

/** The error of the elements that are defined. */
function errorOf(api, a, b, undefinedAt, signal) {
  const kept = ({ type, values }) => {
    const defined = values.filter((_, index) => !undefinedAt.has(index));
    return { type: undefinedAt.size ? tensorText([defined.length], tensorType(type).element) : type, values: defined.map((each) => jsonNumber(Number(each))) };
  };
  return api.post("/v1/compare", { a: kept(a), b: kept(b), max_reported: 0 }, { signal });
}

export function tensorText(shape, elementType) {
  return `tensor<${[...shape, elementType].join("x")}>`;
}
