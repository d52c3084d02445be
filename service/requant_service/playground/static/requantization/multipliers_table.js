import { answered } from "../comparison/differences.js";
import { element } from "../dom.js";
import { nameOf } from "./requantize.js";

const MAX_SHOWN = 4;
const HEADS = ["Profile or scheme", "Multiplier", "Shift", "Saturated low", "Saturated high"];

/** The multiplier and shift that each profile or scheme used, and what saturated. */
export function multipliersTable(requantizations) {
  const done = answered(requantizations);
  if (done.length === 0) return null;
  return element(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Multiplier, shift and saturation" },
    element(
      "table",
      {},
      element("thead", {}, element("tr", {}, HEADS.map((head, index) => element("th", { scope: "col", class: index ? "number" : "" }, head)))),
      element("tbody", {}, done.map(row)),
    ),
  );
}

function row({ profile, multipliers, report }) {
  return element(
    "tr",
    {},
    element("th", { scope: "row" }, profile, usedScheme(profile, report)),
    element("td", { class: "number" }, listed(multipliers.map((each) => each.multiplier))),
    element("td", { class: "number" }, listed(multipliers.map((each) => each.shift))),
    [report.saturated_low, report.saturated_high].map((count) => element("td", { class: count ? "number some" : "number" }, String(count))),
  );
}

/** The scheme, unless the name says it. */
function usedScheme(profile, { scheme }) {
  if (!scheme) return element("span", { class: "hint" }, " dequantizes and quantizes");
  return scheme === nameOf(profile) ? null : element("span", { class: "hint" }, ` by ${scheme}`);
}

function listed(numbers) {
  if (numbers.length === 0) return "–";
  return numbers.slice(0, MAX_SHOWN).join(", ") + (numbers.length > MAX_SHOWN ? ", …" : "");
}
