import { ADD, CONV2D, EXAMPLES, MATMUL } from "../operations/integer_examples.js";
import { OperationView, PATTERNS, statesOfOperation } from "../operations/operation_view.js";
import { argumentsToCall, CHOICES, OPERATIONS } from "../operations/operations.js";
import { Stages } from "../operations/stages.js";

const OPERANDS = "a is the left operand or the input, b the right operand or the weights.";

export const integer = {
  id: "integer",
  title: "Integer operations",
  reference: ["/v1/matmul", "/v1/conv2d", "/v1/add"],
  initialState: statesOfOperation("matmul", MATMUL),
  patterns: PATTERNS,

  async render(root, state, context) {
    const { api, signal: left } = context;
    const [{ profiles }, { schemes }] = await Promise.all([api.get("/v1/profiles", { signal: left }), api.get("/v1/schemes", { signal: left })]);
    // Not all that requantize have products: the service says which.
    const offered = profiles.filter((each) => each.operations.requantize).map(({ name }) => name);
    const scheme = CHOICES.scheme(schemes.map(({ name }) => name));
    const described = (operation, initial, ...others) => ({
      title: OPERATIONS[operation].title,
      arguments: [CHOICES.profile(offered), ...argumentsToCall(operation), ...others],
      initial,
    });
    const answer = async (operation, given, signal) => {
      const path = `/v1/${operation}`;
      const body = { ...given, trace: true };
      const reply = await api.post(path, body, { signal });
      context.lastCall = { path, body };
      context.announce("Computed.");
      return new Stages(reply, given.layout === "NCHW" ? 1 : -1, OPERANDS).nodes;
    };
    new OperationView(root, state, context, {
      id: integer.id,
      heading: "A product, stage by stage",
      lead: "Integer kernels add up products, correct the sums for zero points, add a bias, scale, and clamp. See every stage of an output element, as each system computes it.",
      examples: EXAMPLES,
      operations: { matmul: described("matmul", MATMUL, scheme), conv2d: described("conv2d", CONV2D, scheme), add: described("add", ADD) },
      answer,
    }).start();
  },
};
