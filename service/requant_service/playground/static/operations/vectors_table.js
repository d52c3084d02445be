/** Test vectors as a table, and the steps of the one that is chosen. */
import { Reason } from "../comparison/reason.js";
import { button, element, fill } from "../dom.js";

const ROWS_AT_ONCE = 64;
const HEADS = ["Vector", "Parameter set", "Input", "Expected", "Bits", "Why"];

export class VectorsTable {
  #reply;
  #shown = ROWS_AT_ONCE;
  #rows = new Map();
  #table = element("div", { class: "comparison" });
  #reason = new Reason();
  #set = element("p", { class: "hint" });
  nodes;

  /** @param {Object} reply of /v1/vectors */
  constructor(reply) {
    this.#reply = reply;
    this.nodes = [this.#table, this.#set];
    this.#draw();
    this.choose(0);
  }

  /** The steps of the chosen vector. */
  get reason() {
    return this.#reason.node;
  }

  #draw() {
    const { vectors } = this.#reply;
    this.#rows = new Map(vectors.slice(0, this.#shown).map((vector, index) => [index, this.#row(vector, index)]));
    const left = vectors.length - this.#rows.size;
    const more = () => {
      this.#shown += ROWS_AT_ONCE;
      this.#draw();
    };
    fill(
      this.#table,
      element(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Vectors" },
        element(
          "table",
          {},
          element("thead", {}, element("tr", {}, HEADS.map((head, at) => element("th", { scope: "col", class: at > 0 && at < 5 ? "number" : "" }, head)))),
          element("tbody", {}, ...this.#rows.values()),
        ),
      ),
      left > 0 && element("p", {}, button(`Show ${Math.min(ROWS_AT_ONCE, left)} more of ${vectors.length}`, more)),
    );
  }

  #row({ parameter_set: set, input, expected, expected_bits: bits, why }, index) {
    const name = button(String(index), () => this.choose(index), { class: "element", "aria-pressed": "false", "aria-label": `Vector ${index}: its steps` });
    return element(
      "tr",
      { onclick: (event) => event.target.closest("button") || this.choose(index) },
      element("th", { scope: "row" }, name),
      [set, input, expected, bits].map((text) => element("td", { class: "number" }, String(text))),
      element("td", { class: "reasons" }, why.join(", ").replaceAll("_", " ")),
    );
  }

  choose(index) {
    for (const [each, row] of this.#rows) {
      row.classList.toggle("chosen", each === index);
      row.querySelector("button").setAttribute("aria-pressed", String(each === index));
    }
    const { vectors, parameter_sets: sets, profile } = this.#reply;
    const vector = vectors[index];
    if (!vector) return;
    const { parameters, why } = sets[vector.parameter_set];
    fill(this.#set, `Parameter set ${vector.parameter_set}: `, parameters.map(({ name, value }) => `${name.replaceAll("_", " ")} ${value}`).join(", "), ` (${why.join(", ").replaceAll("_", " ")}).`);
    const { input, expected, steps } = vector;
    this.#reason.show(index, `Input ${input}`, [{ profile, element: { input, steps, result: expected } }]);
  }
}
