/** Steps of an element in words. */

const ROUNDINGS = [
  [/^RNE\(/, "to nearest", "to even"],
  [/^RNA\(/, "to nearest", "away from zero"],
  [/^floor\(.* \+ 1\/2\)$/, "to nearest", "up"],
  [/^ceil\(.* - 1\/2\)$/, "to nearest", "down"],
  [/^trunc\(/, "toward zero", "toward zero"],
  [/^floor\(.* \+ u\)$/, "stochastically", "stochastically"],
  [/^floor\(/, "down", "down"],
  [/^ceil\(/, "up", "up"],
];

const SIDES = { s_in: "input ", s_out: "output " };
const MAX_CHARACTERS = 12;

const WORDS = {
  flush: (_, verb) => `${verb("flush")} the subnormal to 0`,
  scale: (step, verb) => step.unrounded && `${verb("round")} the ${SIDES[step.symbol] ?? ""}scale to ${step.precision}: ${step.value}`,
  reciprocal: (step, verb) => `${verb("take")} the reciprocal of the scale: ${step.value}`,
  divide: (step, verb) => `${verb("divide")}: ${equation(step)}`,
  multiply: (step, verb) => `${verb("multiply")}: ${equation(step)}`,
  add: (step, verb) => `${verb("add")}: ${equation(step)}`,
  multiply_add: (step, verb) => `${verb("multiply")} and ${verb("add")} with one rounding: ${equation(step)}`,
  convert: (step, verb, value) => Number(step.value) !== Number(value) && `${verb("convert")} to ${step.precision}: ${equation(step)}`,
  add_zero_point: (step, verb) => `${verb("add")} the zero point: ${equation(step)}`,
  subtract_zero_point: (step, verb, value, input) => step.value !== input && `${verb("subtract")} the zero point: ${equation(step)}`,
  round: rounding,
  clamp: clamping,
  nan: (step, verb) => `${verb("store")} NaN as ${step.value}`,
  overflow: (step, verb) => `${verb("store")} ${step.value} for a value out of range`,
  encode: (step, verb) => `${verb("store")} it as ${step.value}`,
  factor: (step, verb) => step.symbol === "d" && `${verb("take")} the ratio of the scales: ${step.value}`,
  multiplier: (step, verb) => `${verb("take")} the multiplier ${step.value}`,
  shift: (step, verb) => step.symbol === "shift" && `${verb("take")} the shift ${step.value}`,
  reduce: (step, verb) => `${verb("reduce")} the multiplier: ${step.value}`,
  shift_left: (step, verb, value, input) => step.value !== input && `${verb("shift")} left: ${equation(step)}`,
  high_multiply: (step, verb) =>
    step.unrounded ? `${verb("round")} the high half of the product, ${brief(step.unrounded)}, to ${step.value}` : `${verb("take")} the high half of the product: ${step.value}`,
  nudge: (step, verb) => `${verb("add")} the nudge: ${equation(step)}`,
  shift_right: shiftingRight,
  offset: (step, verb) => `${verb("take")} both zero points as one offset: ${step.value}`,
  add_offset: (step, verb) => `${verb("add")} the offset: ${equation(step)}`,
};

/**
 * "rounds the tie 0.5 to even: 0, then adds the zero point: 0 + 3 = 3"
 * @param {Array<Object>} steps those to describe
 * @param {Array<Object>} before the steps that precede them
 * @param {boolean} several whether several profiles do it
 * @param {string} input the element
 */
export function stepsInWords(steps, before, several, input) {
  const verb = several ? (base) => base : thirdPerson;
  const clauses = [];
  let value = before.at(-1)?.value;
  for (const step of steps) {
    const words = (WORDS[step.step] ?? other)(step, verb, value, input);
    if (words) clauses.push(words);
    value = step.value;
  }
  return clauses.join(", then ");
}

function thirdPerson(base) {
  if (base.endsWith("y")) return `${base.slice(0, -1)}ies`;
  return base.endsWith("sh") ? `${base}es` : `${base}s`;
}

function equation(step) {
  const text = step.inserted === step.value ? step.value : `${step.inserted} = ${step.value}`;
  return text.replaceAll(" ", "\u00a0");
}

function roundingOf(step) {
  return ROUNDINGS.find(([each]) => each.test(step.formula)) ?? [/^/, "", ""];
}

function shiftingRight(step, verb) {
  const [, nearest, tie] = roundingOf(step);
  if (!step.unrounded) return `${verb("shift")} right: ${step.value}`;
  const what = step.tie ? `the tie ${step.unrounded} ${tie}` : `${brief(step.unrounded)} ${nearest}`;
  return `${verb("shift")} right and ${verb("round")} ${what}: ${step.value}`;
}

/** The first digits of a long number. */
function brief(text) {
  return text.length > MAX_CHARACTERS ? `${text.slice(0, MAX_CHARACTERS).replace(/…?$/, "…")}` : text;
}

function rounding(step, verb, value) {
  const [formula, nearest, tie] = roundingOf(step);
  if (formula.source.includes("trunc")) return `${verb("truncate")} ${value} to ${step.value}`;
  return step.tie ? `${verb("round")} the tie ${value} ${tie}: ${step.value}` : `${verb("round")} ${value} ${nearest}: ${step.value}`;
}

/** Bounds are mentioned only where they change something. */
function clamping(step, verb, value) {
  return Number(step.value) === Number(value) ? "" : `${verb("clamp")} ${value} to the range: ${step.value}`;
}

function other(step, verb) {
  return `${verb("compute")} ${equation(step)}`;
}
