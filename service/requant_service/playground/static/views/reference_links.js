import { element } from "../dom.js";

/** Where the API reference, which the service has at docs, describes an operation: the group, and the name of the operation. */
const PLACES = {
  "/v1/quantize": ["Quantize", "ops/quantize"],
  "/v1/dequantize": ["Dequantize", "ops/dequantize"],
  "/v1/requantize": ["Requantize", "ops/requantize"],
  "/v1/compare": ["Compare two tensors", "ops/compare"],
  "/v1/explain/quantize": ["Explain: quantize", "explain/explainQuantize"],
  "/v1/explain/requantize": ["Explain: requantize", "explain/explainRequantize"],
  "/v1/identify": ["Identify the arithmetic", "ops/identify"],
  "/v1/matmul": ["Matmul", "integer/matmul"],
  "/v1/conv2d": ["Conv2d", "integer/conv2d"],
  "/v1/add": ["Add", "integer/add"],
  "/v1/blocks/quantize": ["Quantize to a block format", "ops/quantizeBlocks"],
  "/v1/blocks/dequantize": ["Dequantize from a block format", "ops/dequantizeBlocks"],
  "/v1/parameters/tensor": ["Scale and zero point from a tensor", "params/deriveFromTensor"],
  "/v1/parameters/multiplier": ["Multiplier and shift from a factor", "params/deriveMultiplier"],
  "/v1/schemes": ["List schemes", "catalogs/listSchemes"],
  "/v1/profiles": ["List profiles", "catalogs/listProfiles"],
  "/v1/types/parse": ["Parse a type", "types/parseType"],
  "/v1/types/translate": ["Translate a type", "types/translateType"],
  "/v1/vectors": ["Vectors", "explain/vectors"],
};

/**
 * Links to the reference of the operations behind a view.
 * @param {string[]} paths
 */
export function referenceLinks(paths) {
  return element(
    "nav",
    { class: "reference-links", "aria-label": "Reference of this view" },
    element("p", {}, "Reference: "),
    element(
      "ul",
      {},
      paths.map((path) => {
        const [title, place] = PLACES[path];
        return element("li", {}, element("a", { href: `docs#/${place}` }, title));
      }),
    ),
  );
}
