/** JSON and Python literals, laid out for reading: what fits is on one line, and lists of numbers always are. */
import { jsonText } from "../service/api.js";

const WIDTH = 96;
const INDENT = "  ";

/** @returns {string} JSON text */
export function jsonLiteral(value, margin = "") {
  return laidOut(value, margin, INDENT, (scalar) => jsonText(scalar));
}

/** @returns {string} a Python literal of what `json.loads` would make of the JSON */
export function pythonLiteral(value, margin = "") {
  return laidOut(value, margin, INDENT.repeat(2), pythonScalar);
}

// Strings: JSON's escapes mean the same in Python.
function pythonScalar(value) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  return jsonText(value);
}

function laidOut(value, margin, indent, scalar) {
  if (isScalar(value)) return scalar(value);
  const list = Array.isArray(value);
  const [open, close] = list ? "[]" : "{}";
  const members = (within) =>
    list
      ? value.map((each) => laidOut(each, within, indent, scalar))
      : Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${laidOut(each, within, indent, scalar)}`);
  const line = `${open}${members(margin).join(", ")}${close}`;
  const short = !line.includes("\n") && margin.length + line.length <= WIDTH;
  if (short || (list && value.every(isScalar))) return line;
  const inner = margin + indent;
  return `${open}\n${members(inner)
    .map((member) => inner + member)
    .join(",\n")}\n${margin}${close}`;
}

// JSON.rawJSON makes objects of numbers that a double cannot hold.
function isScalar(value) {
  return value === null || typeof value !== "object" || JSON.isRawJSON?.(value) === true;
}
