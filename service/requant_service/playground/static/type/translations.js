import { element } from "../dom.js";

const TITLES = { onnx: "ONNX", onednn: "oneDNN Graph", litert: "LiteRT", torch: "PyTorch", tosa: "TOSA", stablehlo: "StableHLO", mlir: "MLIR" };
const ORDER = Object.keys(TITLES);
const MAX_LISTED = 16;

/** The reply of /v1/types/translate: a card for each system. */
export function translations({ translations: found }) {
  const place = ({ system }) => ORDER.indexOf(system);
  const sorted = [...found].sort((a, b) => place(a) - place(b));
  return element("div", { class: "systems" }, sorted.map(card));
}

function card(translation) {
  const { system, expressible, exact, reason, losses, rounded, rounded_count: roundedCount, operators, opset } = translation;
  const verdict = !expressible ? "✗ not expressible" : exact ? "✓ exact" : losses.length ? "≈ with losses" : "≈ rounded";
  return element(
    "section",
    { class: "card system" },
    element("h3", {}, TITLES[system] ?? system, element("span", { class: `verdict ${!expressible ? "fails" : exact ? "passes" : "partly"}` }, verdict)),
    reason && element("p", {}, sentence(reason)),
    losses.map((loss) => element("p", {}, sentence(loss))),
    roundedCount > 0 && element("p", {}, `${roundedCount === 1 ? "A scale is" : `${roundedCount} scales are`} rounded: ${rounded.map(roundedText).join(", ")}${roundedCount > rounded.length ? ", …" : ""}`),
    expressible && operands(translation),
    operators?.length > 0 && element("p", { class: "hint" }, `${operators.join(", ")}${opset ? `, from opset ${opset}` : ""}`),
  );
}

function roundedText({ scale, becomes, quotient }) {
  return `${scale ?? quotient ?? ""} → ${becomes}`;
}

/** The system's own parameters by its own names. */
function operands(translation) {
  const own = translation[translation.system];
  if (!own) return element("pre", { class: "code" }, translation.type);
  return element("dl", { class: "facts" }, Object.entries(own).map(([name, value]) => [element("dt", {}, element("code", {}, name)), element("dd", {}, element("code", {}, valueText(value)))]));
}

function valueText(value) {
  if (!Array.isArray(value)) return String(value);
  const more = value.length > MAX_LISTED ? ", …" : "";
  return `[${value.slice(0, MAX_LISTED).join(", ")}${more}]`;
}

function sentence(text) {
  const upper = text[0].toUpperCase() + text.slice(1);
  return upper.endsWith(".") ? upper : `${upper}.`;
}
