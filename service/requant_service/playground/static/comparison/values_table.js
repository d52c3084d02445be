import { bitsText, storedText } from "../conversion/bits.js";
import { errorText, realText } from "../conversion/errors.js";
import { button, element, fill } from "../dom.js";

const ROWS_AT_ONCE = 100;

/** One profile's conversion, a row for each element: the stored integer, its bits, the real value, the error in steps. */
export class ValuesTable {
  node = element("div");
  #shown = ROWS_AT_ONCE;

  show(numbers, conversion, errors, parsed) {
    this.#shown = ROWS_AT_ONCE;
    this.#draw(numbers, conversion, errors, parsed);
  }

  #draw(numbers, conversion, errors, parsed) {
    const count = Math.min(this.#shown, numbers.length);
    const heads = ["Element", "x", "Stored", "Bits", "Real value", "Error in steps"];
    const rows = numbers.slice(0, count).map((x, index) => {
      const stored = conversion.stored[index];
      const texts =
        stored === null
          ? ["refused", "–", "–", "–"]
          : [storedText(stored, parsed), bitsText(stored, parsed.bits), realText(conversion.reals[index]), errorText(errors[index])];
      return element(
        "tr",
        {},
        element("th", { scope: "row" }, String(index)),
        [realText(x), ...texts].map(
          (text) => element("td", { class: "number" }, text),
        ),
      );
    });
    fill(
      this.node,
      element(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": `Values of ${conversion.profile}` },
        element(
          "table",
          {},
          element("thead", {}, element("tr", {}, heads.map((head, index) => element("th", { scope: "col", class: index ? "number" : "" }, head)))),
          element("tbody", {}, rows),
        ),
      ),
      count < numbers.length &&
        element(
          "p",
          {},
          button(`Show ${Math.min(ROWS_AT_ONCE, numbers.length - count)} more of ${numbers.length}`, () => {
            this.#shown += ROWS_AT_ONCE;
            this.#draw(numbers, conversion, errors, parsed);
          }),
        ),
    );
  }
}
