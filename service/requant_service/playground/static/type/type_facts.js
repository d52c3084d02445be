import { element } from "../dom.js";

const MAX_SCALES = 64;
const ASKED = { mlir: "MLIR", qcast: "quant.qcast", dcast: "quant.dcast", scast: "quant.scast", stablehlo: "StableHLO" };

/** What the service's parser says of a type. */
export function typeFacts(parsed) {
  const facts = [
    ["Canonical text", element("code", {}, parsed.canonical)],
    parsed.storage && ["Stored", `${parsed.storage}, ${parsed.bits} bits, ${parsed.storage_min} to ${parsed.storage_max}`],
    parsed.expressed && ["Expressed", parsed.expressed],
    parsed.scales.length === 1 && ["Scale", element("span", {}, parsed.scales[0], " ", element("code", { class: "hint" }, parsed.scale_bits[0]))],
    parsed.scales.length > 1 && ["Scales", listed(parsed.scales)],
    parsed.scales.length > 0 && [parsed.zero_points.length > 1 ? "Zero points" : "Zero point", listed(parsed.zero_points)],
    parsed.shape.length > 0 && ["Shape", parsed.shape.map((size) => (size < 0 ? "?" : size)).join(" × ")],
  ];
  return [
    element("h2", {}, "As parsed"),
    element("dl", { class: "facts" }, facts.filter(Boolean).map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])),
    element("h3", {}, "Accepted by"),
    element(
      "ul",
      { class: "checks" },
      parsed.checks.map(({ name, passes, reason }) =>
        element(
          "li",
          { class: passes ? "passes" : "fails" },
          element("span", { class: "verdict" }, passes ? "✓ yes" : "✗ no"),
          element("span", {}, ASKED[name] ?? name),
          reason && element("span", { class: "hint" }, ` ${reason}`),
        ),
      ),
    ),
  ];
}

function listed(values) {
  const more = values.length > MAX_SCALES ? `, … (${values.length} in all)` : "";
  return values.slice(0, MAX_SCALES).join(", ") + more;
}
