import { element } from "../dom.js";

const MOST_NAMED = 8;

/** The notes about what profiles have no result for: none at all, or none for some elements. */
export function problemNotes(conversions) {
  return [
    conversions.filter((each) => each.problem).map(({ profile, problem }) => note(profile, ` has no result: ${problem.message}.`)),
    conversions.filter((each) => each.undefinedAt?.size).map(({ profile, undefinedAt }) => note(profile, ` ${undefinedText([...undefinedAt])}.`)),
  ];
}

function note(profile, text) {
  return element("p", { class: "note" }, element("strong", {}, profile), text);
}

/** What is refused, and why the first of it is. */
function undefinedText(entries) {
  const indices = entries.map(([index]) => index).sort((a, b) => a - b);
  const shown = indices.slice(0, MOST_NAMED).join(", ") + (indices.length > MOST_NAMED ? ", …" : "");
  const [, reason] = entries[0];
  return indices.length === 1 ? `refuses element ${shown}: ${reason}` : `refuses ${indices.length} elements, ${shown}: ${reason}`;
}
