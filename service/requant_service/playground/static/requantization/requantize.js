/** Integers requantized by several profiles, or schemes that replace a profile's own. */
import { answersAsTheyCome } from "../conversion/answers.js";
import { tensorText } from "../conversion/convert.js";
import { askAboutDefined } from "../conversion/undefined_elements.js";

const SCHEME = "scheme ";

/** The name that the page gives a scheme: some profiles have the same names. */
export function schemeLabel(name) {
  return SCHEME + name;
}

/** Whether a label is that of a scheme. */
export function isScheme(label) {
  return label.startsWith(SCHEME);
}

/** The service's name of a profile or scheme. */
export function nameOf(label) {
  return isScheme(label) ? label.slice(SCHEME.length) : label;
}

/**
 * The body of /v1/requantize.
 * @param {string} label of a profile or scheme
 * @param {{shape: number[], values: Array, inputType: string, outputType: string, multipliers?: Object[]}} given
 */
function requantizeBody(label, { shape, values, inputType, outputType, multipliers }) {
  const arithmetic = { [isScheme(label) ? "scheme" : "profile"]: nameOf(label) };
  return { input: { type: tensorText(shape, inputType), values }, output_type: outputType, ...arithmetic, ...(multipliers && { multipliers }) };
}

/**
 * @typedef {Object} Requantization
 * @property {string} profile the label of the profile or scheme
 * @property {boolean} [pending] instead of results: whether they are still to come
 * @property {Object} call the body for /v1/requantize that was answered
 * @property {Array<number|null>} stored null where the arithmetic is not defined
 * @property {Map<number, string>} undefinedAt why, by the element
 * @property {{multiplier: number, shift: number}[]} multipliers
 * @property {Object} report
 * @property {Object[]} elements the steps of each element
 * @property {Error} [problem] instead of results
 */

/**
 * @param {function(Requantization[]): void} onProgress called with what there is before all of it is
 * @returns {Promise<Requantization[]>} in the order of the labels
 */
export function requantizeAll(api, labels, given, signal, onProgress) {
  const ask = async (profile) => {
    const call = requantizeBody(profile, given);
    const bodyOf = (values) => ({ ...call, input: { ...call.input, values } });
    try {
      const { reply, values, undefinedAt } = await askAboutDefined(given.values, (each) => api.post("/v1/explain/requantize", bodyOf(each), { signal }));
      const { output, multipliers, report, elements } = reply;
      const stored = output.values.map((value, index) => (undefinedAt.has(index) ? null : value));
      return { profile, call: bodyOf(values), stored, undefinedAt, multipliers, report, elements };
    } catch (problem) {
      if (signal.aborted) throw problem;
      return { profile, call, problem };
    }
  };
  return answersAsTheyCome(labels, ask, (requantizations) => signal.aborted || onProgress(requantizations));
}
