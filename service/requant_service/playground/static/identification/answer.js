/** What an answer says, apart from what to try next. */
import { stepCell } from "../comparison/reason.js";
import { element } from "../dom.js";
import { candidateLines, candidateTerms, letter } from "./candidates.js";

const SHOWN = 10;

/** The answer in a few words. */
export function summaryOf({ consistent, elements }) {
  const count = consistent.length;
  const rules = count === 0 ? "No rule" : count === 1 ? "One rule" : `${count} rules`;
  // Where scales are looked for, nothing need have been compared.
  if (elements === 0) return `${rules} ${count > 1 ? "fit" : "fits"}`;
  return `${rules} ${count > 1 ? "give" : "gives"} all ${elements} ${elements === 1 ? "element" : "elements"}`;
}

/** The groups that give what was observed. */
export function consistentGroups({ consistent, parameters = [] }, several) {
  if (consistent.length === 0) return null;
  const groups = consistent.map(({ candidates, proven }, index) =>
    element(
      "li",
      {},
      element("h3", {}, element("span", { class: "letter" }, letter(index)), same(candidates, proven)),
      element("dl", { class: "facts" }, candidateTerms(candidates), parameterTerms(parameters.filter((each) => each.consistent === index), several)),
    ),
  );
  const rest = groups.slice(SHOWN);
  return [
    element("p", { class: "hint" }, "A fact about these data, not a likelihood: each of them gives every bit."),
    element("ol", { class: "rules", "aria-label": "Rules that give all elements" }, groups.slice(0, SHOWN)),
    rest.length > 0 && element("details", { class: "more" }, element("summary", {}, `${rest.length} more`), element("ol", { class: "rules", "aria-label": "More rules that give all elements" }, rest)),
  ];
}

function same(candidates, proven) {
  if (candidates.length === 1) return element("span", { class: "verdict passes" }, "One candidate");
  if (proven) return element("span", { class: "verdict passes" }, "✓ Proven: the same for every input");
  return element("span", { class: "verdict partly" }, "Not told apart by any input tried; not proven the same");
}

function parameterTerms(parameters, several) {
  if (parameters.length === 0) return null;
  return [element("dt", {}, "Parameters"), element("dd", {}, parameters.map((each) => element("div", {}, parameterText(each, several))))];
}

