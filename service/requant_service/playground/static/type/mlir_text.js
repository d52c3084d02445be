/** The parts of a uniform quantized type, and the MLIR text of them. The service's parser has the last word on both. */

/**
 * @typedef {Object} TypeParts
 * @property {string} storage such as "i8"
 * @property {string} lowest lowest stored value, or "" for that of the storage type
 * @property {string} highest
 * @property {string} expressed such as "f32"
 * @property {"tensor"|"axis"|"blocks"} granularity
 * @property {string} axis
 * @property {string} blocks "dimension:size" pairs, such as "0:1, 1:32"
 * @property {boolean} matrix whether the scales of blocks have two dimensions
 * @property {string} scales one, or several with white space or commas between; of a matrix, a line for each row
 * @property {string} zeroPoints in the same way; missing ones are 0
 * @property {string} around what stands around the type, with an @ in its place: "tensor<2x3x@>"
 */

const GRANULARITIES = { uniform: "tensor", uniform_per_axis: "axis", uniform_sub_channel: "blocks" };

/**
 * The parts of what /v1/types/parse says about a text.
 * @returns {TypeParts|null} null for a type that has no such parts
 */
export function partsOf(parsed) {
  const granularity = GRANULARITIES[parsed.element_kind ?? parsed.kind];
  if (!granularity || parsed.scale_shape.length > 2) return null;
  const element = parsed.element ?? parsed.canonical;
  const bounds = /^!quant\.uniform<\w+<(-?\d+):(-?\d+)>/.exec(element) ?? ["", "", ""];
  const width = granularity === "blocks" ? parsed.scale_shape.at(-1) : Infinity;
  return {
    storage: parsed.storage,
    lowest: bounds[1],
    highest: bounds[2],
    expressed: parsed.expressed,
    granularity,
    axis: String(parsed.axis ?? 0),
    blocks: parsed.block_axes.map((axis, index) => `${axis}:${parsed.block_sizes[index]}`).join(", "),
    matrix: parsed.scale_shape.length !== 1,
    scales: inRows(parsed.scales, width),
    zeroPoints: inRows(parsed.zero_points, width),
    around: parsed.element ? parsed.canonical.replace(parsed.element, "@") : "@",
  };
}

/** The MLIR text of a type's parts. */
export function textOf(parts) {
  const bounds = parts.lowest !== "" || parts.highest !== "" ? `<${parts.lowest}:${parts.highest}>` : "";
  const head = `${parts.storage}${bounds}:${parts.expressed}`;
  return parts.around.replace("@", () => `!quant.uniform<${head}${parametersOf(parts)}>`);
}

/** The type of one scale and zero point of a type, per tensor. */
export function typeOfChannel(parsed, index) {
  const parts = partsOf(parsed);
  const one = { scales: parsed.scales[index], zeroPoints: String(parsed.zero_points[index]) };
  return textOf({ ...parts, ...one, granularity: "tensor", around: "@" });
}

function parametersOf({ granularity, axis, blocks, matrix, scales, zeroPoints }) {
  const rows = pairs(scales, zeroPoints);
  if (granularity === "tensor") return `, ${rows[0]?.[0] ?? ""}`;
  if (granularity === "axis") return `:${axis}, {${rows.flat().join(", ")}}`;
  const lists = rows.map((row) => `{${row.join(", ")}}`).join(", ");
  return `:{${blocks}}, ${matrix ? `{${lists}}` : lists}`;
}

/** "scale:zero point" of each place, in rows. */
function pairs(scales, zeroPoints) {
  const zeros = rowsOf(zeroPoints);
  return rowsOf(scales).map((row, y) =>
    row.map((scale, x) => {
      const zero = zeros[y]?.[x] ?? "0";
      return withPoint(scale) + (/^[-+]?0*$/.test(zero) ? "" : `:${zero}`);
    }),
  );
}

function rowsOf(text) {
  return text
    .split("\n")
    .map((line) => line.split(/[\s,]+/).filter(Boolean))
    .filter((row) => row.length > 0);
}

/** MLIR's grammar wants a decimal point: 1 is an integer and 1e-5 is not a number. */
function withPoint(scale) {
  return /^[-+]?\d+([eE]|$)/.test(scale) ? scale.replace(/^([-+]?\d+)/, "$1.0") : scale;
}

function inRows(numbers, width) {
  const rows = [];
  for (let start = 0; start < numbers.length; start += width) rows.push(numbers.slice(start, start + width).join(" "));
  return rows.join("\n");
}
