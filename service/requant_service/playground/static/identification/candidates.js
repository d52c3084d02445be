/** Candidates in words. */
import { breakable, element } from "../dom.js";

/** A group of candidates that are consistent: A, B, C and so on. */
export function letter(index) {
  return index < 26 ? String.fromCharCode(65 + index) : String(index + 1);
}

// A profile beside other options is one of several that give the same.
function nameOf(candidate) {
  const options = Object.entries(candidate);
  if (options.length === 1) return { kind: options[0][0], name: String(options[0][1]) };
  const { profile, ...others } = candidate;
  const rest = Object.entries(others);
  if (profile !== undefined && rest.length === 1 && "scheme" in others) return { kind: "scheme", name: others.scheme };
  return { kind: "", name: options.map(([name, value]) => `${name} ${value}`).join(", ") };
}

/** @returns {Array<[string, string[]]>} such as ["Profiles", ["litert", "tosa"]] */
function named(candidates) {
  const kinds = new Map();
  for (const candidate of candidates) {
    const { kind, name } = nameOf(candidate);
    const title = kind ? `${kind[0].toUpperCase()}${kind.slice(1)}` : "Options";
    if (!kinds.has(title)) kinds.set(title, []);
    kinds.get(title).push(name);
  }
  return [...kinds].map(([title, names]) => [names.length > 1 && title !== "Options" ? `${title}s` : title, names]);
}

/** Terms and descriptions of the candidates of a group. */
export function candidateTerms(candidates) {
  return named(candidates).map(([title, names]) => [element("dt", {}, title), element("dd", {}, names.map(listed))]);
}

/** The candidates of a group, one line for each kind. */
export function candidateLines(candidates) {
  return named(candidates).map(([title, names]) => element("div", { class: "candidates" }, element("span", { class: "hint" }, `${title} `), names.map(listed)));
}

function listed(name, index, names) {
  return [element("code", {}, breakable(name)), index + 1 < names.length && ", "];
}
