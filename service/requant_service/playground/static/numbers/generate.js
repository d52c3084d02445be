/** Numbers to try a type on. The same type, count and seed give the same numbers in every browser. */

export const KINDS = [
  ["normal", "normal distribution"],
  ["ties", "ties (half steps)"],
  ["ramp", "ramp over the range"],
  ["odd", "special values"],
];

// Smallest and largest subnormal, smallest and largest normal.
const EXTREMES = {
  f16: [2 ** -24, 2 ** -14 - 2 ** -24, 2 ** -14, 65504],
  bf16: [2 ** -133, 2 ** -126 - 2 ** -133, 2 ** -126, 2 ** 128 - 2 ** 120],
  f32: [2 ** -149, 2 ** -126 - 2 ** -149, 2 ** -126, 2 ** 128 - 2 ** 104],
  f64: [2 ** -1074, 2 ** -1022 - 2 ** -1074, 2 ** -1022, Number.MAX_VALUE],
};

/**
 * @param {string} kind one of KINDS
 * @param {number} count how many; not used for special values
 * @param {number} seed
 * @param {Object} parsed what /v1/types/parse says of the type; the first scale and zero point are used
 * @returns {number[]}
 */
export function generate(kind, count, seed, parsed) {
  const scale = Number(parsed.scales[0]);
  const zero = parsed.zero_points[0];
  const low = (parsed.storage_min - zero) * scale;
  const high = (parsed.storage_max - zero) * scale;
  const indices = Array.from({ length: count }, (_, index) => index);
  switch (kind) {
    case "ties":
      return indices.map((index) => Number(((index - Math.floor(count / 2) + 0.5) * scale).toPrecision(12)));
    case "ramp": {
      // A twentieth beyond the range on either side saturates.
      const start = low - (high - low) / 20;
      const step = ((high - low) * 1.1) / Math.max(count - 1, 1);
      return indices.map((index) => Number((start + index * step).toPrecision(5)));
    }
    case "odd":
      return specialValues(parsed.expressed);
    default: {
      // Three standard deviations reach the ends of the range.
      const normal = normalNumbers(seed);
      return indices.map(() => Number(((low + high) / 2 + ((high - low) / 6) * normal()).toPrecision(4)));
    }
  }
}

function specialValues(expressed) {
  const extremes = EXTREMES[expressed] ?? EXTREMES.f32;
  return [NaN, Infinity, -Infinity, 0, -0, ...extremes.flatMap((value) => [value, -value])];
}

/** Marsaglia's polar method. */
function normalNumbers(seed) {
  const uniform = uniformNumbers(seed);
  return function normal() {
    for (;;) {
      const x = 2 * uniform() - 1;
      const y = 2 * uniform() - 1;
      const square = x * x + y * y;
      if (square > 0 && square < 1) return x * Math.sqrt((-2 * Math.log(square)) / square);
    }
  };
}

/** The generator mulberry32: 32 bits of state, numbers in [0, 1). */
function uniformNumbers(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
