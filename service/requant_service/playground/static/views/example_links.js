import { element } from "../dom.js";
import { writeFragment } from "../state.js";

/**
 * Links to states of a view that are worth a look.
 * @param {string} id of the view
 * @param {Array<{title: string, state: Object<string, string>}>} examples what they change of the view's initial state
 */
export function exampleLinks(id, examples) {
  return element(
    "ul",
    { class: "examples", "aria-label": "Examples" },
    examples.map(({ title, state }) => element("li", {}, element("a", { href: writeFragment(id, state) }, title))),
  );
}
