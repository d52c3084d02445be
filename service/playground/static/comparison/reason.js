import { element, fill } from "../dom.js";
import { enumerated } from "./differences.js";
import { groupedBySteps, sharedSteps } from "./explanation.js";
import { stepsInWords } from "./sentence.js";

/** Why profiles store an element differently: in sentences, and step by step side by side. */
export class Reason {
  node = element("section", { class: "card reason", "aria-live": "polite" });

  /**
   * @param {number} index of the element
   * @param {string} given "x = 0.25"
   * @param {Array<{profile: string, element: Object}>} explained
   */
  show(index, given, explained) {
    const results = new Set(explained.map(({ element: each }) => String(each.result)));
    const differs = results.size > 1;
    const shared = sharedSteps(explained);
    fill(
      this.node,
      element("h2", {}, differs ? `Why element ${index} differs` : `How element ${index} is computed`),
      this.#sentences(given, explained, shared),
      this.#table(explained, shared),
    );
  }

  refuse(error) {
    fill(this.node, element("p", { class: "error" }, error.message));
  }

  clear() {
    fill(this.node);
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
          return element(
            "li",
            {},
            element("strong", {}, enumerated(profiles)),
            ` ${stepsInWords(each.steps.slice(shared), common, profiles.length > 1)}. `,
            element("span", { class: "result" }, `Stored: ${each.result}`),
          );
        }),
      ),
    ];
  }

  #table(explained, shared) {
    const rows = Math.max(...explained.map(({ element: each }) => each.steps.length));
    const parts = explained.length > 1 && explained.some(({ element: each }) => each.steps.length > shared);
    return element(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "The steps of each profile, side by side" },
      element(
        "table",
        { class: "steps" },
        element(
          "thead",
          {},
          element("tr", {}, element("th", { scope: "col" }, "Step"), explained.map(({ profile }) => element("th", { scope: "col" }, profile))),
        ),
        element(
          "tbody",
          {},
          Array.from({ length: rows }, (_, at) =>
            element(
              "tr",
              { class: parts && at === shared ? "parting" : "" },
              element("th", { scope: "row" }, String(at + 1), parts && at === shared && element("span", { class: "parting-mark" }, " ◆ first difference")),
              explained.map(({ element: each }) => element("td", {}, stepCell(each.steps[at]))),
            ),
          ),
          element(
            "tr",
            { class: "stored" },
            element("th", { scope: "row" }, "Stored"),
            explained.map(({ element: each }) =>
              element("td", {}, element("strong", {}, String(each.result)), each.saturated && ` saturated ${each.saturated}`),
            ),
          ),
        ),
      ),
    );
  }
}

/** What all profiles do, in words. */
function beginning(groups, common) {
  const names = groups.flatMap(({ profiles }) => profiles);
  const words = stepsInWords(common, [], names.length > 1);
  if (groups.length === 1) return `${enumerated(names)} ${words}.`;
  return words ? `All ${words}. Then:` : "";
}

function stepCell(step) {
  if (!step) return element("span", { class: "none" }, "–");
  return [
    element("span", { class: "step-name" }, step.step.replaceAll("_", " "), step.tie && " · tie"),
    element("code", { class: "formula" }, `${step.symbol ? `${step.symbol} = ` : ""}${step.formula}`),
    element("code", { class: "inserted" }, `${step.inserted} = `, element("b", {}, step.value)),
    element("span", { class: "precision" }, step.precision),
  ];
}
