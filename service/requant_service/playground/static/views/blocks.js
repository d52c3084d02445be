import { jsonNumber } from "../numbers/number_list.js";
import { DEQUANTIZE, EXAMPLES, QUANTIZE } from "../operations/block_examples.js";
import { blockTables } from "../operations/blocks_table.js";
import { OperationView, PATTERNS, statesOfOperation } from "../operations/operation_view.js";
import { argumentsToCall, CHOICES, OPERATIONS } from "../operations/operations.js";
import { element } from "../dom.js";

const FORMATS = "mxfp4_e2m1 mxfp6_e2m3 mxfp6_e3m2 mxfp8_e4m3 mxfp8_e5m2 mxint8 nvfp4 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1".split(" ");
// Those of a global scale read it in their own way; the others have none.
const RULES_OF_NVFP4 = "torchao compressed_tensors model_optimizer fouroversix fouroversix_mae fouroversix_abs_max transformer_engine".split(" ");
const RULES = ["ocp", "tosa", "floor", "ceil", "even", "rceil", ...RULES_OF_NVFP4];

export const blocks = {
  id: "blocks",
  title: "Block formats",
  reference: ["/v1/blocks/quantize", "/v1/blocks/dequantize"],
  initialState: statesOfOperation("quantize_blocks", QUANTIZE),
  patterns: PATTERNS,

  render(root, state, context) {
    const described = (operation, initial, rules) => ({
      title: OPERATIONS[operation].title,
      arguments: [CHOICES.format(FORMATS), ...argumentsToCall(operation), CHOICES.rule(rules)],
      initial,
    });
    const post = (path, body, signal) => context.api.post(path, body, { signal });

    const quantize = async (body, signal) => {
      const path = "/v1/blocks/quantize";
      const stored = await post(path, body, signal);
      context.lastCall = { path, body };
      const { input, format } = body;
      const { elements, scales, blocks: bytes, global_scale: global } = stored;
      const back = { format, output_type: input.type.replace(/(f16|bf16|f64)>$/, "f32>"), ...(elements && { elements, scales }), ...(bytes && { blocks: bytes }) };
      // The number of a library is read by its own rule.
      const own = global === undefined || global === null ? {} : { global_scale: global, ...(RULES_OF_NVFP4.includes(body.rule) && { rule: body.rule }) };
      try {
        const { output } = await post("/v1/blocks/dequantize", { ...back, ...own }, signal);
        return shown(input.values.map(Number), stored, output.values.map(Number));
      } catch (problem) {
        // Not every rule tells how its blocks are read: the codes are there all the same.
        if (signal.aborted) throw problem;
        const unknown = input.values.map(() => NaN);
        return [shown(input.values.map(Number), stored, unknown), element("p", { class: "note" }, `Not dequantized: ${problem.message}.`)];
      }
    };
    const dequantize = async (body, signal) => {
      const path = "/v1/blocks/dequantize";
      const { output } = await post(path, body, signal);
      context.lastCall = { path, body };
      return shown(null, body, output.values.map((value) => Number(jsonNumber(value))));
    };
    new OperationView(root, state, context, {
      id: blocks.id,
      heading: "One scale for a block",
      lead: "MX formats, NVFP4 and GGUF store a block of elements with one scale. See the scale that a rule derives, the code of each element, and what it stands for.",
      examples: EXAMPLES,
      operations: { quantize_blocks: described("quantize_blocks", QUANTIZE, RULES), dequantize_blocks: described("dequantize_blocks", DEQUANTIZE, RULES_OF_NVFP4) },
      answer: (operation, body, signal) => (operation === "quantize_blocks" ? quantize : dequantize)(body, signal),
    }).start();

    function shown(given, stored, reals) {
      context.announce("Converted.");
      return [element("section", { class: "card", "aria-labelledby": "summary" }, element("h2", { class: "summary", id: "summary" }, `${reals.length} elements`), blockTables(given, stored, reals))];
    }
  },
};
