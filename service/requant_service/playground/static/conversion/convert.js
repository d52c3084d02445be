/** A tensor quantized and dequantized by several profiles. All results are the service's. */
import { jsonNumber } from "../numbers/number_list.js";

/**
 * @typedef {Object} Conversion
 * @property {string} profile
 * @property {Object} [call] the body for /v1/quantize
 * @property {Array<number>} stored integers, or bits of float storage
 * @property {Array<number>} reals dequantized
 * @property {Object} output the dequantized tensor
 * @property {Object} report what saturated and what was NaN
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
 * @returns {Promise<Conversion[]>} in the order of the profiles
 */
export async function convertAll(api, profiles, { numbers, shape, typeText, parsed, measured }, signal) {
  return Promise.all(
    profiles.map(async (profile) => {
      const call = quantizeBody(profile, numbers, shape, typeText, parsed.expressed);
      try {
        const conversion = await convert(api, call, signal);
        const error = measured && (await errorOf(api, call.input, conversion.output, signal));
        return { profile, call, ...conversion, error };
      } catch (problem) {
        if (signal.aborted) throw problem;
        return { profile, call, problem };
      }
    }),
  );
}

async function convert(api, call, signal) {
  const quantized = await api.post("/v1/quantize", call, { signal });
  const { type, values } = quantized.output;
  const input = { type, values };
  const { output } = await api.post("/v1/dequantize", { input, profile: call.profile }, { signal });
  const reals = output.values.map(Number);
  return { stored: values, reals, output: { type: output.type, values: reals.map(jsonNumber) }, report: quantized.report };
}

async function errorOf(api, a, b, signal) {
  return api.post("/v1/compare", { a, b, max_reported: 0 }, { signal });
}

export function tensorText(shape, elementType) {
  return `tensor<${[...shape, elementType].join("x")}>`;
}
