import { answersAsTheyCome } from "../conversion/answers.js";
import { errorText } from "../conversion/errors.js";
import { breakable, element } from "../dom.js";
import { DEFAULT, EXAMPLES } from "../operations/calibration_examples.js";
import { OperationView, PATTERNS, statesOfOperation } from "../operations/operation_view.js";
import { CHOICES, OPERATIONS } from "../operations/operations.js";
import { writeFragment } from "../state.js";

const METHODS = "min_max moving_average percentile entropy entropy_model_optimizer mse torch_histogram".split(" ");
const RANGE_RULES =
  "litert litert_converter litert_hybrid litert_fake_quant tf_fake_quant onnxruntime onnxruntime_blocked onnx_dynamic onnx_dynamic_reference onnx_dynamic_function torch torch_observer torch_decomposed torch_per_token onednn mlir".split(" ");
const PATH = "/v1/parameters/tensor";
const HEADS = ["Method", "Range", "Scale", "Zero point", "Saturated", "SQNR", ""];
const MAX_LISTED = 4;
// As many as the view that compares takes, and its link holds.
const MAX_LINKED = 1024;

export const calibration = {
  id: "calibration",
  title: "Calibration",
  reference: ["/v1/parameters/tensor", "/v1/quantize"],
  initialState: { ...statesOfOperation("derive_from_tensor", DEFAULT), call: "min_max" },
  patterns: { ...PATTERNS, call: /^\w{1,40}$/ },

  render(root, state, context) {
    const operation = OPERATIONS.derive_from_tensor;
    const answer = async (_, given, signal, show) => {
      const ask = async (method) => {
        try {
          return { profile: method, ...(await derived(context.api, { ...given, method }, signal)) };
        } catch (problem) {
          if (signal.aborted) throw problem;
          return { profile: method, problem };
        }
      };
      const showCall = () => {
        const choose = (call) => {
          context.set({ call });
          showCall();
        };
        const name = METHODS.includes(state.call) ? state.call : METHODS[0];
        context.lastCall = { path: PATH, body: { ...given, method: name }, choice: { label: "Method", names: METHODS, name, choose } };
      };
      showCall();
      const drawn = (answers) => drawnAnswers(answers, given.input);
      const answers = await answersAsTheyCome(METHODS, ask, (soFar) => show(drawn(soFar)));
      context.announce(summaryOf(answers));
      return drawn(answers);
    };
    new OperationView(root, state, context, {
      id: calibration.id,
      heading: "Scale and zero point from data",
      lead: "Each system observes a range in data in its own way, and derives scale and zero point from it. See what all methods find in yours, and what the quantized numbers lose.",
      examples: EXAMPLES,
      operations: { derive_from_tensor: { ...operation, arguments: [...operation.arguments, CHOICES.rangeRule(RANGE_RULES)], initial: DEFAULT } },
      answer,
    }).start();
  },
};

/** What a method derives, and the report of a quantization with it if there is a type that has such scales. */
async function derived(api, body, signal) {
  const found = await api.post(PATH, body, { signal });
  if (!found.type) return { found };
  const { report } = await api.post("/v1/quantize", { input: body.input, output_type: found.type, error: true }, { signal });
  return { found, report };
}

function summaryOf(answers) {
  const done = answers.filter(({ found }) => found);
  const awaited = answers.filter(({ pending }) => pending).length;
  if (awaited) return `${done.length} of ${answers.length} methods have answered…`;
  return done.length === answers.length ? `All ${done.length} methods give a range.` : `${done.length} of ${answers.length} methods give a range.`;
}

function drawnAnswers(answers, input) {
  return [
    element(
      "section",
      { class: "card", "aria-labelledby": "summary" },
      element("h2", { class: "summary", id: "summary" }, summaryOf(answers)),
      element(
        "div",
        { class: "scroll whole", tabindex: "0", role: "region", "aria-label": "What each method derives" },
        element(
          "table",
          {},
          element("thead", {}, element("tr", {}, HEADS.map((head, at) => element("th", { scope: "col", class: at > 0 ? "number" : "" }, head || element("span", { class: "unseen" }, "Use"))))),
          element("tbody", {}, answers.map((each) => row(each, input))),
        ),
      ),
      element("p", { class: "hint" }, "Saturation and signal-to-noise ratio are those of the data, quantized with the type and the profile stablehlo."),
    ),
  ];
}

function row({ profile: method, found, report, problem, pending }, input) {
  const name = element("th", { scope: "row" }, breakable(method), found && element("span", { class: "reference" }, "rule ", breakable(found.scheme)));
  const text = (value, kind = "number") => element("td", { class: kind }, value);
  if (pending) return element("tr", {}, name, element("td", { class: "none", colspan: HEADS.length - 1 }, "being computed…"));
  if (problem) return element("tr", {}, name, element("td", { class: "refused", colspan: HEADS.length - 1 }, `Refused: ${problem.message}`));
  const saturated = report ? String(report.saturated_low + report.saturated_high) : "–";
  const ratio = report?.error?.sqnr_db;
  return element(
    "tr",
    {},
    name,
    text(listed(found.minimums.map((minimum, index) => `${shortened(minimum)} to ${shortened(found.maximums[index])}`))),
    [found.scales, found.zero_points].map((values) => text(listed(values.map(shortened)))),
    text(saturated),
    text(ratio === undefined || ratio === null ? "–" : `${errorText(Number(ratio)).replace(/^\+/, "")} dB`),
    text(found.type ? useLink(found.type, input, method) : (found.untyped ?? ""), ""),
  );
}

/** A link to the view that compares profiles, with the type that was found and the data. */
function useLink(type, { values, type: given }, method) {
  const numbers = values && values.flat(Infinity).length <= MAX_LINKED ? { numbers: values.flat(Infinity).join(" "), shape: /<((?:\d+x)+)/.exec(given)[1].slice(0, -1) } : {};
  return element("a", { href: writeFragment("quantize", { type, ...numbers }), "aria-label": `Compare profiles with the type of ${method}` }, "Compare");
}

function shortened(value) {
  return String(Number(value.toPrecision(6)));
}

function listed(texts) {
  return texts.slice(0, MAX_LISTED).join(", ") + (texts.length > MAX_LISTED ? ", …" : "");
}
