/** The multiplier and shift of a requantization in C: the scheme's arithmetic, with the numbers that the service derived. */
import { cLiteral } from "../identification/files.js";

/**
 * @typedef {Object} Fixed what the service derived
 * @property {string} scheme
 * @property {Array<{multiplier: number, shift: number}>} multipliers
 * @property {Object} [conversion] the rest of a requantization: `accumulators`, `inputZero`, `outputZero`, `lowest`, `highest`
 */

const TWO_ROUNDINGS = (last) => `    int left = shift > 0 ? shift : 0, right = shift > 0 ? 0 : -shift;
    int32_t shifted = (int32_t)((uint32_t)v << left);
    int64_t high = ((int64_t)shifted * multiplier + ((int64_t)1 << 30)) >> 31;
    int64_t half = right > 0 ? (int64_t)1 << (right - 1) : 0;
    return ${last};`;
const AWAY = TWO_ROUNDINGS("high >= 0 ? (high + half) >> right : -((-high + half) >> right)");
const ONE_ROUNDING = `    int right = 31 - shift;
    return ((int64_t)v * multiplier + ((int64_t)1 << (right - 1))) >> right;`;
const RIGHT_SHIFT = (rounding) => `    int64_t product = (int64_t)v * multiplier;
    ${rounding}
    return product >> shift;`;
const UP = RIGHT_SHIFT("product += shift > 0 ? (int64_t)1 << (shift - 1) : 0;");
const FLOAT = "    return llrintf((float)v * ldexpf((float)multiplier, -shift));";

/** Of each scheme the body of `int64_t scale(int32_t v, int64_t multiplier, int shift)`, and how it rounds. */
const SCHEMES = {
  litert: [AWAY, "Two roundings: the high half of the doubled product, ties up; then the shift, ties away from zero."],
  gemmlowp: [AWAY, "Two roundings: the high half of the doubled product, ties up; then the shift, ties away from zero."],
  cmsis_nn: [AWAY, "Two roundings: the high half of the doubled product, ties up; then the shift, ties away from zero."],
  arm_vector: [TWO_ROUNDINGS("(high + half) >> right"), "Two roundings, ties up."],
  litert_single_rounding: [ONE_ROUNDING, "One rounding, ties up."],
  cmsis_nn_single_rounding: [ONE_ROUNDING, "One rounding, ties up."],
  tosa: [UP, "One rounding, ties up."],
  ethos_u: [UP, "One rounding, ties up."],
  xnnpack_rndnu: [UP, "One rounding, ties up."],
  fbgemm_fixed_point: [UP, "One rounding, ties up."],
  vnclip_rnu: [UP, "One rounding, ties up."],
  vnclip_rdn: ["    return ((int64_t)v * multiplier) >> shift;", "Rounds down."],
  tosa_double_round: [
    RIGHT_SHIFT("product += (int64_t)1 << (shift - 1);\n    if (shift > 31)\n        product += v >= 0 ? (int64_t)1 << 30 : -((int64_t)1 << 30);"),
    "One shift that rounds as two do.",
  ],
  xnnpack_rndna: [
    `    int64_t product = (int64_t)(v < 0 ? -(int64_t)v : v) * multiplier;
    int64_t scaled = (product + ((int64_t)1 << (shift - 1))) >> shift;
    return v < 0 ? -scaled : scaled;`,
    "One rounding, ties away from zero.",
  ],
  xnnpack_fp32: [FLOAT, "One rounding of an f32 product, ties to even."],
  onnxruntime: [FLOAT, "One rounding of an f32 product, ties to even."],
  fbgemm: [FLOAT, "One rounding of an f32 product, ties to even."],
};

/** Whether there is C for a call: 64-bit sums and some schemes have none here. */
export function hasC({ fixed }) {
  return fixed !== undefined && fixed.multipliers.length > 0 && Object.hasOwn(SCHEMES, fixed.scheme);
}

/** @returns {string} C99 */
export function cProgram({ fixed: { scheme, multipliers, conversion } }) {
  const [body, rounding] = SCHEMES[scheme];
  return `/* Scheme ${scheme}. ${rounding}
   A right shift of a negative number has to be arithmetic, as it is in GCC, Clang, IAR and Arm's compilers. */
${body === FLOAT ? "#include <math.h>\n" : ""}#include <stdint.h>
${conversion ? "#include <stdio.h>\n" : ""}
${constant("int64_t", "multipliers", multipliers.map((each) => each.multiplier), 64)}
${constant("int", "shifts", multipliers.map((each) => each.shift), 32)}

static int64_t scale(int32_t v, int64_t multiplier, int shift)
{
${body}
}

${conversion ? mainOf(conversion, multipliers.length) : OF_ONE}`;
}

const OF_ONE = `int64_t scaled(int32_t v)
{
    return scale(v, multipliers[0], shifts[0]);
}
`;

function mainOf({ accumulators, inputZero, outputZero, lowest, highest }, count) {
  return `${constant("int32_t", "accumulators", accumulators, 32)}

int main(void)
{
    for (int i = 0; i < ${accumulators.length}; i++) {
        int64_t q = scale(accumulators[i] - (${inputZero}), multipliers[${count > 1 ? `i % ${count}` : 0}], shifts[${count > 1 ? `i % ${count}` : 0}]) + (${outputZero});
        q = q < ${literal(lowest)} ? ${literal(lowest)} : q > ${literal(highest)} ? ${literal(highest)} : q;
        printf("%lld\\n", (long long)q);
    }
    return 0;
}
`;
}

// -2147483648 is no literal of C.
function literal(bound) {
  return cLiteral(bound, "i", 64, "LL");
}

function constant(type, name, values, bits) {
  return `static const ${type} ${name}[] = {${values.map((value) => cLiteral(value, "i", bits, bits === 64 ? "LL" : "")).join(", ")}};`;
}
