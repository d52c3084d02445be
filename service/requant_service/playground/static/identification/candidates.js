/** Candidates in words. */
import { element } from "../dom.js";

/** A group of candidates that are consistent: A, B, C and so on. */
export function letter(index) {
  return index < 26 ? String.fromCharCode(65 + index) : String(index + 1);
}

/** The options of a candidate but the first, which the others are named beside, as a title; and the name there. */
function nameOf(candidate) {
  const options = Object.entries(candidate);
  const [[first, value], ...others] = options;
  if (others.length === 0) return { title: first, name: String(value) };
  return { title: `${value} with ${others.map(([name]) => name).join(", ")}`, name: others.map(([, each]) => String(each)).join(" + ") };
}

/** @returns {Array<[string, string[]]>} such as ["Profiles", ["litert", "tosa"]] and ["litert with scheme", ["gemmlowp"]] */
function named(candidates) {
  const names = new Map();
  for (const candidate of candidates) {
    const { title, name } = nameOf(candidate);
    if (!names.has(title)) names.set(title, []);
    names.get(title).push(name);
  }
  return [...names].map(([title, listed]) => [title.includes(" ") ? title : `${title[0].toUpperCase()}${title.slice(1)}${listed.length > 1 ? "s" : ""}`, listed]);
}

/** Terms and descriptions of the candidates of a group. */
export function candidateTerms(candidates) {
  return named(candidates).map(([title, names]) => [element("dt", {}, title), element("dd", {}, names.map(listed))]);
}

/** The candidates of a group, one line for each kind. */
export function candidateLines(candidates) {
  return named(candidates).map(([title, names]) => element("div", { class: "candidates" }, element("span", { class: "hint" }, `${title} `), names.map(listed)));
}

// Lines break between names, not within one or before a comma.
function listed(name, index, names) {
  return [element("span", { class: "candidate" }, element("code", {}, name), index + 1 < names.length && ","), " "];
}
