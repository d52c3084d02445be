/** The steps of an element, from /v1/explain/quantize. */
import { channelOf } from "../conversion/channels.js";
import { quantizeBody } from "../conversion/convert.js";

/** Elements of a tensor that the service explains. */
export const MAX_EXPLAINED = 256;

/**
 * The steps of one element in each profile.
 * @param {number} index of the element
 * @returns {Promise<Array<{profile: string, element: Object, problem: Error}>>} for each profile that has results, its
 *   steps, or why there are none
 * @throws {Error} for a tensor that is too large to explain
 */
export async function explainElement(api, index, { conversions, numbers, shape, typeText, parsed }, signal) {
  const sample = sampleOf(index, numbers, shape, parsed);
  const profiles = conversions.filter((each) => !each.problem).map((each) => each.profile);
  return Promise.all(
    profiles.map(async (profile) => {
      const body = quantizeBody(profile, sample.numbers, sample.shape, typeText, parsed.expressed);
      try {
        const reply = await api.post("/v1/explain/quantize", body, { signal });
        return { profile, element: reply.elements[sample.index] };
      } catch (problem) {
        return { profile, problem };
      }
    }),
  );
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
 * @returns {Array<{step: string, cells: Array<Object|undefined>, differs: boolean}>} a cell for each profile, and whether
 *   their numbers so far differ
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
  const last = explained.map(() => null);
  return rows.map(({ step, cells }) => {
    for (const [profile, cell] of Object.entries(cells)) last[profile] = cell;
    const [first, ...others] = last.filter(Boolean);
    return { step, cells: explained.map((_, profile) => cells[profile]), differs: others.some((other) => !sameNumber(first, other)) };
  });
}

/** The next row of the same step and symbol; the zero point is added before rounding or after it, under two symbols. */
function rowOf({ step, symbol }, rows, above) {
  const found = rows.findIndex((row, at) => at > above && row.step === step && row.symbol === symbol);
  if (found >= 0 || step !== "add_zero_point") return found;
  return rows.findIndex((row, at) => at > above && row.step === step);
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
