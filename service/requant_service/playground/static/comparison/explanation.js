/** The steps of an element, from /v1/explain/quantize. */
import { channelOf } from "../conversion/channels.js";
import { quantizeBody } from "../conversion/convert.js";

/** Elements of a tensor that the service explains. */
export const MAX_EXPLAINED = 256;

/** The steps of the elements of a tensor, each asked for once. */
export class Explanations {
  #api;
  #given;
  #signal;
  #asked = new Map();

  /** @param {{shape: number[], typeText: string, parsed: Object}} given of the tensor */
  constructor(api, given, signal) {
    this.#api = api;
    this.#given = given;
    this.#signal = signal;
  }

  /**
   * The steps of one element in each profile.
   * @param {number} index of the element
   * @param {Conversion[]} conversions those that have results
   * @returns {Promise<Array<{profile: string, element: Object, problem: Error, refused: boolean}>>} for each its steps, or why
   *   there are none: perhaps the profile refuses the element
   * @throws {Error} for a tensor that is too large to explain
   */
  async of(index, conversions) {
    return Promise.all(
      conversions.map((conversion) => {
        const key = `${index} ${conversion.profile}`;
        if (!this.#asked.has(key)) this.#asked.set(key, this.#ask(index, conversion));
        return this.#asked.get(key);
      }),
    );
  }

  async #ask(index, { profile, call, undefinedAt }) {
    if (undefinedAt.has(index)) return { profile, problem: new Error(undefinedAt.get(index)), refused: true };
    const { shape, typeText, parsed } = this.#given;
    const sample = sampleOf(index, call.input.values, shape, parsed);
    const body = quantizeBody(profile, sample.numbers, sample.shape, typeText, parsed.expressed);
    try {
      const reply = await this.#api.post("/v1/explain/quantize", body, { signal: this.#signal });
      return { profile, element: reply.elements[sample.index] };
    } catch (problem) {
      return { profile, problem };
    }
  }
}

/** A tensor small enough to be explained that has the element: the tensor itself, the element alone, or one element per scale. */
function sampleOf(index, numbers, shape, parsed) {
  if (numbers.length <= MAX_EXPLAINED) return { numbers, shape, index };
  const kind = parsed.element_kind ?? parsed.kind;
  if (!parsed.element && kind === "uniform") return { numbers: [numbers[index]], shape: [1], index: 0 };
  if (!parsed.element && kind === "uniform_per_axis" && parsed.scales.length <= MAX_EXPLAINED) {
    const channel = channelOf(parsed, shape)(index);
    const channels = parsed.scales.map((_, each) => (each === channel ? numbers[index] : 0));
    return { numbers: channels, shape: shape.map((_, axis) => (axis === parsed.axis ? channels.length : 1)), index: channel };
  }
  throw new Error(`Steps are shown for tensors of this type with up to ${MAX_EXPLAINED} elements.`);
}

/** How many steps all profiles have in common at the start. */
export function sharedSteps(explained) {
  const [first, ...others] = explained.map(({ element }) => element.steps);
  const parting = first.findIndex((step, at) => others.some((steps) => !same(steps[at], step)));
  return parting < 0 ? first.length : parting;
}

/**
 * The steps of the profiles in rows, so that the same kinds of steps stand side by side.
 * @returns {Array<{step: string, cells: Array<Object|undefined>}>} a cell for each profile
 */
export function alignedSteps(explained) {
  const rows = [];
  explained.forEach(({ element }, profile) => {
    let above = -1;
    let fresh = [];
    for (const step of element.steps) {
      const found = rowOf(step, rows, above);
      if (found < 0) {
        fresh.push({ step: step.step, symbol: step.symbol, cells: { [profile]: step } });
        continue;
      }
      rows[found].cells[profile] = step;
      // Just above the next row that there was: steps of the profiles before stay together.
      rows.splice(found, 0, ...fresh);
      above = found + fresh.length;
      fresh = [];
    }
    rows.splice(above + 1, 0, ...fresh);
  });
  return rows.map(({ step, cells }) => ({ step, cells: explained.map((_, profile) => cells[profile]) }));
}

/** The next row of the same step and symbol; the zero point is added before rounding or after it, under two symbols. */
function rowOf({ step, symbol }, rows, above) {
  const found = rows.findIndex((row, at) => at > above && row.step === step && row.symbol === symbol);
  if (found >= 0 || step !== "add_zero_point") return found;
  return rows.findIndex((row, at) => at > above && row.step === step);
}

/**
 * The first step of a profile whose number is not that of the reference: a step of each that has the same symbol, since
 * profiles take their steps in different orders.
 * @param {Object[]} steps of the profile
 * @param {Object[]} reference steps of the reference
 * @returns {Object|undefined} none if the profile computes the same numbers, or comes to another result by other steps only
 */
export function firstDifference(steps, reference) {
  const places = new Map();
  return steps.find((step) => {
    if (step.symbol === SHIFT) return false;
    const place = places.get(step.symbol) ?? 0;
    places.set(step.symbol, place + 1);
    const alike = reference.filter((each) => each.symbol === step.symbol && isWhole(each) === isWhole(step));
    const other = alike[Math.min(place, alike.length - 1)];
    return other !== undefined && !sameNumber(step, other);
  });
}

// Each scheme counts it in its own way; r is the right shift of the whole product.
const SHIFT = "shift";

/** Whether a step's result is an integer: p is a product of integers in some schemes, a scaled number in others. */
function isWhole({ precision }) {
  return precision === "integer" || precision === "i32";
}

/** Whether two steps have the same result. Texts are the shortest that read back: numbers of two precisions may share one. */
function sameNumber(a, b) {
  if (a.value !== b.value) return false;
  return a.precision === b.precision || !(a.unrounded || b.unrounded);
}

/** Groups the profiles that have the same steps. */
export function groupedBySteps(explained) {
  const groups = [];
  for (const { profile, element } of explained) {
    const alike = groups.find((group) => sameSteps(group.element.steps, element.steps));
    if (alike) alike.profiles.push(profile);
    else groups.push({ profiles: [profile], element });
  }
  return groups;
}

function sameSteps(a, b) {
  return a.length === b.length && a.every((step, at) => same(step, b[at]));
}

function same(a, b) {
  return a !== undefined && b !== undefined && ["step", "formula", "inserted", "value"].every((part) => a[part] === b[part]);
}
