import { button, element } from "../dom.js";
import { download } from "../identification/files.js";
import { OperationView, PATTERNS, statesOfOperation } from "../operations/operation_view.js";
import { CHOICES, VECTORS } from "../operations/operations.js";
import { DEFAULT, EXAMPLES } from "../operations/vector_examples.js";
import { VectorsTable } from "../operations/vectors_table.js";

const PATH = "/v1/vectors";
/** The forms of a file of vectors, with the ending of its name. */
const FORMS = [
  ["json", "JSON", "json"],
  ["npz", ".npz", "npz"],
  ["c_header", "C header", "h"],
  ["readmemh", "$readmemh", "mem"],
];

export const vectors = {
  id: "vectors",
  title: "Test vectors",
  reference: ["/v1/vectors", "/v1/profiles", "/v1/schemes"],
  initialState: statesOfOperation("vectors", DEFAULT),
  patterns: PATTERNS,

  async render(root, state, context) {
    const { api, signal: left } = context;
    const [{ profiles }, { schemes }] = await Promise.all([api.get("/v1/profiles", { signal: left }), api.get("/v1/schemes", { signal: left })]);
    const names = (listed) => listed.map(({ name }) => name);
    const choices = [{ ...CHOICES.profile(names(profiles)), optional: true }, CHOICES.scheme(names(schemes))];
    const answer = async (_, body, signal) => {
      const reply = await api.post(PATH, body, { signal });
      context.lastCall = { path: PATH, body };
      const count = `${reply.vectors.length} vectors`;
      context.announce(count);
      const table = new VectorsTable(reply);
      const sets = reply.parameter_sets.length;
      return [
        element(
          "section",
          { class: "card", "aria-labelledby": "summary" },
          element("h2", { class: "summary", id: "summary" }, `${count} for ${reply.operation}`),
          element("p", { class: "hint" }, `Profile ${reply.profile}, ${sets} parameter ${sets === 1 ? "set" : "sets"}. The same request gives the same bytes everywhere.`),
          downloads(body),
          table.nodes,
        ),
        table.reason,
      ];
    };
    new OperationView(root, state, context, {
      id: vectors.id,
      heading: "Inputs worth testing, with the expected bits",
      lead: "Ties and what is beside them, both sides of every step and of saturation, special values, parameters at their extremes: each with the result that the hardware or the compiler has to give.",
      examples: EXAMPLES,
      operations: { vectors: { title: VECTORS.title, arguments: [...VECTORS.arguments, ...choices], initial: DEFAULT } },
      answer,
    }).start();

    function downloads(body) {
      const problem = element("p", { class: "error", role: "alert" });
      const buttons = FORMS.map(([format, title, ending]) =>
        button(`Download ${title}`, async () => {
          problem.textContent = "";
          try {
            const name = body.operation.replace(/\W+/g, "_");
            download(`${name}.${ending}`, await api.file(PATH, { ...body, format }, { signal: left }));
          } catch (error) {
            if (!left.aborted) problem.textContent = error.message;
          }
        }),
      );
      return element("div", {}, element("div", { class: "chips" }, buttons), problem);
    }
  },
};
