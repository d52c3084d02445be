/** Elements for which a profile's arithmetic is not defined. The service refuses a tensor that has one, and names it. */

const MOST = 128;

/**
 * @typedef {Object} Answered
 * @property {Object} reply
 * @property {Array} values those that were answered, with 0 in the place of each that is not defined
 * @property {Map<number, string>} undefinedAt why each of them is not, by the index
 */

/**
 * Ask about a tensor. If the service refuses an element, ask again with 0 in its place, so that all others keep theirs.
 * @param {Array} values as a request has them
 * @param {function(Array): Promise<Object>} post asks about such values
 * @returns {Promise<Answered>}
 * @throws {Error} another problem, or that of a tensor with too many such elements
 */
export async function askAboutDefined(values, post) {
  const undefinedAt = new Map();
  let given = values;
  for (;;) {
    try {
      return { reply: await post(given), values: given, undefinedAt };
    } catch (problem) {
      const index = refusedIndex(problem, values);
      if (undefinedAt.has(index) || undefinedAt.size === MOST) throw problem;
      undefinedAt.set(index, problem.message);
      given = given.with(index, 0);
    }
  }
}

/**
 * The same for ascending numbers, of which all below some bound may be refused, and all above another: few questions find both.
 * @returns {Promise<Answered>}
 * @throws {Error} another problem
 */
export async function askAboutStretch(values, post) {
  const least = values.reduce((best, x, index) => (Math.abs(x) < Math.abs(values[best]) ? index : best), 0);
  let from = 0;
  let to = values.length;
  let reason = "";
  const within = () => values.map((x, index) => (index < from || index >= to ? 0 : x));
  for (;;) {
    try {
      const reply = await post(within());
      const outside = values.map((_, index) => index).filter((index) => index < from || index >= to);
      return { reply, values: within(), undefinedAt: new Map(outside.map((index) => [index, reason])) };
    } catch (problem) {
      const index = refusedIndex(problem, values);
      if (index < from || index >= to || index === least) throw problem;
      reason = problem.message;
      // All before the first that is refused are defined.
      if (index > least) to = index;
      else from = await firstDefined(index, least, (place) => post(values.map((x, each) => (each === place ? x : 0))), values);
    }
  }
}

/** The first index after `low`, up to `high`, that is not refused. */
async function firstDefined(low, high, postOne, values) {
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    try {
      await postOne(middle);
      high = middle;
    } catch (problem) {
      refusedIndex(problem, values);
      low = middle;
    }
  }
  return high;
}

/** The index of the element that is refused. @throws {Error} the problem, if it is not about an element */
function refusedIndex(problem, { length }) {
  const { code, index } = problem;
  if (code !== "precondition_failed" || !Number.isInteger(index) || index < 0 || index >= length) throw problem;
  return index;
}
