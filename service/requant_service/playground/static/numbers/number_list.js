/** Numbers as people type and paste them. */
import { itemsOf } from "./items.js";

const WORDS = new Map([
  ["nan", NaN],
  ["inf", Infinity],
  ["infinity", Infinity],
  ["-inf", -Infinity],
  ["-infinity", -Infinity],
  ["+inf", Infinity],
  ["+infinity", Infinity],
]);
const DECIMAL = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i;

/**
 * Read numbers with white space, commas or semicolons between them and any brackets around them.
 * @throws {Error} that says which item is not a number, or that there are too many or none
 */
export function readNumbers(text, most) {
  return itemsOf(text, most, "number").map(numberOf);
}

function numberOf(item, index) {
  const lower = item.toLowerCase();
  if (WORDS.has(lower)) return WORDS.get(lower);
  if (!DECIMAL.test(item)) throw new Error(`Item ${index + 1} is not a number. NaN, inf and -inf are accepted.`);
  return Number(item);
}

/** Read numbers as they travel in JSON: integers of up to 64 bits, and others. @throws {Error} as `readNumbers` does */
export function readJsonNumbers(text, most) {
  return itemsOf(text, most, "number").map((item, index) =>
    /^[-+]?\d{16,20}$/.test(item) ? jsonInteger(String(BigInt(item.replace("+", "")))) : jsonNumber(numberOf(item, index)),
  );
}

/** A double holds integers of up to 53 bits. */
export function jsonInteger(text) {
  if (Number.isSafeInteger(Number(text))) return Number(text);
  if (!JSON.rawJSON) throw new Error("This browser can send integers of up to 53 bits only.");
  return JSON.rawJSON(text);
}

/** A number as it is typed and read back. */
export function numberText(value) {
  if (Object.is(value, -0)) return "-0";
  if (Math.abs(value) === Infinity) return value > 0 ? "inf" : "-inf";
  return String(value);
}

/** A number as it travels in JSON. */
export function jsonNumber(value) {
  return Number.isFinite(value) ? value : String(value);
}

/** The fewest digits that give the same f32. */
export function shortestFloat32(value) {
  if (!Number.isFinite(value) || value === 0) return value;
  for (let digits = 6; digits < 9; digits += 1) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === value) return short;
  }
  return Number(value.toPrecision(9));
}
