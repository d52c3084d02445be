/** Integers requantized by several profiles, or schemes that replace a profile's own. */
import { tensorText } from "../conversion/convert.js";

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
 * @property {Object} call the body for /v1/requantize
 * @property {Array<number>} stored
 * @property {{multiplier: number, shift: number}[]} multipliers
 * @property {Object} report
 * @property {Object[]} elements the steps of each element
 * @property {Error} [problem] instead of results
 */

/** @returns {Promise<Requantization[]>} in the order of the labels */
export function requantizeAll(api, labels, given, signal) {
  return Promise.all(
    labels.map(async (label) => {
      const call = requantizeBody(label, given);
      try {
        const { output, multipliers, report, elements } = await api.post("/v1/explain/requantize", call, { signal });
        return { profile: label, call, stored: output.values, multipliers, report, elements };
      } catch (problem) {
        if (signal.aborted) throw problem;
        return { profile: label, call, problem };
      }
    }),
  );
}
