import { storedText } from "../conversion/bits.js";
import { breakable, button, checkbox, element, fill } from "../dom.js";
import { differing, referenceOf } from "./differences.js";

const ROWS_AT_ONCE = 100;
const MANY = 16;

/**
 * The stored integers of each profile side by side, a row for each element. Choosing a row explains its element.
 */
export class ComparisonTable {
  node = element("div", { class: "comparison" });
  #onChoose;
  #filtered;
  #given;
  #rows = new Map();
  #chosen = null;
  #onFilter;
  #shown = ROWS_AT_ONCE;
  #data = null;

  /**
   * @param {string} filtered "only" elements that differ, "all", or "" to decide by their number
   * @param {function(number): void} onChoose called with the chosen element
   * @param {function(boolean): void} onFilter called with whether only elements that differ are shown
   * @param {string} given the name of what was converted
   */
  constructor(filtered, onChoose, onFilter, given = "x") {
    this.#filtered = filtered;
    this.#onChoose = onChoose;
    this.#onFilter = onFilter;
    this.#given = given;
  }

  /** @param {string[]} numbers what was converted, as texts */
  show(numbers, conversions, parsed) {
    const more = this.#data?.numbers === numbers ? this.#shown : ROWS_AT_ONCE;
    this.#data = { numbers, conversions, parsed, marks: differing(conversions) };
    this.#shown = more;
    // Columns arrive one after the other: who is at a row stays there.
    const focused = [...this.#rows].find(([, row]) => row.contains(document.activeElement))?.[0];
    this.#draw();
    this.#rows.get(focused)?.querySelector("button").focus();
  }

  /** Mark the chosen element's row. */
  choose(index) {
    this.#chosen = index;
    for (const [each, row] of this.#rows) {
      row.classList.toggle("chosen", each === index);
      row.querySelector("button").setAttribute("aria-pressed", String(each === index));
    }
  }

  #draw() {
    const { numbers, marks } = this.#data;
    const only = this.#filtered === "only" || (this.#filtered === "" && numbers.length > MANY && marks.includes(true));
    const indices = numbers.map((_, index) => index).filter((index) => !only || marks[index]);
    const shown = indices.slice(0, this.#shown);
    this.#rows = new Map(shown.map((index) => [index, this.#row(index)]));
    fill(
      this.node,
      numbers.length > MANY && this.#filter(only),
      element(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Stored values by profile" },
        element("table", {}, this.#head(), element("tbody", {}, ...this.#rows.values())),
      ),
      shown.length === 0 && element("p", { class: "hint" }, "No element differs."),
      shown.length < indices.length &&
        element("p", {}, button(`Show ${Math.min(ROWS_AT_ONCE, indices.length - shown.length)} more of ${indices.length}`, () => this.#more())),
    );
  }

  #more() {
    this.#shown += ROWS_AT_ONCE;
    this.#draw();
    this.choose(this.#chosen);
  }

  #filter(only) {
    return checkbox("Only elements that differ", only, (checked) => {
      this.#filtered = checked ? "only" : "all";
      this.#onFilter(checked);
      this.#draw();
      this.choose(this.#chosen);
      this.node.querySelector("input").focus();
    });
  }

  #head() {
    const { conversions } = this.#data;
    return element(
      "thead",
      {},
      element(
        "tr",
        {},
        element("th", { scope: "col" }, "Element"),
        element("th", { scope: "col", class: "number" }, this.#given),
        conversions.map((conversion) =>
          element(
            "th",
            { scope: "col", class: "number" },
            breakable(conversion.profile),
            conversions.length > 1 && conversion === referenceOf(conversions) && element("span", { class: "reference" }, "reference"),
            conversion.pending && !conversion.stored && element("span", { class: "reference" }, "being computed…"),
          ),
        ),
      ),
    );
  }

  #row(index) {
    const { numbers, conversions, marks } = this.#data;
    const reference = referenceOf(conversions);
    const why = button(
      [element("span", {}, String(index)), marks[index] && element("span", { class: "why" }, "why?")],
      () => this.#onChoose(index),
      { class: "element", "aria-pressed": "false", "aria-label": `Element ${index}${marks[index] ? ", differs: why?" : ""}` },
    );
    return element(
      "tr",
      { class: marks[index] ? "differs" : "", onclick: (event) => event.target.closest("button") || this.#onChoose(index) },
      element("th", { scope: "row" }, why),
      element("td", { class: "number" }, numbers[index]),
      conversions.map((conversion) => this.#cell(conversion, reference, index)),
    );
  }

  #cell(conversion, reference, index) {
    if (!conversion.stored) return element("td", { class: "number none" }, conversion.pending ? "…" : "–");
    const unlike = reference !== undefined && conversion.stored[index] !== reference.stored[index];
    return element(
      "td",
      { class: unlike ? "number unlike" : "number" },
      unlike && element("span", { class: "mark", "aria-hidden": "true" }, "≠ "),
      conversion.undefinedAt.has(index) ? element("span", { class: "refused", title: conversion.undefinedAt.get(index) }, "refused") : storedText(conversion.stored[index], this.#data.parsed),
      unlike && element("span", { class: "unseen" }, ` unlike ${reference.profile}`),
    );
  }
}
