/** How far the dequantized numbers are from what was given, in steps: units of the element's scale. */
import { channelOf } from "./channels.js";

/**
 * @param {number[]} numbers as given
 * @param {number[]} reals dequantized
 * @returns {number[]} NaN where either is not finite
 */
export function errorsInSteps(numbers, reals, parsed, shape) {
  const channel = channelOf(parsed, shape);
  const scales = parsed.scales.map(Number);
  return numbers.map((x, index) => {
    const error = (reals[index] - x) / scales[channel(index)];
    return Number.isFinite(error) ? error : NaN;
  });
}

/** An error in at most three digits. */
export function errorText(error) {
  if (Number.isNaN(error)) return "–";
  const text = Math.abs(error) >= 1e4 || (error !== 0 && Math.abs(error) < 1e-3) ? error.toExponential(1) : String(Number(error.toPrecision(3)));
  return error > 0 ? `+${text}` : text;
}

/** A real number in at most nine digits, which hold every f32. */
export function realText(value) {
  if (Object.is(value, -0)) return "-0";
  return Number.isFinite(value) ? String(Number(value.toPrecision(9))) : String(value).replace("Infinity", "inf");
}