/** "scale from 0.05 to 0.0500001, zero point -1", and whatever else is known. */
function parameterText({ consistent: _, call, channel, lowest, highest, ...others }, several) {
  const where = [several && `call ${call + 1}`, channel > 0 && `channel ${channel}`].filter(Boolean).join(", ");
  const name = others.shift == null ? "scale" : "multiplier";
  const scale = lowest !== undefined && (lowest === highest ? `${name} ${lowest}` : `${name} from ${lowest} to ${highest}`);
  const rest = Object.entries(others)
    .filter(([, value]) => value !== null && typeof value !== "object")
    .map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`);
  return `${where && `${where}: `}${[scale, ...rest].filter(Boolean).join(", ")}`;
}

/** What the elements that differ have in common, by the names of `patterns`; {} is the number that belongs to one. */
const PATTERNS = {
  off_by_one: "each is one step from what is computed",
  constant_offset: "each differs from what is computed by {}",
  ties: "the exact result lies halfway between two integers",
  negative: "the real input is negative",
  positive: "the real input is positive",
  saturated: "what is computed is a bound",
  subnormal: "the input is a subnormal float",
  nan: "the input is NaN",
  one_channel: "all are of {}",
  last_element: "only the last one differs",
  swapped_pairs: "each two neighbours are exchanged, as nibbles in the other order",
  other_sign: "the same bits, read with or without a sign",
};

function patternText(pattern) {
  const [name, number = ""] = pattern.split(": ");
  return (PATTERNS[name] ?? pattern).replace("{}", number);
}

/** Where nothing fits: what the elements have in common that differ, readings of the data that fit, and a rule made up. */
export function unexplained({ patterns = [], readings = [], synthesized }, several) {
  if (patterns.length === 0 && readings.length === 0 && !synthesized) return null;
  return element(
    "section",
    { class: "card" },
    element("h2", {}, "Nothing known fits"),
    patterns.length > 0 && [element("p", {}, "The elements that differ from the nearest:"), element("ul", { class: "sentences" }, patterns.map((each) => element("li", {}, patternText(each))))],
    readings.length > 0 && [
      element("p", {}, "Read in another way, the data fit:"),
      element("ul", { class: "sentences" }, readings.map(({ reading, candidates }) => element("li", {}, reading, candidateLines(candidates)))),
    ],
    synthesized && madeUp(synthesized, several),
  );
}

function madeUp({ formula = [], unexplained: left = [], unexplained_count: count = 0, tried }, several) {
  if (formula.length === 0) return element("p", {}, `None of ${tried} rules made of known parts gives what was observed.`);
  const all = count === 0 ? "that gives what was observed" : `that gives all but ${count === 1 ? "one element" : `${count} elements`}`;
  return [
    element("p", {}, `Of ${tried} rules made of known parts, the simplest ${all}:`),
    element("pre", { class: "made-up", tabindex: "0", "aria-label": "The rule's steps" }, element("code", {}, formula.join("\n"))),
    left.slice(0, SHOWN).map(({ call, index, observed, computed }) =>
      element("p", { class: "note" }, `It does not give ${several ? `call ${call + 1}, ` : ""}element ${index}: observed ${observed}, computed ${computed}.`),
    ),
  ];
}

/**
 * The candidates that give other bits, with the first element and the step at which they go another way.
 *
 * On a phone each row is a card. A table with another display loses its semantics for screen readers unless it has roles.
 */
export function excludedTable({ excluded, excluded_count: count }, several) {
  if (count === 0) return null;
  const stepped = excluded.some(({ step, consistent_step: other }) => step || other);
  const heads = ["Candidates", "Why", ...(stepped ? STEPS : [])];
  return element(
    "section",
    { class: "card" },
    element("h2", {}, `Excluded: ${count} ${count === 1 ? "rule" : "rules"}`),
    element(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Excluded" },
      element(
        "table",
        { class: "steps excluded", role: "table" },
        element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, heads.map((head) => element("th", { role: "columnheader", scope: "col" }, head)))),
        element("tbody", { role: "rowgroup" }, excluded.map((each) => excludedRow(each, several, stepped))),
      ),
    ),
    count > excluded.length && element("p", { class: "hint" }, `The ${excluded.length} with the fewest differences are shown.`),
  );
}

const STEPS = ["It computes", "A computes"];

function excludedRow({ candidates, mismatches, first, step, consistent_step: other, contradictions = [] }, several, stepped) {
  const cell = (title, ...content) => element("td", { role: "cell", "data-title": title }, content);
  const steps = [step, other].map((each, index) => cell(STEPS[index], each ? stepCell(each) : element("span", { class: "none" }, "–")));
  return element(
    "tr",
    { role: "row" },
    element("th", { role: "rowheader", scope: "row" }, candidateLines(candidates)),
    cell("", first && witness(first, mismatches, several), contradictions.slice(0, 1).map((each) => contradiction(each, several))),
    stepped && steps,
  );
}

function witness({ call, output, index, observed, computed }, mismatches, several) {
  const where = [several && `call ${call + 1}`, output !== "output" && output, `element ${index}`].filter(Boolean).join(", ");
  return [
    element("span", {}, mismatches === 1 ? "1 element differs:" : `${mismatches} elements differ, first:`),
    element("span", {}, where),
    element("span", {}, "observed ", element("b", {}, observed), ", computed ", element("b", {}, computed)),
  ];
}

function contradiction({ call, channel, zero_point: zero, shift, elements }, several) {
  const tried = [zero != null && `zero point ${zero}`, shift != null && `shift ${shift}`];
  const where = [several && `call ${call + 1}`, channel > 0 && `channel ${channel}`, ...tried].filter(Boolean).join(", ");
  return element("span", {}, elements.length === 1 ? `Nothing fits element ${elements[0]} (${where})` : `Nothing fits elements ${elements.join(" and ")} (${where})`);
}

/** Candidates that refuse the calls, and those that were not reached. */
export function leftOut({ undefined: refused = [], not_tried: late = [] }) {
  if (refused.length === 0 && late.length === 0) return null;
  return element(
    "details",
    { class: "card left-out" },
    element("summary", {}, element("h2", {}, late.length ? "Not defined, or not tried" : "Not defined for these calls")),
    element("ul", { class: "sentences" }, refused.map(({ candidates, reason }) => element("li", {}, candidateLines(candidates), element("span", { class: "hint" }, reason)))),
    late.length > 0 && element("div", {}, element("h3", {}, "Not tried in time"), candidateLines(late)),
  );
}
