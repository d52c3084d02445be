/** A tensor through quantize and dequantize of several profiles. All results are the service's. */
import { jsonNumber } from "../numbers/number_list.js";

/**
 * @typedef {Object} Conversion
 * @property {string} profile
 * @property {Object} [call] the body for /v1/quantize
 * @property {string} storedType MLIR text of the stored tensor
 * @property {Array<number>} stored integers, or bits of float storage
 * @property {Array<number>} reals dequantized
 * @property {Object} report what saturated, NaN, and the error against the input
 * @property {Error} [problem] in the place of results: why the profile has none
 */

/** The body of /v1/quantize for numbers of a shape, whose elements are of the type's expressed type. */
export function quantizeBody(profile, numbers, shape, typeText, expressed) {
  return {
    input: { type: tensorText(shape, expressed), values: numbers.map(jsonNumber) },
    output_type: typeText,
    profile,
  };
}

/** @returns {Promise<Conversion[]>} in the order of the profiles */
export async function convertAll(api, profiles, numbers, shape, typeText, parsed, signal) {
  return Promise.all(
    profiles.map(async (profile) => {
      const call = quantizeBody(profile, numbers, shape, typeText, parsed.expressed);
      try {
        return { profile, call, ...(await convert(api, call, signal)) };
      } catch (problem) {
        if (signal.aborted) throw problem;
        return { profile, call, problem };
      }
    }),
  );
}

async function convert(api, call, signal) {
  const quantized = await api.post("/v1/quantize", { ...call, error: true }, { signal });
  const { type, values } = quantized.output;
  const input = { type, values };
  const dequantized = await api.post("/v1/dequantize", { input, profile: call.profile }, { signal });
  return { storedType: type, stored: values, reals: dequantized.output.values.map(Number), report: quantized.report };
}

export function tensorText(shape, elementType) {
  return `tensor<${[...shape, elementType].join("x")}>`;
}
