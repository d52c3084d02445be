import { element } from "../dom.js";

/** The note about a profile that has no result. */
export function problemNote({ profile, problem }) {
  return element("p", { class: "note" }, element("strong", {}, profile), ` has no result: ${problem.message}.`);
}
