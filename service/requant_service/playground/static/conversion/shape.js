/** The shape of the numbers: what the person says, or else what the type asks for. */

// As many as the service accepts.
const MAX_DIMENSIONS = 64;

/**
 * @param {string} given such as "2x3", or "" for none
 * @param {number} count how many numbers there are
 * @param {Object} parsed what /v1/types/parse says of the type
 * @returns {number[]}
 * @throws {Error} that says what does not fit
 */
export function shapeFor(given, count, parsed) {
  const shape = given.trim() ? readShape(given) : ofType(parsed, count);
  const size = shape.reduce((product, each) => product * each, 1);
  if (size !== count) throw new Error(`Shape ${shape.join("×")} has ${size} elements, but there are ${count} numbers.`);
  return shape;
}

export function readShape(text) {
  const shape = text.trim().split(/\s*[x×,\s]\s*/);
  if (!shape.every((size) => /^\d+$/.test(size))) throw new Error("A shape is written as 2x3.");
  return shape.map(Number);
}

function ofType(parsed, count) {
  if (parsed.element && parsed.ranked) return parsed.shape.map((size) => (size < 0 ? count : size));
  const kind = parsed.element_kind ?? parsed.kind;
  if (kind === "uniform_per_axis") return spread(parsed.axis + 1, [[parsed.axis, parsed.scales.length]], count);
  if (kind === "uniform_sub_channel") {
    const sizes = parsed.block_axes.map((axis, index) => [axis, parsed.block_sizes[index] * parsed.scale_shape[axis]]);
    return spread(parsed.scale_shape.length, sizes, count);
  }
  return [count];
}

/** The shape with these sizes in these dimensions, and the rest of the numbers along the last other dimension. */
function spread(rank, sizes, count) {
  if (rank > MAX_DIMENSIONS) throw new Error(`This type is for tensors of ${rank} dimensions; at most ${MAX_DIMENSIONS} are accepted.`);
  const fixed = new Map(sizes);
  const shape = Array.from({ length: rank }, (_, axis) => fixed.get(axis) ?? 1);
  const product = shape.reduce((each, size) => each * size, 1);
  const rest = count / product;
  if (!Number.isInteger(rest)) {
    throw new Error(`This type needs a multiple of ${product} numbers (shape ${shape.join("×")}); there are ${count}.`);
  }
  const free = shape.findLastIndex((_, axis) => !fixed.has(axis));
  if (free >= 0) shape[free] = rest;
  else if (rest > 1) shape.push(rest);
  return shape;
}
