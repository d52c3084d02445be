import { errorText } from "../conversion/errors.js";
import { element } from "../dom.js";

/** What saturated and was NaN, and the error against the numbers, a row for each profile. */
export function countsTable(conversions) {
  const heads = ["Profile", "Saturated low", "Saturated high", "NaN", "Largest error", "Mean error", "SQNR"];
  return element(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Saturation, NaN and errors by profile" },
    element(
      "table",
      {},
      element("thead", {}, element("tr", {}, heads.map((head, index) => element("th", { scope: "col", class: index ? "number" : "" }, head)))),
      element("tbody", {}, conversions.map(row)),
    ),
  );
}

function row({ profile, report, error, pending }) {
  // While it is measured there is no error, and where nothing is defined there will be none.
  const { max_absolute_error: largest, mean_absolute_error: mean, sqnr_db: sqnr } = error ?? {};
  const none = pending ? "…" : "–";
  return element(
    "tr",
    {},
    element("th", { scope: "row" }, profile),
    [report.saturated_low, report.saturated_high, report.nan].map((count) =>
      element("td", { class: count ? "number some" : "number" }, String(count)),
    ),
    [largest, mean].map((error) => element("td", { class: "number" }, measure(error) ?? none)),
    element("td", { class: "number" }, measure(sqnr)?.concat(" dB") ?? none),
  );
}

function measure(value) {
  return value === undefined || value === null ? undefined : errorText(Number(value)).replace(/^\+/, "");
}
