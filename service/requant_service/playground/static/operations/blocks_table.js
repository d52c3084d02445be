/** Blocks as tables: of each its scale, and of each element what it was, its code, and what that stands for. */
import { realText } from "../conversion/errors.js";
import { element } from "../dom.js";
import { tensorType } from "../type/tensor_text.js";

const MAX_BLOCKS = 16;

/**
 * @param {number[]|null} given the numbers that went in
 * @param {{elements?: Object, scales?: Object, blocks?: Object, global_scale?: *}} stored
 * @param {number[]} reals what the blocks stand for
 */
export function blockTables(given, { elements, scales, blocks, global_scale: global }, reals) {
  // Of GGUF the bytes of a block hold its scale, too.
  const count = scales ? scales.values.length : blocksOf(blocks);
  const size = reals.length / count;
  const tables = Array.from({ length: Math.min(count, MAX_BLOCKS) }, (_, block) => {
    const indices = Array.from({ length: size }, (__, place) => block * size + place).filter((index) => index < reals.length);
    return blockTable(block, indices, { given, elements, scales, reals });
  });
  return [
    global !== undefined && element("p", {}, "Global scale: ", element("code", {}, String(global))),
    blocks && element("p", { class: "bytes" }, element("code", {}, blocks.values.map((byte) => byte.toString(16).padStart(2, "0")).join(" "))),
    tables,
    count > MAX_BLOCKS && element("p", { class: "hint" }, `The first ${MAX_BLOCKS} of ${count} blocks are shown.`),
  ];
}

function blocksOf({ type }) {
  return tensorType(type).dimensions.slice(0, -1).reduce((product, size) => product * size, 1);
}

function blockTable(block, indices, { given, elements, scales, reals }) {
  const heads = ["Element", given && "x", elements && "Code", "Stands for"].filter(Boolean);
  const row = (index) => [given && realText(given[index]), elements && String(elements.values[index]), realText(reals[index])].filter((text) => text !== null && text !== undefined);
  return element(
    "div",
    { class: "block" },
    element("h3", {}, `Block ${block}`, scales && element("span", { class: "hint" }, ` scale ${scaleText(scales, block)}`)),
    element(
      "div",
      { class: "scroll whole", tabindex: "0", role: "region", "aria-label": `Elements of block ${block}` },
      element(
        "table",
        {},
        element("thead", {}, element("tr", {}, heads.map((head, at) => element("th", { scope: "col", class: at ? "number" : "" }, head)))),
        element(
          "tbody",
          {},
          indices.map((index) => element("tr", {}, element("th", { scope: "row" }, String(index)), row(index).map((text) => element("td", { class: "number" }, text)))),
        ),
      ),
    ),
  );
}

/** A scale as its code, and of a power of two the number. */
function scaleText({ type, values }, block) {
  const code = values[block];
  if (!type.includes("f8E8M0FNU")) return `code ${code}`;
  return code === 255 ? `code ${code}, NaN` : `code ${code}, 2^${code - 127}`;
}
