/** Elements for which a profile's arithmetic is not defined. The service refuses a tensor that has one, and names it. */

const MOST = 128;

/**
 * Ask about a tensor. If the service refuses an element, ask again with 0 in its place, so that all others keep theirs.
 * @param {Array} values as a request has them
 * @param {function(Array): Promise<Object>} post asks about such values
 * @returns {Promise<{reply: Object, values: Array, undefinedAt: Map<number, string>}>} the values that were answered, and
 *   why each element that was replaced is not defined
 * @throws {Error} another problem, or that of a tensor with too many such elements
 */
export async function askAboutDefined(values, post) {
  const undefinedAt = new Map();
  let given = values;
  for (;;) {
    try {
      return { reply: await post(given), values: given, undefinedAt };
    } catch (problem) {
      const { code, index } = problem;
      const named = code === "precondition_failed" && Number.isInteger(index) && index >= 0 && index < values.length;
      if (!named || undefinedAt.has(index) || undefinedAt.size === MOST) throw problem;
      undefinedAt.set(index, problem.message);
      given = given.with(index, 0);
    }
  }
}
