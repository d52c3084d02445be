/** The stages of an integer operation, for one element of its output. */
import { positionOf } from "../conversion/channels.js";
import { button, element, fill } from "../dom.js";
import { tensorType } from "../type/tensor_text.js";

const MAX_ELEMENTS = 256;

/** What each stage of a trace is, in the words of docs/integer_operations.md. */
const FORMULAS = {
  accumulator: "sum of a · b",
  lhs_zero_point_correction: "−za · sum of b",
  rhs_zero_point_correction: "−zb · sum of a",
  zero_points_correction: "K · za · zb",
  corrected: "the sum of these four: sum of (a − za) · (b − zb)",
  bias: "of the output channel",
  biased: "corrected + bias",
  scaled: "biased, by multiplier and shift, rounded",
  after_zero_point: "scaled + the zero point of the output",
  after_clamp: "within the bounds of the output’s storage",
  lhs_shifted: "(a − za) · 2^L",
  rhs_shifted: "(b − zb) · 2^L",
  lhs_scaled: "lhs shifted, by the first multiplier",
  rhs_scaled: "rhs shifted, by the second multiplier",
  sum: "lhs scaled + rhs scaled",
};

/** The elements of an output, to choose from, and the stages of the one that is chosen. */
export class Stages {
  #trace;
  #output;
  #channel;
  #rows;
  #chosen = element("section", { class: "card", "aria-live": "polite" });
  nodes;

  /**
   * @param {{output: Object, trace: Object, report: Object}} reply
   * @param {number} channelAxis the dimension of the output along which multipliers go
   * @param {string} operands which operand a and b are
   */
  constructor({ output, trace, report }, channelAxis, operands) {
    this.#trace = trace;
    this.#output = output;
    const shape = tensorType(output.type).dimensions;
    this.#channel = (index) => positionOf(index, shape).at(channelAxis);
    const shown = output.values.slice(0, MAX_ELEMENTS);
    this.#rows = shown.map((value, index) => this.#row(value, index, shape));
    const saturated = report.saturated_low + report.saturated_high;
    this.nodes = [
      element(
        "section",
        { class: "card" },
        element("h2", { class: "summary", id: "summary" }, `${output.values.length} ${output.values.length === 1 ? "element" : "elements"}, ${saturated} saturated`),
        element("p", { class: "hint" }, operands, report.scheme && ` Scheme ${report.scheme}.`, report.accumulator && ` Sums in ${report.accumulator}.`),
        element(
          "div",
          { class: "scroll comparison", tabindex: "0", role: "region", "aria-label": "Elements of the output" },
          element(
            "table",
            {},
            element("thead", {}, element("tr", {}, ["Element", "Position", "Output"].map((head, at) => element("th", { scope: "col", class: at ? "number" : "" }, head)))),
            element("tbody", {}, this.#rows),
          ),
        ),
        output.values.length > MAX_ELEMENTS && element("p", { class: "hint" }, `The first ${MAX_ELEMENTS} are shown.`),
      ),
      this.#chosen,
    ];
    if (shown.length) this.#choose(0);
  }

  #row(value, index, shape) {
    const name = button(String(index), () => this.#choose(index), { class: "element", "aria-pressed": "false", "aria-label": `Element ${index}: its stages` });
    return element(
      "tr",
      { onclick: (event) => event.target.closest("button") || this.#choose(index) },
      element("th", { scope: "row" }, name),
      element("td", { class: "number" }, positionOf(index, shape).join(", ")),
      element("td", { class: "number" }, String(value)),
    );
  }

  #choose(index) {
    for (const [each, row] of this.#rows.entries()) {
      row.classList.toggle("chosen", each === index);
      row.querySelector("button").setAttribute("aria-pressed", String(each === index));
    }
    const { multipliers = [], ...stages } = this.#trace;
    const rows = Object.entries(stages).map(([name, { values }]) => stageRow(name, FORMULAS[name] ?? "", values[index]));
    fill(
      this.#chosen,
      element("h2", {}, `Stages of element ${index}`),
      element(
        "div",
        { class: "scroll whole", tabindex: "0", role: "region", "aria-label": "Stages of the element" },
        element(
          "table",
          { class: "stages" },
          element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "Stage"), element("th", { scope: "col", class: "number" }, "Value"), element("th", { scope: "col" }, "What it is"))),
          element("tbody", {}, rows),
        ),
      ),
      multipliers.length > 0 && element("p", {}, this.#multiplierText(multipliers, index)),
    );
  }

  #multiplierText(multipliers, index) {
    const text = ({ multiplier, shift }) => `multiplier ${multiplier}, shift ${shift}`;
    if ("sum" in this.#trace) return `By turns: ${multipliers.map(text).join("; ")}.`;
    return `Scaled by ${text(multipliers[multipliers.length > 1 ? this.#channel(index) : 0])}.`;
  }
}

function stageRow(name, formula, value) {
  return element("tr", {}, element("th", { scope: "row" }, name.replaceAll("_", " ")), element("td", { class: "number" }, String(value)), element("td", {}, formula));
}
