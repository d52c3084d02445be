import { breakable, element, fill } from "../dom.js";
import { enumerated } from "./differences.js";
import { alignedSteps, firstDifference, groupedBySteps, sharedSteps } from "./explanation.js";
import { stepsInWords } from "./sentence.js";

/** Why profiles store an element differently: in sentences, and step by step side by side. */
export class Reason {
  #stored = String;
  // Screen readers announce the sentences when they change, but not the table.
  #summary = element("div", { "aria-live": "polite" });
  #steps = element("div");
  node = element("section", { class: "card reason" }, this.#summary, this.#steps);

  /**
   * @param {number} index of the element
   * @param {string} given "x = 0.25"
   * @param {Array<{profile: string, element: Object, problem: Error, refused: boolean}>} answers
   * @param {function(string): string} stored how a result is written
   */
  show(index, given, answers, stored = String) {
    this.#stored = stored;
    const explained = answers.filter(({ problem }) => !problem);
    const notes = answers.filter(({ problem }) => problem).map(problemNote);
    if (explained.length === 0) {
      fill(this.#summary, notes);
      fill(this.#steps);
      return;
    }
    const results = new Set(explained.map(({ element: each }) => String(each.result)));
    const differs = results.size > 1 || answers.some(({ refused }) => refused);
    const shared = sharedSteps(explained);
    fill(
      this.#summary,
      element("h2", {}, differs ? `Why element ${index} differs` : `How element ${index} is computed`),
      this.#sentences(given, explained, shared),
      notes,
    );
    fill(this.#steps, this.#table(explained));
  }

  refuse(error) {
    fill(this.#summary, element("p", { class: "error" }, error.message));
    fill(this.#steps);
  }

  clear() {
    fill(this.#summary);
    fill(this.#steps);
  }

  #sentences(given, explained, shared) {
    const groups = groupedBySteps(explained);
    const common = explained[0].element.steps.slice(0, shared);
    const lead = element("p", {}, element("span", { class: "x" }, `${given}. `), beginning(groups, common));
    if (groups.length === 1) return lead;
    return [
      lead,
      element(
        "ul",
        { class: "sentences" },
        groups.map(({ profiles, element: each }) => {
          const words = stepsInWords(each.steps.slice(shared), common, profiles.length > 1, each.input);
          return element(
            "li",
            {},
            element("strong", {}, enumerated(profiles)),
            ` ${words}. `,
            element("span", { class: "result" }, `Stored: ${this.#stored(each.result)}`),
          );
        }),
      ),
    ];
  }

  #table(explained) {
    const [{ element: reference }, ...others] = explained;
    const parting = new Set(others.map(({ element: each }) => firstDifference(each.steps, reference.steps)));
    // By other steps only: then the result is where they part.
    const parts = (each) => each.result !== reference.result && !each.steps.some((step) => parting.has(step));
    return element(
      "div",
      { class: "scroll whole", tabindex: "0", role: "region", "aria-label": "The steps of each profile, side by side" },
      element(
        "table",
        { class: "steps" },
        element(
          "thead",
          {},
          element("tr", {}, element("th", { scope: "col" }, "Step"), explained.map(({ profile }, at) => element("th", { scope: "col" }, breakable(profile), at === 0 && others.length > 0 && element("span", { class: "reference" }, "reference")))),
        ),
        element(
          "tbody",
          {},
          alignedSteps(explained).map((row) => stepRow(row, parting)),
          element(
            "tr",
            { class: "stored" },
            element("th", { scope: "row" }, "stored"),
            explained.map(({ element: each }) =>
              element("td", { class: parts(each) && "parting" }, element("strong", {}, this.#stored(each.result)), each.saturated && ` saturated ${each.saturated}`, parts(each) && partingMark()),
            ),
          ),
        ),
      ),
    );
  }
}

function problemNote({ profile, problem }) {
  return element("p", { class: "note" }, "No steps for ", element("strong", {}, profile), `: ${problem.message}.`);
}

/** @param {Set<Object>} parting the steps at which profiles part from the reference */
function stepRow({ step, cells }, parting) {
  return element(
    "tr",
    {},
    element("th", { scope: "row" }, step.replaceAll("_", " ")),
    cells.map((cell) => (cell && parting.has(cell) ? element("td", { class: "parting" }, stepCell(cell), partingMark()) : element("td", {}, stepCell(cell)))),
  );
}

function partingMark() {
  return element("span", { class: "parting-mark" }, "◆ first difference");
}

/** What all profiles do, in words. */
function beginning(groups, common) {
  const names = groups.flatMap(({ profiles }) => profiles);
  const words = stepsInWords(common, [], names.length > 1, groups[0].element.input);
  if (groups.length === 1) return `${enumerated(names)} ${words}.`;
  return words ? `${names.length === 2 ? "Both" : "All"} ${words}. Then:` : "";
}

/** A step: its formula, and below it with numbers. */
export function stepCell(step) {
  if (!step) return element("span", { class: "none" }, "–");
  return [
    element("span", { class: "formula" }, element("code", {}, `${step.symbol} = ${step.formula}`), step.precision !== "integer" && ` ${step.precision}`),
    element("code", {}, `${step.inserted} = `, element("b", {}, step.value), step.tie && element("span", { class: "tie" }, "tie")),
  ];
}
